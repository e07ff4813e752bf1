"""The NLP recipes trained in FP32 and in each precision, each run kept as a small JSON file.

    python -m benchmarks.nlp_matrix [--recipes ernie_ner …] [--modes fp32 o1-fp16 …] [--seeds 42] [--out FOLDER]

A run is the command a user runs: ``tools/train.py -c configs/nlp/<recipe>.yml``. Runs whose file is there are
skipped, so that an interruption costs one run at most; delete a file to have its run made again.
``python -m benchmarks.nlp_table`` writes the table of docs/en and docs/zh from the files.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from paddle_amp_plugin.atomic import write_whole
from paddle_amp_plugin.monitor.events import EVENTS_FILE
from paddle_amp_plugin.nlp import recipe as recipes

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "docs" / "results" / "nlp"
#: Where the runs themselves are written: models, logs, amp/.
WORK = PROJECT / "output" / "nlp_matrix"
#: Recipe -> the number of its last evaluation that counts; the cheap ones first.
RECIPES = {
    "ernie_ner": "test_f1",
    "ernie_mlm": "test_accuracy",
    "bert_sentiment": "test_accuracy",
    "ernie_sentiment": "test_accuracy",
}
#: Mode -> options. FP32 is the twin of the others: the same seed, data and steps.
MODES = {
    "fp32": ("amp=false",),
    "o1-fp16": ("amp={level: O1, dtype: float16}",),
    "o2-fp16": ("amp={level: O2, dtype: float16}",),
    "o1-bf16": ("amp={level: O1, dtype: bfloat16}",),
}
#: How far a recipe in mixed precision may be from its twin.
TOLERANCE = 0.01
#: What sentiment must reach, and what it may cost: 20 minutes of two cores, in CPU seconds.
SENTIMENT_GOAL, SENTIMENT_SECONDS = 0.86, 2 * 20 * 60
BASELINE = "baseline"
#: The wheels Paddle comes in; one of them is installed.
PADDLE = ("paddlepaddle", "paddlepaddle-gpu")
DATA_SETS = ("nlp_encoder", "nlp_reviews", "nlp_msra")
#: Threads a run uses, unless the environment says otherwise, and MKL's fast path on AMD; as in the Makefile.
THREADS = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "MKL_DEBUG_CPU_TYPE": "5"}
_STEP = re.compile(r"global_step: (\d+)")


@dataclass(frozen=True)
class Run:
    """One training of the matrix."""

    recipe: str
    mode: str
    seed: int

    @property
    def name(self) -> str:
        """The stem of its file."""
        return f"{self.recipe}-{self.mode}-{self.seed}"

    def options(self) -> tuple[str, ...]:
        """What follows ``-o``."""
        return (*MODES[self.mode], f"trainer.seed={self.seed}")

    def command(self) -> str:
        """The command as a person would type it."""
        return shlex.join(["python", "tools/train.py", "-c", f"configs/nlp/{self.recipe}.yml", "-o", *self.options()])


def runs_of(names: list[str], modes: list[str], seeds: list[int]) -> list[Run]:
    """The runs, FP32 and O1 float16 of every recipe before the other modes."""
    first = [m for m in modes if m in ("fp32", "o1-fp16")]
    groups = (first, [m for m in modes if m not in first])
    return [Run(name, mode, seed) for group in groups for name in names for seed in seeds for mode in group]


def make_data() -> None:
    """The data sets and the encoder under ``train_data``, where the recipes look."""
    for name in DATA_SETS:
        command = [sys.executable, "-m", "paddle_amp_plugin.data", name, "--out", f"train_data/{name}"]
        subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)


def train(run: Run, results: Path, work: Path = WORK, on_step: Callable[[int], None] = lambda step: None) -> Path:
    """Makes one run unless its file is in ``results``; returns the file. ``on_step`` hears the steps done."""
    target = results / f"{run.name}.json"
    if target.is_file():
        return target
    output = work / run.name
    output.mkdir(parents=True, exist_ok=True)
    environment = {**THREADS, **os.environ, "PADDLE_AMP_LANG": "en"}
    # a run that was cut off leaves events behind; they would be counted again
    (output / "amp" / EVENTS_FILE).unlink(missing_ok=True)
    more = [f"trainer.output_dir={output}", "trainer.disable_tqdm=true"]
    command = ["tools/train.py", "-c", f"configs/nlp/{run.recipe}.yml", "-o", *run.options(), *more]
    begin, load, used, cores = time.monotonic(), os.getloadavg()[1], _cpu_seconds(), os.cpu_count() or 1
    with (output / "train.log").open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, *command], cwd=PROJECT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while child.poll() is None:
                time.sleep(1.0)
                cores = min(cores, _cores_of(child.pid))
                on_step(_steps_in(output / "train.log"))
        finally:
            child.kill() if child.poll() is None else None
    if child.returncode:
        raise RuntimeError(f"{run.command()} failed:\n{(output / 'train.log').read_text('utf-8')[-3000:]}")
    entry = _entry(run, output)
    entry["seconds"]["all"] = round(time.monotonic() - begin)
    entry["seconds"]["cpu"] = round(_cpu_seconds() - used)
    threads = int(environment["OMP_NUM_THREADS"])
    entry["machine"] = {"cores": cores, "threads": threads, "load": [round(load, 1), round(os.getloadavg()[1], 1)]}
    _write(target, entry)
    return target


def _cpu_seconds() -> float:
    """What the children that ended have used; unlike wall-clock time it does not depend on who else computes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cores_of(process: int) -> int:
    """The cores a process may use."""
    try:
        return len(os.sched_getaffinity(process))
    except (AttributeError, OSError):  # not on this system; ended meanwhile
        return os.cpu_count() or 1


