"""Everything that is measured, side by side, in one command.

    python -m benchmarks [overhead monitoring armed half imports] [--device cpu|gpu] [--repeats N] [--out FILE.json]

Every pair of steps is run right after each other, in alternating order; what counts is the median of the pairs' ratios,
with its quartiles. On a CPU the process's own CPU time is compared, since machines are shared; on a GPU the wall clock.
``--docs`` also writes the tables into ``docs/*/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib  # noqa: F401  (before paddle, see paddle_amp_plugin)
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import tables
from benchmarks.device import Target
from benchmarks.machine import describe
from benchmarks.measured import BENCHMARKS
from paddle_amp_plugin.messages import language

DOCS = Path(__file__).resolve().parents[1] / "docs"
#: Grows when a key of the result goes away or changes its meaning.
RESULT_VERSION = 1


def measure(
    names: Sequence[str],
    device: str,
    repeats: int | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda r: None,
) -> dict[str, Any]:
    """Runs the named benchmarks; the result as JSON values. ``repeats``: by default each benchmark's own.

    ``keep`` gets what there is after every row: what was measured is not lost when the rest is interrupted.
    """
    target = Target(device)
    result: dict[str, Any] = {"version": RESULT_VERSION, "machine": describe(device), "rows": []}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        chosen = [(name, BENCHMARKS[name]) for name in names]
        task = progress.add_task("", total=sum(one.rows * (repeats or one.repeats) for _, one in chosen))
        for name, one in chosen:
            progress.update(task, description=name)
            for found in one.run(target, repeats or one.repeats, lambda: progress.advance(task)):
                result["rows"].append(found)
                keep(result)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--repeats", type=int, help="pairs of each row (by default 5 to 20)")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/*/benchmarks.md")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown or (options.repeats is not None and options.repeats < 1):
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "--repeats: 1 or more")

    def keep(result: dict[str, Any]) -> None:
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    result = measure(options.names or list(BENCHMARKS), options.device, options.repeats, keep)
    print(tables.markdown(result, language()))
    if options.docs:
        for folder in ("en", "zh"):
            tables.into(DOCS / folder / "benchmarks.md", tables.markdown(result, folder))  # type: ignore[arg-type]
    sys.stdout.flush()


if __name__ == "__main__":
    main()
