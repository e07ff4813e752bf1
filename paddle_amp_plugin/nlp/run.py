"""``tools/train.py``, ``eval.py``, ``predict.py`` and ``export_model.py`` on an NLP recipe.

A run writes into ``trainer.output_dir``: the model in PaddleNLP's format (its best evaluation if the recipe asks for
it), the tokenizer, ``recipe.yml`` as it was run, ``train_results.json`` / ``eval_results.json`` /
``test_results.json``, ``predictions.jsonl``, ``inference/``, and the host's own ``checkpoint-*``.

Codes: AMP225 nothing trained yet; AMP049 the output folder cannot be written.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paddle_amp_plugin.atomic import write_whole
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.nlp import recipe as recipes
from paddle_amp_plugin.nlp.recipe_schema import Recipe
from paddle_amp_plugin.nlp.rows import Row, read_file, read_rows

TOOLS = ("train", "eval", "predict", "export_model")


@dataclass(frozen=True)
class Arguments:
    """The command line of a tool: the recipe's file, the ``-o`` texts, and ``--text`` / ``--input`` of predict."""

    config: str
    options: tuple[str, ...]
    texts: tuple[str, ...]
    input: str | None


def parse(tool: str, argv: Sequence[str]) -> Arguments:
    """Reads ``-c FILE [-o k=v …]``; ``predict`` takes ``--text`` and ``--input`` too."""
    parser = argparse.ArgumentParser(prog=f"tools/{tool}.py", allow_abbrev=False)
    parser.add_argument("-c", "--config", required=True, help=tr("the recipe", "配方文件"))
    parser.add_argument("-o", "--opt", nargs="+", action="extend", default=[], help="key=value")
    if tool == "predict":
        parser.add_argument("--text", nargs="+", action="extend", default=[], help=tr("texts", "文本"))
        parser.add_argument("--input", help=tr("a file of rows (default: data.test)", "数据文件（默认 data.test）"))
    known = parser.parse_args(list(argv))
    texts = tuple(getattr(known, "text", ()))
    return Arguments(known.config, tuple(known.opt), texts, getattr(known, "input", None))


def run_tool(tool: str, argv: Sequence[str], *, tools: str) -> None:
    """Runs one tool. ``tools`` is how a command starts, up to the script's name (``python tools/``)."""
    arguments = parse(tool, argv)
    recipe = recipes.read(arguments.config, arguments.options)
    if tool == "train":
        train(recipe)
        say_next(recipe, tools)
    elif tool == "eval":
        evaluate(recipe)
    elif tool == "predict":
        predict(recipe, arguments)
    else:
        export(recipe)


def train(recipe: Recipe) -> dict[str, float]:
    """Trains, evaluates on ``data.test`` (else ``data.eval``), saves; returns the last evaluation's metrics."""
    _check_output(recipe)
    rows = read_rows(recipe, "train", limit=recipe.data.train_rows)
    held = _held_out(recipe, "eval")
    test = _held_out(recipe, "test")

    from paddle_amp_plugin.nlp.models import load_model, load_tokenizer, trainable
    from paddle_amp_plugin.nlp.tasks import task_of
    from paddle_amp_plugin.nlp.trainer import build, require_host

    require_host(recipe)
    _seed(recipe)
    tokenizer = load_tokenizer(recipe)
    task = task_of(recipe, tokenizer)
    model = load_model(recipe, task.head, tokenizer)
    evaluation = task.features(held, evaluation=True).sorted_by_length() if held else None
    trainer = build(
        recipe,
        task,
        model,
        train=task.features(rows, evaluation=False),
        evaluation=evaluation,
        rows=held,
        **_best_by(recipe, task.metric),
    )
    learned, total = trainable(model)
    print(tr("training {a} of {b} weights", "训练 {a} 个参数（共 {b} 个）", a=f"{learned:,}", b=f"{total:,}"))
    result = trainer.train(resume_from_checkpoint=recipe.trainer.get("resume_from_checkpoint"))
    trainer.save_model()
    _save_recipe(recipe)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    return _judge(trainer, task, {"eval": (held, evaluation), "test": (test, None)})


