"""The report's words: each text in both languages, and the run's verdict as data made of such texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.monitor.console import Verdict, judge
from paddle_amp_plugin.monitor.events import StepEvent
from paddle_amp_plugin.report.build import Finding, RunData, finite

#: Steps the page judges at a time, as the console does.
WINDOW = 100
#: Share of zero gradients from which the page speaks of underflow. A ReLU network has about a half in FP32 too.
MANY_ZEROS = 0.8

Level = Literal["good", "warn", "bad"]


@dataclass(frozen=True)
class Text:
    """One text in English and Chinese."""

    en: str
    zh: str

    def of(self, language: str) -> str:
        return self.zh if language == "zh" else self.en


@dataclass(frozen=True)
class Advice:
    """What the page says first: ``level``, one headline, sentences, and YAML to paste ("" if none)."""

    level: Level
    headline: Text
    lines: tuple[Text, ...]
    yaml: tuple[str, ...]


def number(value: float | None) -> str:
    """A number short enough to read: 4 digits; "–" where it is not known."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "NaN")
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}"


def percent(share: float | None) -> str:
    """A share as a percentage, with two digits where it is small and three from 10 % on."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{share * 100:.{3 if share >= 0.1 else 2}g} %"


def policy_of(data: RunData) -> ScalingPolicy | None:
    """The scaling policy of the run's plan; Paddle's usual one without a plan; None without loss scaling."""
    if data.plan and data.plan.get("use_loss_scaling") is False:
        return None
    saved = data.plan.get("scaling") if data.plan else None
    try:
        return ScalingPolicy(**saved) if isinstance(saved, dict) else ScalingPolicy()
    except (TypeError, ValueError):
        return ScalingPolicy()


def windows(events: Sequence[StepEvent], policy: ScalingPolicy | None) -> list[Verdict]:
    """The verdicts on each hundred steps, the last on what is left."""
    skips = every_step(events)
    scales = {(e.step - events[0].step) // WINDOW: e.loss_scale for e in events}  # the last one of each window
    verdicts = []
    for first in range(0, len(skips), WINDOW):
        part = skips[first : first + WINDOW]
        step = events[0].step + first + len(part) - 1
        verdicts.append(judge(part, policy, last_step=step, loss_scale=scales.get(first // WINDOW)))
    return verdicts


def every_step(events: Sequence[StepEvent]) -> list[bool]:
    """Was it skipped, for every step from the first event's to the last's: with ``monitor.every_n_steps`` above 1 not
    each step has an event, but each skipped one has.
    """
    skipped = {e.step for e in events if e.skipped}
    return [step in skipped for step in range(events[0].step, events[-1].step + 1)]


def advice(data: RunData) -> Advice:
    """The verdict on the run: what a diagnosis found, else what the skips say."""
    verdicts = windows(data.events, policy_of(data))
    bad = [v for v in verdicts if not v.normal]
    extra = _extras(data)
    skips = _skip_line(data, verdicts)
    found = [f for f in data.findings if f.culprit or f.cause_en or f.not_amp]
    if found:
        return _from_findings(data, found, (skips, *extra))
    if bad:
        last = bad[-1]
        head = Text(
            f"Not normal: {last.skipped} of {last.window} steps up to step {last.step} were skipped",
            f"不正常：截至第 {last.step} 步的 {last.window} 步中跳过了 {last.skipped} 步",
        )
        level: Level = "bad" if not verdicts[-1].normal else "warn"
        hint = _static_hint(data)
        return Advice(level, head, (skips, *hint[0], *extra), hint[1])
    head = Text("Healthy: nothing to change", "正常：无需改动")
    if extra:
        head = Text("The loss scale is healthy, but look at this", "loss scale 正常，但请注意以下问题")
    return Advice("warn" if extra else "good", head, (skips, *extra), ())


def _from_findings(data: RunData, found: list[Finding], lines: tuple[Text, ...]) -> Advice:
    last = found[-1]
    after = [e for e in data.events if e.step > last.step]
    healed = len(after) >= 20 and sum(e.skipped for e in after) <= max(2, 0.05 * len(after))
    if last.not_amp:
        head = Text(
            f"Step {last.step}: not an AMP problem, FP32 is not finite either",
            f"第 {last.step} 步：不是 AMP 的问题，FP32 下同样出现非有限值",
        )
    elif healed:
        head = Text(
            f"{last.culprit} overflowed at step {last.step}; healthy since",
            f"{last.culprit} 在第 {last.step} 步溢出；此后运行正常",
        )
    else:
        head = Text(f"{last.culprit} overflows", f"{last.culprit} 发生溢出")
    causes = tuple(_cause(f, several=len(found) > 1) for f in found if f.cause_en)
    yaml = tuple(dict.fromkeys(f.yaml for f in found if f.yaml))
    return Advice("warn" if healed and not last.not_amp else "bad", head, causes + lines, yaml)


def _cause(finding: Finding, *, several: bool) -> Text:
    if not several:
        return Text(finding.cause_en, finding.cause_zh)
    return Text(f"Step {finding.step}: {finding.cause_en}", f"第 {finding.step} 步：{finding.cause_zh}")


def _skip_line(data: RunData, verdicts: list[Verdict]) -> Text:
    events = data.events
    steps, skipped = len(every_step(events)), sum(e.skipped for e in events)
    bad = sum(not v.normal for v in verdicts)
    where = [str(e.step) for e in events if e.skipped]
    shown = ", ".join(where[:12]) + (" …" if len(where) > 12 else "")
    if not skipped:
        return Text(f"None of {steps} steps was skipped.", f"{steps} 步中没有跳过任何一步。")
    en = f"{skipped} of {steps} steps were skipped ({shown})"
    zh = f"{steps} 步中跳过了 {skipped} 步（第 {shown} 步）"
    if not bad:
        return Text(f"{en}: normal, the scale is searching.", f"{zh}：正常，scale 正在搜索。")
    return Text(
        f"{en}: not normal in {bad} of {len(verdicts)} windows of {WINDOW} steps.",
        f"{zh}；{len(verdicts)} 个 {WINDOW} 步窗口中有 {bad} 个不正常。",
    )


def _static_hint(data: RunData) -> tuple[tuple[Text, ...], tuple[str, ...]]:
    policy = policy_of(data)
    if policy is None or policy.dynamic:
        return (), ()
    line = Text(
        "The scale is static, so it cannot come down to where it fits; let it move:",
        "当前为静态 scale，无法下降到合适的位置；请改为动态：",
    )
    return (line,), ("amp:\n  use_dynamic_loss_scaling: true",)


def _extras(data: RunData) -> tuple[Text, ...]:
    """Other things worth knowing: no effect, underflow, a loss term that was not finite, files left out."""
    lines = []
    shares = finite([e.half_share for e in data.events])
    if shares and shares[-1] == 0.0:
        lines.append(
            Text(
                "Not one op of the forward pass computes in half precision: AMP has no effect on this model.",
                "前向计算中没有任何算子以半精度计算：AMP 对该模型没有作用。",
            )
        )
    zeros = finite([e.zero_grad_share for e in data.events])
    if zeros and zeros[-1] > MANY_ZEROS:
        lines.append(
            Text(
                f"{percent(zeros[-1])} of the gradient is exactly zero: the loss scale may be too low.",
                f"梯度中有 {percent(zeros[-1])} 恰为零：loss scale 可能过小。",
            )
        )
    terms = sorted({name for e in data.events for name, value in e.losses.items() if not math.isfinite(value)})
    if terms:
        names = ", ".join(terms[:5])
        lines.append(Text(f"Loss terms that were not finite: {names}.", f"出现非有限值的损失项：{names}。"))
    return tuple(lines)


def tiles(data: RunData) -> list[tuple[Text, str]]:
    """The page's row of figures: label and value."""
    events = data.events
    last = events[-1]
    skipped = sum(e.skipped for e in events)
    losses = finite([e.loss for e in events])
    norms = finite([e.grad_norm for e in events])
    speed = finite([e.samples_per_second for e in events])
    half = finite([e.half_share for e in events])
    zeros = finite([e.zero_grad_share for e in events])
    steps = len(every_step(events))
    updates = last.updates if last.updates is not None else steps - skipped
    return [
        (Text("steps", "步数"), str(last.step)),
        (Text("updates", "更新次数"), str(updates)),
        (Text("skipped", "跳过"), f"{skipped} ({percent(skipped / steps)})"),
        (Text("last loss scale", "最终 loss scale"), number(last.loss_scale)),
        (Text("last loss", "最终损失"), number(losses[-1] if losses else None)),
        (Text("median gradient norm", "梯度范数中位数"), number(median(norms) if norms else None)),
        (Text("samples per second", "样本/秒"), number(median(speed) if speed else None)),
        (Text("ops in half", "半精度算子占比"), percent(half[-1] if half else None)),
        (Text("zero gradients", "零梯度占比"), percent(zeros[-1] if zeros else None)),
    ]
