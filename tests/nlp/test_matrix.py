"""The runner of the matrix, the kept runs, and the figures that the documents show of them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from benchmarks import nlp_matrix as matrix
from benchmarks import nlp_table as table

#: Stands in for tools/train.py: what a run leaves behind, at once.
TRAIN = """
import json, pathlib, sys
options = dict(word.split("=", 1) for word in sys.argv[4:])
out = pathlib.Path(options["trainer.output_dir"])
if (out / "fail").exists():
    sys.exit("no luck")
print("loss: 1, global_step: 7, progress", flush=True)
for part, values in {"train": {"train_runtime": 61.4}, "eval": {"eval_f1": 0.5}, "test": {"test_f1": 0.51239}}.items():
    (out / f"{part}_results.json").write_text(json.dumps(values))
if options["amp"] != "false":
    (out / "amp").mkdir(exist_ok=True)
    rows = [{"step": 1, "skipped": True, "loss_scale": 1024.0}]
    rows.append({"step": 2, "skipped": False, "loss_scale": 512.0, "half_share": 0.25})
    with (out / "amp" / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\\n" for row in rows)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch) -> Path:
    """A project whose one recipe is trained by ``TRAIN``."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "train.py").write_text(TRAIN)
    (tmp_path / "configs" / "nlp").mkdir(parents=True)
    config = (matrix.PROJECT / "configs" / "nlp" / "ernie_ner.yml").read_text(encoding="utf-8")
    (tmp_path / "configs" / "nlp" / "ernie_ner.yml").write_text(config, encoding="utf-8")
    (tmp_path / "train_data" / "nlp_msra").mkdir(parents=True)
    (tmp_path / "train_data" / "nlp_msra" / "test.jsonl").write_text("{}\n" * 9)
    monkeypatch.setattr(matrix, "PROJECT", tmp_path)
    return tmp_path


def test_fp32_and_o1_float16_come_first() -> None:
    runs = matrix.runs_of(["ernie_ner", "ernie_mlm"], list(matrix.MODES), [1, 2])
    assert [run.name for run in runs[:3]] == ["ernie_ner-fp32-1", "ernie_ner-o1-fp16-1", "ernie_ner-fp32-2"]
    assert len(runs) == len(set(runs)) == 16
    assert {run.mode for run in runs[:8]} == {"fp32", "o1-fp16"}


def test_a_run_is_kept(project: Path, tmp_path: Path) -> None:
    steps: list[int] = []
    run = matrix.Run("ernie_ner", "o1-fp16", 7)
    entry = matrix.read_json(matrix.train(run, tmp_path / "kept", tmp_path / "work", steps.append))
    assert steps[-1] == 7
    assert entry["score"] == 0.5124 and entry["dev_score"] == 0.5 and entry["metric"] == "test_f1"
    assert (entry["skipped_steps"], entry["final_loss_scale"], entry["half_share"]) == (1, 512.0, 0.25)
    assert entry["seconds"]["training"] == 61 and 0 <= entry["seconds"]["cpu"] < 60 and entry["test_rows"] == 9
    assert 1 <= entry["machine"]["cores"] <= (os.cpu_count() or 1)
    assert entry["command"].startswith("python tools/train.py -c configs/nlp/ernie_ner.yml -o 'amp={level: O1")
    assert {"python", "paddle-amp-plugin"} < set(entry["versions"]) and set(matrix.PADDLE) & set(entry["versions"])


def test_a_run_that_is_kept_is_not_made_again(project: Path, tmp_path: Path) -> None:
    run = matrix.Run("ernie_ner", "fp32", 7)
    file = matrix.train(run, tmp_path / "kept", tmp_path / "work")
    before = file.read_text()
    (project / "tools" / "train.py").unlink()
    assert matrix.train(run, tmp_path / "kept", tmp_path / "work").read_text() == before


def test_a_run_that_was_cut_off_is_made_anew(project: Path, tmp_path: Path) -> None:
    """Its events are not counted with those of the whole run, and a failure keeps nothing."""
    run = matrix.Run("ernie_ner", "o2-fp16", 7)
    out = tmp_path / "work" / run.name
    (out / "amp").mkdir(parents=True)
    (out / "amp" / "events.jsonl").write_text('{"step": 1, "skipped": true, "loss_scale": 1024.0}\n')
    (out / "fail").touch()
    with pytest.raises(RuntimeError, match="no luck"):
        matrix.train(run, tmp_path / "kept", tmp_path / "work")
    assert not (tmp_path / "kept" / f"{run.name}.json").exists()
    (out / "fail").unlink()
    assert matrix.read_json(matrix.train(run, tmp_path / "kept", tmp_path / "work"))["skipped_steps"] == 1


def test_marks_are_wanted_once_each() -> None:
    text = f"a\n{table.BEGIN}\nold\n{table.END}\nb\n"
    assert table.filled(text, "new") == f"a\n{table.BEGIN}\nnew\n{table.END}\nb\n"
    for bad in ("a", text + text, text.replace(table.END, "")):
        with pytest.raises(ValueError, match="once each"):
            table.filled(bad, "new")


def test_a_sentence_without_mixed_precision_does_not_speak_of_it() -> None:
    run = {"recipe": "ernie_sentiment", "mode": "fp32", "score": 0.9, "test_rows": 2000, "seconds": {"cpu": 600}}
    half = {**run, "mode": "o1-fp16", "score": 0.85, "seconds": {"cpu": 720}}
    assert "In FP32, 10 CPU minutes" in table.sentiment([run], {"score": 0.8}, "en")
    said = table.sentiment([run, half], {"score": 0.8}, "en")
    assert "float16), 12 CPU minutes" in said and "**0.8500** of the 2,000" in said and "0.9000" in said


def test_the_documents_show_the_kept_runs(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["nlp_table", "--check"])
    with pytest.raises(SystemExit) as ended:
        table.main()
    assert ended.value.code == 0


def test_kept_runs_are_what_their_names_say() -> None:
    files = [path for path in matrix.RESULTS.glob("*.json") if path.stem != matrix.BASELINE]
    assert files
    for path in files:
        entry = matrix.read_json(path)
        run = matrix.Run(entry["recipe"], entry["mode"], entry["seed"])
        assert run.name == path.stem and run.command() == entry["command"]
        assert not re.search(r'"[^"]*(/home|/root|/tmp|/work|https?:)[^"]*"', path.read_text(encoding="utf-8"))
        json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda word: pytest.fail(word))


@pytest.mark.parametrize("recipe", matrix.RECIPES)
def test_kept_runs_in_mixed_precision_are_as_good_as_fp32(recipe: str) -> None:
    found = table.by_mode(matrix.load(), recipe)
    if not found:
        pytest.skip("no run of it is kept yet: make nlp-matrix")
    twin = table.mean([run["score"] for run in found["fp32"]])
    seeds = {run["seed"] for run in found["fp32"]}
    for mode in found:
        assert {run["seed"] for run in found[mode]} == seeds, mode
        assert abs(table.mean([run["score"] for run in found[mode]]) - twin) <= matrix.TOLERANCE, mode


def test_kept_sentiment_runs_reach_the_goal() -> None:
    found = table.by_mode(matrix.load(), "ernie_sentiment")
    baseline = matrix.read_json(matrix.RESULTS / f"{matrix.BASELINE}.json")["score"]
    for run in (run for mode in found.values() for run in mode):
        assert run["score"] >= matrix.SENTIMENT_GOAL and run["score"] > baseline
        assert run["test_rows"] >= 2000 and run["seconds"]["cpu"] <= matrix.SENTIMENT_SECONDS