def _steps_in(log: Path) -> int:
    found = _STEP.findall(log.read_text(encoding="utf-8", errors="replace"))
    return int(found[-1]) if found else 0


def _entry(run: Run, output: Path) -> dict[str, Any]:
    """What is kept of a finished run."""

    def read(name: str) -> dict[str, Any]:
        return read_json(output / f"{name}_results.json")

    recipe = recipes.read(PROJECT / "configs" / "nlp" / f"{run.recipe}.yml", run.options())
    metric = RECIPES[run.recipe]
    events = list(_events(output / "amp" / EVENTS_FILE))
    shares = [event["half_share"] for event in events if "half_share" in event]
    return {
        "recipe": run.recipe,
        "mode": run.mode,
        "seed": run.seed,
        "metric": metric,
        "score": round(read("test")[metric], 4),
        "dev_score": round(read("eval")[metric.replace("test_", "eval_")], 4),
        "test_rows": _rows(recipe.data.test, recipe.data.eval_rows),
        "steps": int(read("train").get("global_step", recipe.trainer["max_steps"])),
        "skipped_steps": sum(event["skipped"] for event in events),
        "final_loss_scale": events[-1]["loss_scale"] if events and "loss_scale" in events[-1] else None,
        "half_share": round(shares[-1], 3) if shares else 0.0,
        "seconds": {"training": round(read("train")["train_runtime"])},
        "command": run.command(),
        "versions": versions(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _rows(path: str | None, limit: int | None) -> int:
    assert path is not None  # every recipe of the matrix has a test set
    count = sum(1 for line in (PROJECT / path).read_text(encoding="utf-8").splitlines() if line.strip())
    return min(count, limit or count)


def versions() -> dict[str, str]:
    """Of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in (*PADDLE, "paddlenlp", "paddle-amp-plugin"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _write(target: Path, entry: dict[str, Any]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(entry, indent=2, sort_keys=True) + "\n"
    write_whole(target, lambda file: file.write_text(text, encoding="utf-8"), code="AMP049", hint="")


def baseline(results: Path) -> Path:
    """TF-IDF over characters, one and two, with logistic regression, scikit-learn's own settings, on the same split."""
    target = results / f"{BASELINE}.json"
    if target.is_file():
        return target
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    def read(part: str) -> tuple[list[str], list[str]]:
        path = PROJECT / "train_data" / "nlp_reviews" / f"{part}.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [row["text"] for row in rows], [row["label"] for row in rows]

    begin = time.monotonic()
    (texts, labels), (test_texts, test_labels) = read("train"), read("test")
    vectors = TfidfVectorizer(analyzer="char", ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    model = LogisticRegression(max_iter=1000).fit(vectors.fit_transform(texts), labels)
    score = float(model.score(vectors.transform(test_texts), test_labels))
    entry = {
        "recipe": "TF-IDF + logistic regression",
        "metric": "test_accuracy",
        "score": round(score, 4),
        "test_rows": len(test_texts),
        "train_rows": len(texts),
        "seconds": round(time.monotonic() - begin, 1),
        "versions": {"scikit-learn": importlib.metadata.version("scikit-learn")},
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }
    _write(target, entry)
    return target


def load(results: Path = RESULTS) -> list[dict[str, Any]]:
    """All kept runs, without the baseline."""
    files = sorted(path for path in results.glob("*.json") if path.stem != BASELINE)
    return [read_json(path) for path in files]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds a mapping."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[42])
    parser.add_argument("--out", type=Path, default=RESULTS)
    known = parser.parse_args()
    make_data()
    baseline(known.out)
    runs = runs_of(known.recipes, known.modes, known.seeds)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        whole = progress.add_task("runs", total=len(runs))
        for run in runs:
            recipe = recipes.read(PROJECT / "configs" / "nlp" / f"{run.recipe}.yml")
            steps = progress.add_task(run.name, total=recipe.trainer["max_steps"])
            file = train(run, known.out, on_step=lambda step, bar=steps: progress.update(bar, completed=step))  # type: ignore[misc]
            entry = read_json(file)
            progress.remove_task(steps)
            progress.advance(whole)
            progress.console.print(f"{run.name}: {entry['metric']} {entry['score']:.4f}", highlight=False)


if __name__ == "__main__":
    main()
