"""The charts as inline SVG: no script and no network needed, colours from the page's CSS, texts in both languages.

A drawing is 460 units wide and is scaled to its card, so its smallest text is 8 pixels high on a phone of 360.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from paddle_amp_plugin.report.charts import FLOAT16_MAX, FLOAT16_TINY, Chart, Histogram, Point, Ranges, Series
from paddle_amp_plugin.report.words import Text, number, percent

WIDTH, HEIGHT = 460, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 18, 16, 26
ROW = 15
NAMES = 176
DOTS = 60


def both(text: Text) -> str:
    """The text in both languages, as elements for inside an SVG ``text``."""
    if text.en == text.zh:
        return escape(text.en)
    return f'<tspan class="en">{escape(text.en)}</tspan><tspan class="zh">{escape(text.zh)}</tspan>'


class _Axis:
    """Values from ``low`` to ``high`` at places from ``start`` to ``end``; ``base``: of the logarithm, 0 if linear."""

    def __init__(self, low: float, high: float, start: float, end: float, base: int = 0) -> None:
        self.base, self.start, self.end = base, start, end
        self.low, self.high = self._t(low), self._t(high)
        if self.high <= self.low:
            pad = 1.0 if base else (abs(self.low) * 0.1 or 1.0)
            self.low, self.high = self.low - pad, self.high + pad

    def _t(self, value: float) -> float:
        return math.log(value, self.base) if self.base else value

    def at(self, value: float) -> float:
        if self.base and value <= 0:  # a loss scale that collapsed to 0
            return self.start
        share = (self._t(value) - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        if self.base:
            first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
            every = max(1, math.ceil((last - first + 1) / most))
            return [float(self.base) ** k for k in range(first, last + 1, every)]
        rough = (self.high - self.low) / most
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough * 0.999)
        return [k * step for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def step_chart(chart: Chart) -> str:
    """One chart over the steps."""
    values = [v for s in chart.series for _, v in s.points if v > 0 or not chart.base]
    low, high = (min(values), max(values)) if values else (0.5, 1.0)
    if chart.percent:
        low, high = 0.0, max(0.1 if chart.key == "skip_rate" else 1e-6, high)
    elif not chart.base:
        low, high = (0.0 if 0 <= low < 0.6 * high else low), high + 0.04 * (high - low)
    elif chart.base == 2:
        low, high = low / 2, high * 2
    x = _Axis(chart.first, chart.last, LEFT, WIDTH - RIGHT)
    y = _Axis(low, high, HEIGHT - BOTTOM, TOP, chart.base)
    parts = [_grid_y(y, chart), _grid_x(x), _rug(chart.marks, x)]
    parts += [_curve(s, x, y) for s in chart.series]
    if chart.key == "scale" and len(chart.marks) <= DOTS:
        parts.append(_dots(chart, x, y))
    breaks = sorted({step for s in chart.series for step in s.breaks})
    parts += [f'<text class="break" x="{x.at(step):.1f}" y="{TOP - 3}">×</text>' for step in breaks[:DOTS]]
    parts.append(f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}" />')
    return _svg(chart.key, chart.title, HEIGHT, parts, f' data-axis="{LEFT},{WIDTH - RIGHT},{x.low:g},{x.high:g}"')


def _svg(key: str, title: Text, height: float, parts: Sequence[str], more: str = "") -> str:
    return (
        f'<svg id="chart-{key}" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title.en)}"{more}>'
        + "".join(parts)
        + "</svg>"
    )


def _grid_y(axis: _Axis, chart: Chart) -> str:
    parts = []
    for value in axis.ticks():
        at = axis.at(value)
        label = percent(value) if chart.percent else _short(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" />')
        parts.append(f'<text class="tick y" x="{LEFT - 6}" y="{at + 3.5:.1f}">{label}</text>')
    return "".join(parts)


def _short(value: float) -> str:
    return (
        number(value)
        if 1e-3 <= abs(value) < 1e7 or value == 0
        else f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")
    )


def _grid_x(axis: _Axis) -> str:
    base = HEIGHT - BOTTOM
    parts = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}" />']
    for value in axis.ticks(6):
        if value == int(value) and value >= 1:
            parts.append(f'<text class="tick x" x="{axis.at(value):.1f}" y="{base + 15}">{int(value)}</text>')
    return "".join(parts)


def _rug(marks: Sequence[int], x: _Axis) -> str:
    """The skipped steps as short strokes on the axis; strokes that would fall on one another are drawn once."""
    base = HEIGHT - BOTTOM
    places = sorted({round(x.at(step), 1) for step in marks})
    if not places:
        return ""
    return f'<path class="rug" d="{"".join(f"M{p:g} {base}v-7" for p in places)}" />'


def _curve(series: Series, x: _Axis, y: _Axis) -> str:
    if not series.points:
        return ""
    path = _path([(x.at(a), y.at(b)) for a, b in series.points], steps=series.look == "step")
    colour = "faint" if series.look == "faint" else f"c{series.tone or 1}"
    return f'<path class="curve {colour}" d="{path}" />'


def _path(points: Sequence[Point], *, steps: bool) -> str:
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for px, py in points[1:]:
        text += f"H{px:.1f}V{py:.1f}" if steps else f"L{px:.1f} {py:.1f}"
    return text


def _dots(chart: Chart, x: _Axis, y: _Axis) -> str:
    parts = []
    for step in chart.marks:
        scale = _value_at(chart.series[0].points, step)
        if scale is not None:
            tip = both_plain(
                Text(f"step {step} skipped, scale {number(scale)}", f"第 {step} 步跳过，scale {number(scale)}")
            )
            parts.append(f'<circle class="skip" cx="{x.at(step):.1f}" cy="{y.at(scale):.1f}" r="3.2">{tip}</circle>')
    return "".join(parts)


def both_plain(text: Text) -> str:
    """A tooltip; it cannot switch its language, so it has both."""
    return f"<title>{escape(text.en)} / {escape(text.zh)}</title>"


def _value_at(points: Sequence[Point], step: int) -> float | None:
    """The value that holds at ``step`` on a curve that only lists its corners."""
    before = [value for at, value in points if at <= step]
    return before[-1] if before else None


def histogram(data: Histogram) -> str:
    """Bars over log10 of the gradient norm."""
    title = Text("Gradient norm", "梯度范数")
    base = HEIGHT - BOTTOM
    if not data.counts:
        return ""
    x = _Axis(data.edges[0], data.edges[-1], LEFT, WIDTH - RIGHT)
    y = _Axis(0, max(data.counts) * 1.05, base, TOP)
    parts = []
    for value in y.ticks(4):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(value):.1f}" y2="{y.at(value):.1f}" />'
        )
        parts.append(f'<text class="tick y" x="{LEFT - 6}" y="{y.at(value) + 3.5:.1f}">{number(value)}</text>')
    for left, right, count in zip(data.edges, data.edges[1:], data.counts, strict=False):
        at, top = x.at(left), y.at(count)
        tip = f"<title>{10**left:.3g} – {10**right:.3g}: {count}</title>"
        parts.append(
            f'<rect class="bar" x="{at + 0.5:.1f}" y="{top:.1f}" width="{x.at(right) - at - 1:.1f}" '
            f'height="{base - top:.1f}">{tip}</rect>'
        )
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}" />')
    for value in _log_labels(data.edges[0], data.edges[-1]):
        parts.append(f'<text class="tick x" x="{x.at(math.log10(value)):.1f}" y="{base + 15}">{_short(value)}</text>')
    return _svg("norm", title, HEIGHT, parts)


def _log_labels(low: float, high: float) -> list[float]:
    """Round numbers between two powers of ten: 1, 2 and 5 of each decade, only 1 where there is no room for more."""
    mantissas = (1, 2, 5) if high - low < 2.5 else (1,)
    found = [m * 10.0**k for k in range(math.floor(low), math.ceil(high) + 1) for m in mantissas]
    return [v for v in found if low <= math.log10(v) <= high]


def range_chart(data: Ranges) -> str:
    """One row a layer: the largest output and the largest gradient against float16's limits."""
    top, bottom = 34, 24
    height = top + ROW * len(data.rows) + bottom
    values = [v for r in data.rows for v in (r.out_absmax, r.grad_absmax) if v and math.isfinite(v)]
    low, high = min([1e-8, *values]), max([1e6, *values])
    x = _Axis(low / 2, high * 3, NAMES, WIDTH - RIGHT, 10)
    end = height - bottom
    left, right = x.at(FLOAT16_TINY), x.at(FLOAT16_MAX)
    parts = [f'<rect class="held" x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{end - top}" />']
    for value, label in ((FLOAT16_TINY, "6e-8"), (FLOAT16_MAX, "65504")):
        parts.append(f'<line class="limit" x1="{x.at(value):.1f}" x2="{x.at(value):.1f}" y1="{top - 6}" y2="{end}" />')
        parts.append(f'<text class="limit-label" x="{x.at(value):.1f}" y="{top - 10}">{label}</text>')
    for value in x.ticks(6):
        parts.append(f'<text class="tick x" x="{x.at(value):.1f}" y="{end + 15}">{_short(value)}</text>')
    for index, row in enumerate(data.rows):
        at = top + ROW * index + ROW / 2
        bad = row.name in data.culprits
        parts.append(f'<line class="grid" x1="{NAMES}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" />')
        label = f"<title>{escape(row.name)} ({escape(row.type)})</title>{escape(_short_name(row.name))}"
        parts.append(f'<text class="name{" culprit" if bad else ""}" x="{NAMES - 8}" y="{at + 3.5:.1f}">{label}</text>')
        parts.append(_mark(row.out_absmax, row.out_nonfinite, x, at, "out"))
        parts.append(_mark(row.grad_absmax, bool(row.grad_nonfinite), x, at, "grad"))
    return _svg("ranges", Text("Ranges of the layers", "各层数值范围"), height, parts)


