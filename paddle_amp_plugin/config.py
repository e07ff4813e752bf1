"""The ``amp`` key of a YAML file, resolved: every setting, where it came from, and everything that is wrong with it.

Codes of the problems: AMP001 unknown key, AMP002 wrong type, AMP003 unknown word, AMP004 number out of range,
AMP005 no shape of the key, AMP006 order of the scales, AMP007 op in both lists, AMP008 ``master_grad`` below O2,
AMP009 contradiction, AMP010 misspelt key that no one reads, AMP011 bad value under a host's name, AMP012 bad
entry of a list, AMP013 not available yet, AMP014 bad ``-o``, AMP015 ``eval_dtype`` unlike ``dtype``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle_amp_plugin.config_file import load_yaml
from paddle_amp_plugin.config_overrides import ROOTS, overlay, parse_override, widen
from paddle_amp_plugin.config_rules import Note, cross_problems, elsewhere_problems, notes_of
from paddle_amp_plugin.config_schema import ALLOWED, NESTED, AmpSettings, MonitorSettings
from paddle_amp_plugin.config_spellings import Place, Source, bring_together, read_host_values, read_key, read_switches
from paddle_amp_plugin.errors import AmpError, ConfigError
from paddle_amp_plugin.host_spellings import Host, misspellings
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import show

__all__ = [
    "AmpConfig",
    "AmpSettings",
    "MonitorSettings",
    "Note",
    "Source",
    "load_yaml",
    "parse_override",
    "read_amp",
    "widen",
]


class AmpConfig(AmpSettings):
    """The ``amp`` key of one run: one attribute a key, immutable.

    ``sources``: dotted key (``monitor.visualdl``, ``enabled``) -> where its value came from. ``notes``: remarks
    that stop nothing.
    """

    enabled: bool = True
    sources: Mapping[str, Source] = {}
    notes: tuple[Note, ...] = ()


def read_amp(
    document: Mapping[str, Any],
    *,
    host: Host = "paddleocr",
    overrides: Mapping[str, Any] | None = None,
    source: str = "",
) -> AmpConfig | None:
    """The AMP settings in a parsed YAML, or None where AMP is not mentioned or a host's own switch is off.

    ``overrides``: dotted path -> value, from ``-o``; it does not matter whether the host has merged them into
    ``document``. ``source``: the file's name, for messages. Neither argument is changed. Raises
    ``ConfigError`` with everything that is wrong, ``AmpError`` (AMP034) if ``document`` is no mapping.
    """
    if not isinstance(document, Mapping):
        text = tr("the config is not a mapping (found: {v})", "配置不是映射（实际值：{v}）", v=show(document))
        raise AmpError("AMP034", text)
    merged, touched, problems = overlay(document, overrides or {})
    problems.extend(misspellings(merged, host))
    roots = ROOTS if host == "paddleocr" else ROOTS[:1]
    key_places = [read_key(merged, root, touched) for root in roots]
    by_key = any(place.enabled for place in key_places)
    key_is_on = any(place.enabled and place.enabled.value for place in key_places)
    host_place = read_switches(merged, host, touched)
    if key_is_on or (host_place.enabled and host_place.enabled.value):
        read_host_values(merged, host, touched, host_place)
    if not by_key and "O0" in host_place.denials:  # the host's own way of saying "no AMP"
        host_place = Place(problems=host_place.problems)
    total = bring_together([*key_places, host_place])
    problems.extend(total.problems)
    config = _build(total, by_key, problems, host)
    if problems:
        raise ConfigError(problems, source=source)
    if config is None and _fallback is not None:
        return read_amp({"amp": _fallback}, host=host, source="paddle_amp_plugin.enable")
    return config


_fallback: Any = None


def fall_back_to(amp: Any) -> None:
    """What ``read_amp`` gives for configs that do not ask for AMP, in this process; None: nothing.

    ``amp``: a value of the key. Raises ConfigError if it is none.
    """
    global _fallback
    _fallback = None
    if amp is not None:
        read_amp({"amp": amp}, source="paddle_amp_plugin.enable")
    _fallback = amp


def _build(total: Place, by_key: bool, problems: list[Any], host: Host) -> AmpConfig | None:
    """The config out of what all places say; what is wrong between values is added to ``problems``."""
    on = total.enabled
    if on is None or (not on.value and not by_key):
        return None
    if not on.value:
        return AmpConfig(enabled=False, sources=_sources({}, on.source))
    mapping: dict[str, Any] = {}
    for key, item in total.values.items():
        holder, _, name = key.rpartition(".")
        (mapping.setdefault(holder, {}) if holder else mapping)[name] = item.value
    settings = AmpSettings.model_validate(mapping)

    def path_of(key: str) -> str:
        return total.values[key].path if key in total.values else f"amp.{key}"

    problems.extend(cross_problems(settings, path_of, total.broken))
    problems.extend(elsewhere_problems(settings, path_of, total.broken, host))
    written = {key: item.path for key, item in total.values.items()}
    sources = _sources({key: item.source for key, item in total.values.items()}, on.source)
    return AmpConfig(**mapping, enabled=True, sources=sources, notes=tuple(notes_of(settings, written)))


def _sources(written: Mapping[str, Source], switch: Source) -> dict[str, Source]:
    keys = [key for key in ALLOWED if key not in NESTED]
    return {"enabled": switch, **{key: written.get(key, Source("default")) for key in keys}}
