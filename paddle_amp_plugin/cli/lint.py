"""``paddle-amp lint``: the findings of ``paddle_amp_plugin.lint``, shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.lint import RULES, Finding, codes, files_of, lint_files
from paddle_amp_plugin.lint.engine import unknown_code
from paddle_amp_plugin.lint.output import FORMATS, as_github, as_json, as_text, explained, listing
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import nearest

#: Exit code when something was found.
FOUND = 1
#: From so many files on a terminal sees a progress bar.
_MANY = 20


def lint(
    paths: Sequence[Path],
    *,
    select: Sequence[str],
    ignore: Sequence[str],
    format: str,
    explain: str | None,
    list_: bool,
) -> None:
    """Prints the findings, or what a code means.

    Raises AmpError AMP280 for the arguments, SystemExit(1) if there are findings.
    """
    if list_:
        print(listing())
        return
    if explain is not None:
        code = explain.upper()
        if code not in RULES:
            raise unknown_code(explain)
        print(explained(RULES[code]))
        return
    if format not in FORMATS:
        near = nearest(format, FORMATS)
        raise AmpError(
            "AMP280",
            tr("--format {f}: allowed: {a}", "--format {f}：允许的值：{a}", f=format, a=", ".join(FORMATS)),
            hint=tr("did you mean: {s}", "您是不是想写：{s}", s=near) if near else "",
        )
    if not paths:
        raise AmpError(
            "AMP280",
            tr("what is to be linted? Give files or folders", "请给出要检查的文件或文件夹"),
            hint="paddle-amp lint .",
        )
    wanted = codes(select, ignore)
    files = files_of(paths)
    if not files:
        raise AmpError("AMP280", tr("no Python file in {p}", "{p} 中没有 Python 文件", p=", ".join(map(str, paths))))
    findings = _linted(files, wanted)
    _show(findings, len(files), format)
    if findings:
        raise SystemExit(FOUND)


def _linted(files: Sequence[Path], wanted: frozenset[str]) -> list[Finding]:
    if len(files) < _MANY or not sys.stderr.isatty():
        return lint_files(files, wanted)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(tr("linting", "检查中"), total=len(files))
        return lint_files(files, wanted, lambda done, total: bar.update(task, completed=done))


def _show(findings: Sequence[Finding], files: int, format: str) -> None:
    if format == "github" and not findings:
        return
    shown = {"json": lambda: as_json(findings, files), "github": lambda: as_github(findings)}
    text = shown.get(format, lambda: as_text(findings, files))()
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
