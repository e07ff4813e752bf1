"""Values shown to a person, and the nearest allowed spelling of what they wrote."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

#: Longest rendering of a found value inside a message, in characters.
SHOWN_CHARACTERS = 60


def show(value: object) -> str:
    """``value`` as one short line, whatever it is.

    ``repr`` may fail (an int beyond Python's digit limit, a broken ``__repr__``), and a message about a
    bad value must not fail on that value.
    """
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def plain(name: str) -> str:
    """A key as part of a path in a message; one with line breaks or control characters as ``show`` shows it."""
    return name if name.isprintable() and len(name) <= SHOWN_CHARACTERS else show(name)


def letters(word: str) -> str:
    """``word`` without case and separators: what two spellings of one name have in common."""
    return re.sub(r"[^0-9a-z]", "", word.lower())


def likeness(a: str, b: str) -> float:
    """0.0 (nothing in common) to 1.0 (the same letters in the same order, or two neighbours swapped)."""
    a, b = letters(a), letters(b)
    if not a or not b:
        return 0.0
    if a == b:
        return 1.0
    # difflib counts a swap of two neighbours as two faults; it is the commonest slip of the fingers
    if len(a) == len(b):
        differing = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
        if len(differing) == 2 and differing[1] - differing[0] == 1 and sorted(a) == sorted(b):
            return 1.0 - 0.5 / len(a)
    return difflib.SequenceMatcher(None, a, b).ratio()


def nearest(word: object, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """The candidate most like ``word``, or "" if none is as like as ``cutoff``."""
    if not isinstance(word, str):
        return ""
    rated = [(likeness(word, c), c) for c in candidates]
    best = max(rated, key=lambda pair: pair[0], default=(0.0, ""))
    return best[1] if best[0] >= cutoff else ""
