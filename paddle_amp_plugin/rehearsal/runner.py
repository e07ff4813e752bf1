"""Both trainings side by side: the same weights, batches, random numbers and updates; only the precision differs."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin import autocast, healing, rng, software_half
from paddle_amp_plugin.diagnosis.ranges import LayerRange, range_probe
from paddle_amp_plugin.diagnosis.state import untouched
from paddle_amp_plugin.diagnosis.verdict import cause, yaml_of
from paddle_amp_plugin.diagnosis.watch import LayerWatch
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.settings import settings_mapping
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.rehearsal.keys import amp_with
from paddle_amp_plugin.rehearsal.record import Layer, Rehearsal, Remedy, Step, Treatment
from paddle_amp_plugin.rehearsal.side import Side

if TYPE_CHECKING:
    from pathlib import Path

    from paddle_amp_plugin.hosts.workloads import Workload
    from paddle_amp_plugin.plan import Plan

#: Batches whose ranges are read before the first step.
PROBED = 2
#: Rounds in which layers are added to the pins until the batches are finite under them.
ROUNDS = 6

Progress = Callable[[Iterable[int], str], Iterable[int]]


def rehearse(
    work: Workload,
    plan: Plan,
    *,
    steps: int,
    folder: Path | None = None,
    synthetic: bool = False,
    progress: Progress = lambda items, label: items,
    change: Callable[[Any, Any], None] | None = None,
) -> Rehearsal:
    """The record of ``steps`` steps of ``work`` under ``plan``, beside FP32.

    ``folder``: where a session writes ``overflow-<step>.json``. ``change``: see ``Side``; applied to both sides. Raises
    the workload's own error where its data is missing.
    """
    begin = time.perf_counter()
    batches = work.train_batches()
    with contextlib.closing(batches):  # type: ignore[type-var]
        first = list(itertools.islice(batches, min(PROBED, steps)))
        fp32 = Side(work, _float32(plan), change=change)
        look = Look(work, plan, fp32)
        layers = look.layers(first)
        amp = Side(work, plan, folder=folder, change=change)
        watched = progress(range(1, steps + 1), tr("rehearsing", "正在预演"))
        with fp32, amp:
            rows, stopped = _run(fp32, amp, itertools.chain(first, batches), watched)
            treated = _treatments(amp)
    assert amp.session is not None
    if plan.probe:  # dtype: auto has looked at the same batches, and acted
        layers = tuple(dataclasses.replace(r, overflows=r.overflows and not _held(r, amp.session.plan)) for r in layers)
    record = _record(work, plan, amp, rows, layers)
    finite = all(math.isfinite(s.fp32) for s in rows if s.fp32 is not None)
    record = dataclasses.replace(
        record,
        planned_steps=steps,
        probed=len(first),
        synthetic=synthetic,
        treatments=treated,
        stopped=stopped,
        fp32_finite=finite,
    )
    if finite and (stopped or treated or any(row.overflows for row in layers)):
        record = dataclasses.replace(record, remedies=_remedies(work, plan, amp, look, first, layers))
    return dataclasses.replace(record, seconds=time.perf_counter() - begin)


def _held(row: Layer, used: Plan) -> bool:
    return used.dtype == "bfloat16" or row.name in used.fp32_layers


def _float32(plan: Plan) -> Plan:
    return healing.plan_float32(plan, "FP32")


def _run(fp32: Side, amp: Side, batches: Iterator[Any], watched: Iterable[int]) -> tuple[list[Step], str]:
    """The steps, and why the mixed-precision side stopped ("" if it did not)."""
    rows: list[Step] = []
    for number in watched:
        batch = next(batches)
        state = {"paddle": rng.paddle_rng_state()}
        try:
            done = amp.step(batch)
        except AmpError as error:
            rows.append(Step(number, None, None, 1.0, True))
            return rows, f"[{error.code}] {error.message}"
        rng.set_rng_state(state, only=("paddle",))  # dropout falls on the same places
        twin = fp32.step(batch, withhold=done.skipped)
        rows.append(Step(number, twin.loss, done.loss, done.scale, done.skipped, twin.seconds, done.seconds))
    return rows, ""


def _treatments(amp: Side) -> tuple[Treatment, ...]:
    assert amp.session is not None
    found = []
    for one in amp.session.treatment.treated:
        en, zh = cause(one)
        found.append(Treatment(one.step, one.culprit or one.culprit_op or "-", en, zh, yaml_of(one)))
    if not found and not amp.session.plan.enabled:
        en, zh = "The loss scale collapsed; AMP was switched off.", "loss scale 崩溃；AMP 已关闭。"
        found.append(Treatment(amp.session.steps, "-", en, zh, "amp: false\n"))
    return tuple(found)


class Look:
    """What FP32 and the plan make of single batches, without training: on a model that comes out as it went in."""

    def __init__(self, work: Workload, plan: Plan, side: Side) -> None:
        self._work, self._plan, self._side = work, plan, side

    def layers(self, batches: Sequence[Any]) -> tuple[Layer, ...]:
        """Every layer's range over these batches; gradients times the plan's first loss scale."""
        scale = float(self._plan.scaling.init) if self._plan.use_loss_scaling else 1.0
        report = range_probe(self._side.model, batches, lambda model, batch: self._loss(model, batch) * scale)
        beyond = {row.name for row in report.layers if row.overflows and math.isfinite(row.out_absmax)}
        bad = frozenset(beyond & self.not_finite(batches, self._plan)) if beyond else frozenset()
        innermost = frozenset(name for name in bad if not _inside(name, bad))
        return tuple(_layer(row, scale, innermost) for row in report.layers)

    def _loss(self, model: Any, batch: Any) -> Any:
        return self._work.loss(model, batch, self._side.criterion)

    def not_finite(self, batches: Sequence[Any], plan: Plan) -> frozenset[str]:
        """The layers whose own outputs are not finite under a plan, in the forward pass of these batches."""
        model = self._side.model
        found: set[str] = set()
        with software_half.emulate() if plan.software_half else contextlib.nullcontext():
            o1 = dataclasses.replace(plan, level="O1")  # the FP32 weights are rounded on the way in: the same ranges
            autocast.decorate(o1, model)
            try:
                for batch in batches:
                    watch = LayerWatch(model, ops=False)
                    with untouched(model), paddle.no_grad(), watch, autocast.auto_cast(plan):
                        self._forward(model, batch)
                    found |= {c.name for c in watch.calls if c.own and not watch.stat(c.own).finite}
            finally:
                autocast.unpin(model)
        return frozenset(found)

    def _forward(self, model: Any, batch: Any) -> None:
        """The model on a batch; the loss that the workload puts behind it is computed and not looked at."""
        with contextlib.suppress(Exception):  # an output that is not finite may be refused by the loss
            self._loss(model, batch)


def _layer(row: LayerRange, scale: float, overflowing: frozenset[str]) -> Layer:
    grad = row.grad_absmax / scale if row.grad_absmax is not None else None
    return Layer(row.name, row.type, row.out_absmax, grad, row.grad_lost, row.name in overflowing)


def _remedies(
    work: Workload, plan: Plan, amp: Side, look: Look, batches: Sequence[Any], layers: Sequence[Layer]
) -> tuple[Remedy, ...]:
    """What could be written instead: bfloat16, and float16 with layers in FP32; each tried on the batches."""
    own = amp_mapping(work)
    level = plan.level
    remedies = []
    if plan.dtype == "float16":
        wide = healing.plan_bfloat16(plan, "")
        tried = not look.not_finite(batches, wide)
        remedies.append(Remedy(amp_with(own, level=level, dtype="bfloat16"), tried))
    assert amp.session is not None
    pinned, black = amp.session.plan.fp32_layers, amp.session.plan.custom_black_list
    wanted = [row.name for row in layers if row.overflows and row.name]
    pins = _pins_that_hold(plan, look, batches, tuple(dict.fromkeys([*pinned, *wanted])))
    if pins:
        mapping = {**amp_with(own, level=level, dtype=plan.dtype), "fp32_layers": list(pins)}
        ops = sorted(set(black) - set(plan.custom_black_list))
        if ops:
            mapping["custom_black_list"] = [*own.get("custom_black_list", []), *ops]
        remedies.append(Remedy(mapping, True))
    return tuple(r for r in remedies if r.tried)


def _pins_that_hold(plan: Plan, look: Look, batches: Sequence[Any], pins: tuple[str, ...]) -> tuple[str, ...]:
    """``pins`` and what must be added for these batches to be finite under the plan; () if that is not found.

    A pinned layer hands its large output on in FP32, and the next one that computes in half cannot take it.
    """
    for _ in range(ROUNDS):
        if not pins:
            return ()
        bad = look.not_finite(batches, dataclasses.replace(plan, fp32_layers=pins))
        more = [name for name in bad if name and name not in pins and not _inside(name, bad)]
        if not bad:
            return pins
        if not more:
            return ()
        pins = (*pins, *sorted(more))
    return ()


def _inside(name: str, others: frozenset[str]) -> bool:
    """Does a layer merely hand on what a part of it, itself not finite, gave?"""
    return any(other.startswith(f"{name}.") for other in others)


def amp_mapping(work: Workload) -> dict[str, Any]:
    """The user's ``amp`` key as a mapping; {} for ``true``, and where there is none."""
    found = settings_mapping(work.settings) if work.settings is not None and work.settings.enabled else {}
    return dict(found) if isinstance(found, dict) else {}


def _record(work: Workload, plan: Plan, amp: Side, rows: Sequence[Step], layers: tuple[Layer, ...]) -> Rehearsal:
    from paddle_amp_plugin.plan_file import plan_to_mapping

    assert amp.session is not None
    used = amp.session.plan
    return Rehearsal(
        name=work.name,
        family=work.family,
        device=f"{plan.device.kind}: {plan.device.name}" if plan.device.name else plan.device.kind,
        software_half=plan.software_half,
        synthetic=False,
        seed=work.seed,
        batch_size=work.batch_size,
        asked=f"{plan.level} {plan.dtype}",
        used=f"{used.level} {used.dtype}",
        dtype_reason=used.dtype_reason,
        amp=amp_mapping(work),
        scaling=dataclasses.asdict(plan.scaling) if used.use_loss_scaling or plan.use_loss_scaling else None,
        planned_steps=len(rows),
        steps=tuple(rows),
        probed=0,
        layers=layers,
        half_share=amp.session.half_share(),
        fp32_finite=True,
        paddle=str(paddle.__version__),
        plan=plan_to_mapping(used),
    )
