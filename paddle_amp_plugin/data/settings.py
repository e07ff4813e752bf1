"""What decides the bytes of the quick start's data set. Imports neither Pillow nor fonts."""

from __future__ import annotations

from dataclasses import dataclass

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr


@dataclass(frozen=True)
class OcrLineSettings:
    """The settings of ``ocr_lines``."""

    lines: int = 12000
    val_lines: int = 500
    seed: int = 2024
    han: int = 40
    #: Widest line, in em (one Chinese character is 1 em).
    max_width: float = 5.0

    def check(self) -> None:
        """Raise AMP075 for settings that cannot be made."""
        bounds = {"lines": (1, 1_000_000), "val_lines": (1, 100_000), "han": (8, 3000), "max_width": (2.0, 40.0)}
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise AmpError(
                    "AMP075",
                    tr(
                        "{n} is {v}; allowed: {a} to {b}",
                        "{n} 的值是 {v}；允许的范围：{a} 到 {b}",
                        n=name,
                        v=value,
                        a=low,
                        b=high,
                    ),
                )
