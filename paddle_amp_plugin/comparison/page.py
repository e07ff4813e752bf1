"""``compare.html``: verdict, curves of every mode, the table of numbers, where the time goes. No Paddle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from paddle_amp_plugin.comparison.record import FP32, Comparison, Run
from paddle_amp_plugin.comparison.verdict import Against, Spread, Verdict, judge
from paddle_amp_plugin.report import charts
from paddle_amp_plugin.report.parts import both, chart_grid, document, footer, header, table, verdict_card
from paddle_amp_plugin.report.words import Text, number, percent

PARTS = (
    ("reader", Text("reader", "读取")),
    ("forward", Text("forward", "前向")),
    ("backward", Text("backward", "反向")),
    ("update", Text("update", "更新")),
)


def render(record: Comparison, verdict: Verdict, language: str = "en") -> str:
    """The page as text; ``language`` ("en" or "zh") is the one it opens in."""
    shown = step_charts(record)
    seeds = ", ".join(map(str, record.seeds))
    modes, on = " / ".join(record.modes), record.device_name
    where = Text(
        f"{modes}, {record.steps} steps, batch {record.batch_size}, seeds {seeds}, {on}",
        f"{modes}，{record.steps} 步，批大小 {record.batch_size}，种子 {seeds}，{on}",
    )
    body = [
        header(record.name, where),
        verdict_card(verdict.advice()),
        *chart_grid(shown),
        '<section class="card" style="margin-top:12px"><div class="scroll">',
        _numbers(record, verdict),
        "</div></section>",
        _times(record, verdict),
        footer(),
    ]
    return document(f"{record.name} · compare", body, shown, language)


def step_charts(record: Comparison) -> tuple[charts.Chart, ...]:
    """Losses by mode (mean over the seeds, each seed faint behind it), and their distance from FP32's."""
    tones = {mode: tone for tone, mode in enumerate(record.modes, 1)}
    losses = tuple(_mean(record.of(mode), mode, tone) for mode, tone in tones.items())
    far = tuple(_distance(record, mode, tone) for mode, tone in tones.items() if mode != FP32)
    values = [v for series in losses for _, v in series.points]
    wide = bool(values) and min(values) > 0 and max(values) > 50 * min(values)
    last = max(record.steps, 2)
    found = (
        charts.Chart("loss", Text("Loss", "损失"), losses, (), 10 if wide else 0, False, 1, last),
        charts.Chart("distance", Text("Distance from FP32's loss", "与 FP32 损失的差距"), far, (), 0, True, 1, last),
    )
    return tuple(chart for chart in found if any(s.points or s.breaks for s in chart.series))


def _mean(runs: Sequence[Run], mode: str, tone: int) -> charts.Series:
    """Means over the seeds, step by step, of what is finite."""
    points, breaks = [], []
    for index in range(max((len(run.losses) for run in runs), default=0)):
        values = [run.losses[index] for run in runs if index < len(run.losses)]
        good = [value for value in values if math.isfinite(value)]
        if good:
            points.append((float(index + 1), fmean(good)))
        if len(good) < len(values):
            breaks.append(index + 1)
    return charts.Series(Text(mode, mode), charts.thin(points), "line", tuple(breaks), tone)


def _distance(record: Comparison, mode: str, tone: int) -> charts.Series:
    twins = {run.seed: run for run in record.of(FP32)}
    pairs = [(twins[run.seed].losses, run.losses) for run in record.of(mode) if run.seed in twins]
    points = []
    for index in range(min((min(len(a), len(b)) for a, b in pairs), default=0)):
        values = [abs(b[index] - a[index]) / abs(a[index]) for a, b in pairs if a[index]]
        if values and all(map(math.isfinite, values)):
            points.append((float(index + 1), fmean(values)))
    return charts.Series(Text(mode, mode), charts.thin(points), "line", (), tone)


