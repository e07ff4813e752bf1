"""Who overflowed: from the armed watch of a step that was not finite, and its batch, to a diagnosis.

The order of the questions: was the step bad at all? Is FP32 any better (batch, weights, learning rate)? Is it only the
loss scale? Else: which op or layer, and what is the least that must stay in FP32? The answers come from running the
batch again, in FP32 and under the plan with changes; of the run itself nothing is changed.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from paddle_amp_plugin.diagnosis.baseline import NotAmp, bad_input, bad_weight, diverges, not_amp
from paddle_amp_plugin.diagnosis.replay import Subject, plan_with, replay
from paddle_amp_plugin.diagnosis.search import Found, find_pins, find_scale
from paddle_amp_plugin.diagnosis.stats import LIMITS, value_stat
from paddle_amp_plugin.diagnosis.suspects import Pin, Suspect, Twins, backward_suspects, forward_suspects, remedies
from paddle_amp_plugin.diagnosis.watch import LayerWatch
from paddle_amp_plugin.norms import is_norm_layer
from paddle_amp_plugin.op_rules import NORM_OPS, SAFE_BLACK_LIST
from paddle_amp_plugin.plan import holds

#: Ops that bring a mask's constant in, or are given one.
_MASK_OPS = frozenset(
    """
    elementwise_add elementwise_sub elementwise_mul scale where masked_fill fill full full_like fill_any_like
    fill_constant cast softmax fused_softmax_mask log_softmax set_value assign concat expand expand_v2
    """.split()
)
#: From here on a constant is a mask's (-1e9, the lowest float) and no datum.
_MASK_FROM = 1e6
#: A norm whose scale (``weight``) is this large hands values on that the next layer can hardly multiply.
_LARGE_NORM_WEIGHT = 16.0


@dataclass
class Diagnosis:
    """What was found, as data. ``verdict.py`` puts it into words.

    ``kind``: ``finite`` (nothing to treat); not an AMP problem: ``data``, ``weights``, ``fp32_forward``,
    ``fp32_loss``, ``fp32_backward``, ``learning_rate``; one: ``forward_overflow``, ``norm_scale``,
    ``mask_constant``, ``unsafe_op``, ``underflow``, ``loss_term``, ``loss_scale``, ``backward``;
    ``replay_failed``, ``unknown``.

    ``culprit``: the layer's qualified name (None: the model's own forward, or no layer's fault); ``culprit_op``:
    the AMP name of the op, where ops were seen. ``value``: the magnitude in FP32 (for the backward pass times the
    scale). ``pins``: all that must change together, ``pin`` the first. ``dtype`` / ``level``: another half type or
    level that would do, where no pin does. ``before``: the layers run just before the culprit. ``layers``: one dict
    a layer call, in execution order, as ``overflow-<step>.json`` has them.
    """

    kind: str
    step: int = 0
    loss_scale: float = 1.0
    culprit: str | None = None
    culprit_op: str | None = None
    where: str | None = None
    value: float | None = None
    limit: float = LIMITS["float16"]
    not_amp: bool = False
    pins: tuple[Pin, ...] = ()
    dtype: str | None = None
    level: str | None = None
    network: str | None = None
    other_networks: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    layers: list[dict[str, Any]] = field(default_factory=list)
    replays: int = 0
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def pin(self) -> Pin:
        """The first change to make; kind None if there is none to make."""
        return self.pins[0] if self.pins else Pin()


def layer_rows(watch: LayerWatch) -> list[dict[str, Any]]:
    """The layer calls of a watch as plain data. Gradients are as computed, that is times the loss scale."""
    rows = []
    for call in watch.calls:
        if not call.own:
            continue
        out, grad = watch.stat(call.own), watch.grad_stat(call.own)
        rows.append(
            {
                "name": call.name,
                "type": call.type,
                "order": call.order,
                "out_absmax": out.top,
                "out_zero_share": out.zero_share,
                "out_nonfinite": round(out.nans + out.infs),
                "grad_absmax": grad.top if grad is not None else None,
                "grad_zero_share": grad.zero_share if grad is not None else None,
                "grad_nonfinite": round(grad.nans + grad.infs) if grad is not None else None,
            }
        )
    return rows


def diagnose(watch: LayerWatch, subject: Subject, *, step: int = 0) -> Diagnosis:
    """The diagnosis of one armed step. ``watch`` has been left, ``subject.scale`` is that step's loss scale.

    Replays begin with the random state in which ``watch`` was entered, so that dropout falls alike.
    """
    subject.rng = watch.rng
    found = Diagnosis("finite", step=step, loss_scale=subject.scale, layers=layer_rows(watch))
    found.limit = LIMITS.get(str(subject.plan.dtype), LIMITS["float16"])
    found.plan = _plan_facts(subject.plan)
    if watch.finite:
        return found
    try:
        _examine(found, subject, watch)
    except Exception as error:  # whatever the model's own code raises in a replay must not end the training
        _without_replay(found, subject, watch, error)
    _name_network(found, watch)
    found.replays = subject.replays
    return found


def _examine(found: Diagnosis, subject: Subject, watch: LayerWatch) -> None:
    clean = replay(subject, float32=True)
    reason = not_amp(subject, clean) or diverges(subject)
    assert clean.watch is not None
    _add_float32(found.layers, watch, clean.watch)
    if reason is not None:
        _blame_fp32(found, reason)
    else:
        _search(found, subject, watch, Twins(clean.watch))


def _without_replay(found: Diagnosis, subject: Subject, watch: LayerWatch, error: Exception) -> None:
    """What the armed step alone shows; the remedy has not been tried."""
    weight = bad_weight(subject.model, subject.optimizer)
    args, kwargs = watch.root_inputs or ((), {})
    data = bad_input(subject.batch.inputs) or bad_input({"input": list(args), **kwargs})
    if weight is not None or data is not None:
        place, value = weight or data or ("", math.nan)
        _blame_fp32(found, NotAmp("weights" if weight else "data", place, value=value))
        return
    twins = Twins(LayerWatch(subject.model))
    suspects = forward_suspects(watch, twins, found.limit) or backward_suspects(watch, twins, subject.scale)
    found.kind, found.pins = "replay_failed", ()
    found.details = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    if suspects:
        _name(found, suspects[0], watch)
        found.pins = tuple(remedies(suspects[0], watch)[:1])


def _add_float32(rows: list[dict[str, Any]], watch: LayerWatch, clean: LayerWatch) -> None:
    """What each layer's output reaches in FP32: past the culprit the step itself shows nothing but NaN."""
    reach = {call.key: clean.stat(call.outputs).top for call in clean.calls}
    keys = {call.order: call.key for call in watch.calls}
    for row in rows:
        row["fp32_absmax"] = reach.get(keys[row["order"]])


