"""Every task trains, evaluates, predicts and exports by the host's Trainer, and learns a tiny set by heart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.nlp import run
from tests.nlp import tiny

PROJECT = Path(__file__).resolve().parents[2]
pytest.importorskip("paddlenlp")


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def arguments(*texts: str, input: str | None = None) -> run.Arguments:
    return run.Arguments("", (), texts, input)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """(recipe, metrics) of a tiny classifier with mean pooling that has learned its set."""
    folder = tmp_path_factory.mktemp("classifier")
    recipe = tiny.read(folder, "sequence_classification", steps=40, model={"pooling": "mean"})
    return recipe, run.train(recipe)


def test_classification_learns(classifier) -> None:
    recipe, metrics = classifier
    assert metrics["eval_accuracy"] >= 0.95 and metrics["eval_macro_f1"] >= 0.95
    out = Path(recipe.output_dir)
    assert json.loads((out / "eval_results.json").read_text())["eval_accuracy"] == metrics["eval_accuracy"]
    config = json.loads((out / "config.json").read_text())
    assert config["pooling"] == "mean" and config["architectures"] == ["MeanPooledErnieForSequenceClassification"]
    assert (out / "vocab.txt").is_file() and (out / "model_state.pdparams").is_file()


def test_a_trained_model_evaluates_to_the_same(classifier) -> None:
    recipe, metrics = classifier
    again = run.evaluate(recipe)
    assert again["eval_accuracy"] == metrics["eval_accuracy"]
    assert again["eval_loss"] == pytest.approx(metrics["eval_loss"], rel=1e-5)


def test_the_saved_recipe_is_the_recipe(classifier) -> None:
    from paddle_amp_plugin.nlp import recipe as recipes

    recipe, _ = classifier
    assert recipes.read(Path(recipe.output_dir) / "recipe.yml") == recipe


def test_predictions_keep_the_order_of_the_rows(classifier, tmp_path, capsys) -> None:
    """Texts of very different length, which an evaluation would sort."""
    recipe, _ = classifier
    rows = [tiny.rows("sequence_classification")[i] for i in (3, 0, 19, 2, 7, 8)]
    run.predict(recipe, arguments(*[row["text"] for row in rows]))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert said == rows
    path = tiny.write_rows(tmp_path / "in.jsonl", [{"text": row["text"]} for row in rows])
    target = run.predict(recipe, arguments(input=path))
    assert [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()] == rows


def test_an_exported_model_gives_the_same_logits(classifier) -> None:
    import paddle

    from paddle_amp_plugin.nlp.models import load_model, load_tokenizer

    recipe, _ = classifier
    folder = run.export(recipe)
    tokenizer = load_tokenizer(recipe, recipe.output_dir)
    model = load_model(recipe, "SequenceClassification", tokenizer, recipe.output_dir)
    model.eval()
    ids = np.array([[2, 5, 7, 3, 0], [2, 6, 8, 9, 3]], dtype="int64")
    inputs = [paddle.to_tensor(x) for x in (ids, np.zeros_like(ids), (ids != 0).astype("int64"))]
    exported = paddle.jit.load(str(folder / "inference"))
    exported.eval()
    wanted = model(inputs[0], token_type_ids=inputs[1], attention_mask=inputs[2])
    np.testing.assert_allclose(exported(*inputs).numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing_with_mean_pooling(classifier) -> None:
    import paddle

    from paddle_amp_plugin.nlp.models import load_model, load_tokenizer

    recipe, _ = classifier
    model = load_model(recipe, "SequenceClassification", load_tokenizer(recipe, recipe.output_dir), recipe.output_dir)
    model.eval()
    short = paddle.to_tensor(np.array([[2, 5, 7, 3]]))
    padded = paddle.to_tensor(np.array([[2, 5, 7, 3, 0, 0, 0]]))
    mask = paddle.to_tensor(np.array([[1, 1, 1, 1, 0, 0, 0]]))
    np.testing.assert_allclose(model(short).numpy(), model(padded, attention_mask=mask).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model(short).numpy(), model(padded).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "metric", "least", "steps"),
    [
        ("sentence_pair", "eval_accuracy", 0.9, 120),
        ("token_classification", "eval_f1", 0.95, 60),
        ("question_answering", "eval_f1", 0.95, 120),
        ("masked_lm", "eval_accuracy", 0.5, 150),
    ],
)
def test_the_other_tasks_learn_predict_and_evaluate(tmp_path, task: str, metric: str, least: float, steps: int) -> None:
    recipe = tiny.read(tmp_path, task, steps=steps)
    metrics = run.train(recipe)
    assert metrics[metric] >= least
    target = run.predict(recipe, arguments(input=recipe.data.eval))
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    given = [json.loads(line) for line in Path(recipe.data.eval).read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(given)
    if task == "token_classification":
        assert [row["tokens"] for row in rows] == [row["tokens"] for row in given]
        assert np.mean([row["labels"] == right["labels"] for row, right in zip(rows, given, strict=True)]) > 0.9
    if task == "question_answering":
        assert (
            np.mean([row["answer"] == right["answers"]["text"][0] for row, right in zip(rows, given, strict=True)])
            > 0.9
        )
    assert run.evaluate(recipe)[metric] == pytest.approx(metrics[metric], abs=1e-6)


def test_best_model_is_by_the_tasks_metric(tmp_path) -> None:
    trainer = {"evaluation_strategy": "steps", "eval_steps": 10, "save_strategy": "steps", "save_steps": 10}
    more = {**trainer, "load_best_model_at_end": True, "save_total_limit": 1}
    recipe = tiny.read(tmp_path, "sequence_classification", steps=30, trainer=more)
    run.train(recipe)
    state = json.loads((Path(recipe.output_dir) / "trainer_state.json").read_text())
    assert 0.5 <= state["best_metric"] <= 1.0 and "checkpoint-" in state["best_model_checkpoint"]


def test_eval_before_training_says_so(tmp_path) -> None:
    recipe = tiny.read(tmp_path, "sequence_classification")
    for action in (run.evaluate, run.export, lambda r: run.predict(r, arguments("好"))):
        with pytest.raises(AmpError, match="nothing was trained") as caught:
            action(recipe)
        assert caught.value.code == "AMP225"


def test_an_output_folder_that_is_a_file(tmp_path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(AmpError, match=r"trainer\.output_dir") as caught:
        run.train(tiny.read(tmp_path, "masked_lm"))
    assert caught.value.code == "AMP049"


def test_arguments_the_host_refuses(tmp_path) -> None:
    with pytest.raises(AmpError, match="PaddleNLP refuses") as caught:
        run.train(tiny.read(tmp_path, "masked_lm", trainer={"lr_scheduler_type": "sinusoidal"}))
    assert caught.value.code == "AMP227"


def test_the_command_and_the_commands_it_prints(tmp_path) -> None:
    """As a user runs it, without PaddleOCR in sight: train, then the printed evaluate, predict and export."""
    path = tiny.write(tmp_path / "r.yml", tiny.recipe(tmp_path, "sequence_classification", steps=2))

    def call(*command: str) -> str:
        code = "import sys, runpy; sys.modules['unstructured_paddleocr'] = None; sys.argv = sys.argv[1:]; "
        code += "runpy.run_path(sys.argv[0], run_name='__main__')"
        done = subprocess.run(
            [sys.executable, "-c", code, *command],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    text = call("tools/train.py", "-c", path)
    lines = text[text.index("What to do next") :].splitlines()
    commands = {line.split(": ")[0].strip(): line.split(": ", 1)[1].split() for line in lines if ": python" in line}
    assert set(commands) == {"evaluate", "predict", "export"}
    assert "eval_accuracy" in call(*commands["evaluate"][1:])
    assert '"label": ' in call(*[word.replace("…", "好书") for word in commands["predict"][1:]])
    assert "inference model in" in call(*commands["export"][1:])
