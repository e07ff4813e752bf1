"""From what a rehearsal saw to "it will hold" or "it would break", with reasons and YAML. Pure: no Paddle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import yaml

from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.monitor.console import judge as judge_skips
from paddle_amp_plugin.rehearsal.keys import amp_with
from paddle_amp_plugin.rehearsal.record import Layer, Rehearsal, Step
from paddle_amp_plugin.report.words import Advice, Level, Text, number, percent

#: Losses over the last third of the steps: so far from FP32's is said, and so far is a divergence. Batches, updates and
#: random numbers are the same on both sides, so rounding is all that differs.
NOTICED, DIVERGED = 0.03, 0.10
#: A layer that near to float16's 65504 is warned of: training moves ranges.
LIMIT, NEAR = 65504.0, 8.0
#: Of a layer's gradients that many are lost at the planned loss scale: warned of.
LOST = 0.5
#: Layers named in a sentence.
NAMED = 4


@dataclass(frozen=True)
class Verdict:
    """``holds``: training can start with this config. ``reasons``: why not (empty if it holds); ``remarks``: what else
    is worth knowing. ``yaml``: what to write, best first (the whole ``amp`` key each).
    """

    holds: bool
    headline: Text
    reasons: tuple[Text, ...]
    remarks: tuple[Text, ...]
    yaml: tuple[str, ...]

    @property
    def level(self) -> Level:
        return ("warn" if self._worrying else "good") if self.holds else "bad"

    @property
    def _worrying(self) -> bool:
        return any("⚠" in remark.en for remark in self.remarks)

    def advice(self) -> Advice:
        """As the report's pages show a verdict."""
        return Advice(self.level, self.headline, (*self.reasons, *self.remarks), self.yaml)


def judge(record: Rehearsal) -> Verdict:
    """The rule.

    It would break if FP32 is not finite itself; if a layer's output is not finite under the plan on a real batch; if
    the run had to be healed or stopped; if a loss is not finite that FP32 has finite; if more steps are skipped than a
    search for the loss scale costs (``monitor.console.judge``); if the losses of the last third differ from FP32's by
    more than ``DIVERGED``.
    """
    if not record.fp32_finite:
        return _not_amp(record)
    reasons = [*_overflows(record), *_treatments(record), *_losses(record), *_skips(record)]
    if not reasons:
        reasons = _divergence(record)
    remarks = [*_facts(record), *_warnings(record)]
    if reasons:
        head = Text(f"Would break: {record.asked} does not hold", f"会出问题：{record.asked} 无法稳定训练")
        return Verdict(False, head, tuple(reasons), tuple(remarks), _remedies(record))
    head = Text(f"Will hold: {record.used}", f"可以训练：{record.used}")
    return Verdict(True, head, (), tuple(remarks), (amp_yaml(settled(record)),))


def _not_amp(record: Rehearsal) -> Verdict:
    head = Text("Not an AMP problem: FP32 is not finite either", "不是 AMP 的问题：FP32 同样出现非有限值")
    first = next((s.step for s in record.steps if s.fp32 is not None and not math.isfinite(s.fp32)), 0)
    where = Text(f"at step {first}", f"第 {first} 步") if first else Text("before training", "训练开始前")
    reason = Text(
        f"In FP32 the loss is not finite {where.en}: look at the data, the weights and the learning rate.",
        f"FP32 的损失在{where.zh}即为非有限值：请检查数据、权重与学习率。",
    )
    return Verdict(False, head, (reason,), (), ())


# -- reasons -----------------------------------------------------------------------------------------------------


def _overflows(record: Rehearsal) -> list[Text]:
    found = [layer for layer in record.layers if layer.overflows]
    if not found:
        return []
    shown, more = _names(found)
    dtype = record.asked.split()[-1]
    return [
        Text(
            f"{len(found)} layer(s) leave {dtype}'s range on real batches: {shown}{more.en}. float16 ends at 65504.",
            f"{len(found)} 个层在真实批次上超出 {dtype} 的范围：{shown}{more.zh}。float16 的上限为 65504。",
        )
    ]


def _names(layers: Sequence[Layer]) -> tuple[str, Text]:
    largest = sorted(layers, key=lambda row: -row.out_absmax)
    shown = ", ".join(f"{row.name or '-'} ({_size(row.out_absmax)})" for row in largest[:NAMED])
    left = len(layers) - NAMED
    return shown, Text(f" and {left} more", f" 等，另有 {left} 个") if left > 0 else Text("", "")