def _judge(trainer: Any, task: Any, parts: dict[str, tuple[list[Row], Any]]) -> dict[str, float]:
    """Evaluates on each part that has rows; writes ``<part>_results.json``; returns the last one's metrics."""
    metrics: dict[str, float] = {}
    for part, (rows, features) in parts.items():
        if not rows:
            continue
        if features is None:
            features = task.features(rows, evaluation=True).sorted_by_length()
        trainer.compute_metrics = task.judge(features, rows)
        metrics = trainer.evaluate(features, metric_key_prefix=part)
        trainer.log_metrics(part, metrics)
        trainer.save_metrics(part, metrics)
    return metrics


def evaluate(recipe: Recipe) -> dict[str, float]:
    """The trained model of ``trainer.output_dir`` on ``data.eval`` and ``data.test``."""
    parts = {part: (_held_out(recipe, part), None) for part in ("eval", "test")}
    if not any(rows for rows, _ in parts.values()):
        raise AmpError("AMP219", tr("neither data.eval nor data.test is set", "data.eval 与 data.test 均未设置"))
    task, model = _trained(recipe)
    from paddle_amp_plugin.nlp.trainer import build

    trainer = build(recipe, task, model, train=None, evaluation=None, rows=[])
    return _judge(trainer, task, parts)


def predict(recipe: Recipe, arguments: Arguments) -> Path | None:
    """Predicts ``--text``, ``--input`` or ``data.test``; prints texts' results, writes ``predictions.jsonl``."""
    if arguments.texts:
        rows = _rows_of_texts(recipe, arguments.texts)
    else:
        path = arguments.input or recipe.data.test
        if path is None:
            raise AmpError(
                "AMP219",
                tr(
                    "nothing to predict: --text, --input or data.test", "没有要预测的内容：--text、--input 或 data.test"
                ),
            )
        key = "--input" if arguments.input else "data.test"
        rows = read_file(recipe, path, key=key, labelled=False, limit=recipe.data.eval_rows)
    task, model = _trained(recipe)
    from paddle_amp_plugin.nlp.trainer import build

    features = task.features(rows, evaluation=True)
    trainer = build(recipe, task, model, train=None, evaluation=None, rows=[])
    trainer.compute_metrics = lambda result: {}
    found = trainer.predict(features)
    lines = [json.dumps(row, ensure_ascii=False) for row in task.show(features, rows, found.predictions)]
    if arguments.texts:
        print("\n".join(lines))
        return None
    target = Path(recipe.output_dir) / "predictions.jsonl"
    write_whole(target, lambda file: file.write_text("".join(f"{x}\n" for x in lines), "utf-8"), code="AMP049", hint="")
    print(tr("{n} predictions in {f}", "{n} 条预测结果已写入 {f}", n=len(lines), f=target))
    return target


def _rows_of_texts(recipe: Recipe, texts: Sequence[str]) -> list[Row]:
    if recipe.task == "token_classification":
        return [{"tokens": [c for c in text if not c.isspace()]} for text in texts if text.strip()]
    if recipe.task in ("sequence_classification", "masked_lm"):
        return [{"text": text} for text in texts]
    raise AmpError("AMP050", tr("--text is for one text a row; use --input", "--text 只用于单文本任务，请使用 --input"))


