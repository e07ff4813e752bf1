"""A file on disk as a syntax tree, and its ``# noqa`` comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from pathlib import Path

from paddle_amp_plugin.lint.findings import Finding
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.messages import tr

_NOQA = re.compile(r"#\s*noqa\b(?P<codes>\s*:\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*)?", re.IGNORECASE)
_CODE = re.compile(r"[A-Z]+\d+", re.IGNORECASE)
_BAD_CODING = re.compile(r"unknown encoding|encoding problem|invalid or missing encoding")


class Unreadable(Exception):
    """A file that cannot be linted; ``finding`` says why and where."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def load(path: Path, shown: str) -> Module:
    """Reads and parses. Raises ``Unreadable``: AMP281 cannot be read, AMP282 not in the encoding it names (or UTF-8),
    AMP283 not Python, AMP284 nested too deeply for Python itself."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(
            shown, "AMP281", tr("cannot be read: {e}", "无法读取：{e}", e=error.strerror or error)
        ) from None
    return parse(data, shown)


def parse(data: bytes, shown: str) -> Module:
    """As ``load``, from a file's bytes."""
    text = _decoded(data, shown)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is no business of ours
            tree = ast.parse(text)
        return Module(shown, text, tree)
    except SyntaxError as error:
        message = tr("not Python: {e}", "不是有效的 Python：{e}", e=error.msg)
        raise _unreadable(shown, "AMP283", message, error.lineno or 1, error.offset or 1) from None
    except ValueError as error:  # a null byte
        raise _unreadable(shown, "AMP283", tr("not Python: {e}", "不是有效的 Python：{e}", e=error)) from None
    except (RecursionError, MemoryError):
        message = tr("nested too deeply to be read", "嵌套过深，无法读取")
        raise _unreadable(shown, "AMP284", message) from None


def _decoded(data: bytes, shown: str) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        message = tr("not text that Python can read: {e}", "不是 Python 可读的文本：{e}", e=error.msg)
        raise _unreadable(shown, "AMP282", message) from None
    try:
        return io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
    except (UnicodeDecodeError, LookupError) as error:
        line = data[: getattr(error, "start", 0)].count(b"\n") + 1
        message = tr("not {c} text, and no other encoding is declared", "不是 {c} 文本，也未声明其他编码", c=encoding)
        raise _unreadable(shown, "AMP282", message, line) from None


def _unreadable(shown: str, code: str, message: str, line: int = 1, column: int = 1) -> Unreadable:
    title = tr("file not linted", "文件未检查")
    column = max(column, 1)
    return Unreadable(Finding(shown, line, column, line, column, code, "error", title, message))


class Silenced:
    """The ``# noqa`` comments of a module: ``# noqa`` for all codes, ``# noqa: AMP101, AMP104`` for some.

    A comment counts for the whole statement it stands in or ends, however many lines that has; of a compound
    statement (``if``, ``for``, ``def``, …) only for its head.
    """

    def __init__(self, module: Module) -> None:
        self._by_line: dict[int, frozenset[str] | None] = {}
        if "noqa" in module.text.lower():
            self._read(module.text)
        self._spans = _spans(module) if self._by_line else {}

    def _read(self, text: str) -> None:
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                found = _NOQA.search(token.string) if token.type == tokenize.COMMENT else None
                if found:
                    codes = _CODE.findall(found.group("codes") or "")
                    self._by_line[token.start[0]] = frozenset(c.upper() for c in codes) or None
        except (tokenize.TokenError, SyntaxError, IndentationError):
            return

    def __contains__(self, finding: Finding) -> bool:
        first, last = self._spans.get(finding.line, (finding.line, finding.line))
        for line in range(first, last + 1):
            if line in self._by_line:
                codes = self._by_line[line]
                if codes is None or finding.code in codes:
                    return True
        return False


def _spans(module: Module) -> dict[int, tuple[int, int]]:
    """Line -> first and last line of the innermost statement (or head of one) that it belongs to."""
    spans: dict[int, tuple[int, int]] = {}
    for node in module.names.parent:  # outer before inner: the inner one is written last and stays
        if not isinstance(node, ast.stmt):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        if isinstance(body, list) and body:
            last = max(node.lineno, body[0].lineno - 1)
        for line in range(first, last + 1):
            spans[line] = (first, last)
    return spans


def column_of(module: Module, line: int, byte_offset: int) -> int:
    """The 1-based column in characters of a syntax tree's offset in UTF-8 bytes."""
    text = module.lines[line - 1] if 0 < line <= len(module.lines) else ""
    return len(text.encode("utf-8")[:byte_offset].decode("utf-8", "replace")) + 1