def _size(value: float) -> str:
    """A magnitude as a person reads it: 93350, 0.0123, 1.2e+09."""
    return f"{value:.0f}" if 1000 <= value < 1e7 else number(value)


def _treatments(record: Rehearsal) -> list[Text]:
    reasons = [
        Text(f"Step {t.step}: {t.cause_en}", f"第 {t.step} 步：{t.cause_zh}") for t in record.treatments if t.cause_en
    ]
    if record.stopped:
        done = len([s for s in record.steps if s.amp is not None])
        reasons.append(
            Text(
                f"Mixed precision stopped after {done} of {record.planned_steps} steps: {record.stopped}",
                f"混合精度在 {record.planned_steps} 步中的第 {done} 步后停止：{record.stopped}",
            )
        )
    return reasons


def _losses(record: Rehearsal) -> list[Text]:
    bad = [s.step for s in record.steps if s.amp is not None and not math.isfinite(s.amp)]
    if not bad:
        return []
    return [
        Text(
            f"The loss is not finite at {len(bad)} step(s), first at step {bad[0]}; in FP32 it is.",
            f"有 {len(bad)} 步的损失为非有限值（最早在第 {bad[0]} 步），而 FP32 下有限。",
        )
    ]


def _skips(record: Rehearsal) -> list[Text]:
    skips = [s.skipped for s in record.steps if s.amp is not None]
    if not any(skips):
        return []
    policy = policy_of(record)
    last = [s for s in record.steps if s.amp is not None][-1]
    verdict = judge_skips(skips, policy, last_step=last.step, loss_scale=last.scale)
    if verdict.normal:
        return []
    return [
        Text(
            f"{sum(skips)} of {len(skips)} steps were skipped, the last at a loss scale of {number(last.scale)}: more "
            "than the search for a loss scale costs.",
            f"{len(skips)} 步中跳过了 {sum(skips)} 步，最后的 loss scale 为 {number(last.scale)}："
            "超出了搜索 loss scale 所需的代价。",
        )
    ]


def policy_of(record: Rehearsal) -> ScalingPolicy | None:
    """The scaling policy of the plan; None without loss scaling."""
    return ScalingPolicy(**record.scaling) if record.scaling is not None else None


