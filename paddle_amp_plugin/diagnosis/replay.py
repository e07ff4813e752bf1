"""One batch once more: in FP32, or under the plan with some layers or ops pinned, at a loss scale of choice."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.diagnosis.state import random_state, set_random_state, untouched
from paddle_amp_plugin.diagnosis.stats import Stat, value_stat
from paddle_amp_plugin.diagnosis.watch import LayerWatch

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan


@dataclass
class Batch:
    """How to run one batch again.

    ``forward``: calls the model once, on this batch, without any auto_cast of its own, and returns what it
    returned. ``loss``: from those outputs (in FP32) to the loss, or to a dict of terms whose ``loss`` is the one that
    is differentiated. ``inputs``: everything of the batch, labels included, to look for what is not finite.
    ``around``: entered around each replay (``DataParallel.no_sync`` where there are several processes).
    ``share``: of the loss in its step's, where gradients of several batches are accumulated.
    """

    forward: Callable[[], Any]
    loss: Callable[[Any], Any]
    inputs: Any = None
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    share: float = 1.0


@dataclass
class Subject:
    """The run under diagnosis: its model (no ``DataParallel`` around it), its plan, its optimizer if there is one.

    ``float32_weights``: replay the plan on the FP32 masters (for a plan at another level than the model is at).
    """

    model: paddle.nn.Layer
    plan: Plan
    batch: Batch
    scale: float = 1.0
    optimizer: Any = None
    rng: tuple[Any, ...] = field(default_factory=random_state)
    replays: int = 0
    float32_weights: bool = False


@dataclass
class Replayed:
    """What a replay showed. ``terms``: the loss terms' stats by name (``loss`` is the one differentiated)."""

    watch: LayerWatch | None
    terms: dict[str, Stat]
    loss: float
    finite: bool

    @property
    def bad_terms(self) -> tuple[str, ...]:
        """The loss terms that are not finite; the sum only if none of its parts is at fault."""
        bad = [name for name, stat in self.terms.items() if not stat.finite]
        return tuple([name for name in bad if name != "loss"] or bad)


def loss_terms(result: Any) -> tuple[paddle.Tensor, dict[str, Stat]]:
    """The tensor to differentiate, and every term's stat, of what a host's loss returned.

    A dict's ``loss``; else the first tensor of a tuple or list; else the tensor itself.
    """
    if isinstance(result, dict):
        terms = {str(k): stat for k, v in result.items() if (stat := value_stat(v)) is not None}
        total = result.get("loss")
        if total is None:
            total = next(v for v in result.values() if isinstance(v, paddle.Tensor) and not v.stop_gradient)
            terms["loss"] = value_stat(total) or Stat()
        return total, terms
    total = result[0] if isinstance(result, list | tuple) else result
    return total, {"loss": value_stat(total) or Stat()}


def replay(
    subject: Subject,
    *,
    float32: bool = False,
    layers: Iterable[str] = (),
    ops: Iterable[str] = (),
    scale: float | None = None,
    dtype: str | None = None,
    watch: bool = True,
    op_gradients: bool = False,
) -> Replayed:
    """Forward, loss and backward of the batch again; nothing of the run is changed by it.

    ``float32``: FP32 masters, no auto_cast, scale 1. Else under the plan (in ``dtype`` if given, on FP32 weights
    then), with ``layers`` (qualified names) and ``ops`` (AMP names) kept in FP32, at ``scale``
    (default: the run's).
    """
    subject.replays += 1
    factor = 1.0 if float32 else subject.scale if scale is None else scale
    with untouched(subject.model), ExitStack() as stack:
        stack.enter_context(subject.batch.around())
        set_random_state(subject.rng)
        if float32:
            stack.enter_context(autocast.float32_weights(subject.model, subject.optimizer))
            cast: Any = autocast.no_auto_cast()
        else:
            if dtype is not None or subject.float32_weights:
                stack.enter_context(autocast.float32_weights(subject.model, subject.optimizer))
            stack.enter_context(pinned(subject.model, layers, subject.optimizer))
            cast = autocast.auto_cast(plan_with(subject.plan, ops=ops, dtype=dtype))
        watched = stack.enter_context(LayerWatch(subject.model, op_gradients=op_gradients)) if watch else None
        value, terms = forward_and_backward(subject, cast, factor)
        finite = _gradients_finite(subject.model, watched)
        return Replayed(watched, terms, value, finite)


def forward_and_backward(subject: Subject, cast: Any, scale: float = 1.0) -> tuple[float, dict[str, Stat]]:
    """The model under ``cast``, the loss outside it, the backward pass; returns the loss and its terms."""
    with cast:
        outputs = subject.batch.forward()
    loss, terms = loss_terms(subject.batch.loss(autocast.to_float32(outputs)))
    _differentiate(loss, scale * subject.batch.share)
    return float(loss.detach().astype("float32").sum()), terms


def _differentiate(loss: paddle.Tensor, scale: float) -> None:
    # not loss.backward(): while a session trains, that one scales
    if loss.stop_gradient:
        return
    with autocast.no_auto_cast():
        scaled = loss.astype("float32") * scale if scale != 1.0 else loss
        paddle.autograd.backward([scaled])


def _gradients_finite(model: paddle.nn.Layer, watch: LayerWatch | None) -> bool:
    watch = watch if watch is not None else LayerWatch(model)
    watch.read_gradients()
    watch.meter.read()
    return watch.finite


def plan_with(plan: Plan, *, ops: Iterable[str] = (), dtype: str | None = None, level: str | None = None) -> Plan:
    """The plan with more ops on the black list, in another half type or at another level."""
    ops = set(ops)
    changes: dict[str, Any] = {
        "custom_black_list": tuple(sorted({*plan.custom_black_list, *ops})),
        "custom_white_list": tuple(op for op in plan.custom_white_list if op not in ops),
        "dtype": dtype or plan.dtype,
        "level": level or plan.level,
    }
    if dataclasses.is_dataclass(plan):
        return dataclasses.replace(plan, **changes)
    other = copy.copy(plan)
    vars(other).update(changes)
    return other


@contextlib.contextmanager
def pinned(model: paddle.nn.Layer, names: Iterable[str], optimizer: Any = None) -> Iterator[None]:
    """The named layers, and what is inside them, compute in FP32 on their FP32 weights for a while.

    As ``fp32_layers`` does it for a whole run. Layers that are pinned already stay as they are.
    """
    layers = dict(model.named_sublayers())
    wanted = [layers[name] for name in names if name in layers]
    inside = {id(sub): sub for layer in wanted for sub in layer.sublayers(include_self=True)}
    classes = [(layer, type(layer)) for layer in wanted]
    swapped: list[tuple[paddle.Tensor, paddle.Tensor]] = []
    try:
        for tensor in _own_half_tensors(inside.values()):
            master = autocast.master_of(tensor, model, optimizer)
            swapped.append((tensor, autocast._alias(tensor)))
            autocast._share(tensor, master)
        for layer in wanted:
            autocast._pin_class(layer)
        yield
    finally:
        for layer, cls in classes:
            layer.__class__ = cls
        for tensor, half in swapped:
            autocast._share(tensor, half)


def _own_half_tensors(layers: Iterable[paddle.nn.Layer]) -> list[paddle.Tensor]:
    own = (t for layer in layers for t in (*layer._parameters.values(), *layer._buffers.values()))
    unique = {id(t): t for t in own if t is not None and t.dtype in autocast.HALF}
    return list(unique.values())
