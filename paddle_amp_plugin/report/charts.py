"""What the report draws, as data: the page's SVG and the PNG are made from the same charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from paddle_amp_plugin.monitor.events import StepEvent
from paddle_amp_plugin.report.build import LayerRange, RunData, finite
from paddle_amp_plugin.report.words import WINDOW, Text, every_step

#: Largest finite float16 (IEEE 754 binary16: (2 - 2**-10) * 2**15).
FLOAT16_MAX = 65504.0
#: Smallest positive float16 (subnormal, 2**-24); magnitudes below half of it become 0.
FLOAT16_TINY = 5.960464477539063e-08
#: Points a curve is drawn with at most: two for each of so many buckets, the lowest and the highest.
BUCKETS = 300
#: Layers the range chart has room for.
ROWS = 32
BINS = 24

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One curve. ``points``: (step, value) of finite values; ``breaks``: steps whose value was not finite.

    ``tone``: 1 to 4, a colour of its own and an entry in the legend; 0 for a chart of one colour.
    """

    label: Text
    points: tuple[Point, ...]
    look: Literal["line", "faint", "step"] = "line"
    breaks: tuple[int, ...] = ()
    tone: int = 0


@dataclass(frozen=True)
class Chart:
    """A chart over the steps. ``marks``: steps that were skipped; ``base``: of the logarithmic y axis, 0 if linear."""

    key: str
    title: Text
    series: tuple[Series, ...]
    marks: tuple[int, ...] = ()
    base: int = 0
    percent: bool = False
    first: int = 1
    last: int = 1


