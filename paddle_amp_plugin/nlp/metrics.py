"""What a task is judged by, from arrays. Pure NumPy; names of entities are compared by ``seqeval``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

IGNORED = -100


def classification(predicted: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Accuracy, and the mean over the classes of their F1. Both arrays: [rows] of label ids."""
    scores = []
    for kind in sorted({*labels.tolist(), *predicted.tolist()}):
        right = float(((predicted == kind) & (labels == kind)).sum())
        total = float((predicted == kind).sum() + (labels == kind).sum())
        scores.append(2.0 * right / total)
    return {"accuracy": float((predicted == labels).mean()), "macro_f1": float(np.mean(scores))}


def entities(predicted: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 over whole names (kind and both ends right), as in CoNLL-2003; IOB2 labels."""
    from seqeval.metrics import f1_score, precision_score, recall_score  # type: ignore[import-untyped, unused-ignore]

    true, found = [list(row) for row in labels], [list(row) for row in predicted]
    return {
        "precision": float(precision_score(true, found, zero_division=0)),
        "recall": float(recall_score(true, found, zero_division=0)),
        "f1": float(f1_score(true, found, zero_division=0)),
    }


def tokens(predicted: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """Share of the labelled tokens that are right. Both: [rows, length]; ``IGNORED`` labels do not count."""
    valid = labels != IGNORED
    count = int(valid.sum())
    return {"accuracy": float((predicted[valid] == labels[valid]).mean()) if count else 0.0}


def answers(predicted: Sequence[str], accepted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and F1 of extracted answers, the best over the accepted ones; "" is the answer of none.

    As in SQuAD, but the F1 counts Chinese characters one by one and other words whole, as CMRC 2018's does
    without its tokenizer (https://github.com/ymcui/cmrc2018).
    """
    exact, f1 = [], []
    for guess, rights in zip(predicted, accepted, strict=True):
        rights = rights or [""]
        exact.append(max(float(_plain(guess) == _plain(right)) for right in rights))
        f1.append(max(_overlap(_units(guess), _units(right)) for right in rights))
    return {"exact_match": float(np.mean(exact)), "f1": float(np.mean(f1))}


def _plain(text: str) -> str:
    return "".join(_units(text))


def _units(text: str) -> list[str]:
    """Words of Latin letters and digits whole, everything else but spaces and punctuation one by one."""
    return [unit for unit in re.findall(r"[a-z0-9]+|\w", text.lower()) if unit != "_"]


def _overlap(guess: Sequence[str], right: Sequence[str]) -> float:
    if not guess or not right:
        return float(guess == right)
    shared = sum((Counter(guess) & Counter(right)).values())
    return 2.0 * shared / (len(guess) + len(right))
