"""Two ways of doing the same, run in turns; and what their times say. No Paddle."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Times:
    """Seconds of each run of the two sides, pair by pair: by the wall clock, and of CPU used by this process."""

    wall: tuple[tuple[float, float], ...]
    cpu: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    def as_dict(self, digits: int = 4) -> dict[str, float]:
        return {"median": round(self.median, digits), "q1": round(self.low, digits), "q3": round(self.high, digits)}


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles, by linear interpolation between the values (NumPy's default, too)."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """second / first of every pair: what changes the machine's load between pairs cancels out."""
    return [second / first for first, second in pairs]


def alternate(
    first: Callable[[], Any],
    second: Callable[[], Any],
    *,
    repeats: int,
    warm_up: int = 2,
    before: tuple[Callable[[], Any], Callable[[], Any]] | None = None,
    finish: Callable[[], Any] = lambda: None,
    tick: Callable[[], Any] = lambda: None,
) -> Times:
    """Runs A B, B A, A B, …: neither is always the one that comes after a pause, or after the other.

    ``before``: what each side needs and is not measured. ``finish`` waits for what a side has started (a GPU's queue);
    ``tick`` is called after every pair.
    """
    wall, cpu = [], []
    for pair in range(-warm_up, repeats):
        seconds: dict[int, tuple[float, float]] = {}
        for side in (0, 1) if pair % 2 else (1, 0):
            if before is not None:
                before[side]()
            finish()
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            (second if side else first)()
            finish()
            seconds[side] = (time.perf_counter() - wall_start, time.process_time() - cpu_start)
        if pair >= 0:
            wall.append((seconds[0][0], seconds[1][0]))
            cpu.append((seconds[0][1], seconds[1][1]))
            tick()
    return Times(tuple(wall), tuple(cpu))


def row(benchmark: str, case: str, sides: tuple[str, str], times: Times, *, by: str, **more: Any) -> dict[str, Any]:
    """One line of the result. ``by``: the clock that is judged, "cpu" or "wall"; the other is there too."""
    chosen = getattr(times, by)
    return {
        "benchmark": benchmark,
        "case": case,
        "sides": list(sides),
        "repeats": len(times.wall),
        "clock": by,
        "ratio": spread(ratios(chosen)).as_dict(),
        "wall_ratio": spread(ratios(times.wall)).as_dict(),
        "seconds": [round(statistics.median(side), 5) for side in zip(*chosen, strict=True)],
        **more,
    }
