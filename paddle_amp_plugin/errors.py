"""Errors a user can act on: a stable code, what was found, what is allowed, what to do.

Codes: AMP001-AMP029 the ``amp`` key, AMP030-AMP059 files, hosts and runs, AMP060-AMP069 software half,
AMP070-AMP079 data, AMP080-AMP089 the report, AMP090-AMP099 checkpoints, AMP200-AMP214 PaddleNLP and
PaddleFormers, AMP215-AMP229 NLP recipes, AMP230-AMP249 export,
AMP285-AMP294 the estimate of memory. A code never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddle_amp_plugin.messages import tr


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one value of a config file.

    ``path`` is dotted (``amp.level``); ``value`` is the value as found; ``allowed`` says in words what
    would have been accepted; ``suggestion`` is the nearest allowed spelling, if one is near.
    """

    code: str
    path: str
    message: str
    value: object = None
    allowed: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.path}: {self.message}"]
        if self.allowed:
            lines.append("    " + tr("allowed: {a}", "允许的值：{a}", a=self.allowed))
        if self.suggestion:
            lines.append("    " + tr("did you mean: {s}", "您是不是想写：{s}", s=self.suggestion))
        return "\n".join(lines)


class AmpError(Exception):
    """Something the user can put right. Printed as one message, never as a traceback.

    ``code`` is stable (``AMP0xx``); ``exit_code`` is what the command line ends with.
    """

    def __init__(self, code: str, message: str, *, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}"
        return f"{text}\n    {self.hint}" if self.hint else text


class ConfigError(AmpError):
    """Everything that is wrong with one config, all at once (``problems``, in the order found)."""

    def __init__(self, problems: Sequence[Problem], *, source: str = "") -> None:
        self.problems = tuple(problems)
        where = f"{source}: " if source else ""
        head = tr(
            "{where}{n} problem(s) in the amp settings",
            "{where}amp 设置有 {n} 处问题",
            where=where,
            n=len(self.problems),
        )
        super().__init__(self.problems[0].code if self.problems else "AMP001", head)

    def __str__(self) -> str:
        return "\n".join([self.message, *map(str, self.problems)])
