"""One config, said in up to three places: each place read by itself, then brought together without guessing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from paddle_amp_plugin.config_overrides import widen
from paddle_amp_plugin.config_schema import NESTED, AmpSettings, flag, problem_of, problems_of, unknown_key
from paddle_amp_plugin.errors import ConfigError, Problem
from paddle_amp_plugin.host_spellings import Host, names_of, prefix_of, section_of
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import plain, show

SourceKind = Literal["default", "preset", "yaml", "override", "host"]
#: The hosts' switches, and the dtype that a switch also sets.
SWITCHES = {"use_amp": None, "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Source:
    """Where a value came from: ``kind``, and the path as the user spelled it (``-o amp.level``)."""

    kind: SourceKind
    spelling: str = ""


@dataclass(frozen=True)
class Written:
    """A value the user wrote, normalised. ``path``: as in the file; ``source``: for the plan's table."""

    value: Any
    path: str
    source: Source


@dataclass
class Place:
    """What one place says. ``enabled`` is None where it says neither on nor off.

    ``denials`` are what a host can say and our key cannot: ``O0`` (``amp_level: O0``), ``float16`` and
    ``bfloat16`` (``fp16: false``, ``bf16: false``).
    """

    enabled: Written | None = None
    values: dict[str, Written] = field(default_factory=dict)
    denials: dict[str, Written] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


def read_key(document: Mapping[str, Any], root: str, touched: Mapping[str, str]) -> Place:
    """What stands under ``root`` (``amp`` or ``Global.amp``)."""
    section = document if root == "amp" else document.get("Global")
    place = Place()
    if not isinstance(section, Mapping) or "amp" not in section:
        return place
    shape = section["amp"]
    place.enabled = Written(shape is not False, root, _source(root, touched))
    if shape is False:
        return place
    try:
        mapping = widen(shape, path=root)
    except ConfigError as error:
        place.problems.extend(error.problems)
        return place

    def path_of(key: str) -> str:
        return root if isinstance(shape, str) and key in mapping else f"{root}.{plain(key)}"

    for key, value in _validate(_text_keys(mapping, root, place), path_of, place):
        place.values[key] = Written(value, path_of(key), _source(f"{root}.{key}", touched, path_of(key)))
    return place


def _text_keys(mapping: Mapping[Any, Any], root: str, place: Place, prefix: str = "") -> dict[str, Any]:
    """``mapping`` without the keys that are no text (``1``, an unquoted ``on``), which are reported."""
    kept = {}
    for key, value in mapping.items():
        if not isinstance(key, str):
            name = prefix + (str(key).lower() if isinstance(key, bool) else show(key))
            place.problems.append(unknown_key(name, f"{root}.{name}", value))
        elif key in NESTED and not prefix and isinstance(value, Mapping):
            kept[key] = _text_keys(value, root, place, f"{key}.")
        else:
            kept[key] = value
    return kept


def _source(dotted: str, touched: Mapping[str, str], path: str = "", kind: SourceKind = "yaml") -> Source:
    return Source("override", f"-o {touched[dotted]}") if dotted in touched else Source(kind, path or dotted)


def _validate(mapping: Mapping[str, Any], path_of: Callable[[str], str], place: Place) -> list[tuple[str, Any]]:
    """The valid entries of ``mapping``, normalised, as (dotted key, value); faults go to ``place``."""
    sound = dict(mapping)
    try:
        settings = AmpSettings.model_validate(sound)
    except ValidationError as error:
        for key, problem in problems_of(error, path_of):
            place.problems.append(problem)
            place.broken.add(key)
            _drop(sound, key)
        settings = AmpSettings.model_validate(sound)
    return list(written_values(settings))


