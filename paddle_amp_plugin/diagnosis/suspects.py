"""Who could it have been: the ops and layers where a step in half left the range and its FP32 twin did not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import paddle

from paddle_amp_plugin.diagnosis.ops import MOVING, OpCall
from paddle_amp_plugin.diagnosis.stats import Stat
from paddle_amp_plugin.diagnosis.watch import LayerCall, LayerWatch, Seen
from paddle_amp_plugin.op_rules import HALF_DTYPES, SAFE_BLACK_LIST

#: A layer with more of the model's parameters than this is not pinned while a smaller remedy is left.
LARGE = 0.25
#: And one with more than this never is: that would be switching AMP off under another name.
TOO_LARGE = 0.6
#: How many tensors are looked at on the way back from a suspect to who made its input.
_FARTHEST = 12


@dataclass(frozen=True)
class Pin:
    """What is to be changed: keep the ``layer`` or the ``op`` called ``name`` in FP32, or keep the loss scale at
    ``scale`` at most (kind ``scale``); kind None: nothing that can be pinned.
    """

    kind: str | None = None
    name: str = ""
    scale: float | None = None


@dataclass(eq=False)
class Suspect:
    """A place where the range was left. ``layer``: the innermost layer call (None: outside the model)."""

    layer: LayerCall | None
    op: OpCall | None
    where: str  # forward | backward
    order: int
    value: float | None = None  # the magnitude the FP32 twin has there
    constant: bool = False  # the value belongs to a tensor that no gradient flows through
    first: bool = True  # its inputs were finite
    checked: str | None = None  # the op's AMP name as a device's checker gave it, where ops are not traced

    @property
    def name(self) -> str | None:
        """The layer's qualified name; None for the model itself and for what lies outside it."""
        return self.layer.name or None if self.layer is not None else None

    @property
    def op_name(self) -> str | None:
        """The op's AMP name, if it is known."""
        return self.op.op if self.op is not None else self.checked

    @property
    def in_half(self) -> bool:
        return self.op is None or self.op.dtype in HALF_DTYPES


class Twins:
    """Where each op and layer of a run has its counterpart in the FP32 replay."""

    def __init__(self, clean: LayerWatch) -> None:
        self.clean = clean
        self.with_gradients: Twins | None = None  # the same with the gradients of every op
        self._ops = {call.key: call for call in clean.op_calls}
        self._layers = {call.key: call for call in clean.calls}

    def of(self, call: OpCall | LayerCall) -> Any:
        return self._ops.get(call.key) if isinstance(call, OpCall) else self._layers.get(call.key)

    def also_bad(self, call: OpCall | LayerCall) -> bool:
        """FP32 is not finite there either: it was meant (a mask of -inf), or is somebody else's fault."""
        twin = self.of(call)
        return twin is not None and not self.clean.stat(twin.outputs).finite

    def unexpected(self, run: LayerWatch, call: OpCall | LayerCall) -> list[Seen]:
        """The inputs that are not finite though the twin's are."""
        twin = self.of(call)
        pairs: list[Seen | None] = list(twin.inputs) if twin is not None else []
        pairs += [None] * (len(call.inputs) - len(pairs))
        return [
            seen
            for seen, other in zip(call.inputs, pairs, strict=False)
            if not run.meter[seen.stat].finite and (other is None or self.clean.meter[other.stat].finite)
        ]

    def value(self, call: OpCall | LayerCall, limit: float) -> tuple[float | None, bool]:
        """The magnitude that half cannot hold: of the twin's output, else of its input; and is it a constant's?"""
        twin = self.of(call)
        if twin is None and isinstance(call, OpCall) and call.layer is not None:
            twin = self.of(call.layer)
        if twin is None:
            return None, False
        out = self.clean.stat(twin.outputs).absmax
        beyond = [s for s in twin.inputs if self.clean.meter[s.stat].absmax > limit]
        if beyond and (out <= limit or all(s.constant for s in beyond)):
            top = max(beyond, key=lambda s: self.clean.meter[s.stat].absmax)
            return self.clean.meter[top.stat].absmax, top.constant
        return out, bool(twin.outputs) and all(s.constant for s in twin.outputs)


def forward_suspects(run: LayerWatch, twins: Twins, limit: float) -> list[Suspect]:
    """In execution order; those whose inputs were finite come before those that turned an infinity into NaN."""
    found = _by_ops(run, twins) if run.traced_ops else _by_layers(run, twins)
    for suspect in found:
        call = suspect.op or suspect.layer
        if call is not None:
            suspect.value, suspect.constant = twins.value(call, limit)
    return sorted(found, key=lambda s: (not s.first, s.order))


def _by_ops(run: LayerWatch, twins: Twins) -> list[Suspect]:
    found: list[Suspect] = []
    for call in run.op_calls:
        out = run.stat(call.outputs)
        if out.finite or twins.also_bad(call):
            continue
        bad = twins.unexpected(run, call)
        # A bad input that no op made comes out of a cast: the cast is nobody's but this op's, if nothing was bad
        # before it.
        first = not bad or (all(s.op is None for s in bad) and not found)
        turned = bool(bad) and bool(out.nans) and not run.stat(bad).nans
        if first or turned:
            found.append(Suspect(call.layer, call, "forward", call.order, first=first))
    return found


def _by_layers(run: LayerWatch, twins: Twins) -> list[Suspect]:
    found: list[Suspect] = []
    for call in run.calls:
        if run.stat(call.own).finite or twins.also_bad(call):
            continue
        if twins.unexpected(run, call) or any(_inside(s.layer, call) for s in found):
            continue
        found.append(Suspect(call, None, "forward", call.order))
    return found


