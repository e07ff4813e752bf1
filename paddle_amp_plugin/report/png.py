"""``report.png``: the charts in one picture, drawn by matplotlib, without a browser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.report import charts
from paddle_amp_plugin.report.build import RunData
from paddle_amp_plugin.report.words import Advice, Text, advice, number

#: Families with Chinese characters, in order of preference: Linux, macOS, Windows.
_CJK = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Heiti TC",
        "Microsoft YaHei", "SimHei")  # fmt: skip
_BLUE, _ORANGE, _RED, _GREEN, _SOFT = "#2563eb", "#d97706", "#dc2626", "#15803d", "#667085"
_TONES = ("", _BLUE, _ORANGE, "#0d9488", "#9333ea")
_LEVELS = {"good": _GREEN, "warn": "#b45309", "bad": "#b91c1c"}


def write_png(data: RunData, path: Path, language: str = "en") -> Path:
    """Draws the report into ``path``; returns it. Raises ``AmpError`` (AMP085) where matplotlib is missing."""
    return draw_png(path, language, lambda figure, chosen: _draw(figure, data, chosen))


def draw_png(path: Path, language: str, draw: Callable[[Any, str], None], *, height: float = 9.4) -> Path:
    """A picture 11 inches wide that ``draw(figure, language)`` fills; see ``write_png``.

    Without a font that has Chinese characters the picture is in English, whatever ``language`` is.
    """
    try:
        from matplotlib import font_manager
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AmpError(
            "AMP085",
            tr("the picture needs matplotlib ({e})", "生成图片需要 matplotlib({e})", e=error),
            hint="pip install matplotlib",
        ) from None
    import matplotlib

    family = "DejaVu Sans"
    if language == "zh":
        installed = {font.name for font in font_manager.fontManager.ttflist}
        family = next((name for name in _CJK if name in installed), "")
        language, family = ("zh", family) if family else ("en", "DejaVu Sans")
    with matplotlib.rc_context({"font.family": [family, "DejaVu Sans"], "font.size": 9, "axes.unicode_minus": False}):
        figure = Figure(figsize=(11, height), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, language)
        figure.savefig(path, format="png")
    return path


def _draw(figure: Any, data: RunData, language: str) -> None:
    head(figure, advice(data), language)
    shown = charts.step_charts(data)
    ranges = charts.ranges(data)
    grid = figure.add_gridspec(3, 2, height_ratios=(1, 1, 1.35))
    for index, chart in enumerate(shown[:4]):
        step_axes(figure.add_subplot(grid[index // 2, index % 2]), chart, language)
    histogram = charts.norm_histogram(data.events)
    if ranges is not None:
        range_axes(figure.add_subplot(grid[2, 0]), ranges, language)
    if histogram is not None and histogram.counts:
        _histogram_axes(figure.add_subplot(grid[2, 1]), histogram, language)


def head(figure: Any, words: Advice, language: str) -> None:
    """The verdict's headline over a picture, in its colour."""
    figure.suptitle(words.headline.of(language), color=_LEVELS[words.level], fontsize=13, weight="bold", wrap=True)


def step_axes(axes: Any, chart: charts.Chart, language: str) -> None:
    for series in chart.series:
        if series.points:
            xs, ys = zip(*series.points, strict=True)
            faint = series.look == "faint"
            axes.plot(xs, ys, color=_TONES[series.tone or 1], label=series.label.of(language),
                      lw=0.8 if faint else 1.5, alpha=0.35 if faint else 1.0,
                      drawstyle="steps-post" if series.look == "step" else "default")  # fmt: skip
    if any(series.tone for series in chart.series):
        axes.legend(fontsize=7, frameon=False)
    if chart.base:
        axes.set_yscale("log", base=chart.base)
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
    if chart.marks:
        axes.plot(chart.marks, [0.02] * len(chart.marks), "|", color=_RED, ms=8, transform=axes.get_xaxis_transform())
    if chart.percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
        axes.set_ylim(bottom=0)
    axes.set_xlim(chart.first, max(chart.last, chart.first + 1))
    _dress(axes, chart.title, language)


def range_axes(axes: Any, ranges: charts.Ranges, language: str) -> None:
    rows = ranges.rows
    axes.axvspan(charts.FLOAT16_TINY, charts.FLOAT16_MAX, color=_GREEN, alpha=0.08)
    for limit in (charts.FLOAT16_TINY, charts.FLOAT16_MAX):
        axes.axvline(limit, color=_GREEN, ls="--", lw=1)
    for kind, marker, colour in (("out_absmax", "o", _BLUE), ("grad_absmax", "D", _ORANGE)):
        found = [(getattr(row, kind), at) for at, row in enumerate(rows)]
        good = [(v, at) for v, at in found if v and math.isfinite(v)]
        if good:
            colours = [_RED if v > charts.FLOAT16_MAX else colour for v, _ in good]
            axes.scatter(*zip(*good, strict=True), marker=marker, c=colours, s=18, zorder=3)
        lost = [at for value, at in found if value is not None and not math.isfinite(value)]
        edge = 0.985 if kind == "out_absmax" else 0.955
        axes.plot([edge] * len(lost), lost, "x", color=_RED, ms=4, mew=1.4, transform=axes.get_yaxis_transform())
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low, max(high, 1e8))  # room for the crosses, right of the limit
    axes.set_yticks(range(len(rows)), [row.name[-34:] for row in rows], fontsize=6)
    axes.invert_yaxis()
    _dress(axes, Text("Largest values of the layers; green: float16", "各层最大幅值；绿色：float16 范围"), language)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if row.name in ranges.culprits:
            label.set_color(_RED)


def split_axes(axes: Any, rows: Sequence[tuple[str, Sequence[float]]], labels: Sequence[str], language: str) -> None:
    """One bar a row, cut by shares that add up to 1."""
    for index, label in enumerate(labels):
        left = [sum(shares[:index]) for _, shares in rows]
        widths = [shares[index] for _, shares in rows]
        axes.barh([name for name, _ in rows], widths, left=left, color=_TONES[index + 1], label=label, height=0.6)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
    axes.legend(fontsize=7, frameon=False, ncols=len(labels), loc="upper right", bbox_to_anchor=(1, 1.14))
    _dress(axes, Text("Where a step's time goes", "每步耗时构成"), language)


def _histogram_axes(axes: Any, data: charts.Histogram, language: str) -> None:
    left = [10**edge for edge in data.edges[:-1]]
    widths = [10**b - 10**a for a, b in zip(data.edges, data.edges[1:], strict=False)]
    axes.bar(left, data.counts, widths, align="edge", color=_BLUE, alpha=0.8)
    axes.set_xscale("log")
    for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        which(lambda value, _: number(value) if f"{value:.0e}"[0] in "125" else "")
    _dress(axes, Text("Gradient norm (unscaled), steps", "梯度范数（已反缩放），步数"), language)


def _dress(axes: Any, title: Text, language: str) -> None:
    axes.set_title(title.of(language), fontsize=10, loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_SOFT)
