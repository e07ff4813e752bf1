"""Software half against FP32: seconds of a training step, as ratios measured pair by pair in one run.

    python -m benchmarks.software_half [--pairs 15] [--only DB] [--json FILE]

Each pair is one FP32 step and one step under software half of the same model and batch, right after each other,
so that a change in the machine's load falls on both. What counts is the median ratio and its quartiles.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import zlib  # noqa: F401  (before paddle, see paddle_amp_plugin)
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from rich.progress import track

from benchmarks.models import CASES
from paddle_amp_plugin import software_half
from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST

SETTINGS = (("O1", "float16"), ("O2", "float16"), ("O1", "bfloat16"))


def _stepper(name: str, level: str, dtype: str) -> Callable[[bool], float]:
    """A function that runs one training step, in half or in FP32, and returns its seconds."""
    paddle.seed(0)
    plain, half = CASES[name](), CASES[name]()
    optimizers = [paddle.optimizer.AdamW(1e-4, parameters=case.model.parameters()) for case in (plain, half)]
    if level == "O2":
        half.model, optimizers[1] = paddle.amp.decorate(half.model, optimizers[1], level="O2", dtype=dtype)

    def step(in_half: bool) -> float:
        case, optimizer = (half, optimizers[1]) if in_half else (plain, optimizers[0])
        case.model.train()
        start = time.perf_counter()
        with paddle.amp.auto_cast(enable=in_half, level=level, dtype=dtype, custom_black_list=set(SAFE_BLACK_LIST)):
            out = case.model(*case.inputs)
        case.loss(out).backward()
        optimizer.step()
        optimizer.clear_grad()
        return time.perf_counter() - start

    return step


def measure(name: str, level: str, dtype: str, pairs: int) -> dict[str, Any]:
    """Median and quartiles of (software half step / FP32 step) over ``pairs`` pairs, after two warm-up pairs."""
    with software_half.emulate():
        step = _stepper(name, level, dtype)
        for in_half in (False, True, False, True):
            step(in_half)
        times = []
        for _ in track(range(pairs), description=f"{name} {level} {dtype}"):
            # FP32 is measured without the wrappers: it is what a user without the plugin has.
            software_half.uninstall()
            plain = step(False)
            software_half.install()
            times.append((plain, step(True)))
    plain, half = np.array(times).T
    low, middle, high = np.percentile(half / plain, [25, 50, 75])
    return {
        "model": name,
        "level": level,
        "dtype": dtype,
        "ratio": round(float(middle), 3),
        "quartiles": [round(float(low), 3), round(float(high), 3)],
        "fp32_step_seconds": round(float(np.median(plain)), 4),
        "pairs": pairs,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| model | level | dtype | software half ÷ FP32 | quartiles | FP32 step (s) |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["quartiles"]
        lines.append(
            f"| {row['model']} | {row['level']} | {row['dtype']} | {row['ratio']:.2f} | {low:.2f} to {high:.2f} "
            f"| {row['fp32_step_seconds']:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line; prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [options.only] if options.only else list(CASES)
    rows = [measure(name, level, dtype, options.pairs) for name in names for level, dtype in SETTINGS]
    print(f"\nPaddle {paddle.__version__}, Python {platform.python_version()}, {platform.machine()}\n")
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
