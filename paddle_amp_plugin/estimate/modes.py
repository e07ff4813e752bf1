"""FP32, O1 and O2 side by side: the parts of the memory of one step, and the largest batch that fits (pure)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from paddle_amp_plugin.estimate.lifetime import Usage, usage
from paddle_amp_plugin.estimate.policy import Policy, apply
from paddle_amp_plugin.estimate.trace_model import Trace, TracedModel, Value
from paddle_amp_plugin.op_rules import HALF_DTYPES

#: No batch beyond this one is looked for.
LARGEST_SEARCHED = 1 << 20
#: The parts of ``Parts`` that add up to the total, in the order they are shown.
PARTS = ("weights", "masters", "gradients", "states", "copies", "batch", "activations", "temporary", "reserve")


@dataclass(frozen=True)
class Mode:
    """One precision. ``name``: ``FP32``, ``O1``, ``OD`` or ``O2``; ``dtype``: of its half tensors, or float32.

    ``accumulated``: several backward passes make an update; ``copies``: bytes of what a run keeps besides, whatever
    the batch (an average of the weights, the last good norm statistics).
    """

    name: str
    dtype: str
    policy: Policy
    master_weight: bool = False
    master_grad: bool = False
    accumulated: bool = False
    copies: int = 0


@dataclass(frozen=True)
class Parts:
    """Bytes at the highest point of one step, of ``batch`` samples a backward pass.

    ``weights``: parameters and buffers as the model holds them; ``masters``: the FP32 values behind half ones;
    ``states``: the optimizer's; ``copies``: the moving average of the weights and the last good norm statistics;
    ``batch``: the data itself; ``activations``: kept by the forward pass; ``temporary``:
    gradients of activations and the op at the highest point, or what ``optimizer.step()`` takes; ``reserve``: as asked
    for. ``where``: ``forward``, ``backward``, ``gradients`` (the sum over the passes of an update is made) or ``step``;
    ``op`` and ``layer``: which one (of a forward or backward pass).
    """

    samples: int
    weights: int
    masters: int
    gradients: int
    states: int
    copies: int
    batch: int
    activations: int
    temporary: int
    reserve: int
    where: str
    op: str
    layer: str

    @property
    def total(self) -> int:
        return sum(getattr(self, part) for part in PARTS)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "total": self.total}


def parts(traced: TracedModel, mode: Mode, samples: int, *, reserve: int = 0) -> Parts:
    """The parts of one step of ``samples`` samples in ``mode``."""
    if traced.same_ops:
        return _parts(traced.at(samples), mode, reserve)
    small, large = (_parts(trace, mode, reserve) for trace in (traced.small, traced.large))
    found: dict[str, Any] = {part: traced.line(samples, getattr(small, part), getattr(large, part)) for part in PARTS}
    return replace(large, samples=samples, **found)


def _parts(plain: Trace, mode: Mode, reserve: int) -> Parts:
    trace = apply(plain, mode.policy)
    weights, trained = [*trace.parameters(), *trace.buffers()], trained_parameters(trace)
    halves = sum(v.nbytes for v in weights if v.dtype in HALF_DTYPES)
    top = usage(trace)
    points = _points(trace, mode, trained, top)
    where = max(points, key=lambda name: sum(points[name]))
    gradients, activations, temporary = points[where]
    call = trace.calls[top.where] if where in ("forward", "backward") and trace.calls else None
    return Parts(
        samples=trace.batch,
        weights=sum(v.nbytes for v in weights),
        masters=2 * halves if mode.master_weight else 0,
        gradients=gradients,
        states=trace.state_bytes,
        copies=mode.copies,
        batch=trace.batch_bytes,
        activations=activations,
        temporary=temporary,
        reserve=reserve,
        where=where,
        op=call.op if call else "",
        layer=call.layer if call else "",
    )


def _points(trace: Trace, mode: Mode, trained: list[Value], top: Usage) -> dict[str, tuple[int, int, int]]:
    """Bytes of (parameters' gradients, activations, temporary) at each point that may be the highest.

    With ``master_grad`` Paddle casts half gradients to FP32 when the pass is over; until then those of the step, or of
    the passes, before are there. Where passes are added up, both FP32 ones are for a moment (``master_grads``).
    """
    gradients = sum(v.nbytes for v in trained)
    half = sum(v.nbytes for v in trained if v.dtype in HALF_DTYPES)
    full = gradients + half
    masters = 2 * half if mode.master_grad else 0
    kept = full if mode.master_grad else gradients
    step = trace.step_workspace * kept // full if full else trace.step_workspace
    points = {
        "backward" if top.backward else "forward": (gradients + masters, top.activations, top.temporary),
        "step": (kept, 0, step),
    }
    if mode.accumulated and masters:
        points["gradients"] = (full + masters, 0, 0)
    return points


def trained_parameters(trace: Trace) -> list[Value]:
    """The parameters that get a gradient in this step, each storage once."""
    reached = {step.call for step in trace.backward}
    found: dict[int, Value] = {}
    for number in reached:
        for position in trace.calls[number].inputs:
            value = trace.values[position]
            if value.kind == "parameter" and value.requires_grad:
                found.setdefault(value.storage, value)
    return list(found.values())


def largest_batch(traced: TracedModel, mode: Mode, memory: int, *, reserve: int = 0) -> int:
    """The most samples a backward pass can have within ``memory`` bytes; 0 if not one fits.

    Memory grows with the batch, so the answer is searched by halving.
    """

    def fits(samples: int) -> bool:
        return parts(traced, mode, samples, reserve=reserve).total <= memory

    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= LARGEST_SEARCHED and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
