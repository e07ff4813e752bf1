"""From paths to findings: which files, which rules, in which order."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.lint.findings import Finding, Hit
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.rules import CHECKS, RULES
from paddle_amp_plugin.lint.source import Silenced, Unreadable, column_of, load
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import nearest

#: Folders that a walk does not enter. A virtual environment is known by its ``pyvenv.cfg``, whatever its name.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})

Progress = Callable[[int, int], None]


def codes(selected: Sequence[str], ignored: Sequence[str]) -> frozenset[str]:
    """The codes to report. A code may be cut short: ``AMP13`` is AMP130 to AMP139. Raises AmpError AMP280."""
    chosen = _matching(selected) if selected else frozenset(RULES)
    return chosen - _matching(ignored)


def _matching(texts: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for text in texts:
        for word in text.replace(",", " ").split():
            more = (
                {code for code in RULES if code.startswith(word.upper())} if word.upper().startswith("AMP") else set()
            )
            if not more:
                raise unknown_code(word)
            found |= more
    return frozenset(found)


def unknown_code(word: str) -> AmpError:
    """AMP280 for a code that no rule has."""
    near = nearest(word, RULES)
    hint = tr("did you mean: {s}", "您是不是想写：{s}", s=near) if near else ""
    return AmpError(
        "AMP280",
        tr("unknown code: {w}; `--list` shows all", "未知代码：{w}；`--list` 列出全部", w=word),
        hint=hint,
    )


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The Python files at ``paths``: a file as it is, a folder with all below it, each once, sorted within a folder.

    Hidden folders, virtual environments and ``SKIPPED`` below a folder are left out; links to folders are not followed.
    Raises AmpError AMP280 for a path that does not exist.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update(dict.fromkeys(_below(path)))
        elif path.exists():
            found[path] = None
        else:
            raise AmpError("AMP280", tr("no such file or folder: {p}", "文件或文件夹不存在：{p}", p=path))
    return list(found)


def _below(folder: Path) -> Iterator[Path]:
    for current, folders, names in os.walk(folder):
        folders[:] = sorted(
            f
            for f in folders
            if f not in SKIPPED and not f.startswith(".") and not os.path.exists(os.path.join(current, f, "pyvenv.cfg"))
        )
        yield from (Path(current, name) for name in sorted(names) if name.endswith(".py"))


def lint_files(files: Sequence[Path], wanted: Collection[str], progress: Progress | None = None) -> list[Finding]:
    """The findings in ``files`` with a code in ``wanted``, in the order of files and lines.

    A file that cannot be read or parsed gives one finding of severity "error" (AMP281 to AMP284), whatever is wanted.
    """
    findings: list[Finding] = []
    for number, path in enumerate(files, 1):
        findings += lint_file(path, wanted)
        if progress is not None:
            progress(number, len(files))
    return findings


def lint_file(path: Path, wanted: Collection[str]) -> list[Finding]:
    """As ``lint_files``, of one file."""
    try:
        module = load(path, str(path))
        return lint_module(module, wanted)
    except Unreadable as error:
        return [error.finding]
    except RecursionError:
        message = tr("nested too deeply to be read", "嵌套过深，无法读取")
        return [Finding(str(path), 1, 1, 1, 1, "AMP284", "error", tr("file not linted", "文件未检查"), message)]


def lint_module(module: Module, wanted: Collection[str]) -> list[Finding]:
    """The findings of one parsed file, without those that a ``# noqa`` silences."""
    if "paddle" not in module.text and "scaler" not in module.text:
        return []
    found = {_finding(module, hit) for check in CHECKS for hit in check(module) if hit.rule.code in wanted}
    silenced = Silenced(module) if found else ()
    return sorted(
        (f for f in found if f not in silenced),
        key=lambda f: (f.line, f.column, f.code, f.end_line, f.end_column, f.message),
    )


def _finding(module: Module, hit: Hit) -> Finding:
    node = hit.node
    assert isinstance(node, (ast.expr, ast.stmt))
    line, end_line = node.lineno, node.end_lineno or node.lineno
    return Finding(
        module.path,
        line,
        column_of(module, line, node.col_offset),
        end_line,
        column_of(module, end_line, node.end_col_offset or node.col_offset),
        hit.rule.code,
        hit.severity or hit.rule.severity,
        str(hit.rule.title),
        hit.message,
        hit.fix,
    )
