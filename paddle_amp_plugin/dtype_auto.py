"""``dtype: auto`` checked on real batches: which layers leave float16's range, before anything is trained in it.

Each of the first batches is run forward in FP32, in front of its training step. A layer whose output exceeds 65504
there is looked at once more under the plan's own ``auto_cast``: only if float16 does lose it (a norm or a pinned layer
computes in FP32 anyway) does it count. Weights, statistics, random states and the order of the data stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin import autocast, healing
from paddle_amp_plugin.diagnosis.ranges import LayerRange, range_probe
from paddle_amp_plugin.diagnosis.state import untouched
from paddle_amp_plugin.diagnosis.stats import LIMITS
from paddle_amp_plugin.diagnosis.watch import LayerWatch
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.plan import holds
from paddle_amp_plugin.replicas import of_all_processes

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan
    from paddle_amp_plugin.session import Session
    from paddle_amp_plugin.treatment import Treatment

#: So many batches are looked at.
BATCHES = 3


class DtypeAuto:
    """What ``dtype: auto`` does in one session while its first batches come in.

    A model that float16 cannot hold goes to bfloat16 where the device has it; elsewhere the layers at fault go to
    FP32. ``gradients_wait``: micro-batches of an accumulation have gone before this one, so nothing changes now.
    """

    def __init__(self, session: Session, treatment: Treatment) -> None:
        self._session, self._treatment = session, treatment
        self.probe = DtypeProbe() if session.plan.probe else None
        self.gradients_wait = False

    def model_called(self, call: Callable[[], Any]) -> None:
        """Before a step in float16: does the batch fit into it?"""
        session, probe = self._session, self.probe
        if probe is None or self.gradients_wait or session.model is None:
            return
        with session.by_itself():
            mine = probe.look(session.model, session.plan, session.optimizer, call)
        found = tuple({row.name: row for rows in of_all_processes(mine) for row in rows}.values())
        if found:
            self._leave_float16(found)
        elif probe.done:
            self.probe = None
            session.logger.info(probe.words())

    def _leave_float16(self, found: tuple[LayerRange, ...]) -> None:
        session = self._session
        assert session.model is not None and session.scaler is not None
        reason = beyond_words(found)
        if holds(session.plan.device, "bfloat16"):
            self.to_bfloat16(tr("auto: {r}", "auto：{r}", r=reason))
            what = "bfloat16"
        else:
            names = [row.name for row in found if row.name]
            healing.pin_layers(session.model, session.optimizer, names)
            session.follow(healing.plan_with_pins(session.plan, names, (), session.scaler.current_scale))
            what = tr(
                "float16, with fp32_layers: [{n}], since this device has no bfloat16",
                "float16，并设 fp32_layers: [{n}]，因为此设备没有 bfloat16",
                n=", ".join(names),
            )
        session.logger.info(tr("amp: dtype auto: {w}; {r}", "amp：dtype auto：{w}；{r}", w=what, r=reason))
        self._treatment.write_plan()

    def to_bfloat16(self, reason: str) -> None:
        """The run computes in bfloat16 from here on, before or after its model was decorated."""
        session = self._session
        self.probe = None
        self._treatment.forget_calibration()
        if session.model is not None and session.scaler is not None:
            healing.to_bfloat16(session.model, session.optimizer)
            session.scaler.without_scaling()
        session.follow(healing.plan_bfloat16(session.plan, reason))


@dataclass
class DtypeProbe:
    """``batches`` looked at; ``largest``: the layer with the largest output so far; ``failure``: why it ended early."""

    batches: int = 0
    largest: LayerRange | None = None
    near: dict[str, LayerRange] = field(default_factory=dict)
    failure: str = ""

    @property
    def done(self) -> bool:
        return bool(self.failure) or self.batches >= BATCHES

    def look(
        self, model: paddle.nn.Layer, plan: Plan, optimizer: Any, call: Callable[[], Any]
    ) -> tuple[LayerRange, ...]:
        """Runs one batch by ``call``; the layers that float16 cannot hold, in the order of execution.

        Whatever the model's code raises ends the probe: a training must not fail on it.
        """
        self.batches += 1
        try:
            with paddle.no_grad():
                report = range_probe(model, [None], lambda _model, _batch: _only(call), optimizer=optimizer)
                beyond = [row for row in report.layers if row.overflows and math.isfinite(row.out_absmax)]
                lost = _not_finite_in_half(model, plan, call) if beyond else frozenset()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            return ()
        found = tuple(row for row in beyond if row.name in lost)
        held = [row for row in report.layers if row not in found and math.isfinite(row.out_absmax)]
        self.largest = max([*held, *([self.largest] if self.largest else [])], key=_reach, default=None)
        self.near.update({row.name: row for row in report.near})
        return found

    def words(self) -> str:
        """Why float16 was kept, in the user's language."""
        if self.failure:
            return tr(
                "amp: dtype auto: float16; the first batch could not be looked at ({e})",
                "amp：dtype auto：float16；无法检查首个批次（{e}）",
                e=self.failure,
            )
        near = [name or "-" for name in self.near]
        return tr(
            "amp: dtype auto: float16; on the first {n} batches every layer stays within it "
            "(largest output: {v:.4g} of 65504, {l}){near}",
            "amp：dtype auto：float16；在最初 {n} 个批次上所有层都在其范围内"
            "（最大输出：{v:.4g}，上限 65504，{l}）{near}",
            n=self.batches,
            v=self.largest.out_absmax if self.largest else 0.0,
            l=(self.largest.name or "-") if self.largest else "-",
            near=tr("; near the limit: {l}", "；接近上限：{l}", l=", ".join(near[:3])) if near else "",
        )


def beyond_words(found: tuple[LayerRange, ...]) -> str:
    """The reason in one clause: which layers reach what."""
    top = max(found, key=_reach)
    return tr(
        "layer {n} ({t}) reaches {v:.6g} in FP32 on real batches, past float16's {m:g}{more}",
        "层 {n}（{t}）在真实批次上以 FP32 计算达到 {v:.6g}，超过 float16 的上限 {m:g}{more}",
        n=top.name or "-",
        t=top.type,
        v=top.out_absmax,
        m=LIMITS["float16"],
        more=tr(" (and {k} more)", "（另有 {k} 层）", k=len(found) - 1) if len(found) > 1 else "",
    )


def _reach(row: LayerRange) -> float:
    return row.out_absmax


def _only(call: Callable[[], Any]) -> None:
    call()


def _not_finite_in_half(model: paddle.nn.Layer, plan: Plan, call: Callable[[], Any]) -> frozenset[str]:
    """The layers whose own outputs are not finite under the plan."""
    watch = LayerWatch(model, ops=False)
    with untouched(model), autocast.auto_cast(plan), watch:
        call()
    return frozenset(c.name for c in watch.calls if c.own and not watch.stat(c.own).finite)
