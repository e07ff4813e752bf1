"""The quick start trained for real, once a test session and setting; shared by the convergence tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
TIMEOUT = 1800  # seconds; a shared CI machine may be several times slower than a free one


def run(*command: str) -> str:
    """A command in the project's folder, as a user runs it; its output. Fails with the end of the output."""
    environment = {**os.environ, "NO_ALBUMENTATIONS_UPDATE": "1", "PADDLE_AMP_LANG": "en"}
    environment.setdefault("OMP_NUM_THREADS", "2")
    done = subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@dataclass(frozen=True)
class Trained:
    """One finished run: its output folder, all it printed, and its last evaluation's accuracy."""

    output: Path
    text: str
    seconds: float

    @property
    def accuracy(self) -> float:
        return float(re.findall(r"cur metric, acc: ([\d.]+)", self.text)[-1])


@cache
def trained(folder: Path, *options: str) -> Trained:
    """``tools/train.py -c configs/ocr_amp.yml`` into a folder of its own, with ``-o`` options; data made if missing."""
    run("-m", "paddle_amp_plugin.data", "ocr_lines", "--out", "train_data/ocr_amp")
    begin = time.monotonic()
    text = run("tools/train.py", "-c", "configs/ocr_amp.yml", "-o", f"Global.save_model_dir={folder}", *options)
    return Trained(folder, text, time.monotonic() - begin)
