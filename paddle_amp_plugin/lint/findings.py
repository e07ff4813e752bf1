"""A finding, and what a rule is: a code, words in both languages, and an example of wrong and right."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal, NamedTuple

from paddle_amp_plugin.messages import tr

Severity = Literal["error", "warning", "note"]


class Text(NamedTuple):
    """The same words in English and in Chinese."""

    en: str
    zh: str

    def __str__(self) -> str:
        return tr(self.en, self.zh)


@dataclass(frozen=True)
class Rule:
    """One thing to look for. ``bad`` is reported, ``good`` is not (both are tested)."""

    code: str
    severity: Severity
    title: Text
    why: Text
    instead: Text
    bad: str
    good: str


@dataclass(frozen=True)
class Finding:
    """One place in one file. Lines and columns count from 1, columns in characters; the end column is past the end.

    ``fix`` says what to write instead. A file that cannot be linted is a finding, too, of severity "error".
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    severity: Severity
    title: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Hit:
    """What a rule returns: the node, and in words what is wrong there and what to write instead."""

    rule: Rule
    node: ast.AST
    message: str
    fix: str
    severity: Severity | None = None


def written(node: ast.AST, longest: int = 48) -> str:
    """An expression as code on one line, shortened in the middle."""
    try:
        return shortened(" ".join(ast.unparse(node).split()), longest)
    except (RecursionError, ValueError):
        return "…"


def shortened(text: str, longest: int) -> str:
    """``text`` with its middle left out, if it is longer than ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 13]} … {text[-10:]}"
