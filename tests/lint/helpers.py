"""Code in, findings out."""

from __future__ import annotations

from textwrap import dedent

from paddle_amp_plugin.lint import RULES, Finding
from paddle_amp_plugin.lint.engine import lint_module
from paddle_amp_plugin.lint.source import parse


def found(code: str, path: str = "model.py") -> list[Finding]:
    return lint_module(parse(dedent(code).encode(), path), frozenset(RULES))


def places(code: str, path: str = "model.py") -> list[tuple[str, int, int]]:
    """(code, line, column) of every finding."""
    return [(f.code, f.line, f.column) for f in found(code, path)]


def names(code: str, path: str = "model.py") -> list[str]:
    return [f.code for f in found(code, path)]


def in_forward(*lines: str) -> str:
    """``lines`` as the body of a Layer's ``forward(self, x, y, mask)``; the first is line 7."""
    head = [
        "import paddle",
        "import paddle.nn.functional as F",
        "from paddle import nn",
        "",
        "class Model(nn.Layer):",
        "    def forward(self, x, y, mask):",
    ]
    return "\n".join([*head, *(f"        {line}" for line in lines)]) + "\n"


def in_loop(*lines: str, head: tuple[str, ...] = ()) -> str:
    """``lines`` as the body of a training loop; the first is line 8 (after ``head``'s)."""
    start = [
        "import paddle",
        "",
        "def train(model, loader, optimizer, scaler, use_amp, criterion):",
        *(f"    {line}" for line in head),
        "    for step, batch in enumerate(loader):",
        "        with paddle.amp.auto_cast(enable=use_amp):",
        "            loss = criterion(model(batch))",
    ]
    return "\n".join([*start, *(f"        {line}" for line in lines)]) + "\n"
