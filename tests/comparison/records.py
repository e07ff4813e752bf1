"""Records made by hand, of machines that are not here."""

from __future__ import annotations

import dataclasses
from typing import Any

from paddle_amp_plugin.comparison.record import Comparison, Model, Run

#: A CRNN-like model on a V100: 200 MMAC a layer, widths in eights.
BIG = Model(parameters=25_000_000, macs=10_000_000_000, products=50, odd_share=0.0)
LOSSES = (4.0, 3.0, 2.5, 2.0, 1.8, 1.6, 1.5, 1.4, 1.35)


def run(mode: str, seed: int = 1, *, ms: float = 100.0, **changes: Any) -> Run:
    """40 steps of batch 32 that take ``ms`` each: 2 % reader, 33 % forward, 55 % backward, 10 % update."""
    total = 40 * ms / 1000
    parts = {"reader": 0.02 * total, "forward": 0.33 * total, "backward": 0.55 * total, "update": 0.10 * total}
    values: dict[str, Any] = {
        "mode": mode,
        "seed": seed,
        "losses": LOSSES,
        "timed": 40,
        "samples": 40 * 32,
        "memory": 8_000_000_000 if mode == "fp32" else 5_600_000_000,
        "metric": {"acc": 0.80},
        "half_share": None if mode == "fp32" else 0.6,
        **parts,
        **changes,
    }
    return Run(**values)


def record(*runs: Run, **changes: Any) -> Comparison:
    """On a V100 unless said otherwise."""
    values: dict[str, Any] = {
        "name": "rec",
        "family": "rec/CRNN",
        "device": "gpu",
        "device_name": "Tesla V100-SXM2-32GB",
        "capability": (7, 0),
        "software_half": False,
        "synthetic": False,
        "steps": 9,
        "seeds": tuple(sorted({r.seed for r in runs})),
        "modes": tuple(dict.fromkeys(r.mode for r in runs)),
        "batch_size": 32,
        "model": BIG,
        "runs": runs,
        **changes,
    }
    return Comparison(**values)


def slower_parts(one: Run, part: str, seconds: float) -> Run:
    return dataclasses.replace(one, **{part: seconds})
