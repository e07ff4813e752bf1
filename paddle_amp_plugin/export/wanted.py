"""What a user asks an export for. Pure: no Paddle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Method = Literal["ptq", "qat"]
METHODS: tuple[Method, ...] = ("ptq", "qat")


@dataclass(frozen=True)
class Wanted:
    """``out``: the output folder; ``qat_steps``: fine-tuning steps of ``int8="qat"``."""

    out: Path
    onnx: bool = False
    int8: Method | None = None
    qat_steps: int = 50