def written_values(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of what was set, not defaulted, in the order of the schema."""
    for key in type(settings).model_fields:
        if key in settings.model_fields_set:
            value = getattr(settings, key)
            if isinstance(value, BaseModel):
                yield from written_values(value, f"{prefix}{key}.")
            else:
                yield prefix + key, value


def _drop(mapping: dict[str, Any], dotted: str) -> None:
    if dotted in mapping:  # also a key with a dot in it: `"monitor.visualdl": true`
        del mapping[dotted]
        return
    first, _, rest = dotted.partition(".")
    if isinstance(mapping.get(first), Mapping):
        mapping[first] = {k: v for k, v in mapping[first].items() if k != rest}


def _host_written(document: Mapping[str, Any], host: Host, touched: Mapping[str, str]) -> dict[str, Written]:
    """The host's AMP names in ``document``, unread. One without a value (``amp_level:``) was not written."""
    prefix = prefix_of(host)
    return {
        name: Written(value, prefix + name, _source(prefix + name, touched, kind="host"))
        for name, value in section_of(document, host).items()
        if isinstance(name, str) and name in names_of(host) and value is not None
    }


def read_switches(document: Mapping[str, Any], host: Host, touched: Mapping[str, str]) -> Place:
    """Whether the host's own names switch AMP on or off: ``use_amp``; ``fp16``, ``bf16``."""
    place = Place()
    on: list[Written] = []
    for name, item in _host_written(document, host, touched).items():
        if name not in SWITCHES:
            continue
        try:
            value = flag(item.value)
        except PydanticCustomError as error:
            place.problems.append(_as_host(problem_of("use_dynamic_loss_scaling", item.path, item.value, error)))
            place.broken.update(("enabled", "dtype"))
            continue
        dtype = SWITCHES[name]
        if value:
            on.append(item)
        if dtype is None:
            place.enabled = item
        elif value:
            place.enabled, place.values["dtype"] = item, replace(item, value=dtype)
        else:
            place.denials[dtype] = item
    if len(on) > 1:
        place.problems.append(contradiction(on[0], on[1], tr("only one can be true", "两者只能有一个为 true")))
        place.broken.add("dtype")
        del place.values["dtype"]
    return place


def read_host_values(document: Mapping[str, Any], host: Host, touched: Mapping[str, str], place: Place) -> None:
    """Add to ``place`` what the host's other AMP names say (level, dtype, lists, scale, …)."""
    names = names_of(host)
    by_key = {names[n]: w for n, w in _host_written(document, host, touched).items() if n not in SWITCHES}
    level = by_key.get("level")
    if level and isinstance(level.value, str) and level.value.strip().lower() == "o0":
        place.denials["O0"] = by_key.pop("level")
    mine = Place()
    raw = {key: list(w.value) if isinstance(w.value, set) else w.value for key, w in by_key.items()}
    for key, value in _validate(raw, lambda key: by_key[key].path, mine):
        place.values[key] = replace(by_key[key], value=value)
    place.problems.extend(map(_as_host, mine.problems))
    place.broken |= mine.broken


def _as_host(problem: Problem) -> Problem:
    return replace(problem, code="AMP011")


def contradiction(a: Written, b: Written, why: str = "") -> Problem:
    """AMP009: two places say different things; both paths and both values are named."""
    message = tr(
        "{q} is {w}, but {p} is {v}; {why}",
        "{q} 为 {w}，而 {p} 为 {v};{why}",
        p=a.path,
        v=_short(a.value),
        q=b.path,
        w=_short(b.value),
        why=why or tr("they must agree: keep one of them", "两者必须一致：请只保留其中一个"),
    )
    return Problem("AMP009", b.path, message, value=b.value)


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return show(list(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def bring_together(places: Iterable[Place]) -> Place:
    """All places as one; what two of them say differently is a problem, what they agree on is not."""
    total = Place()
    for place in places:
        total.problems.extend(place.problems)
        total.broken |= place.broken
        total.denials.update(place.denials)
        if place.enabled:
            total.enabled = total.enabled or place.enabled
            if total.enabled.value != place.enabled.value:
                total.problems.append(contradiction(total.enabled, place.enabled))
        for key, item in place.values.items():
            first = total.values.setdefault(key, item)
            if not _same(first.value, item.value):
                total.problems.append(contradiction(first, item))
    if total.enabled and total.enabled.value:
        total.problems.extend(_denied(total, total.enabled))
    return total


def _same(a: Any, b: Any) -> bool:
    return set(a) == set(b) if isinstance(a, tuple) and isinstance(b, tuple) else bool(a == b)


def _denied(total: Place, on: Written) -> Iterator[Problem]:
    """What is on although a host's name says no. ``fp16: false`` leaves bfloat16, and only that."""
    if "O0" in total.denials:
        yield contradiction(total.values.get("level", on), total.denials["O0"])
    dtype = total.values.get("dtype")
    no_float16, no_bfloat16 = total.denials.get("float16"), total.denials.get("bfloat16")
    is_bfloat16 = dtype is not None and dtype.value == "bfloat16"
    if no_bfloat16 and is_bfloat16:
        yield contradiction(dtype or on, no_bfloat16)
    elif no_float16 and not is_bfloat16:
        yield contradiction(dtype or on, no_float16)
