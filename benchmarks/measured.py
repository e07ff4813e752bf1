"""The measurements. Each yields rows (``pairs.row``); ``BENCHMARKS`` names them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.device import Target
from benchmarks.pairs import Times, alternate, row, spread

Tick = Callable[[], None]
#: The networks that the plugin's own cost is measured on.
OWN_COST = ("SVTR", "BERT-4")
HALF_SETTINGS = (("O1", "float16"), ("O2", "float16"), ("O1", "bfloat16"))


def overhead(target: Target, repeats: int, tick: Tick) -> Iterator[dict[str, Any]]:
    """The plugin's step against the same step written by hand with ``auto_cast`` and ``GradScaler``."""
    from benchmarks import loops

    for name in OWN_COST:
        with target.emulation():
            hand = loops.by_hand(name)
            with loops.by_plugin(name) as (plugin, session):
                times = alternate(hand, plugin, repeats=repeats, finish=target.finish, tick=tick)
                skips = session.skips
        yield row("overhead", name, ("by hand", "plugin"), times, by=target.clock, goal=1.01, skips=skips)


def monitoring(target: Target, repeats: int, tick: Tick) -> Iterator[dict[str, Any]]:
    """A step that is recorded (gradient norm, JSONL, VisualDL) against one that is not.

    The recording is also timed by itself: on a shared machine the ratio spreads wider than the cost.
    """
    from benchmarks import loops
    from paddle_amp_plugin.monitor import Monitor

    for name in OWN_COST:
        with tempfile.TemporaryDirectory() as folder, target.emulation(), loops.by_plugin(name) as (step, session):
            session.watch(Monitor(Path(folder), say=lambda line: None, policy=session.plan.scaling))
            observer, own = session._observer, Stopwatch(target)
            for method in ("called", "backward", "unscaled", "finished"):
                setattr(observer, method, own.timed(getattr(observer, method)))

            def on(session: Any = session, observer: Any = observer, step: Callable[[], None] = step) -> None:
                session._observer = observer
                step()

            def off(session: Any = session, step: Callable[[], None] = step) -> None:
                session._observer = None
                step()

            times = alternate(off, on, repeats=repeats, finish=target.finish, tick=tick)
            session._observer = observer
        result = row("monitoring", name, ("off", "on"), times, by=target.clock)
        share = own.seconds / own.steps / result["seconds"][0]
        yield {**result, "own_share": round(share, 5), "own_ms": round(own.seconds / own.steps * 1000, 3)}


class Stopwatch:
    """Adds up the seconds of the functions it has wrapped."""

    def __init__(self, target: Target) -> None:
        self._clock = time.process_time if target.clock == "cpu" else time.perf_counter
        self.seconds, self.steps = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            start = self._clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += self._clock() - start
                self.steps += function.__name__ == "finished"

        return measured


def armed(target: Target, repeats: int, tick: Tick) -> Iterator[dict[str, Any]]:
    """A watched (armed) step, in which every layer's range is measured, against a plain one."""
    from benchmarks import loops

    for name in OWN_COST:
        with target.emulation(), loops.by_plugin(name) as (step, session):

            def watched(session: Any = session, step: Callable[[], None] = step) -> None:
                session.treatment._armed = 1
                step()
                assert session.treatment._armed == 0, "the step was not watched"

            times = alternate(step, watched, repeats=repeats, finish=target.finish, tick=tick)
        yield row("armed", name, ("plain", "armed"), times, by=target.clock, goal=2.0)


def half(target: Target, repeats: int, tick: Tick) -> Iterator[dict[str, Any]]:
    """Half precision against FP32: on a CPU software half, on a GPU its own, there with throughput and memory."""
    from benchmarks import loops
    from benchmarks.models import CASES

    for name in CASES:
        for level, dtype in HALF_SETTINGS:
            plain = loops.in_float32(name)
            with target.emulation():
                in_half = loops.by_hand(name, level, dtype)
                # FP32 is measured without the wrappers: it is what a user without the plugin has
                switch = (_without_wrappers, _with_wrappers) if target.kind == "cpu" else None
                times = alternate(plain, in_half, repeats=repeats, before=switch, finish=target.finish, tick=tick)
                more = _device_numbers(target, name, times, (plain, in_half))
            yield row("half", f"{name} {level} {dtype}", ("float32", dtype), times, by=target.clock, **more)


def _without_wrappers() -> None:
    from paddle_amp_plugin import software_half

    while software_half.installed():
        software_half.uninstall()


def _with_wrappers() -> None:
    from paddle_amp_plugin import software_half

    if not software_half.installed():
        software_half.install()


def _device_numbers(
    target: Target, name: str, times: Times, steps: tuple[Callable[[], None], Callable[[], None]]
) -> dict[str, Any]:
    """Samples a second and peak memory (MiB) of both sides, on a GPU; nothing on a CPU.

    The peak holds both networks' weights; what differs between the sides is what their steps allocate.
    """
    if target.kind != "gpu":
        return {}
    from benchmarks.loops import case_of

    samples = case_of(name)[0].inputs[0].shape[0]
    seconds = [spread(side).median for side in zip(*times.wall, strict=True)]
    peaks = []
    for step in steps:
        target.forget_peak()
        step()
        target.finish()
        peaks.append(target.peak())
    return {"samples_per_second": [round(samples / s, 1) for s in seconds], "peak_mib": peaks}


#: What a fresh Python runs; the last line of its output is the milliseconds that count.
_IMPORT = "import time; t = time.perf_counter(); {what}; print((time.perf_counter() - t) * 1000)"
IMPORTS = {
    "import paddle_amp_plugin": ("import paddle_amp_plugin", 5.0),
    "the command line, for --help": ("import paddle_amp_plugin.cli.main", None),
}


def imports(target: Target, repeats: int, tick: Tick) -> Iterator[dict[str, Any]]:
    """What a program pays for the plugin that it does not use: milliseconds in a fresh process."""
    for case, (what, goal) in IMPORTS.items():
        found = []
        for _ in range(repeats):
            command = [sys.executable, "-c", _IMPORT.format(what=what)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(float(done.stdout.split()[-1]))
            tick()
        yield {
            "benchmark": "imports",
            "case": case,
            "repeats": repeats,
            "clock": "wall",
            "milliseconds": spread(found).as_dict(3),
            "goal": goal,
        }


@dataclass(frozen=True)
class Benchmark:
    """``rows``: how many it yields, for the progress bar. ``repeats``: pairs of each, where no one says otherwise."""

    run: Callable[[Target, int, Tick], Iterator[dict[str, Any]]]
    rows: int
    repeats: int


BENCHMARKS: dict[str, Benchmark] = {
    "overhead": Benchmark(overhead, len(OWN_COST), 20),
    "monitoring": Benchmark(monitoring, len(OWN_COST), 12),
    "armed": Benchmark(armed, len(OWN_COST), 10),
    "half": Benchmark(half, 3 * len(HALF_SETTINGS), 5),
    "imports": Benchmark(imports, len(IMPORTS), 15),
}
