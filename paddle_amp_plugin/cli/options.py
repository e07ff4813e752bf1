"""``--set key=value``, as several verbs take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr


def options_of(texts: Sequence[str], code: str) -> dict[str, Any]:
    """Dotted key -> value, the values read as YAML. Raises AmpError (``code``) for what is not ``key=value``."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise AmpError(code, tr("--set {t}: expected key=value", "--set {t}：应写成 键=值", t=text))
        try:
            values[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise AmpError(code, tr("--set {t}: not valid YAML", "--set {t}：不是有效的 YAML", t=text)) from None
    return values
