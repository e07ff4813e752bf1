"""From what was measured to words: as good? faster? smaller? and if it is not faster, why. Pure: no Paddle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from paddle_amp_plugin.comparison.record import FP32, MODES, Comparison, Run
from paddle_amp_plugin.plan import LOWEST_CAPABILITY
from paddle_amp_plugin.report.words import Advice, Level, Text, number, percent

#: From here on a mode is called faster: less is within what clocks and neighbours do to a GPU.
FASTER = 1.10
#: Share of a step from which waiting for data, or updating, is named.
READER, UPDATE = 0.25, 0.40
#: Multiply-accumulates of a layer below which a GPU spends its time on starting kernels: about 10 microseconds each, in
#: which 10 TFLOP/s do 5e7 of them.
SMALL = 5e7
#: Share of the products in layers whose widths are no multiples of 8 from which that is named. Tensor Cores take
#: float16 in eights (NVIDIA, "Matrix Multiplication Background User's Guide", section on Tensor Core requirements).
ODD = 0.30
#: Mean relative distance of the last third's losses from FP32's that is called another result, if it is also more than
#: twice its own uncertainty over the seeds.
APART = 0.10
#: Ops in half below which little was to be gained.
FEW_HALF = 0.20
TENSOR_CORES = (7, 0)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the seeds (``sigma`` None for one seed)."""

    mean: float
    sigma: float | None
    count: int

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 for one seed, of which nothing is known."""
        return self.sigma / math.sqrt(self.count) if self.sigma is not None else 0.0

    def text(self, form: Callable[[float], str] = number) -> str:
        return form(self.mean) if self.sigma is None else f"{form(self.mean)} ± {form(self.sigma).lstrip('+')}"


@dataclass(frozen=True)
class Against:
    """One mode against FP32, seed by seed. ``speed`` / ``memory``: ratios; ``loss``: relative difference of the mean
    loss of the last third (positive: mixed precision is worse); ``metric``: difference by name.

    ``apart``: another result than FP32; ``why_not``: reasons for not being faster, weightiest first.
    """

    mode: str
    speed: Spread | None
    memory: Spread | None
    loss: Spread | None
    metric: dict[str, Spread]
    skipped: int
    apart: bool
    faster: bool
    why_not: tuple[Text, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class Verdict:
    """``real_time``: the seconds mean something (not under software half)."""

    headline: Text
    level: Level
    lines: tuple[Text, ...]
    modes: tuple[Against, ...]
    real_time: bool

    def advice(self) -> Advice:
        return Advice(self.level, self.headline, self.lines, ())


def judge(record: Comparison) -> Verdict:
    """The verdict on every mode against FP32, and the words."""
    real = record.device != "cpu"
    modes = tuple(_against(record, mode, real=real) for mode in record.modes if mode != FP32)
    lines = [line for one in modes for line in _lines(one, real=real)]
    if not real:
        lines.append(_cpu(record))
    if record.synthetic:
        lines.append(Text("Made-up data: losses and metrics mean nothing.", "合成数据：损失与指标没有意义。"))
    if len(record.seeds) < 3:
        n = len(record.seeds)
        lines.append(
            Text(
                f"{n} seed(s): for a claim about accuracy take 3 or more (--seeds 3).",
                f"仅 {n} 个种子：若要对精度下结论，请至少用 3 个（--seeds 3）。",
            )
        )
    headline, level = _headline(modes, real=real)
    return Verdict(headline, level, tuple(lines), modes, real)


def _against(record: Comparison, mode: str, *, real: bool) -> Against:
    failed = next((run.failed for run in record.runs if run.mode == mode and run.failed), "")
    pairs = _pairs(record.of(FP32), record.of(mode))
    speed = _spread([b.speed / a.speed for a, b in pairs if a.speed and b.speed])
    memory = _spread([b.memory_used / a.memory_used for a, b in pairs if a.memory_used and b.memory_used])
    loss = _spread([d for a, b in pairs if (d := _loss_difference(a, b)) is not None])
    broken = any(not math.isfinite(value) for _, b in pairs for value in b.losses) and not any(
        not math.isfinite(value) for a, _ in pairs for value in a.losses
    )
    apart = broken or (loss is not None and abs(loss.mean) > max(APART, 2 * loss.error))
    faster = bool(real and speed is not None and speed.mean - speed.error >= FASTER)
    why = () if faster or not pairs or not real else tuple(_why_not(record, mode, pairs))
    metric = {
        name: spread
        for name in (pairs[0][0].metric if pairs else ())
        if (spread := _spread([b.metric[name] - a.metric[name] for a, b in pairs if name in b.metric])) is not None
    }
    skipped = sum(b.skipped for _, b in pairs)
    return Against(mode, speed, memory, loss, metric, skipped, apart, faster, why, failed)


def _pairs(fp32: Sequence[Run], other: Sequence[Run]) -> list[tuple[Run, Run]]:
    by_seed = {run.seed: run for run in fp32}
    return [(by_seed[run.seed], run) for run in other if run.seed in by_seed]


def _spread(values: Sequence[float]) -> Spread | None:
    good = [value for value in values if math.isfinite(value)]
    if not good:
        return None
    return Spread(fmean(good), stdev(good) if len(good) > 1 else None, len(good))


def _loss_difference(fp32: Run, other: Run) -> float | None:
    """Relative difference of the mean losses of the last third; None where one is not finite."""
    tail = max(1, min(len(fp32.losses), len(other.losses)) // 3)
    a, b = fp32.losses[-tail:], other.losses[-tail:]
    if not a or not b or not all(map(math.isfinite, (*a, *b))):
        return None
    return (fmean(b) - fmean(a)) / max(abs(fmean(a)), 1e-8)


# -- why not faster ------------------------------------------------------------------------------------------------


def _why_not(record: Comparison, mode: str, pairs: Sequence[tuple[Run, Run]]) -> list[Text]:
    """The reasons that the record shows, the weightiest first."""
    found = [_old_card(record, mode), _reader(pairs), _small(record), _update(pairs), _odd(record), _few(pairs)]
    reasons = [reason for reason in found if reason is not None]
    if reasons:
        return reasons
    return [
        Text(
            "Nothing in these numbers says why: look at a profile (memory-bound ops gain little from Tensor Cores).",
            "这些数字未能说明原因：请查看性能剖析（访存受限的算子从 Tensor Core 获益很少）。",
        )
    ]


def _old_card(record: Comparison, mode: str) -> Text | None:
    if record.capability is None:
        return None
    dtype = MODES[mode]["dtype"]
    lowest = LOWEST_CAPABILITY["bfloat16" if dtype == "bfloat16" else "float16"]
    if record.capability >= lowest:
        return None
    own = ".".join(map(str, record.capability))
    need = ".".join(map(str, lowest))
    return Text(
        f"Old card: {record.device_name} has compute capability {own}; {dtype} on Tensor Cores needs {need}, and below "
        "it Paddle computes in FP32.",
        f"显卡过旧：{record.device_name} 的计算能力为 {own}；{dtype} 的 Tensor Core 需要 {need}，"
        "低于此 Paddle 以 FP32 计算。",
    )


def _reader(pairs: Sequence[tuple[Run, Run]]) -> Text | None:
    share = fmean(b.share("reader") for _, b in pairs)
    if share < READER:
        return None
    return Text(
        f"Reader-bound: {percent(share)} of a step waits for data, which no precision makes faster. More num_workers, "
        "or lighter transforms.",
        f"受数据读取限制：每步有 {percent(share)} 的时间在等待数据，与精度无关。请增加 num_workers 或简化预处理。",
    )


def _small(record: Comparison) -> Text | None:
    each = record.model.macs / max(1, record.model.products)
    if record.model.products == 0 or each >= SMALL:
        return None
    return Text(
        f"Small model: {number(each / 1e6)} million multiply-accumulates a layer at batch {record.batch_size}, so the "
        "GPU spends its time starting kernels. A larger batch (mixed precision leaves room for it).",
        f"模型较小：批大小 {record.batch_size} 时每层仅 {number(each / 1e6)} 百万次乘加，GPU 的时间花在启动 kernel 上。"
        "请增大批大小（混合精度可腾出显存）。",
    )


def _update(pairs: Sequence[tuple[Run, Run]]) -> Text | None:
    share = fmean(b.share("update") for _, b in pairs)
    if share < UPDATE:
        return None
    return Text(
        f"{percent(share)} of a step is the optimizer's update, which is made in FP32.",
        f"每步有 {percent(share)} 的时间用于优化器更新，而更新以 FP32 进行。",
    )


def _odd(record: Comparison) -> Text | None:
    if record.model.odd_share < ODD:
        return None
    shown = ", ".join(record.model.odd[:3])
    return Text(
        f"Odd shapes: {percent(record.model.odd_share)} of the products are in layers whose widths are no multiples of "
        f"8 ({shown}); Tensor Cores take float16 in eights.",
        f"形状不规整：{percent(record.model.odd_share)} 的乘加位于宽度不是 8 的倍数的层（{shown}）；"
        "Tensor Core 以 8 为单位处理 float16。",
    )


def _few(pairs: Sequence[tuple[Run, Run]]) -> Text | None:
    shares = [b.half_share for _, b in pairs if b.half_share is not None]
    if not shares or fmean(shares) >= FEW_HALF:
        return None
    return Text(
        f"Only {percent(fmean(shares))} of the ops compute in half precision.",
        f"只有 {percent(fmean(shares))} 的算子以半精度计算。",
    )


# -- words ---------------------------------------------------------------------------------------------------------


def _lines(one: Against, *, real: bool) -> list[Text]:
    if one.failed:
        return [Text(f"{one.mode}: failed: {one.failed}", f"{one.mode}：失败：{one.failed}")]
    parts, zh = [], []
    if real and one.speed is not None:
        parts.append(f"{one.speed.text(_ratio)} times FP32's speed")
        zh.append(f"速度为 FP32 的 {one.speed.text(_ratio)} 倍")
    if real and one.memory is not None:
        parts.append(f"{one.memory.text(_ratio)} times its memory")
        zh.append(f"显存为其 {one.memory.text(_ratio)} 倍")
    if one.loss is not None:
        parts.append(f"loss {one.loss.text(_signed)}")
        zh.append(f"损失 {one.loss.text(_signed)}")
    for name, spread in one.metric.items():
        parts.append(f"{name} {spread.text(_plus)}")
        zh.append(f"{name} {spread.text(_plus)}")
    if one.skipped:
        parts.append(f"{one.skipped} steps skipped")
        zh.append(f"跳过 {one.skipped} 步")
    lines = [Text(f"{one.mode}: {', '.join(parts)}.", f"{one.mode}：{'，'.join(zh)}。")]
    if one.apart:
        lines.append(
            Text(
                f"⚠ {one.mode} gives another result than FP32 (paddle-amp rehearse says why).",
                f"⚠ {one.mode} 的结果与 FP32 不同（原因可用 paddle-amp rehearse 查看）。",
            )
        )
    why = one.why_not
    if why:
        lines.append(Text(f"{one.mode} is not faster:", f"{one.mode} 没有更快："))
        lines += why
    return lines


def _signed(value: float) -> str:
    return f"{value * 100:+.2g} %"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _plus(value: float) -> str:
    return f"{value:+.4f}"


def _cpu(record: Comparison) -> Text:
    how = "computed in software" if record.software_half else "not computed at all"
    return Text(
        f"This is a CPU: half precision was {how}, so its seconds and bytes say nothing about a GPU. Losses, metrics "
        "and skips are what a GPU gives, and FP32's share of time in the reader is real. For speed, run it on a GPU.",
        "当前为 CPU：半精度由软件计算，其耗时与内存不代表 GPU。损失、指标与跳过的步与 GPU 一致，"
        "FP32 的读取占比也是真实的。要比较速度，请在 GPU 上运行。",
    )


def _headline(modes: Sequence[Against], *, real: bool) -> tuple[Text, Level]:
    bad = [one.mode for one in modes if one.apart or one.failed]
    if bad:
        names = ", ".join(bad)
        return Text(f"Not the same training as FP32: {names}", f"与 FP32 的训练结果不同：{names}"), "bad"
    if not real:
        head = Text(
            "Same results as FP32; how much faster, only a GPU can tell", "结果与 FP32 一致；速度提升只能在 GPU 上测得"
        )
        return head, "good"
    best = max(modes, key=lambda one: one.speed.mean if one.speed else 0.0)
    speed = best.speed.text(_ratio) if best.speed else "–"
    if best.faster:
        return Text(f"{best.mode}: {speed} times as fast as FP32", f"{best.mode}：速度为 FP32 的 {speed} 倍"), "good"
    return Text("Not faster than FP32, and this is why", "没有比 FP32 更快，原因如下"), "warn"


def as_dict(verdict: Verdict) -> dict[str, Any]:
    """For ``compare.json``."""

    def spread(one: Spread | None) -> Any:
        return None if one is None else {"mean": one.mean, "sigma": one.sigma, "count": one.count}

    rows = [
        {
            "mode": m.mode,
            "speed": spread(m.speed),
            "memory": spread(m.memory),
            "loss": spread(m.loss),
            "metric": {name: spread(value) for name, value in m.metric.items()},
            "skipped": m.skipped,
            "apart": m.apart,
            "faster": m.faster,
            "why_not": [{"en": t.en, "zh": t.zh} for t in m.why_not],
            "failed": m.failed,
        }
        for m in verdict.modes
    ]
    return {
        "headline": {"en": verdict.headline.en, "zh": verdict.headline.zh},
        "level": verdict.level,
        "real_time": verdict.real_time,
        "lines": [{"en": t.en, "zh": t.zh} for t in verdict.lines],
        "modes": rows,
    }
