"""The NLP recipes trained for real, by the command a user runs, in FP32 and in each precision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TIMEOUT = 5400  # seconds; a shared CI machine may be several times slower than a free one

#: Recipe -> the number of its last evaluation that counts.
RECIPES = {
    "ernie_sentiment": "test_accuracy",
    "bert_sentiment": "test_accuracy",
    "ernie_ner": "test_f1",
    "ernie_mlm": "test_accuracy",
}
#: Name -> options. FP32 is the twin of the others: the same seed, data and steps.
MODES = {
    "FP32": ("amp=false",),
    "O1 fp16": ("amp={level: O1, dtype: float16}",),
    "O2 fp16": ("amp={level: O2, dtype: float16}",),
    "O1 bf16": ("amp={level: O1, dtype: bfloat16}",),
}
#: How far a recipe in mixed precision may be from its twin.
TOLERANCE = 0.01


def run(*command: str) -> str:
    """A command in the project's folder; its output. Fails with the end of the output."""
    environment = {**os.environ, "PADDLE_AMP_LANG": "en"}
    for name, value in (("OMP_NUM_THREADS", "2"), ("MKL_NUM_THREADS", "2"), ("MKL_DEBUG_CPU_TYPE", "5")):
        environment.setdefault(name, value)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@cache
def make_data() -> None:
    """The data sets and the encoder under ``train_data``, where the recipes look."""
    for name in ("nlp_encoder", "nlp_reviews", "nlp_msra"):
        run("-m", "paddle_amp_plugin.data", name, "--out", f"train_data/{name}")


@dataclass(frozen=True)
class Trained:
    """One finished run: its folder, what it printed, the metric that counts, and how long it took (seconds)."""

    output: Path
    text: str
    score: float
    seconds: float


@cache
def trained(folder: Path, recipe: str, mode: str) -> Trained:
    """``tools/train.py -c configs/nlp/<recipe>.yml`` in one precision."""
    make_data()
    output = folder / f"{recipe}_{mode.replace(' ', '_')}"
    begin = time.monotonic()
    options = ("-o", f"trainer.output_dir={output}", "trainer.disable_tqdm=true", *MODES[mode])
    text = run("tools/train.py", "-c", f"configs/nlp/{recipe}.yml", *options)
    results = json.loads((output / "test_results.json").read_text(encoding="utf-8"))
    return Trained(output, text, float(results[RECIPES[recipe]]), time.monotonic() - begin)


def baseline() -> float:
    """Accuracy of scikit-learn's TF-IDF (characters, one and two) with logistic regression on the same split."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    make_data()

    def read(part: str) -> tuple[list[str], list[str]]:
        path = PROJECT / "train_data" / "nlp_reviews" / f"{part}.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [row["text"] for row in rows], [row["label"] for row in rows]

    (texts, labels), (test_texts, test_labels) = read("train"), read("test")
    vectors = TfidfVectorizer(analyzer="char", ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    model = LogisticRegression(max_iter=1000).fit(vectors.fit_transform(texts), labels)
    return float(model.score(vectors.transform(test_texts), test_labels))
