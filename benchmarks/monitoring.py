"""What monitoring costs: seconds of a training step with and without it, as ratios measured pair by pair in one run.

    python -m benchmarks.monitoring [--pairs 30] [--case SVTR] [--json FILE]

Each pair is one step of the same O1 float16 training under software half without monitoring and one with all of it
(gradient norm, zero share when it is due, JSONL, VisualDL), right after each other and in alternating order, so that
a change in the machine's load falls on both. Beside the ratio, what the monitoring itself took is timed directly: on a
shared machine the ratio's quartiles are wider than the cost.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
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
from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.monitor import Monitor, StepEvent, global_grad_norm, zero_share
from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST
from paddle_amp_plugin.scaler import LossScaler, optimizer_parameters


def _stepper(name: str, monitor: Monitor) -> Callable[[bool], tuple[float, float]]:
    """A function that runs one step and returns its seconds, and those of them that went into monitoring."""
    paddle.seed(0)
    case = CASES[name]()
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=case.model.parameters())
    scaler = LossScaler(ScalingPolicy())
    count = 0

    def watch(loss: Any, parameters: list[Any], seconds: float) -> None:
        monitor.step(
            StepEvent(
                step=count,
                loss=float(loss),
                loss_scale=scaler.current_scale,
                grad_norm=global_grad_norm(parameters),
                lr=optimizer.get_lr(),
                seconds=seconds,
                samples=case.inputs[0].shape[0],
                half_share=0.7,
                zero_grad_share=zero_share(parameters) if monitor.wants_zero_share(count) else None,
                updates=count,
            )
        )

    def step(watched: bool) -> tuple[float, float]:
        nonlocal count
        start = time.perf_counter()
        with paddle.amp.auto_cast(level="O1", dtype="float16", custom_black_list=set(SAFE_BLACK_LIST)):
            out = case.model(*case.inputs)
        loss = case.loss(out)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        before = time.perf_counter()
        if watched:
            count += 1
            watch(loss, optimizer_parameters(optimizer), before - start)
        spent = time.perf_counter() - before
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        return time.perf_counter() - start, spent if watched else 0.0

    return step


def measure(name: str, pairs: int, folder: Path) -> dict[str, Any]:
    """Median and quartiles of (monitored step / plain step), and the monitoring's own share of a step."""
    monitor = Monitor(folder, say=lambda line: None, policy=ScalingPolicy())
    with software_half.emulate():
        step = _stepper(name, monitor)
        for watched in (False, True, False, True):
            step(watched)
        plain, watched_times, spent = [], [], []
        for pair in track(range(pairs), description=name):
            for watched in (bool(pair % 2), not pair % 2):
                seconds, own = step(watched)
                (watched_times if watched else plain).append(seconds)
                if watched:
                    spent.append(own)
    monitor.close()
    low, middle, high = np.percentile(np.array(watched_times) / np.array(plain), [25, 50, 75])
    return {
        "model": name,
        "ratio": round(float(middle), 4),
        "quartiles": [round(float(low), 4), round(float(high), 4)],
        # the mean, not the median: the steps at which the zero share is due belong to the cost
        "monitoring_share": round(float(np.mean(spent) / np.median(plain)), 5),
        "monitoring_ms": round(float(np.mean(spent)) * 1000, 3),
        "step_seconds": round(float(np.median(plain)), 4),
        "pairs": pairs,
    }


def main() -> None:
    """Command line; prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--case", choices=list(CASES), default="SVTR")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(options.case, options.pairs, Path(folder))
    low, high = row["quartiles"]
    print(f"\nPaddle {paddle.__version__}, Python {platform.python_version()}, {platform.machine()}\n")
    print("| model | monitored ÷ plain | quartiles | monitoring alone (ms) | share of a step | step (s) |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {row['model']} | {row['ratio']:.3f} | {low:.3f} to {high:.3f} | {row['monitoring_ms']:.2f} "
        f"| {row['monitoring_share']:.2%} | {row['step_seconds']:.3f} |"
    )
    if options.json:
        options.json.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
