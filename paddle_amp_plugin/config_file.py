"""Reading a YAML file so that whatever is wrong with it is said in one message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]

from paddle_amp_plugin.config_overrides import VALUE_FAULTS
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.host_spellings import is_amp_key
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import show


class _Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
    """PyYAML's safe loader, except that ``!!python/…`` tags are read as plain values.

    PaddleOCR reads its files with the unsafe loader, so such tags occur; nothing is executed for them here.
    """


def _plain(loader: Any, _suffix: str, node: Any) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", _plain)


def load_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in the YAML file at ``path``.

    Raises ``AmpError``: AMP030 no such file, or a folder; AMP031 unreadable or not UTF-8; AMP032 not YAML
    (with line and column); AMP033 an AMP key twice (with both lines), of which YAML would silently keep
    the last; AMP034 empty, or the top level is no mapping.
    """
    name = os.fspath(path)
    text = _read_text(name)
    try:
        _refuse_duplicates(yaml.compose(text, Loader=_Loader), name)
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise _syntax_error(name, error) from None
    except RecursionError:
        raise _not_yaml(name, tr("nested too deeply", "嵌套过深")) from None
    except VALUE_FAULTS as error:
        raise _not_yaml(name, tr("unreadable value: {e}", "无法解析的值：{e}", e=error)) from None
    if data is None:
        raise AmpError("AMP034", tr("{f} is empty", "{f} 是空文件", f=name))
    if not isinstance(data, dict):
        message = tr(
            "the top level of {f} is not a mapping (found: {v})",
            "{f} 的顶层不是映射（实际值：{v}）",
            f=name,
            v=show(data),
        )
        raise AmpError("AMP034", message, hint=tr("write `key: value` lines", "请写成 `键：值` 的形式"))
    return data


def _read_text(name: str) -> str:
    try:
        raw = Path(name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise AmpError(
            "AMP030",
            tr("no such file: {f}", "文件不存在：{f}", f=name),
            hint=tr("relative paths start at {d}", "相对路径以 {d} 为起点", d=_current_folder()),
        ) from None
    except IsADirectoryError:
        message = tr("{f} is a folder, not a YAML file", "{f} 是文件夹，不是 YAML 文件", f=name)
        raise AmpError("AMP030", message) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        message = tr("cannot read {f}: {e}", "无法读取 {f}:{e}", f=show(name)[1:-1], e=reason)
        raise AmpError("AMP031", message, hint=tr("check its permissions", "请检查文件权限")) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = tr(
            "{f} is not UTF-8 text (byte {b} at line {n})",
            "{f} 不是 UTF-8 文本（第 {n} 行，字节 {b}）",
            f=name,
            b=f"0x{raw[error.start]:02x}",
            n=line,
        )
        raise AmpError("AMP031", message, hint=tr("save it as UTF-8", "请另存为 UTF-8 编码")) from None


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed under us
        return "."


def _syntax_error(name: str, error: Exception) -> AmpError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    if mark is None:
        return _not_yaml(name, str(what))
    where = tr("line {n}, column {c}", "第 {n} 行第 {c} 列", n=mark.line + 1, c=mark.column + 1)
    return _not_yaml(name, f"{where}: {what}", mark.get_snippet(indent=0) or "")


def _not_yaml(name: str, what: str, snippet: str = "") -> AmpError:
    hint = snippet.replace("\n", "\n    ")
    return AmpError("AMP032", tr("{f} is not valid YAML: {w}", "{f} 不是有效的 YAML:{w}", f=name, w=what), hint=hint)


def _amp_keys(root: Any) -> Iterator[tuple[str, int]]:
    """(dotted path, line counted from 1) of every key of the file that has to do with AMP."""
    for key, value in _pairs(root):
        line = key.start_mark.line + 1
        if is_amp_key(key.value):
            yield key.value, line
        if key.value == "amp":
            yield from _below("amp", value, 2)
        elif key.value == "Global":
            inner = [pair for pair in _pairs(value) if is_amp_key(f"Global.{pair[0].value}")]
            if inner:  # of two `Global` blocks the first is lost, and the AMP keys in it
                yield "Global", line
            for inner_key, inner_value in inner:
                yield f"Global.{inner_key.value}", inner_key.start_mark.line + 1
                yield from _below(f"Global.{inner_key.value}", inner_value, 2)


def _below(path: str, node: Any, depth: int) -> Iterator[tuple[str, int]]:
    for key, value in _pairs(node):
        yield f"{path}.{key.value}", key.start_mark.line + 1
        if depth > 1:
            yield from _below(f"{path}.{key.value}", value, depth - 1)


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(k, v) for k, v in node.value if isinstance(k, yaml.ScalarNode) and k.value != "<<"]


def _refuse_duplicates(root: Any, name: str) -> None:
    globals_total = sum(key.value == "Global" for key, _ in _pairs(root))
    seen: dict[str, int] = {}
    for path, line in _amp_keys(root):
        if path == "Global" and globals_total > 1 and path not in seen:
            others = [k.start_mark.line + 1 for k, _ in _pairs(root) if k.value == "Global"]
            first, second = others[0], others[1]
        elif path in seen:
            first, second = seen[path], line
        else:
            seen[path] = line
            continue
        message = tr(
            "{f}: the key {p} stands twice (lines {a} and {b})",
            "{f}：键 {p} 出现了两次（第 {a} 行与第 {b} 行）",
            f=name,
            p=path,
            a=first,
            b=second,
        )
        raise AmpError("AMP033", message, hint=tr("keep one of them", "请只保留一处"))