def _plan_facts(plan: Any) -> dict[str, Any]:
    """What the YAML to paste must repeat or respect."""
    own = set(plan.custom_black_list) - (SAFE_BLACK_LIST if plan.preset == "safe" else set())
    return {
        "fp32_layers": list(plan.fp32_layers),
        "custom_black_list": sorted(own),
        "dtype": str(plan.dtype),
        "level": str(plan.level),
        "init": float(plan.scaling.init),
        "minimum": float(plan.scaling.minimum),
        "dynamic": bool(plan.scaling.dynamic),
        "loss_scaling": bool(plan.use_loss_scaling),
    }


def _blame_fp32(found: Diagnosis, reason: NotAmp) -> None:
    found.kind, found.not_amp, found.value, found.culprit_op = reason.kind, True, reason.value, reason.op
    found.details = {"place": reason.place, "growth": reason.growth}
    if reason.kind in ("fp32_forward", "fp32_backward"):
        found.culprit = reason.place or None
        found.where = reason.kind.removeprefix("fp32_")
    elif reason.kind == "weights":
        found.culprit = reason.place.rpartition(".")[0] or None
    elif reason.kind == "fp32_loss":
        found.terms = tuple(reason.place.split(", ")) if reason.place else ()


def _search(found: Diagnosis, subject: Subject, watch: LayerWatch, twins: Twins) -> None:
    lowest = min(float(subject.plan.scaling.minimum), subject.scale) if subject.plan.use_loss_scaling else subject.scale
    scale = find_scale(subject, [], lowest, found.limit)
    if scale is not None:
        _only_the_scale(found, subject, twins, scale)
        return
    result = find_pins(subject, watch, twins, lowest, found.limit)
    if not result.finite:
        _no_pin_helps(found, subject, result, twins)
        return
    _accuse(found, subject, result.culprit or result.suspects[0], twins)
    found.pins = tuple(result.pins)
    scale = find_scale(subject, result.pins, lowest, found.limit)
    if scale is not None and scale < subject.scale:
        found.pins += (Pin("scale", f"{scale:g}", scale),)


