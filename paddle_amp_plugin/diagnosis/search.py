"""The smallest change under which the step is finite, found by running the step again with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import paddle

from paddle_amp_plugin.diagnosis.ops import first_checked_op
from paddle_amp_plugin.diagnosis.replay import Replayed, Subject, replay
from paddle_amp_plugin.diagnosis.suspects import Pin, Suspect, Twins, backward_suspects, forward_suspects, remedies
from paddle_amp_plugin.diagnosis.watch import LayerWatch
from paddle_amp_plugin.op_names import amp_name

#: So many remedies at once are no remedy: rather another dtype.
MOST_PINS = 12
#: Replays of one search, at most.
MOST_REPLAYS = 40


@dataclass
class Found:
    """``pins`` with the suspect each was found for; ``finite``: the step is, with them, at the lowest scale.

    ``culprit``: the first suspect with a part in it. A pin that was not needed any more once a layer around it was
    pinned has one too, unless it was for a mask's constant, which may have been harmless.
    """

    pins: list[Pin] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    finite: bool = False
    first: Suspect | None = None
    culprit: Suspect | None = None


def _replay(subject: Subject, pins: list[Pin], scale: float, op_gradients: bool = False) -> Replayed:
    return replay(
        subject,
        layers=[p.name for p in pins if p.kind == "layer"],
        ops=[p.name for p in pins if p.kind == "op"],
        scale=scale,
        op_gradients=op_gradients,
    )


def find_pins(subject: Subject, run: LayerWatch, twins: Twins, scale: float, limit: float) -> Found:
    """Pins one suspect after the other until the step is finite at ``scale``, then takes back what was not needed.

    An infinity can be harmless (a mask that a softmax turns into zeros), and a pinned layer can hand a large value on
    to the next; so a suspicion counts only if the step needs its remedy.
    """
    found = Found()
    end = subject.replays + MOST_REPLAYS
    tried: set[Pin] = set()
    while len(found.pins) < MOST_PINS and subject.replays < end:
        suspects = forward_suspects(run, twins, limit) or _backward(subject, found.pins, twins, scale)
        _ask_checker(subject, suspects, run)
        found.first = found.first or (suspects[0] if suspects else None)
        choice = _next(suspects, run, tried)
        if choice is None:
            return found
        suspect, pin = choice
        tried.add(pin)
        found.pins.append(pin)
        found.suspects.append(suspect)
        again = _replay(subject, found.pins, scale)
        if again.finite:
            found.finite = True
            everything = list(zip(found.pins, found.suspects, strict=True))
            _take_back(subject, found, scale)
            found.culprit = next(s for p, s in everything if p in found.pins or _within(p, s, found.pins, limit))
            return found
        assert again.watch is not None
        run = again.watch
    return found


def _ask_checker(subject: Subject, suspects: list[Suspect], run: LayerWatch) -> None:
    """On a device ops are not traced; Paddle's checker names the op where a layer runs several itself."""
    first = next((s for s in suspects if s.where == "forward"), None)
    if (
        run.traced_ops
        or not paddle.is_compiled_with_cuda()
        or first is None
        or first.layer is None
        or not list(first.layer.layer.children())
    ):
        return
    name = first_checked_op(lambda: replay(subject, watch=False))
    first.checked = amp_name(name, paddle.__version__.split(".", 1)[0]) if name else None


def _next(suspects: list[Suspect], run: LayerWatch, tried: set[Pin]) -> tuple[Suspect, Pin] | None:
    """The first choice of every suspect comes before anybody's second."""
    choices = [(suspect, remedies(suspect, run)) for suspect in suspects]
    for rank in range(max((len(pins) for _, pins in choices), default=0)):
        for suspect, pins in choices:
            if rank < len(pins) and pins[rank] not in tried:
                return suspect, pins[rank]
    return None


def _backward(subject: Subject, pins: list[Pin], twins: Twins, scale: float) -> list[Suspect]:
    watch = _replay(subject, pins, scale, op_gradients=True).watch
    assert watch is not None
    if twins.with_gradients is None:
        clean = replay(subject, float32=True, op_gradients=True).watch
        assert clean is not None
        twins.with_gradients = Twins(clean)
    return backward_suspects(watch, twins.with_gradients, scale)


def _within(pin: Pin, suspect: Suspect, kept: list[Pin], limit: float) -> bool:
    inside = any(pin.kind == p.kind == "layer" and pin.name.startswith(f"{p.name}.") for p in kept)
    return inside and not suspect.constant and (suspect.value or 0.0) > limit


def _take_back(subject: Subject, found: Found, scale: float) -> None:
    for pin in list(reversed(found.pins)):
        rest = [p for p in found.pins if p != pin]
        if rest and _replay(subject, rest, scale).finite:
            index = found.pins.index(pin)
            del found.pins[index], found.suspects[index]


def find_scale(subject: Subject, pins: list[Pin], lowest: float, limit: float) -> float | None:
    """The largest loss scale, at most the run's own, at which the step is finite with ``pins``; None if at none.

    The gradients at the lowest scale say where to look; the step is run again to be sure.
    """
    low = _replay(subject, pins, lowest)
    if not low.finite:
        return None
    assert low.watch is not None
    watch = low.watch
    tops = [watch.meter[stat].absmax for call in watch.calls for s in call.outputs for _, stat in s.grads]
    top = max([*tops, watch.parameter_stat().absmax, 2.0**-149])
    scale = min(subject.scale, lowest * 2.0 ** math.floor(math.log2(max(limit / top, 1.0))))
    while scale > lowest:
        if _replay(subject, pins, scale).finite:
            return scale
        scale = max(scale / 2.0, lowest)
    return lowest
