"""One traced training step: the ops that ran, their tensors, and how long each tensor lives (pure; no tensor in it).

Time is counted in ticks: call ``i`` of the forward pass is tick ``i``, step ``j`` of the backward pass is tick
``len(calls) + j``. All sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

Kind = Literal["parameter", "buffer", "input", "activation"]

ITEM_SIZES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}

#: A tensor that Python still holds when the step ends.
NEVER = 1 << 40


@dataclass(frozen=True)
class Value:
    """One tensor as autograd sees it. Views and in-place results are values of their own on the same ``storage``.

    ``released``: the tick during which the last Python reference went away. ``name``: of a parameter or buffer.
    """

    nbytes: int
    dtype: str
    storage: int
    requires_grad: bool
    kind: Kind
    released: int
    name: str = ""


@dataclass(frozen=True)
class Call:
    """One op call. ``inputs`` / ``outputs`` / ``saved`` are positions in ``Trace.values``.

    ``op``: its name in the AMP lists. ``saved``: what its gradient node keeps until it has run; ``kept_bytes``:
    what it keeps besides (statistics, masks that are no outputs). ``workspace``: bytes taken during the call
    beyond its outputs. ``inplace``: ``relu_`` and the like, which auto_cast leaves alone. ``in_model``: inside the
    model's own forward; the loss is outside. ``layer``: dotted name of the innermost layer.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    saved: tuple[int, ...]
    kept_bytes: int = 0
    workspace: int = 0
    inplace: bool = False
    in_model: bool = True
    layer: str = ""


@dataclass(frozen=True)
class BackwardStep:
    """The gradient node of call ``call`` runs.

    ``transient``: bytes above those in use at its start, at the highest point. ``in_use``: bytes at its start as the
    allocator counts them, less those at the start of the traced step (for checking the simulation).
    """

    call: int
    transient: int
    in_use: int = 0


@dataclass(frozen=True)
class Trace:
    """One step at one batch size.

    ``state_bytes``: the optimizer's accumulators (moments, powers), FP32; ``step_workspace``: bytes that
    ``optimizer.step()`` takes at its highest point (clipped or regularized copies of the gradients).
    ``batch_bytes``: the batch itself. ``peak``: the allocator's highest count in the step, less that at its start.
    """

    batch: int
    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    backward: tuple[BackwardStep, ...]
    batch_bytes: int = 0
    state_bytes: int = 0
    step_workspace: int = 0
    peak: int = 0
    notes: tuple[str, ...] = field(default=())

    def parameters(self) -> list[Value]:
        """Parameters, each storage once (a shared weight is one)."""
        return self._once("parameter")

    def buffers(self) -> list[Value]:
        return self._once("buffer")

    def _once(self, kind: Kind) -> list[Value]:
        found: dict[int, Value] = {}
        for value in self.values:
            if value.kind == kind:
                found.setdefault(value.storage, value)
        return list(found.values())


def same_shape(one: Trace, other: Trace) -> bool:
    """Whether two traces are the same program at different sizes."""
    return (
        [c.op for c in one.calls] == [c.op for c in other.calls]
        and [(c.inputs, c.outputs, c.saved) for c in one.calls] == [(c.inputs, c.outputs, c.saved) for c in other.calls]
        and [v.storage for v in one.values] == [v.storage for v in other.values]
        and [s.call for s in one.backward] == [s.call for s in other.backward]
    )


@dataclass(frozen=True)
class TracedModel:
    """Two traces of the same step at different batch sizes: every size is a line ``a + b * batch`` through them."""

    small: Trace
    large: Trace

    @cached_property
    def same_ops(self) -> bool:
        """Whether both are the same program; not so for a model that loops over its samples."""
        return same_shape(self.small, self.large)

    def line(self, batch: int, low: int, high: int) -> int:
        """The value at ``batch`` of what is ``low`` in the small trace and ``high`` in the large one; not below 0."""
        span = self.large.batch - self.small.batch
        return max(0, low + round((high - low) * (batch - self.small.batch) / span))

    def at(self, batch: int) -> Trace:
        """The step at ``batch`` samples, if both are the same program."""

        def line(low: int, high: int) -> int:
            return self.line(batch, low, high)

        values = tuple(
            replace(v, nbytes=line(v.nbytes, w.nbytes))
            for v, w in zip(self.small.values, self.large.values, strict=True)
        )
        calls = tuple(
            replace(c, kept_bytes=line(c.kept_bytes, d.kept_bytes), workspace=line(c.workspace, d.workspace))
            for c, d in zip(self.small.calls, self.large.calls, strict=True)
        )
        backward = tuple(
            replace(s, transient=line(s.transient, t.transient), in_use=line(s.in_use, t.in_use))
            for s, t in zip(self.small.backward, self.large.backward, strict=True)
        )
        return replace(
            self.small,
            batch=batch,
            values=values,
            calls=calls,
            backward=backward,
            batch_bytes=line(self.small.batch_bytes, self.large.batch_bytes),
            step_workspace=line(self.small.step_workspace, self.large.step_workspace),
            peak=line(self.small.peak, self.large.peak),
        )