def _only_the_scale(found: Diagnosis, subject: Subject, twins: Twins, scale: float) -> None:
    if scale >= subject.scale:
        found.kind = "unknown"  # run again, the same step is finite: nothing that could be shown
        return
    again = replay(subject)
    found.kind, found.where = "loss_scale", "backward"
    found.pins = (Pin("scale", f"{scale:g}", scale),)
    assert again.watch is not None
    suspects = backward_suspects(again.watch, twins, subject.scale)
    if suspects:
        _name(found, suspects[0], again.watch)
    found.culprit_op = None
    found.details["halvings"] = round(math.log2(subject.scale / scale))


def _no_pin_helps(found: Diagnosis, subject: Subject, result: Found, twins: Twins) -> None:
    if result.first is not None:
        _accuse(found, subject, result.first, twins)
    else:
        found.kind = "unknown"
    if subject.plan.dtype != "float16":
        return
    device = getattr(subject.plan, "device", None)
    if (device is None or holds(device, "bfloat16")) and replay(
        subject, dtype="bfloat16", scale=1.0, watch=False
    ).finite:
        found.dtype = "bfloat16"
    elif subject.plan.level == "O2":
        _at_o1(found, subject, twins)


def _at_o1(found: Diagnosis, subject: Subject, twins: Twins) -> None:
    """What the model derives from the type of its half weights (a mask) is FP32 at O1; pins may be needed too."""
    other = dataclasses.replace(subject, plan=plan_with(subject.plan, level="O1"), float32_weights=True)
    again = replay(other)
    if again.watch is not None and not again.finite:
        result = find_pins(other, again.watch, twins, subject.scale, found.limit)
        found.pins = tuple(result.pins) if result.finite else ()
    subject.replays = other.replays
    if again.finite or found.pins:
        found.level = "O1"


def _name(found: Diagnosis, suspect: Suspect, watch: LayerWatch) -> None:
    found.culprit, found.where, found.value = suspect.name, suspect.where, suspect.value
    found.culprit_op = suspect.op_name
    layer_order = suspect.layer.order if suspect.layer is not None else len(watch.calls)
    order = suspect.op.after if suspect.op is not None else layer_order
    names = [call.name for call in watch.calls if call.own and call.order < order and call.name]
    found.before = tuple(names[-4:])


def _accuse(found: Diagnosis, subject: Subject, suspect: Suspect, twins: Twins) -> None:
    _name(found, suspect, twins.clean)
    found.kind = _kind(found, subject, suspect, twins)
    if suspect.layer is None:
        found.terms = replay(subject, watch=False).bad_terms


def _kind(found: Diagnosis, subject: Subject, suspect: Suspect, twins: Twins) -> str:
    value, limit = suspect.value or 0.0, found.limit
    op = suspect.op_name or ""
    if suspect.where == "backward":
        return "backward"
    if suspect.layer is None:
        return "loss_term"
    mask_op = op in _MASK_OPS or (not op and suspect.constant)
    if value >= _MASK_FROM and mask_op and (suspect.constant or op in ("where", "masked_fill")):
        return "mask_constant"
    norm = _norm_before(suspect, twins, limit)
    if norm is not None:
        found.details["norm"], found.details["norm_weight"] = norm
        return "norm_scale"
    if op in SAFE_BLACK_LIST - NORM_OPS and suspect.in_half:
        return "unsafe_op" if value > limit else "underflow"
    if value and value <= limit and op in _DIVIDING:
        return "underflow"
    return "forward_overflow"


_DIVIDING = frozenset({"elementwise_div", "elementwise_mod", "div_scale", "rsqrt", "reciprocal", "sqrt", "log"})


def _norm_before(suspect: Suspect, twins: Twins, limit: float) -> tuple[str, float] | None:
    """The norm layer with a large scale that is the culprit itself, or that made the culprit's input."""
    twin = twins.of(suspect.op or suspect.layer)
    makers = [suspect.layer] + [s.layer for s in (twin.inputs if twin is not None else [])]
    for maker in makers:
        if maker is None or not is_norm_layer(maker.layer, maker.name):
            continue
        weight = value_stat(getattr(maker.layer, "weight", None))
        top = weight.absmax if weight is not None else 0.0
        if top >= _LARGE_NORM_WEIGHT or maker is suspect.layer:
            return maker.name, top
    return None


def _name_network(found: Diagnosis, watch: LayerWatch) -> None:
    networks = watch.network_names()
    name = found.culprit or ""
    for network in networks:
        if name == network or name.startswith(f"{network}."):
            found.network = network
            found.other_networks = tuple(n for n in networks if n != network)
