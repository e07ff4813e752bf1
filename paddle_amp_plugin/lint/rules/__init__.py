"""The rules, by code. A room a subject; each has ``RULES`` and ``check``, a generator of hits over one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paddle_amp_plugin.lint.findings import Hit, Rule
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.rules import casts, constants, losses, masks, steps

_ROOMS = (casts, constants, masks, losses, steps)

CHECKS: tuple[Callable[[Module], Iterator[Hit]], ...] = tuple(room.check for room in _ROOMS)
RULES: dict[str, Rule] = {
    rule.code: rule for rule in sorted((r for room in _ROOMS for r in room.RULES), key=lambda r: r.code)
}
