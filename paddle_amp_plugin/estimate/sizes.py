"""Sizes as people write them: ``16GiB``, ``24 GB``, ``512MiB`` (pure)."""

from __future__ import annotations

import re

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

UNITS = {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_FORM = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")


def parse_size(text: str, option: str) -> int:
    """Bytes. ``option``: what the text was given for (``--memory``).

    Raises AmpError AMP285 for anything that is not a number (0 or more) with a unit.
    """
    match = _FORM.fullmatch(text)
    units = {name.lower(): factor for name, factor in UNITS.items()}
    if match is None or match.group(2).lower() not in units:
        unit = match.group(2) if match else ""
        known = {"g": "GiB", "m": "MiB", "k": "KiB", "t": "TiB", "gib": "GiB", "": "GiB"}.get(unit.lower(), "GiB")
        number = match.group(1) if match else "16"
        raise AmpError(
            "AMP285",
            tr(
                "{o} {t}: expected a number with one of the units {u}",
                "{o} {t}：应为数字加以下单位之一：{u}",
                o=option,
                t=text,
                u=", ".join(UNITS),
            ),
            hint=tr("did you mean: {s}", "您是不是想写：{s}", s=f"{number}{known}"),
        )
    return int(float(match.group(1)) * units[match.group(2).lower()])


def shown(nbytes: int) -> str:
    """``1.50 GiB``; below one MiB in KiB."""
    if nbytes >= 1 << 30:
        return f"{nbytes / (1 << 30):.2f} GiB"
    if nbytes >= 1 << 20:
        return f"{nbytes / (1 << 20):.1f} MiB"
    return f"{nbytes / (1 << 10):.1f} KiB"