def _numbers(record: Comparison, verdict: Verdict) -> str:
    real = verdict.real_time
    heads = [
        Text("mode", "模式"),
        Text("samples/s" if real else "samples/s (CPU)", "样本/秒" if real else "样本/秒（CPU）"),
        Text("× FP32", "× FP32"),
        Text("peak memory", "内存峰值"),
        Text("× FP32", "× FP32"),
        Text("loss vs FP32", "损失差"),
        Text("metric", "指标"),
        Text("skipped", "跳过"),
        Text("ops in half", "半精度占比"),
    ]
    against = {one.mode: one for one in verdict.modes}
    return table(heads, [_row(record, mode, against.get(mode)) for mode in record.modes])


def _row(record: Comparison, mode: str, one: Against | None) -> tuple[Sequence[str], bool]:
    runs = record.of(mode)
    speeds = [run.speed for run in runs if run.speed]
    memory = fmean(run.memory_used for run in runs) / 2**20 if runs else None
    shares = [run.half_share for run in runs if run.half_share is not None]
    cells = (
        mode,
        number(fmean(speeds)) if speeds else "–",
        _text(one.speed if one else None),
        f"{memory:.0f} MiB" if memory is not None else "–",
        _text(one.memory if one else None),
        _text(one.loss if one else None, relative=True),
        "; ".join(f"{name} {fmean(r.metric[name] for r in runs):.4f}" for name in (runs[0].metric if runs else ()))
        or "–",
        str(sum(run.skipped for run in runs)),
        percent(fmean(shares)) if shares else "–",
    )
    return cells, bool(one and (one.apart or one.failed))


def _text(spread: Spread | None, *, relative: bool = False) -> str:
    if spread is None:
        return "–"
    return spread.text((lambda v: f"{v * 100:+.2g} %") if relative else (lambda v: f"{v:.2f}"))


def _times(record: Comparison, verdict: Verdict) -> str:
    """Where a step's time goes, as one bar a mode."""
    rows = []
    for mode in record.modes:
        runs = [run for run in record.of(mode) if run.seconds > 0]
        if not runs:
            continue
        shares = [(label, fmean(run.share(name) for run in runs)) for name, label in PARTS]
        each = fmean(run.seconds / max(1, run.timed) for run in runs)
        pieces = "".join(
            f'<i class="part p{index}" style="width:{share * 100:.1f}%" title="{label.en} {share * 100:.0f} %"></i>'
            for index, (label, share) in enumerate(shares, 1)
        )
        told = ", ".join(f"{share * 100:.0f}" for _, share in shares)
        rows.append(
            f'<div class="split"><span>{mode}</span><div class="bar100">{pieces}</div>'
            f"<span>{each:.3g} s · {told} %</span></div>"
        )
    title = Text("Where a step's time goes", "每步耗时构成")
    if not verdict.real_time:
        title = Text(
            "Where a step's time goes on this CPU (half in software)", "本机 CPU 上每步耗时构成（半精度为软件计算）"
        )
    keys = "".join(f'<span class="key k{index}"></span>{both(label)}' for index, (_, label) in enumerate(PARTS, 1))
    return (
        f'<section class="card" style="margin-top:12px"><div class="head"><h2>{both(title)}</h2>'
        f'<span class="legend">{keys}</span></div>{"".join(rows)}</section>'
    )


def write_picture(record: Comparison, path: Path, language: str = "en") -> Path:
    """The curves and the time split as a PNG. Raises AmpError (AMP085) where matplotlib is missing."""
    from paddle_amp_plugin.report import png

    shown = step_charts(record)

    def draw(figure: Any, chosen: str) -> None:
        png.head(figure, judge(record).advice(), chosen)
        grid = figure.add_gridspec(2, 2, height_ratios=(1.4, 1))
        for index, chart in enumerate(shown):
            png.step_axes(figure.add_subplot(grid[0, index]), chart, chosen)
        modes = [mode for mode in record.modes if any(run.seconds > 0 for run in record.of(mode))]
        rows = [(mode, [fmean(run.share(name) for run in record.of(mode)) for name, _ in PARTS]) for mode in modes]
        png.split_axes(figure.add_subplot(grid[1, :]), rows, [label.of(chosen) for _, label in PARTS], chosen)

    return png.draw_png(path, language, draw, height=6.5)
