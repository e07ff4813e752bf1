"""An NLP recipe file, read: ``_base_`` merged, ``-o`` laid over, checked, before anything heavy is imported.

Pure: no Paddle. Codes: AMP217 a key or value of the recipe, AMP218 ``_base_``, AMP219 a data file.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paddle_amp_plugin.config import load_yaml, parse_override, read_amp
from paddle_amp_plugin.config_overrides import overlay
from paddle_amp_plugin.config_schema import exponent
from paddle_amp_plugin.errors import AmpError, ConfigError, Problem
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.nlp.recipe_schema import POOLED_TASKS, Recipe, problems_of
from paddle_amp_plugin.spelling import nearest, show

BASE = "_base_"
#: Keys that only one of the two kinds of file has at its top level.
_NLP_KEYS = frozenset({"task", "model", "trainer"})
_OCR_KEYS = frozenset({"Global", "Architecture"})


class RecipeError(ConfigError):
    """Everything that is wrong with one recipe, all at once."""

    def __init__(self, problems: Sequence[Problem], *, source: str = "") -> None:
        super().__init__(problems, source=source)
        where = f"{source}: " if source else ""
        n = len(self.problems)
        self.message = tr("{w}{n} problem(s) in the recipe", "{w}配方有 {n} 处问题", w=where, n=n)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The recipe at ``path`` with its ``_base_`` beneath it.

    ``_base_`` is a path, relative to the file it stands in, or a list of them; mappings are merged key by key,
    everything else is replaced, and ``key:`` without a value takes the base's key away. Raises AmpError: AMP030-
    AMP034 for the file itself, AMP218 for a base that is missing or its own ancestor.
    """
    return _load(Path(path), ())


