"""Findings as text for people, as JSON for programs, as workflow commands for GitHub."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from paddle_amp_plugin.lint.findings import Finding, Rule, Severity, Text
from paddle_amp_plugin.lint.rules import RULES
from paddle_amp_plugin.messages import tr

FORMATS = ("text", "json", "github")
#: Raised when a field changes its meaning or goes away; new fields do not raise it.
JSON_VERSION = 1

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
_SEVERITIES: dict[Severity, Text] = {
    "error": Text("error", "错误"),
    "warning": Text("warning", "警告"),
    "note": Text("note", "提示"),
}


def as_text(findings: Sequence[Finding], files: int) -> str:
    """One block a finding: place, code, what, the line with a mark, what to write instead; then how many."""
    blocks = []
    sources: dict[str, list[str]] = {}
    for finding in findings:
        place = f"{finding.path}:{finding.line}:{finding.column}"
        lines = [f"{place}: {finding.code} {_SEVERITIES[finding.severity]}: {finding.message}"]
        if finding.severity != "error":
            lines += _marked(finding, sources)
        if finding.fix:
            lines.append("    " + tr("instead: {f}", "建议：{f}", f=finding.fix))
        blocks.append("\n".join(lines))
    return "\n".join([*blocks, _summary(findings, files)])


def _marked(finding: Finding, sources: dict[str, list[str]]) -> list[str]:
    if finding.path not in sources:
        sources.clear()  # findings come file by file
        text = Path(finding.path).read_text(encoding="utf-8-sig", errors="replace")
        sources[finding.path] = text.split("\n")
    lines = sources[finding.path]
    if finding.line > len(lines):
        return []
    line = lines[finding.line - 1].rstrip()
    indent = len(line) - len(line.lstrip())
    end = finding.end_column if finding.end_line == finding.line else len(line) + 1
    before = line[indent : finding.column - 1]
    marks = "^" * max(_width(line[finding.column - 1 : end - 1]), 1)
    return ["    " + line[indent:].replace("\t", " "), "    " + " " * _width(before) + marks]


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _summary(findings: Sequence[Finding], files: int) -> str:
    if not findings:
        return tr("no findings in {n} file(s)", "{n} 个文件中没有发现问题", n=files)
    counts = Counter(f.code for f in findings)
    codes = ", ".join(f"{code} {number}" for code, number in sorted(counts.items()))
    found = tr(
        "{k} finding(s) in {m} of {n} file(s): {c}",
        "{n} 个文件中的 {m} 个共有 {k} 处问题：{c}",
        k=len(findings),
        m=len({f.path for f in findings}),
        n=files,
        c=codes,
    )
    known = next((code for code in sorted(counts) if code in RULES), None)
    if known is None:
        return found
    return found + "\n" + tr("why: paddle-amp lint --explain {c}", "原因：paddle-amp lint --explain {c}", c=known)


def as_json(findings: Sequence[Finding], files: int) -> str:
    """``{"version", "files", "counts", "findings": [{path, line, column, end_line, end_column, code, severity, title,
    message, fix}]}``."""
    counts = Counter(f.code for f in findings)
    document = {
        "version": JSON_VERSION,
        "files": files,
        "counts": dict(sorted(counts.items())),
        "findings": [asdict(f) for f in findings],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def as_github(findings: Sequence[Finding]) -> str:
    """One workflow command a finding, as GitHub Actions documents them (``::warning file=…,line=…::message``)."""
    return "\n".join(_command(f) for f in findings)


def _command(finding: Finding) -> str:
    values = {
        "file": Path(finding.path).as_posix(),
        "line": finding.line,
        "endLine": finding.end_line,
        "col": finding.column,
    }
    if finding.end_line == finding.line:  # GitHub shows columns of a single line only
        values["endColumn"] = finding.end_column
    values["title"] = finding.code
    properties = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in values.items())
    message = finding.message + (tr("; instead: {f}", "；建议：{f}", f=finding.fix) if finding.fix else "")
    return f"::{_COMMANDS[finding.severity]} {properties}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """As the runner's toolkit escapes: per cent, line ends, and in properties colons and commas."""
    for character in "%\r\n" + more:  # the per cent sign first
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def explained(rule: Rule) -> str:
    """Everything about one code, with an example that is reported and one that is not."""
    parts = [
        f"{rule.code} ({_SEVERITIES[rule.severity]}): {rule.title}",
        f"{rule.why}",
        tr("Instead: {i}", "建议：{i}", i=rule.instead),
        tr("Reported:", "会报告：") + "\n\n" + _indented(rule.bad),
        tr("Not reported:", "不会报告：") + "\n\n" + _indented(rule.good),
        tr("Silence one place: # noqa: {c}", "忽略一处：# noqa: {c}", c=rule.code),
    ]
    return "\n\n".join(parts)


def _indented(code: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in code.rstrip().split("\n"))


def listing() -> str:
    """One line a code."""
    return "\n".join(f"{r.code}  {_padded(str(_SEVERITIES[r.severity]), 7)}  {r.title}" for r in RULES.values())


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