def divergence(steps: Sequence[Step]) -> float | None:
    """The mean distance of AMP's losses from FP32's, over the mean size of FP32's, on the last third of the steps.

    Step by step, since the means of two trainings that have nothing to do with each other may agree. None where a loss
    is missing or not finite there.
    """
    tail = steps[-max(1, len(steps) // 3) :]
    pairs = [(s.amp, s.fp32) for s in tail]
    if not pairs:
        return None
    amp = [a for a, _ in pairs if a is not None and math.isfinite(a)]
    fp32 = [b for _, b in pairs if b is not None and math.isfinite(b)]
    if len(amp) < len(pairs) or len(fp32) < len(pairs):
        return None
    return fmean(abs(a - b) for a, b in zip(amp, fp32, strict=True)) / max(fmean(map(abs, fp32)), 1e-8)


def _divergence(record: Rehearsal) -> list[Text]:
    found = divergence(record.steps)
    if found is None or found <= DIVERGED:
        return []
    return [
        Text(
            f"The losses run apart: {percent(found)} between mixed precision and FP32 over the last third of the "
            "steps, on the same batches.",
            f"损失出现分歧：最后三分之一的步中，混合精度与 FP32 在相同批次上相差 {percent(found)}。",
        )
    ]


# -- remarks -----------------------------------------------------------------------------------------------------


def _facts(record: Rehearsal) -> list[Text]:
    facts = []
    found = divergence(record.steps)
    if found is not None and found <= DIVERGED:
        warn = "⚠ " if found > NOTICED else ""
        facts.append(
            Text(
                f"{warn}Loss: {percent(found)} from FP32 over the last third of {len(record.steps)} steps.",
                f"{warn}损失：{len(record.steps)} 步的最后三分之一与 FP32 相差 {percent(found)}。",
            )
        )
    done = [s for s in record.steps if s.amp is not None]
    skipped = sum(s.skipped for s in done)
    if record.scaling is not None and done:
        facts.append(
            Text(
                f"Loss scale: {number(record.scaling['init'])} at the start, {number(done[-1].scale)} at the end; "
                f"{skipped} of {len(done)} steps skipped.",
                f"Loss scale：起始 {number(record.scaling['init'])}，结束 {number(done[-1].scale)}；"
                f"{len(done)} 步中跳过 {skipped} 步。",
            )
        )
    elif done:
        facts.append(
            Text(
                f"No loss scale is needed; {skipped} of {len(done)} steps skipped.",
                f"无需 loss scale；{len(done)} 步中跳过 {skipped} 步。",
            )
        )
    if record.used != record.asked or "auto" in record.dtype_reason:
        facts.append(Text(f"dtype: {record.dtype_reason}.", f"dtype：{record.dtype_reason}。"))
    return facts


def _warnings(record: Rehearsal) -> list[Text]:
    warnings = []
    float16 = record.used.endswith("float16") and not record.used.endswith("bfloat16")
    near = [row for row in record.layers if not row.overflows and LIMIT / NEAR < row.out_absmax <= LIMIT]
    beyond = [row for row in record.layers if not row.overflows and row.out_absmax > LIMIT]
    if near and float16:
        shown, more = _names(near)
        warnings.append(
            Text(
                f"⚠ Within a factor of 8 of float16's limit: {shown}{more.en}. Training moves ranges.",
                f"⚠ 距 float16 上限不足 8 倍：{shown}{more.zh}。训练会改变数值范围。",
            )
        )
    if beyond:
        shown, more = _names(beyond)
        en = "they compute in FP32 under this plan" if float16 else "float16 could not hold them"
        zh = "在本计划下以 FP32 计算" if float16 else "float16 无法容纳"
        warnings.append(Text(f"Beyond 65504: {shown}{more.en}; {en}.", f"超过 65504：{shown}{more.zh}；{zh}。"))
    losing = [row for row in record.layers if (row.lost or 0.0) > LOST]
    if losing and float16 and record.scaling is not None:
        names = ", ".join(row.name or "-" for row in losing[:NAMED])
        warnings.append(
            Text(
                f"⚠ {len(losing)} layer(s) lose more than half of their gradients at loss scale "
                f"{number(record.scaling['init'])}: {names}.",
                f"⚠ 在 loss scale {number(record.scaling['init'])} 下有 {len(losing)} 个层丢失过半梯度：{names}。",
            )
        )
    if record.half_share == 0.0:
        warnings.append(
            Text(
                "⚠ Not one op computes in half precision: AMP has no effect on this model.",
                "⚠ 没有任何算子以半精度计算：AMP 对该模型没有作用。",
            )
        )
    if record.synthetic:
        warnings.append(
            Text(
                "⚠ Made-up data: ranges and losses say something about the model, not about your data.",
                "⚠ 使用的是合成数据：数值范围与损失只反映模型，不反映您的数据。",
            )
        )
    return warnings


# -- YAML --------------------------------------------------------------------------------------------------------


def settled(record: Rehearsal) -> dict[str, Any]:
    """The user's ``amp`` mapping with what the rehearsal found: the dtype used, the loss scale it came down to."""
    level, dtype = record.used.split()
    amp = amp_with(record.amp, level=level, dtype=dtype)
    pins = list(record.plan.get("fp32_layers") or ())
    if pins:
        amp["fp32_layers"] = pins
    done = [s for s in record.steps if s.amp is not None]
    policy = policy_of(record)
    if dtype == "float16" and policy is not None and policy.dynamic and done and done[-1].scale < policy.init:
        amp["init_loss_scaling"] = max(done[-1].scale, policy.minimum)
    return amp


def _remedies(record: Rehearsal) -> tuple[str, ...]:
    texts = [amp_yaml(remedy.amp) for remedy in record.remedies]
    texts += [t.yaml.rstrip("\n") + "\n" for t in record.treatments if t.yaml and not record.remedies]
    return tuple(dict.fromkeys(texts)) or ("amp: false\n",)


def amp_yaml(amp: Mapping[str, Any]) -> str:
    """``amp:`` with these keys, as one would write it by hand: whole numbers without a point, lists in one line."""
    plain = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in amp.items()}
    lines = ["amp:"]
    for key, value in plain.items():
        text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000).strip()
        lines.append(f"  {key}: {text.removesuffix('...').strip()}")
    return "\n".join(lines) + "\n"


def as_dict(verdict: Verdict) -> dict[str, Any]:
    """For ``rehearsal.json``."""
    return {
        "holds": verdict.holds,
        "level": verdict.level,
        "headline": {"en": verdict.headline.en, "zh": verdict.headline.zh},
        "reasons": [{"en": t.en, "zh": t.zh} for t in verdict.reasons],
        "remarks": [{"en": t.en, "zh": t.zh} for t in verdict.remarks],
        "yaml": list(verdict.yaml),
    }
