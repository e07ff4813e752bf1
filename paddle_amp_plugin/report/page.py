"""``amp/report.html``: one page that needs nothing beside itself, in both languages, light and dark, small and large.

It is written as well-formed XML, holds no address, and shows everything without a script; the script switches the
language, copies the YAML and reads values off the curves.
"""

from __future__ import annotations

from paddle_amp_plugin.report import charts, svg
from paddle_amp_plugin.report.build import RunData
from paddle_amp_plugin.report.parts import (
    both,
    chart_grid,
    document,
    footer,
    header,
    ranges_card,
    settings_card,
    tiles_row,
    verdict_card,
)
from paddle_amp_plugin.report.words import Text, advice, tiles


def render(data: RunData, language: str = "en") -> str:
    """The page as text. ``language`` ("en" or "zh") is the one it opens in."""
    shown = charts.step_charts(data)
    ranges = charts.ranges(data)
    title = data.folder.resolve().parent.name if data.folder.name == "amp" else data.folder.resolve().name
    first, last = data.events[0].step, data.events[-1].step
    where = Text(f"mixed-precision report, steps {first} to {last}", f"混合精度报告，第 {first} 至 {last} 步")
    body = [
        header(title, where),
        verdict_card(advice(data)),
        tiles_row(tiles(data)),
        *chart_grid(shown),
        _lower(data, ranges),
        footer(_unread(data)),
    ]
    return document(title, body, shown, language)


def _lower(data: RunData, ranges: charts.Ranges | None) -> str:
    """Below the curves: ranges on the left where there are some; histogram and settings beside them."""
    histogram = charts.norm_histogram(data.events)
    right = [_histogram_card(histogram)] if histogram else []
    if data.plan:
        right.append(settings_card(data.plan))
    left = ranges_card(data.layers, ranges, (_when(data),), scaled=True) if ranges else ""
    if not left:
        return f'<div class="grid2" style="margin-top:12px">{"".join(right)}</div>'
    return f'<div class="grid2" style="margin-top:12px">{left}<div class="stack">{"".join(right)}</div></div>'


def _when(data: RunData) -> Text:
    if not data.layers_step:
        return Text("before training", "训练前")
    return Text(f"recorded at step {data.layers_step}", f"记录于第 {data.layers_step} 步")


def _histogram_card(data: charts.Histogram) -> str:
    extra = []
    if data.nonfinite:
        extra.append(Text(f"not finite at {data.nonfinite} steps", f"{data.nonfinite} 步为非有限值"))
    if data.zero:
        extra.append(Text(f"zero at {data.zero} steps", f"{data.zero} 步为零"))
    note = "".join(f'<span class="legend">{both(text)}</span>' for text in extra)
    title = both(Text("Gradient norm (unscaled), steps", "梯度范数（已反缩放），步数"))
    return f'<section class="card"><div class="head"><h2>{title}</h2>{note}</div>{svg.histogram(data)}</section>'


def _unread(data: RunData) -> list[Text]:
    lines = []
    if data.broken_lines:
        n = data.broken_lines
        lines.append(Text(f"{n} line(s) of events.jsonl could not be read.", f"events.jsonl 中有 {n} 行无法读取。"))
    if data.unreadable:
        names = ", ".join(data.unreadable)
        lines.append(Text(f"Could not be read: {names}.", f"无法读取：{names}。"))
    return lines