def _inside(call: LayerCall | None, other: LayerCall) -> bool:
    while call is not None:
        if call is other:
            return True
        call = call.parent
    return False


def _first_bad(run: LayerWatch, seen: list[Seen]) -> int | None:
    """When the first gradient that is not finite reached one of them."""
    bad = [order for s in seen for order, stat in s.grads if not run.meter[stat].finite]
    return min(bad, default=None)


def backward_suspects(run: LayerWatch, twins: Twins, scale: float) -> list[Suspect]:
    """Ops (else layers) that were given finite gradients and gave back one that is not, in backward order.

    If there is none, the layer whose output's gradient was the first not to be finite.
    """
    found: list[Suspect] = []
    calls: list[Any] = [*run.op_calls] if run._op_gradients and run.traced_ops else [*run.calls]
    for call in calls:
        arrived, order = run.grad_stat(call.outputs), _first_bad(run, [s for s in call.inputs if s not in call.outputs])
        if order is None and isinstance(call, LayerCall) and not _own_parameters(run, call).finite:
            order = max((o for s in call.outputs for o, _ in s.grads), default=0)
        if arrived is not None and arrived.finite and order is not None:
            layer, op = (call, None) if isinstance(call, LayerCall) else (call.layer, call)
            found.append(Suspect(layer, op, "backward", order))
    if not found:
        found = _first_gradient(run)
    for suspect in found:
        suspect.value = _gradient_value(suspect, twins, scale)
    return sorted(found, key=lambda s: (s.order, -(s.layer.depth if s.layer else 0)))


def _first_gradient(run: LayerWatch) -> list[Suspect]:
    reached = [(o, c) for c in run.calls if (o := _first_bad(run, c.own)) is not None]
    if not reached:
        return []
    order, call = min(reached, key=lambda pair: pair[0])
    return [Suspect(call, None, "backward", order)]


def _own_parameters(run: LayerWatch, call: LayerCall) -> Stat:
    prefix = f"{call.name}." if call.name else ""
    return run.parameter_stat(f"{prefix}{name}" for name in call.layer._parameters)


def _gradient_value(suspect: Suspect, twins: Twins, scale: float) -> float | None:
    """The largest FP32 gradient that the op (else the layer) gave back, times the scale."""
    twin = twins.of(suspect.op or suspect.layer) if suspect.op or suspect.layer else None
    if twin is None:
        return None
    top = (twins.clean.grad_stat([*twin.inputs, *twin.outputs]) or Stat()).absmax
    if suspect.op is None:
        top = max(top, _own_parameters(twins.clean, twin).absmax)
    return top * scale if math.isfinite(top) else None


def size_of(layer: paddle.nn.Layer) -> int:
    """Elements of all parameters of a layer."""
    return sum(math.prod(p.shape) for p in layer.parameters())


def remedies(suspect: Suspect, run: LayerWatch) -> list[Pin]:
    """What could be kept in FP32 to avoid it, the smallest first.

    An op that Paddle itself lists as unsafe is put on the black list; of others the layer around is pinned, so that
    all other matmuls of the model stay in half. Then who made its input (a value may have been rounded away there,
    or a gradient not fit there), then the layers around.
    """
    if suspect.layer is None and suspect.op is None:
        return []
    makers = _makers(suspect)
    if suspect.layer is None:  # the loss: it is in FP32 already
        return list(dict.fromkeys([*makers, *_last_layers(run)]))
    small, large = _around(suspect.layer, run)
    op = [Pin("op", suspect.op_name)] if suspect.op_name is not None and suspect.in_half else []
    if op and suspect.op_name in SAFE_BLACK_LIST:
        pins = [*op, *small[:1], *makers, *small[1:], *large]
    else:
        pins = [*small[:1], *op, *makers, *small[1:], *large]
    return list(dict.fromkeys(pins))


def _around(call: LayerCall | None, run: LayerWatch) -> tuple[list[Pin], list[Pin]]:
    """The layer and those around it, from the inside out: the small ones, the large ones."""
    total = max(size_of(run.model), 1)
    small: list[Pin] = []
    large: list[Pin] = []
    while call is not None and call.name:
        share = size_of(call.layer) / total if list(call.layer.children()) else 0.0
        if share <= TOO_LARGE:
            (small if share <= LARGE else large).append(Pin("layer", call.name))
        call = call.parent
    return small, large


def _makers(suspect: Suspect) -> list[Pin]:
    """The half ops and layers from which the suspect's input came, the nearest first, back to the next parameter."""
    pins: list[Pin] = []
    inputs = suspect.op.inputs if suspect.op is not None else suspect.layer.inputs if suspect.layer else []
    queue, met = list(inputs), 0
    while queue and met < _FARTHEST:
        seen, met = queue.pop(0), met + 1
        op, layer = seen.op, seen.layer or (seen.op.layer if seen.op is not None else None)
        if seen.dtype not in HALF_DTYPES and (op is None or op.dtype not in HALF_DTYPES):
            continue
        if layer is not None and layer.name and layer is not suspect.layer and layer.layer._parameters:
            pins.append(Pin("layer", layer.name))
        elif op is not None and op.dtype in HALF_DTYPES:
            if op.op not in MOVING:
                pins.append(Pin("op", op.op))
            queue += op.inputs
    return pins


def _last_layers(run: LayerWatch) -> list[Pin]:
    """The layers and half ops that made the model's outputs."""
    pins: list[Pin] = []
    for seen in run.calls[-1].outputs if run.calls else []:
        if seen.op is not None and seen.op.dtype in HALF_DTYPES:
            pins.append(Pin("op", seen.op.op))
        layer = seen.layer or (seen.op.layer if seen.op is not None else None)
        if layer is not None and layer.name:
            pins.append(Pin("layer", layer.name))
    return pins
