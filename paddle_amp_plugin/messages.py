"""The language a user is spoken to in: English or Chinese, chosen at the moment of speaking."""

from __future__ import annotations

import os
from typing import Literal

Language = Literal["en", "zh"]


def language() -> Language:
    """The language of user-facing messages.

    ``PADDLE_AMP_LANG`` wins; then the first POSIX locale variable that is set (``LC_ALL``,
    ``LC_MESSAGES``, ``LANG``, in the order of POSIX.1-2017, 8.2). Whatever is not Chinese is English.
    """
    for name in ("PADDLE_AMP_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "zh" if value.lower().startswith(("zh", "cn")) else "en"
    return "en"


def tr(en: str, zh: str, /, **values: object) -> str:
    """The text in the user's language, with ``{name}`` fields filled from ``values``."""
    text = zh if language() == "zh" else en
    return text.format(**values) if values else text