def _load(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    here = path.resolve()
    if here in above:
        chain = " -> ".join(str(p) for p in (*above[above.index(here) :], here))
        raise AmpError("AMP218", tr("{k} goes round in a circle: {c}", "{k} 形成了循环：{c}", k=BASE, c=chain))
    document = load_yaml(path)
    bases = document.pop(BASE, [])
    names = [bases] if isinstance(bases, str) else bases
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise AmpError(
            "AMP218",
            tr("{f}: {k} is no path (found: {v})", "{f}：{k} 不是路径（实际值：{v}）", f=path, k=BASE, v=show(bases)),
            hint=f"{BASE}: ../base.yml",
        )
    merged: dict[str, Any] = {}
    for name in names:
        base = path.parent / name
        if not base.is_file():
            raise AmpError(
                "AMP218",
                tr("{f}: {k} names {b}, which is not there", "{f}：{k} 指向的 {b} 不存在", f=path, k=BASE, b=base),
            )
        merged = merge(merged, _load(base, (*above, here)))
    return merge(merged, document)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``: mappings key by key, None removes, everything else replaces. New objects."""
    out = dict(base)
    for key, value in over.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(out.get(key), Mapping):
            out[key] = merge(out[key], value)
        else:
            out[key] = merge({}, value) if isinstance(value, Mapping) else value
    return out


def is_nlp(document: Mapping[str, Any]) -> bool:
    """Is a merged file a recipe of ours, and not a config of PaddleOCR?"""
    keys = {key for key in document if isinstance(key, str)}
    return bool(keys & _NLP_KEYS) and not keys & _OCR_KEYS


def looks_nlp(path: str | os.PathLike[str]) -> bool:
    """``is_nlp`` of a file, False for one that cannot be read: whoever reads it next says what is wrong."""
    try:
        document = load_yaml(path)
        return is_nlp(load(path) if BASE in document else document)
    except AmpError as error:
        return error.code == "AMP218"


def read(path: str | os.PathLike[str], options: Iterable[str] = ()) -> Recipe:
    """The recipe at ``path`` with ``-o key=value`` laid over it, checked.

    Raises ``RecipeError`` (AMP217) with everything that is wrong with our sections, ``ConfigError`` for the
    ``amp`` key, and what ``load`` raises.
    """
    source = os.fspath(path)
    overrides = dict(parse_override(text) for text in options)
    document, _, problems = overlay(load(path), overrides)
    document = merge({}, document)
    if "amp" in document:
        read_amp({"amp": document["amp"]}, host="paddlenlp", source=source)
    if problems:
        raise ConfigError(problems, source=source)
    trainer = document.get("trainer")
    if isinstance(trainer, Mapping):
        document["trainer"] = {key: exponent(value) for key, value in trainer.items()}
    try:
        recipe = Recipe.model_validate(document)
    except ValidationError as error:
        found = list(problems_of(error))
        raise RecipeError([*found, *_trainer_problems(document.get("trainer"))], source=source) from None
    found = [*_cross_problems(recipe), *_trainer_problems(recipe.trainer)]
    if found:
        raise RecipeError(found, source=source)
    return recipe


def _cross_problems(recipe: Recipe) -> list[Problem]:
    """What is wrong between the values of one recipe."""
    found = []

    def add(path: str, en: str, zh: str, allowed: str = "") -> None:
        found.append(Problem("AMP217", path, tr(en, zh), allowed=allowed))

    model, data = recipe.model, recipe.data
    if not isinstance(recipe.trainer.get("output_dir"), str) or not recipe.trainer["output_dir"]:
        add("trainer.output_dir", "the key is missing", "缺少该键", "a folder, e.g. output/run")
    if model.model_name_or_path is None:
        if model.architecture is None:
            en = "neither a model to start from nor an architecture to build"
            add(
                "model.model_name_or_path",
                en,
                "既没有起始模型，也没有要新建的架构",
                "a hub name, a folder, or model.architecture",
            )
        if model.tokenizer_name_or_path is None:
            add("model.tokenizer_name_or_path", "a new model needs a tokenizer", "新建模型需要指定分词器")
    elif model.architecture is not None:
        en = "a model that is loaded brings its own architecture"
        add("model.architecture", en, "加载的模型自带架构", "only without model.model_name_or_path")
    if model.pooling == "mean" and recipe.task not in POOLED_TASKS:
        add("model.pooling", "this task has no pooling", "该任务没有池化", f"only for {', '.join(POOLED_TASKS)}")
    if recipe.task in (*POOLED_TASKS, "token_classification"):
        if len(data.labels) < 2:
            add("data.labels", "fewer than two labels", "少于两个标签", "the label names, in the order of their ids")
        elif len({str(label) for label in data.labels}) < len(data.labels):
            add("data.labels", "a label stands twice", "有重复的标签")
    if recipe.task == "question_answering" and data.doc_stride >= data.max_seq_length // 2:
        add("data.doc_stride", "too large for max_seq_length", "相对 max_seq_length 过大", "< max_seq_length / 2")
    return found


def _trainer_problems(trainer: object) -> list[Problem]:
    """Unknown keys of the ``trainer`` section (host version at hand decides), and AMP under the host's names."""
    if not isinstance(trainer, Mapping):
        return []
    known = training_argument_names()
    found = []
    for key, value in trainer.items():
        path = f"trainer.{key}"
        if key in ("fp16", "bf16", "fp16_opt_level", "amp", "amp_master_grad", "scale_loss"):
            message = tr("mixed precision is set by the key `amp`", "混合精度由 `amp` 键设置")
            found.append(Problem("AMP217", path, message, value=value, suggestion="amp: true"))
        elif known and key not in known:
            message = tr("unknown key (value: {v})", "未知的键（其值：{v}）", v=show(value))
            allowed = tr("PaddleNLP's TrainingArguments", "PaddleNLP 的 TrainingArguments")
            near = nearest(key, known)
            found.append(Problem("AMP217", path, message, value=value, allowed=allowed, suggestion=near))
    return found


def training_argument_names() -> frozenset[str]:
    """The fields of the installed PaddleNLP's ``TrainingArguments``, read from its source; empty if not installed.

    Importing PaddleNLP takes seconds and Paddle; a misspelt key is to be said at once.
    """
    spec = importlib.util.find_spec("paddlenlp")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "trainer" / "training_args.py"
        if path.is_file():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments":
                    return frozenset(
                        item.target.id
                        for item in node.body
                        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                    )
    return frozenset()
