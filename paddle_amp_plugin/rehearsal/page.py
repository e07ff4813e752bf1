"""``rehearsal.html`` and its picture: verdict, both losses, their distance, the loss scale, ranges. No Paddle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin.rehearsal.record import Rehearsal, Step
from paddle_amp_plugin.rehearsal.verdict import Verdict, divergence, judge
from paddle_amp_plugin.report import charts
from paddle_amp_plugin.report.build import LayerRange
from paddle_amp_plugin.report.parts import (
    chart_grid,
    document,
    footer,
    header,
    ranges_card,
    settings_card,
    tiles_row,
    verdict_card,
)
from paddle_amp_plugin.report.words import Text, number, percent


def render(record: Rehearsal, verdict: Verdict, language: str = "en") -> str:
    """The page as text; ``language`` ("en" or "zh") is the one it opens in."""
    shown = step_charts(record)
    data = " (made-up data)" if record.synthetic else ""
    zh = "（合成数据）" if record.synthetic else ""
    where = Text(
        f"rehearsal of {record.asked} beside FP32, {len(record.steps)} steps, batch {record.batch_size}{data}",
        f"{record.asked} 与 FP32 并行预演，{len(record.steps)} 步，批大小 {record.batch_size}{zh}",
    )
    ranges = layer_ranges(record)
    when = Text(f"in FP32, on the first {record.probed} batches", f"FP32，最初 {record.probed} 个批次")
    lower = ranges_card([_row(record, i) for i in range(len(record.layers))], ranges, (when,), scaled=False)
    body = [
        header(record.name, where),
        verdict_card(verdict.advice()),
        tiles_row(_tiles(record)),
        *chart_grid(shown),
        f'<div class="grid2" style="margin-top:12px">{lower}{settings_card(record.plan)}</div>',
        footer(_software_half(record)),
    ]
    return document(f"{record.name} · rehearsal", body, shown, language)


def _software_half(record: Rehearsal) -> list[Text]:
    if not record.software_half:
        return []
    return [
        Text(
            "Half precision was computed in software: its numbers are those of a GPU, its time is not.",
            "半精度由软件计算：数值与 GPU 一致，耗时不具参考性。",
        )
    ]


def step_charts(record: Rehearsal) -> tuple[charts.Chart, ...]:
    """Losses of both sides, their relative distance, and the loss scale."""
    steps = record.steps
    if not steps:
        return ()
    marks = tuple(s.step for s in steps if s.skipped)
    first, last = steps[0].step, max(steps[-1].step, 2)
    fp32 = _series(steps, "fp32", Text("FP32", "FP32"), 1)
    amp = _series(steps, "amp", Text(record.used, record.used), 2)
    values = [value for series in (fp32, amp) for _, value in series.points]
    wide = bool(values) and min(values) > 0 and max(values) > 50 * min(values)
    found = [
        charts.Chart("loss", Text("Loss", "损失"), (fp32, amp), marks, 10 if wide else 0, False, first, last),
        charts.Chart(
            "distance",
            Text("Distance of the losses", "损失之差"),
            (charts.Series(Text("of FP32's", "相对 FP32"), _distances(steps)),),
            marks,
            0,
            True,
            first,
            last,
        ),
    ]
    if record.scaling is not None:
        scale = charts.Series(Text("loss scale", "loss scale"), tuple((float(s.step), s.scale) for s in steps), "step")
        found.append(charts.Chart("scale", Text("Loss scale", "Loss scale"), (scale,), marks, 2, False, first, last))
    return tuple(chart for chart in found if any(s.points or s.breaks for s in chart.series))


def _series(steps: Sequence[Step], name: str, label: Text, tone: int) -> charts.Series:
    known = [(s.step, v) for s in steps if (v := getattr(s, name)) is not None]
    points = tuple((float(step), v) for step, v in known if math.isfinite(v))
    return charts.Series(label, points, "line", tuple(step for step, v in known if not math.isfinite(v)), tone)


def _distances(steps: Sequence[Step]) -> tuple[charts.Point, ...]:
    found = []
    for s in steps:
        if s.amp is not None and s.fp32 and math.isfinite(s.amp) and math.isfinite(s.fp32):
            found.append((float(s.step), abs(s.amp - s.fp32) / abs(s.fp32)))
    return tuple(found)


def layer_ranges(record: Rehearsal) -> charts.Ranges:
    """The layers nearest to float16's limits, those that overflow first."""
    rows = [_row(record, index) for index in range(len(record.layers))]
    bad = frozenset(row.name for row in record.layers if row.overflows)
    places = sorted(range(len(rows)), key=lambda i: (rows[i].name not in bad, -charts.danger(rows[i])))[: charts.ROWS]
    return charts.Ranges(tuple(rows[i] for i in sorted(places)), len(rows), bad)


def _row(record: Rehearsal, index: int) -> LayerRange:
    row = record.layers[index]
    finite = math.isfinite(row.out_absmax)
    grad = row.grad_absmax
    lost = grad is not None and not math.isfinite(grad)
    return LayerRange(row.name, row.type, index, row.out_absmax, None, not finite, grad, None, lost)


def _tiles(record: Rehearsal) -> list[tuple[Text, str]]:
    done = [s for s in record.steps if s.amp is not None]
    found = divergence(record.steps)
    tiles = [
        (Text("planned", "计划"), record.asked),
        (Text("used in the end", "最终使用"), record.used),
        (Text("steps", "步数"), str(len(done))),
        (Text("skipped", "跳过"), str(sum(s.skipped for s in done))),
        (Text("layers that overflow", "溢出的层"), str(sum(row.overflows for row in record.layers))),
        (Text("distance from FP32", "与 FP32 的差距"), percent(found)),
        (Text("ops in half", "半精度算子占比"), percent(record.half_share)),
    ]
    if record.scaling is not None and done:
        tiles.insert(4, (Text("last loss scale", "最终 loss scale"), number(done[-1].scale)))
    return tiles


def write_picture(record: Rehearsal, path: Path, language: str = "en") -> Path:
    """The charts as a PNG. Raises AmpError (AMP085) where matplotlib is missing."""
    from paddle_amp_plugin.report import png

    shown, ranges = step_charts(record), layer_ranges(record)

    def draw(figure: Any, chosen: str) -> None:
        png.head(figure, judge(record).advice(), chosen)
        grid = figure.add_gridspec(2, 3, height_ratios=(1, 1.5))
        for index, chart in enumerate(shown):
            png.step_axes(figure.add_subplot(grid[0, index]), chart, chosen)
        png.range_axes(figure.add_subplot(grid[1, :]), ranges, chosen)

    return png.draw_png(path, language, draw, height=8.0)