@dataclass(frozen=True)
class Histogram:
    """Counts of positive values in equal bins of log10. ``nonfinite`` / ``zero``: what no bin can hold."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    nonfinite: int
    zero: int


@dataclass(frozen=True)
class Ranges:
    """The rows of the range chart, in execution order, out of ``total`` layers."""

    rows: tuple[LayerRange, ...]
    total: int
    culprits: frozenset[str] = field(default_factory=frozenset)


def thin(points: Sequence[Point], buckets: int = BUCKETS) -> tuple[Point, ...]:
    """At most two points a bucket, its lowest and its highest, in order: spikes stay visible."""
    if len(points) <= 2 * buckets:
        return tuple(points)
    size = len(points) / buckets
    kept: list[Point] = []
    for index in range(buckets):
        part = points[round(index * size) : round((index + 1) * size)]
        low, high = min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])
        kept += sorted({low, high})
    if kept[0] != points[0]:
        kept.insert(0, points[0])
    if kept[-1] != points[-1]:
        kept.append(points[-1])
    return tuple(kept)


def smooth(points: Sequence[Point]) -> tuple[Point, ...]:
    """Mean over a window around each point, a fortieth of the curve wide; centred, so that it does not lag behind."""
    half = max(1, len(points) // 80)
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    result = []
    for index, (step, _) in enumerate(points):
        reach = min(half, index, len(points) - 1 - index)  # symmetric up to the ends
        low, high = index - reach, index + reach + 1
        result.append((step, (sums[high] - sums[low]) / (high - low)))
    return tuple(result)


def step_charts(data: RunData) -> tuple[Chart, ...]:
    """Scale, loss, skip rate and learning rate over the steps; those with nothing to show are left out."""
    events = data.events
    scale = _series(events, lambda e: e.loss_scale, Text("loss scale", "loss scale"), "step")
    rate = _series(events, lambda e: e.lr, Text("learning rate", "学习率"), "line")
    charts = (
        Chart("scale", Text("Loss scale", "Loss scale"), (scale,), base=2),
        _loss_chart(events),
        Chart("skip_rate", Text("Skip rate", "跳过率"), (_skip_rate(events),), percent=True),
        Chart("lr", Text("Learning rate", "学习率"), (rate,)),
    )
    marks = tuple(e.step for e in events if e.skipped)
    return tuple(
        replace(chart, marks=marks, first=events[0].step, last=events[-1].step)
        for chart in charts
        if any(s.points or s.breaks for s in chart.series)
    )


def _loss_chart(events: Sequence[StepEvent]) -> Chart:
    raw = _series(events, lambda e: e.loss, Text("loss", "损失"), "faint")
    full = [(float(e.step), e.loss) for e in events if e.loss is not None and math.isfinite(e.loss)]
    mean = Series(Text("smoothed", "平滑后"), thin(smooth(full)))
    values = [value for _, value in full]
    wide = bool(values) and min(values) > 0 and max(values) > 50 * min(values)
    return Chart("loss", Text("Loss", "损失"), (raw, mean), base=10 if wide else 0)


def _series(
    events: Sequence[StepEvent],
    value: Callable[[StepEvent], float | None],
    label: Text,
    look: Literal["line", "faint", "step"],
) -> Series:
    known = [(e.step, v) for e in events if (v := value(e)) is not None]
    points = [(float(step), v) for step, v in known if math.isfinite(v)]
    breaks = tuple(step for step, v in known if not math.isfinite(v))
    if look == "step":
        points = _corners(points)
    return Series(label, thin(points), look, breaks)


def _corners(points: list[Point]) -> list[Point]:
    """Only the points where the value changes, the one before it, and the ends: a scale rarely moves."""
    return [
        p
        for i, p in enumerate(points)
        if i in (0, len(points) - 1) or p[1] != points[i - 1][1] or p[1] != points[i + 1][1]
    ]


def _skip_rate(events: Sequence[StepEvent]) -> Series:
    """Share of skipped steps among the last hundred, at every step (early ones too: 3 skips at the start are 3 %)."""
    skips = every_step(events)
    window = min(WINDOW, len(skips))
    points: list[Point] = []
    skipped = 0
    for index, skip in enumerate(skips):
        skipped += skip
        if index >= WINDOW:
            skipped -= skips[index - WINDOW]
        points.append((float(events[0].step + index), skipped / window))
    label = Text(f"of the last {WINDOW} steps", f"最近 {WINDOW} 步中")
    return Series(label, thin(points))


def norm_histogram(events: Sequence[StepEvent]) -> Histogram | None:
    """The gradient norms (unscaled) in bins of log10; None where none was recorded."""
    known = [e.grad_norm for e in events if e.grad_norm is not None]
    if not known:
        return None
    good = [math.log10(v) for v in finite(list(known)) if v > 0]
    zero = sum(v == 0 for v in known)
    nonfinite = len(known) - len(good) - zero
    if not good:
        return Histogram((), (), nonfinite, zero)
    low, high = min(good), max(good)
    if high - low < 0.1:
        low, high = low - 0.05, high + 0.05
    width = (high - low) / BINS
    counts = [0] * BINS
    for value in good:
        counts[min(BINS - 1, int((value - low) / width))] += 1
    return Histogram(tuple(low + i * width for i in range(BINS + 1)), tuple(counts), nonfinite, zero)


def ranges(data: RunData) -> Ranges | None:
    """The layers nearest to float16's limits (all of them, if there is room); None without range data.

    Culprits and the two layers before and after each come first. A gradient that is not finite spreads to every layer
    before it, so of those only the first in the backward pass (the last in order) counts as near.
    """
    layers = data.layers
    if not layers:
        return None
    culprits = frozenset(f.culprit for f in data.findings if f.culprit)
    places = [index for index, layer in enumerate(layers) if layer.name in culprits]
    around = {index + shift for index in places for shift in range(-2, 3)}
    spread = max((layer.order for layer in layers if layer.grad_nonfinite), default=None)
    indices = sorted(
        range(len(layers)),
        key=lambda i: (i not in around, -(math.inf if layers[i].order == spread else danger(layers[i]))),
    )[:ROWS]
    return Ranges(tuple(layers[i] for i in sorted(indices)), len(layers), culprits)


def danger(layer: LayerRange) -> float:
    """How near a layer comes to a limit of float16, in powers of ten; above 0: beyond it; inf: output not finite.

    A gradient that is not finite says nothing about its own layer and is passed over.
    """
    if layer.out_nonfinite:
        return math.inf
    found = [v for v in (layer.out_absmax, layer.grad_absmax) if v]
    over = [math.log10(v / FLOAT16_MAX) for v in found if math.isfinite(v)]
    gradient = layer.grad_absmax
    under = [math.log10(FLOAT16_TINY / gradient)] if gradient and math.isfinite(gradient) else []
    return max([*over, *under], default=-math.inf)
