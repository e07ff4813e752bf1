"""The armed watch of one step: what every layer (and, under software half, every op) let in and out.

Nothing of it exists outside the ``with`` block: ``forward`` of each layer is wrapped on entering and as before on
leaving. A tensor is measured once, where it is first seen: a container that hands on its last child's output costs
nothing and gets no line of its own. The step's numbers are not changed: no op of the model runs differently, no
random number is drawn, no buffer is touched.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.diagnosis import ops as op_trace
from paddle_amp_plugin.diagnosis.ops import OpCall
from paddle_amp_plugin.diagnosis.state import random_state
from paddle_amp_plugin.diagnosis.stats import Meter, Stat, float_tensors, is_float_tensor

RING = 64


@dataclass(eq=False)
class Seen:
    """One tensor value: where its stat is, who made it, and the gradients that reached it (in order of arrival)."""

    stat: int
    dtype: str
    constant: bool  # no gradient flows through it: data, a mask, a constant
    op: OpCall | None = None
    layer: LayerCall | None = None
    hooked: bool = False
    grads: list[tuple[int, int]] = field(default_factory=list)  # (backward order, stat)


@dataclass(eq=False)
class LayerCall:
    """One call of one layer. ``order``: by completion, so a child comes before its parent.

    ``own``: the outputs first seen as this layer's (empty for a container that hands on its child's).
    """

    name: str
    type: str
    layer: paddle.nn.Layer
    nth: int
    parent: LayerCall | None
    depth: int
    order: int = -1
    inputs: list[Seen] = field(default_factory=list)
    outputs: list[Seen] = field(default_factory=list)
    own: list[Seen] = field(default_factory=list)
    ops: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """What this call is called in another run of the same batch."""
        return (self.name, self.nth)


class LayerWatch:
    """``with LayerWatch(model) as watch:`` around forward, loss and backward of one step.

    ``ops``: also the single ops, where software half runs them. ``op_gradients``: also the gradients that reach each
    op's outputs (dearer). ``tiny``: count the gradients that float16 would lose. ``calls`` and ``op_calls`` are in
    execution order; ``ring`` holds the last layers of forward and backward; ``rng`` is the random state on entering.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        *,
        ops: bool = True,
        op_gradients: bool = False,
        tiny: bool = False,
        by_ops: bool = False,
    ) -> None:
        self.model = autocast.inner(model)
        self.meter = Meter(by_ops=by_ops)
        self.calls: list[LayerCall] = []
        self.op_calls: list[OpCall] = []
        self.ring: deque[tuple[str, str]] = deque(maxlen=RING)
        self.root_inputs: Any = None
        self.root_outputs: Any = None
        self.parameters: dict[str, int] = {}  # name -> stat of its gradient
        self.traced_ops = False
        self._ops, self._op_gradients, self._tiny = ops, op_gradients, tiny
        self._seen: dict[int, tuple[Any, int, Seen]] = {}
        self._stack: list[LayerCall] = []
        self._counts: dict[str, int] = {}
        self._outside: dict[str, int] = {}
        self._backward = 0
        self._armed = False
        self._busy = False
        self._exit = ExitStack()

    # -- arming ------------------------------------------------------------------------------------------

    def __enter__(self) -> LayerWatch:
        self.rng = random_state()
        for name, layer in self.model.named_sublayers(include_self=True):
            self._exit.callback(_restore_forward, layer, layer.__dict__.get("forward"))
            object.__setattr__(layer, "forward", self._wrapped(name, layer, layer.forward))
        if self._ops:
            self.traced_ops = self._exit.enter_context(op_trace.listen(self._on_op))
        self._armed = True
        return self

    def __exit__(self, *failure: Any) -> None:
        self.forward_done()
        if not self.parameters:
            self.read_gradients()
        self._armed = False
        self.meter.read()
        self._seen.clear()

    def forward_done(self) -> None:
        """Takes the wrappers off the layers; gradients are still watched until the block ends."""
        self._exit.close()

    def read_gradients(self) -> None:
        """Measures the gradients of all parameters as they are now (before they are unscaled or cleared)."""
        from paddle_amp_plugin.scaler import gradient

        for name, parameter in self.model.named_parameters():
            grad = None if parameter.stop_gradient else gradient(parameter)
            if grad is not None and is_float_tensor(grad):
                self.parameters[name] = self.meter.measure(grad, tiny=self._tiny)

    # -- while a step runs -----------------------------------------------------------------------------------

    def _wrapped(self, name: str, layer: paddle.nn.Layer, forward: Any) -> Any:
        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            call = self._enter_layer(name, layer, (args, kwargs))
            try:
                result = forward(*args, **kwargs)
                self._leave_layer(call, result)
                return result
            finally:
                while self._stack and self._stack.pop() is not call:
                    pass

        return watched

    def _enter_layer(self, name: str, layer: paddle.nn.Layer, inputs: Any) -> LayerCall:
        parent = self._stack[-1] if self._stack else None
        nth = self._counts.get(name, 0)
        self._counts[name] = nth + 1
        call = LayerCall(name, type(layer).__name__, layer, nth, parent, len(self._stack))
        for tensor in float_tensors(inputs):
            call.inputs.append(self._look(tensor))
            self._hook(tensor, call.inputs[-1], parent)
        if parent is None:
            self.root_inputs = inputs
        self._stack.append(call)
        return call

    def _leave_layer(self, call: LayerCall, result: Any) -> None:
        for tensor in float_tensors(result):
            seen = self._look(tensor)
            if seen.layer is None and not any(seen is i for i in call.inputs):
                seen.layer = call
                call.own.append(seen)
            call.outputs.append(seen)
            self._hook(tensor, seen, call)
        if call.parent is None:
            self.root_outputs = {str(k) for k in result} if isinstance(result, dict) else None
        call.order = len(self.calls)
        self.calls.append(call)
        self.ring.append(("forward", call.name))

    def _on_op(self, op: str, dtype: str, inputs: Any, outputs: Any) -> None:
        if self._busy:
            return
        layer = self._stack[-1] if self._stack else None
        counts = self._outside if layer is None else layer.ops
        nth = counts.get(op, 0)
        counts[op] = nth + 1
        call = OpCall(op, dtype, layer, len(self.op_calls), nth, len(self.calls))
        for tensor in float_tensors(inputs):
            call.inputs.append(self._look(tensor))
            if self._op_gradients:
                self._hook(tensor, call.inputs[-1], layer)
        for tensor in float_tensors(outputs):
            call.outputs.append(self._look(tensor, made_by=call))
            if self._op_gradients:
                self._hook(tensor, call.outputs[-1], layer)
        self.op_calls.append(call)

    def _look(self, tensor: paddle.Tensor, made_by: OpCall | None = None) -> Seen:
        """The record of a tensor's present value; it is measured if it was not met before."""
        entry = self._seen.get(id(tensor))
        version = tensor.inplace_version
        if entry is not None and entry[0]() is tensor and entry[1] == version and made_by is None:
            return entry[2]
        dtype = str(tensor.dtype).rsplit(".", 1)[-1].lower()
        moved = made_by is not None and made_by.op in op_trace.MOVING and len(made_by.inputs) == 1
        if moved and made_by.inputs[0].dtype == dtype:
            stat = made_by.inputs[0].stat
        else:
            self._busy = True
            try:
                stat = self.meter.measure(tensor)
            finally:
                self._busy = False
        seen = Seen(stat, dtype, bool(tensor.stop_gradient), made_by)
        self._seen[id(tensor)] = (weakref.ref(tensor), version, seen)
        return seen

    def _hook(self, tensor: paddle.Tensor, seen: Seen, call: LayerCall | None) -> None:
        if seen.hooked or tensor.stop_gradient:
            return
        seen.hooked = True

        def arrived(grad: paddle.Tensor) -> None:
            if self._armed and is_float_tensor(grad):
                self._busy = True
                try:
                    seen.grads.append((self._backward, self.meter.measure(grad, tiny=self._tiny)))
                finally:
                    self._busy = False
                self._backward += 1
                if call is not None:
                    self.ring.append(("backward", call.name))

        tensor.register_hook(arrived)

    # -- reading ---------------------------------------------------------------------------------------------

    def stat(self, seen: Iterable[Seen]) -> Stat:
        """The values of several tensors together."""
        return Stat.together(self.meter[s.stat] for s in seen)

    def grad_stat(self, seen: Iterable[Seen]) -> Stat | None:
        """The gradients that reached them (as computed: times the loss scale); None if none did."""
        found = [self.meter[index] for s in seen for _, index in s.grads]
        return Stat.together(found) if found else None

    def parameter_stat(self, names: Iterable[str] | None = None) -> Stat:
        """The gradients of the named (default: all) parameters together."""
        wanted = self.parameters if names is None else [n for n in names if n in self.parameters]
        return Stat.together(self.meter[self.parameters[n]] for n in wanted)

    @property
    def finite(self) -> bool:
        """Whether the step could be made: every parameter's gradient is finite (what the scaler tests)."""
        return self.parameter_stat().finite

    def network_names(self) -> tuple[str, ...]:
        """The sub-networks of a model that returns one entry for each of them (distillation); else empty."""
        children = [name for name, child in self.model.named_children() if child.parameters()]
        hits = tuple(n for n in children if self.root_outputs and n in self.root_outputs)
        return hits if len(hits) > 1 else ()


def _restore_forward(layer: paddle.nn.Layer, own: Any) -> None:
    layer.__dict__.pop("forward", None)
    if own is not None:
        object.__setattr__(layer, "forward", own)
