"""Is that normal? The verdict on a window of steps, in numbers and in one line of plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.messages import tr

#: Below it a static scale saves few small gradients, and a search that gets there has met something that overflows.
LOW_SCALE = 128.0
#: Skips that single bad batches may cost, as a share of the window's steps ...
STRAY_SHARE = 0.05
#: ... and never fewer than this.
STRAY_SKIPS = 2
#: Without a search (static scale, or no scaling at all) every skip is a lost batch: one in a hundred steps.
STRAY_SHARE_STATIC = 0.01

Kind = Literal["clean", "search", "start", "stray", "often", "run", "floor"]


@dataclass(frozen=True)
class Verdict:
    """Judgement on the last ``window`` steps up to ``step``, of which ``skipped`` were skipped.

    ``kind``: ``clean`` no skip; ``start`` the scale comes down from its first value; ``search`` it grew and came back;
    ``stray`` single batches; and, not normal: ``often`` too many, ``run`` too many in a row (``longest_run``),
    ``floor`` the scale is at its floor and steps are skipped. ``loss_scale``: of the last step, None without scaling.
    """

    step: int
    window: int
    skipped: int
    longest_run: int
    loss_scale: float | None
    kind: Kind

    @property
    def normal(self) -> bool:
        return self.kind not in ("often", "run", "floor")

    def text(self, *, diagnosing: bool = True) -> str:
        """One line in the user's language. ``diagnosing``: say so where it is not normal (during a run)."""
        scale = "" if self.loss_scale is None else tr(", loss scale {s:g}", "，loss scale {s:g}", s=self.loss_scale)
        if self.normal:
            return tr(
                "{k} of {n} steps skipped: normal{why}{scale}",
                "{n} 步中跳过 {k} 步：正常{why}{scale}",
                k=self.skipped,
                n=self.window,
                why=self._why(),
                scale=scale,
            )
        return tr(
            "{k} of the last {n} skipped: not normal{why}{scale}{then}",
            "最近 {n} 步跳过 {k} 步：不正常{why}{scale}{then}",
            k=self.skipped,
            n=self.window,
            why=self._why(),
            scale=scale,
            then=tr(", diagnosing", "，正在诊断") if diagnosing else "",
        )

    def _why(self) -> str:
        if self.kind == "search":
            return tr(" (the scale is searching)", "（scale 正在搜索）")
        if self.kind == "start":
            return tr(" (the scale is coming down to where it fits)", "（scale 正在从初值下降到合适的位置）")
        if self.kind == "stray":
            return tr(" (single batches)", "（个别批次）")
        if self.kind == "run":
            return tr(" ({r} in a row)", "（连续 {r} 步）", r=self.longest_run)
        if self.kind == "floor":
            return tr(" (the scale is at its floor)", "（scale 已到下限）")
        return ""


def judge(
    skips: Sequence[bool], policy: ScalingPolicy | None, *, last_step: int, loss_scale: float | None = None
) -> Verdict:
    """The rule. ``skips``: was each of the last steps skipped, oldest first; ``last_step``: the number of the last one.

    With a dynamic scale, in a window of n steps of which u were updates:

    * *growth*: after ``incr_every_n_steps`` updates the scale is tried higher, and comes back if that was too high.
      One growth costs ``ceil(log(incr_ratio) / -log(decr_ratio)) * decr_every_n_nan_or_inf`` skips (1 with Paddle's
      values), and u updates hold at most ``u // incr_every_n_steps + 1`` growths. So an alternation of skip and update
      is normal where the scale grows at every update, and is not where it grows every 1000.
    * *start*: while the first steps are in the window the scale may come down from ``init`` to 128 (or to the floor, if
      that is higher): 3 skips from 1024, 9 from 65536.
    * *single batches*: 5 % of n, at least 2. (A NaN in the data, a rare outlier.)

    More skips than these three together are not normal. Nor are more in a row than one growth's (or the start's, if the
    row began in steps 1 to 3) plus 2 decreases, since a search ends as soon as the scale fits. Nor is a skip at the end
    of the window with the scale at its floor, unless it is the only one.

    With a static scale, or none (``policy`` None), nothing is searched: 1 % of n, at least 2, and at most 2 in a row.
    """
    window, skipped, longest = len(skips), sum(map(bool, skips)), _longest_run(skips)
    kind = _kind(skips, policy, last_step, loss_scale)
    return Verdict(last_step, window, skipped, longest, loss_scale if policy is not None else None, kind)


def _kind(skips: Sequence[bool], policy: ScalingPolicy | None, last_step: int, loss_scale: float | None) -> Kind:
    window, skipped, longest = len(skips), sum(map(bool, skips)), _longest_run(skips)
    if not skipped:
        return "clean"
    if policy is None or not policy.dynamic:
        if longest > STRAY_SKIPS:
            return "run"
        return "often" if skipped > max(STRAY_SKIPS, STRAY_SHARE_STATIC * window) else "stray"
    if loss_scale is not None and loss_scale <= policy.minimum and skips[-1] and skipped > 1:
        return "floor"
    growth = _decreases(policy, policy.incr_ratio)
    spare = 2 * policy.decr_every_n_nan_or_inf
    start = _start_skips(policy)
    if last_step - window > start + spare:  # the start has left the window, also the last of its skips
        start = 0
    lead = _lead(skips) if start else 0
    if lead > start + spare or _longest_run(skips[lead:]) > growth + spare:
        return "run"
    search = growth * ((window - skipped) // policy.incr_every_n_steps + 1)
    if skipped > start + search + max(STRAY_SKIPS, STRAY_SHARE * window):
        return "often"
    if lead and skipped <= start + spare:
        return "start"
    return "search" if skipped <= search + STRAY_SKIPS else "stray"


def _decreases(policy: ScalingPolicy, factor: float) -> int:
    """Skips it takes to bring the scale down by ``factor``."""
    ratio = math.log(max(factor, 1.0)) / -math.log(policy.decr_ratio)
    return math.ceil(ratio - 1e-9) * policy.decr_every_n_nan_or_inf


def _start_skips(policy: ScalingPolicy) -> int:
    return _decreases(policy, policy.init / max(LOW_SCALE, policy.minimum))


def _longest_run(skips: Sequence[bool]) -> int:
    longest = run = 0
    for skip in skips:
        run = run + 1 if skip else 0
        longest = max(longest, run)
    return longest


def _lead(skips: Sequence[bool]) -> int:
    """Where the run of skips ends that a training began with; 0 if its first three steps were updates."""
    first = next((index for index, skip in enumerate(skips[:3]) if skip), None)
    if first is None:
        return 0
    return next((index for index in range(first, len(skips)) if not skips[index]), len(skips))
