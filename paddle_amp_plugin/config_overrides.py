"""``-o key=value`` from the command line, laid over the parsed YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]

from paddle_amp_plugin.config_schema import DTYPE_WORDS, LEVEL_WORDS, flag_meant
from paddle_amp_plugin.errors import ConfigError, Problem
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import nearest, show

#: What PyYAML lets out besides ``YAMLError`` on values that are none of their type: ``2001-13-45`` (ValueError),
#: ``!!int ''`` (IndexError), a list under ``!!int`` (AttributeError), …, and on endless nesting.
VALUE_FAULTS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
#: The places where our key may stand, as dotted paths.
ROOTS = ("amp", "Global.amp")


def parse_override(text: str) -> tuple[str, Any]:
    """``"amp.level=O2"`` -> ``("amp.level", "O2")``; the value is read as YAML, as the hosts do.

    Raises ``ConfigError`` (AMP014) where there is no ``=``, no key, or no YAML behind it.
    """
    path, sign, raw = text.strip().partition("=")
    path = path.strip()
    if not sign or not path or any(not part.strip() for part in path.split(".")):
        raise ConfigError([_bad_override(text, path)])
    try:
        return path, yaml.safe_load(raw)
    except (yaml.YAMLError, *VALUE_FAULTS):
        raise ConfigError([_bad_override(text, path)]) from None


def _bad_override(text: str, path: str) -> Problem:
    message = tr("-o cannot read this (found: {v})", "-o 无法解析（实际值：{v}）", v=show(text))
    return Problem("AMP014", path or "-o", message, value=text, allowed="key=value, key.subkey=value")


def widen(value: object, *, path: str = "amp") -> dict[str, Any]:
    """The mapping that a shape of the ``amp`` key stands for: ``true`` -> ``{}``, ``"O2"`` -> ``{"level": "O2"}``.

    A mapping is copied (one level). Raises ``ConfigError`` (AMP005) for ``false``, which no mapping can
    say, and for what is no shape of the key at all.
    """
    if value is True:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in LEVEL_WORDS:
            return {"level": LEVEL_WORDS[word]}
        if word in DTYPE_WORDS:
            return {"dtype": DTYPE_WORDS[word]}
    raise ConfigError([_bad_shape(value, path)])


def _bad_shape(value: object, path: str) -> Problem:
    suggestion = "true" if value is None else flag_meant(value)
    if isinstance(value, str) and not suggestion:
        # O0, 02: the letter O and the digit zero
        near = nearest(value.replace("0", "O"), [*LEVEL_WORDS, *DTYPE_WORDS, "true", "false", "fp32", "float32"])
        suggestion = LEVEL_WORDS.get(near) or flag_meant(near) or near
    if value is None:
        message = tr("the key has no value", "该键没有值")
    else:
        message = tr("cannot be read (found: {v})", "无法识别（实际值：{v}）", v=show(value))
    text = tr(
        "true, false, one of the words fp16, bf16, O1, O2, OD, or a mapping",
        "true、false,fp16、bf16、O1、O2、OD 之一，或一个映射",
    )
    return Problem("AMP005", path, message, value=value, allowed=text, suggestion=suggestion)


def overlay(
    document: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], list[Problem]]:
    """``document`` with ``overrides`` laid over it; nothing given is changed.

    Returns the new document, the paths set by ``-o`` (dotted path -> the ``-o`` path that set it), and the
    problems met. Laying a value over a document that already holds it changes nothing, so it does not
    matter whether the host has merged. On the ``amp`` key ``-o`` adds to what the YAML says (``amp=bf16``
    over a mapping sets its dtype, ``amp=true`` keeps it), except that ``amp=false`` switches off. A path
    below ``amp`` goes to where the YAML keeps the key (``Global.amp`` or ``amp``).
    """
    merged = dict(document)
    touched: dict[str, str] = {}
    problems: list[Problem] = []
    # whole keys first: `-o amp.level=O2 amp=true` must not depend on the order
    for path, value in sorted(overrides.items(), key=lambda item: str(item[0]).count(".")):
        root = _root_of(str(path))
        if root is None:
            _set(merged, str(path).split("."), value)
            touched.update(dict.fromkeys(_leaves(str(path), value), str(path)))
            continue
        home = _home(merged, root)
        target = home + str(path)[len(root) :]
        problem = _set_amp(merged, home, target, value, str(path), touched)
        if problem:
            problems.append(problem)
    return merged, touched, problems


def _root_of(path: str) -> str | None:
    return next((root for root in ROOTS if path == root or path.startswith(root + ".")), None)


def _home(document: Mapping[str, Any], root: str) -> str:
    """Where a value for ``root`` belongs: the other place if the key stands only there."""
    other = ROOTS[1 - ROOTS.index(root)]
    return other if not _present(document, root) and _present(document, other) else root


def _present(document: Mapping[str, Any], root: str) -> bool:
    holder: object = document
    for part in root.split("."):
        if not isinstance(holder, Mapping) or part not in holder:
            return False
        holder = holder[part]
    return True


def _get(document: Mapping[str, Any], root: str) -> Any:
    return document["amp"] if root == "amp" else document["Global"]["amp"]


def _set_amp(
    merged: dict[str, Any], home: str, target: str, value: Any, spelled: str, touched: dict[str, str]
) -> Problem | None:
    """Lay one ``-o`` value over the key at ``home``; the Problem if that cannot be done."""
    present = _present(merged, home)
    found = _get(merged, home) if present else True
    if target == home:
        return _set_whole(merged, home, found if present else None, value, spelled, touched)
    if found is False:
        message = tr("{home} is false, so this would do nothing", "{home} 为 false，此项不会起作用", home=home)
        return Problem("AMP009", spelled, message, value=value, allowed=f"-o {home}=true", suggestion=f"{home}=true")
    try:
        _set(merged, home.split("."), widen(found, path=home))
    except ConfigError:
        return None  # the key itself is at fault, and is reported when it is read
    if not _set(merged, target.split("."), value):
        parent = target.rpartition(".")[0]
        message = tr("{parent} is not a mapping", "{parent} 不是映射", parent=parent)
        return Problem("AMP014", spelled, message, value=value, allowed=f"{parent}=…", suggestion=parent)
    touched.update(dict.fromkeys(_leaves(target, value), spelled))
    if not present:
        touched[home] = spelled
    return None


def _set_whole(
    merged: dict[str, Any], home: str, found: Any, value: Any, spelled: str, touched: dict[str, str]
) -> Problem | None:
    """``-o amp=VALUE`` over what the YAML holds (None: nothing)."""
    new = value
    if value is not False:
        try:
            added = widen(value, path=spelled)
            new = {**(widen(found, path=home) if found is not False and found is not None else {}), **added}
            if isinstance(value, str) and found in (None, True, False, value):
                new = value  # stays a word, and is spelled as one in messages
        except ConfigError as error:
            return error.problems[0]
        touched.update(dict.fromkeys(_leaves(home, added), spelled))
    touched[home] = spelled
    below = merged.get("Global")
    if home == "amp":
        merged["amp"] = new
    else:
        merged["Global"] = {**(below if isinstance(below, Mapping) else {}), "amp": new}
    return None


def _leaves(path: str, value: Any, depth: int = 2) -> list[str]:
    """The dotted paths that a value sets: itself, or, for a mapping, its entries (``depth`` levels)."""
    if not isinstance(value, Mapping) or depth == 0:
        return [path]
    return [leaf for key, inner in value.items() for leaf in _leaves(f"{path}.{key}", inner, depth - 1)]


def _set(holder: dict[str, Any], parts: list[str], value: Any) -> bool:
    """Set a dotted path, copying each mapping on the way; False if something on the way is no mapping."""
    first, *rest = parts
    if not rest:
        old = holder.get(first)
        holder[first] = {**old, **value} if isinstance(value, Mapping) and isinstance(old, Mapping) else value
        return True
    below = holder.get(first, {})
    if not isinstance(below, Mapping):
        return False
    copy = dict(below)
    if not _set(copy, rest, value):
        return False
    holder[first] = copy
    return True


def texts_of(options: Mapping[str, Any]) -> list[str]:
    """Options as the hosts' ``-o`` takes them: as YAML 1.1, to which JSON's ``1e-05`` is a text."""

    def plain(value: Any) -> str:
        text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1_000_000)
        return str(text).strip().removesuffix("...").strip()

    return [f"{key}={plain(value)}" for key, value in options.items()]
