"""Is it AMP at all: what of the batch, the weights and the learning rate is not finite in FP32 either."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.diagnosis.replay import Replayed, Subject, forward_and_backward
from paddle_amp_plugin.diagnosis.state import set_random_state, untouched
from paddle_amp_plugin.diagnosis.stats import Meter, is_float_tensor, named_values, value_stat
from paddle_amp_plugin.diagnosis.watch import LayerWatch
from paddle_amp_plugin.scaler import gradient, optimizer_parameters

#: Plain FP32 updates tried on the batch, and how much the loss must have grown to call that diverging.
LOOK_AHEAD = 6
GROWTH = 100.0
SMALL_LOSS = 0.01  # growth is measured from here, where the first loss is smaller
#: Optimizers whose update does not depend on the gradient's magnitude; of the others it is rate times gradient.
_NORMALIZING = ("Adam", "Lamb", "RMSProp", "Adagrad", "Adadelta", "Lion", "NAdam", "RAdam")


@dataclass(frozen=True)
class NotAmp:
    """Why FP32 fails as well. ``kind``: data | weights | fp32_forward | fp32_loss | fp32_backward | learning_rate.

    ``place``: the entry of the batch, the parameter, the layer or the loss term; ``growth``: of the loss.
    """

    kind: str
    place: str = ""
    op: str | None = None
    value: float | None = None
    growth: float | None = None


def bad_input(inputs: Any) -> tuple[str, float] | None:
    """The first entry of a batch that is not finite: its place, and ``nan`` or ``inf``."""
    for place, value in named_values(inputs):
        stat = value_stat(value)
        if stat is not None and not stat.finite:
            return place, stat.top
    return None


def bad_weight(model: paddle.nn.Layer, optimizer: Any = None) -> tuple[str, float] | None:
    """The first trained parameter whose FP32 value is not finite.

    Running statistics are left out: the overflowing step itself has written into them.
    """
    meter = Meter()
    stats = []
    with paddle.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.stop_gradient or not is_float_tensor(parameter):
                continue
            half = parameter.dtype in autocast.HALF
            tensor = autocast.master_of(parameter, model, optimizer) if half else parameter
            stats.append((name, meter.measure(tensor)))
    meter.read()
    for name, index in stats:
        if not meter[index].finite:
            return name, meter[index].top
    return None


def not_amp(subject: Subject, clean: Replayed) -> NotAmp | None:
    """The reason, if the FP32 replay ``clean`` failed; None if it was finite."""
    loss_fine = math.isfinite(clean.loss)
    if loss_fine and clean.finite:
        return None
    assert clean.watch is not None
    weight = bad_weight(subject.model, subject.optimizer)
    if weight is not None:
        return NotAmp("weights", weight[0], value=weight[1])
    args, kwargs = clean.watch.root_inputs or ((), {})
    data = bad_input(subject.batch.inputs) or bad_input({"input": list(args), **kwargs})
    if data is not None:
        return NotAmp("data", data[0], value=data[1])
    layer = _first_layer(clean.watch)
    if layer is not None:
        return layer
    if not loss_fine:
        return NotAmp("fp32_loss", ", ".join(clean.bad_terms), value=clean.loss)
    return _first_backward(clean.watch)


def _first_layer(watch: LayerWatch) -> NotAmp | None:
    for op in watch.op_calls:
        stat = watch.stat(op.outputs)
        if op.layer is not None and not stat.finite and watch.stat(op.inputs).finite:
            return NotAmp("fp32_forward", op.layer.name, op.op, stat.top)
    for call in watch.calls:
        stat = watch.stat(call.own)
        if not stat.finite and watch.stat(call.inputs).finite:
            return NotAmp("fp32_forward", call.name, None, stat.top)
    return None


def _first_backward(watch: LayerWatch) -> NotAmp:
    from paddle_amp_plugin.diagnosis.suspects import Twins, backward_suspects

    suspects = backward_suspects(watch, Twins(watch), 1.0)
    return NotAmp("fp32_backward", (suspects[0].name or "") if suspects else "", value=math.inf)


def diverges(subject: Subject) -> NotAmp | None:
    """Whether a few plain FP32 updates on this very batch, at the run's learning rate, blow the loss up.

    Half precision then only was the first to show it: the steps it skips keep the weights from running away. The
    updates are made on the weights and taken back; the optimizer itself is not touched. Rate times clipped gradient,
    or times its sign for the optimizers that normalize it; no momentum, so a rate is rather let off than accused.
    """
    optimizer = subject.optimizer
    if optimizer is None or not hasattr(optimizer, "get_lr"):
        return None
    rate = float(optimizer.get_lr())
    model = subject.model
    trained = {id(p) for p in optimizer_parameters(optimizer)}
    parameters = [p for p in model.parameters() if not p.stop_gradient and id(p) in trained]
    normalizing = any(word in type(optimizer).__name__ for word in _NORMALIZING)
    losses: list[float] = []
    with untouched(model), subject.batch.around(), autocast.float32_weights(model, optimizer):
        with paddle.no_grad():
            before = [p.clone() for p in parameters]
        try:
            while len(losses) <= LOOK_AHEAD:
                for parameter in parameters:
                    parameter.clear_gradient(False)
                set_random_state(subject.rng)
                losses.append(forward_and_backward(subject, autocast.no_auto_cast())[0])
                if not math.isfinite(losses[-1]) or (len(losses) > 2 and losses[-1] <= 2.0 * abs(losses[0])):
                    break
                _update(parameters, rate, normalizing, getattr(optimizer, "_grad_clip", None))
        finally:
            with paddle.no_grad():
                for parameter, old in zip(parameters, before, strict=True):
                    parameter.copy_(old, True)
    growth = losses[-1] / max(abs(losses[0]), SMALL_LOSS)
    grew = len(losses) > 1 and (not math.isfinite(losses[-1]) or growth > GROWTH)
    return NotAmp("learning_rate", value=rate, growth=growth) if grew else None


def _update(parameters: list[paddle.Tensor], rate: float, normalizing: bool, clip: Any) -> None:
    """One update in place: rate times the (clipped) gradient, or times its sign."""
    with paddle.no_grad():
        pairs = [(p, g) for p in parameters if (g := gradient(p)) is not None]
        for parameter, grad in clip(pairs) if clip is not None and pairs else pairs:
            step = paddle.sign(grad) if normalizing else grad
            parameter.copy_(parameter - step.astype(parameter.dtype) * rate, True)