def _mark(value: float | None, nonfinite: bool, x: _Axis, at: float, kind: str) -> str:
    """A dot (output) or a diamond (gradient); in red beyond the limit; a cross at the edge if not finite."""
    if value is None and not nonfinite:
        return ""
    if nonfinite or (value is not None and not math.isfinite(value)):
        edge = WIDTH - RIGHT - (4 if kind == "out" else 14)
        shown = number(value if value is not None else math.nan)
        return f'<text class="cross {kind}" x="{edge}" y="{at + 4:.1f}"><title>{kind}: {shown}</title>×</text>'
    assert value is not None
    if value <= 0:
        return ""
    beyond = " beyond" if value > FLOAT16_MAX or (kind == "grad" and value < FLOAT16_TINY) else ""
    cx, tip = x.at(value), f"<title>{kind}: {number(value)}</title>"
    if kind == "out":
        return f'<circle class="out{beyond}" cx="{cx:.1f}" cy="{at:.1f}" r="3.4">{tip}</circle>'
    return f'<path class="grad{beyond}" d="M{cx:.1f} {at - 4:.1f}l4 4l-4 4l-4 -4z">{tip}</path>'


def _short_name(name: str, most: int = 26) -> str:
    """A long name without its first parts: the end says which layer it is. (The whole name is in the tooltip.)"""
    if len(name) <= most:
        return name
    tail = name[-(most - 1) :]
    dot = tail.find(".")
    return "…" + (tail[dot + 1 :] if 0 <= dot < len(tail) // 2 else tail)
