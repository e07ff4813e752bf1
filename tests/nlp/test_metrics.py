"""Metrics against scikit-learn, and cases counted by hand. No Paddle."""

from __future__ import annotations

import numpy as np
import pytest

from paddle_amp_plugin.nlp import metrics


def test_classification_is_scikit_learns() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(1)
    labels, predicted = random.integers(0, 3, 200), random.integers(0, 4, 200)
    found = metrics.classification(predicted, labels)
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, predicted))
    assert found["macro_f1"] == pytest.approx(sklearn.f1_score(labels, predicted, average="macro"))


def test_a_name_counts_only_when_both_ends_and_the_kind_are_right() -> None:
    right = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "I-ORG", "I-ORG"]]
    found = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-ORG", "I-ORG", "O"]]
    # 1 of 3 names found (PER), and 3 guessed
    assert metrics.entities(found, right) == pytest.approx({"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3})
    assert metrics.entities([["O"] * 4] * 2, right) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_tokens_without_a_label_do_not_count() -> None:
    labels = np.array([[1, -100, 2], [-100, -100, 3]])
    assert metrics.tokens(np.array([[1, 1, 1], [0, 0, 3]]), labels) == {"accuracy": pytest.approx(2 / 3)}
    assert metrics.tokens(labels, np.full((2, 3), -100)) == {"accuracy": 0.0}


@pytest.mark.parametrize(
    ("guess", "accepted", "exact", "f1"),
    [
        ("北京", ["北京"], 1, 1),
        ("北京市", ["上海", "北京"], 0, 0.8),  # 2 of 3 right, 2 of 2 found
        ("《北京》", ["北京"], 1, 1),
        ("Windows 10", ["windows10"], 1, 0),
        ("", [], 1, 1),
        ("北京", [], 0, 0),
    ],
)
def test_answers(guess: str, accepted: list[str], exact: float, f1: float) -> None:
    found = metrics.answers([guess], [accepted])
    assert found["exact_match"] == exact and found["f1"] == pytest.approx(f1)