def export(recipe: Recipe) -> Path:
    """The trained model as an inference model in ``<output_dir>/inference``; returns its folder.

    Inputs: input_ids, token_type_ids, attention_mask, each int64 [batch, length]. Outputs: the logits.
    """
    task, model = _trained(recipe)
    import paddle
    from paddle.static import InputSpec

    model.eval()
    names = ("input_ids", "token_type_ids", "attention_mask")

    class Inference(paddle.nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, token_type_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)

    spec = [InputSpec([None, None], dtype="int64", name=name) for name in names]
    folder = Path(recipe.output_dir) / "inference"
    folder.mkdir(parents=True, exist_ok=True)
    network = paddle.jit.to_static(Inference(), input_spec=spec)
    paddle.jit.save(network, str(folder / "inference"))
    task.tokenizer.save_pretrained(str(folder))
    print(tr("inference model in {f}", "推理模型已写入 {f}", f=folder))
    return folder


def _trained(recipe: Recipe) -> tuple[Any, Any]:
    """(task, model) of what was trained into the output folder. Raises AmpError (AMP225) if nothing was."""
    folder = Path(recipe.output_dir)
    if not (folder / "config.json").is_file():
        raise AmpError(
            "AMP225",
            tr("nothing was trained into {f} yet", "{f} 中还没有训练好的模型", f=folder),
            hint=tr("train first, or: -o trainer.output_dir=FOLDER", "请先训练，或使用：-o trainer.output_dir=目录"),
        )
    from paddle_amp_plugin.nlp.models import load_model, load_tokenizer
    from paddle_amp_plugin.nlp.tasks import task_of
    from paddle_amp_plugin.nlp.trainer import require_host

    require_host(recipe)
    tokenizer = load_tokenizer(recipe, str(folder))
    task = task_of(recipe, tokenizer)
    return task, load_model(recipe, task.head, tokenizer, str(folder))


def _held_out(recipe: Recipe, part: str) -> list[Row]:
    if getattr(recipe.data, part) is None:
        return []
    return read_rows(recipe, part, limit=recipe.data.eval_rows)


def _seed(recipe: Recipe) -> None:
    """The host seeds when its Trainer is made; a new head gets its weights before that."""
    from paddlenlp.trainer import set_seed

    set_seed(seed=int(recipe.trainer.get("seed", 42)))


def _best_by(recipe: Recipe, metric: str) -> dict[str, Any]:
    """With ``load_best_model_at_end``: the task's own metric, unless the recipe names one (the host's: the loss)."""
    if not recipe.trainer.get("load_best_model_at_end") or "metric_for_best_model" in recipe.trainer:
        return {}
    return {"metric_for_best_model": metric, "greater_is_better": True}


def _check_output(recipe: Recipe) -> None:
    folder = Path(recipe.output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise AmpError(
            "AMP049",
            tr(
                "cannot write into {f} (trainer.output_dir): {e}",
                "无法写入 {f}（trainer.output_dir）：{e}",
                f=folder,
                e=error.strerror,
            ),
            hint=tr("choose another folder: -o trainer.output_dir=…", "请换一个目录：-o trainer.output_dir=…"),
        ) from None


def _save_recipe(recipe: Recipe) -> None:
    if int(os.environ.get("PADDLE_TRAINER_ID", "0")):
        return
    text = yaml.safe_dump(recipe.model_dump(mode="json", exclude_defaults=True), allow_unicode=True, sort_keys=False)
    target = Path(recipe.output_dir) / "recipe.yml"
    write_whole(target, lambda file: file.write_text(text, encoding="utf-8"), code="AMP049", hint="")


def say_next(recipe: Recipe, tools: str) -> None:
    """After training: the commands that evaluate, use and export what was trained."""
    if int(os.environ.get("PADDLE_TRAINER_ID", "0")):
        return
    base = f"-c {shlex.quote(str(Path(recipe.output_dir) / 'recipe.yml'))}"
    text = "" if recipe.task not in ("sequence_classification", "token_classification") else " --text …"
    print(tr("\nWhat to do next:", "\n接下来可以："))
    print(f"  {tr('evaluate', '评估')}: {tools}eval.py {base}")
    print(f"  {tr('predict', '预测')}: {tools}predict.py {base}{text}")
    print(f"  {tr('export', '导出')}: {tools}export_model.py {base}")
