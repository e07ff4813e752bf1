"""The keys of an NLP recipe, and faults in them in plain words. Pure: no Paddle.

``amp`` is read by ``config.py`` and ``trainer`` by PaddleNLP's ``TrainingArguments``; the other sections are
described here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from paddle_amp_plugin.config_schema import exponent
from paddle_amp_plugin.errors import Problem
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import nearest, plain, show

Task = Literal["sequence_classification", "sentence_pair", "token_classification", "question_answering", "masked_lm"]
TASKS: tuple[str, ...] = get_args(Task)
#: The tasks whose head sees one vector a text, so that ``model.pooling`` means something.
POOLED_TASKS = ("sequence_classification", "sentence_pair")

Number = Annotated[float, BeforeValidator(exponent)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class Freeze(_Section):
    """What is not trained: the embeddings, and the encoder's first ``layers`` layers."""

    embeddings: bool = False
    layers: int = Field(default=0, ge=0)


class Model(_Section):
    """Where the network comes from.

    ``model_name_or_path``: a name on PaddleNLP's hub, or a folder. Without it a new model of ``architecture`` is
    made from ``config``, and the tokenizer must be named. ``config``: settings that replace those of
    ``config.json`` (``num_hidden_layers: 6`` keeps the first six layers). ``pooling``: ``first`` = the first
    token through the host's pooler, ``mean`` = the mean over the tokens.
    """

    model_name_or_path: str | None = None
    tokenizer_name_or_path: str | None = None
    architecture: Literal["ernie", "bert"] | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    pooling: Literal["first", "mean"] = "first"
    freeze: Freeze = Field(default_factory=Freeze)


class Data(_Section):
    """The rows and how they become token ids.

    ``labels``: names in the order of their ids. ``prefix`` is put before every (first) text. ``*_rows``: take so
    many rows from the start of the file. ``bucket_by_length``: texts of like length share a training batch.
    ``doc_stride``: tokens two windows of one context share (question answering). ``mask_probability``: share of
    the tokens that masked-LM training hides.
    """

    train: str | None = None
    eval: str | None = None
    test: str | None = None
    labels: tuple[str | int, ...] = Field(default=(), strict=False)
    prefix: str = ""
    max_seq_length: int = Field(default=128, ge=8, le=4096)
    doc_stride: int = Field(default=64, ge=0)
    mask_probability: Number = Field(default=0.15, gt=0.0, lt=1.0)
    bucket_by_length: bool = True
    train_rows: int | None = Field(default=None, ge=1)
    eval_rows: int | None = Field(default=None, ge=1)


class Optimizer(_Section):
    """``layer_lr_decay``: each layer below the top learns that much slower than the one above it;
    ``head_lr_ratio``: the new head's learning rate over the encoder's."""

    layer_lr_decay: Number = Field(default=1.0, gt=0.0, le=1.0)
    head_lr_ratio: Number = Field(default=1.0, gt=0.0)


class Recipe(_Section):
    """One recipe. ``amp`` is as in the file (None: not mentioned); ``trainer`` are the host's own arguments."""

    task: Task
    model: Model
    data: Data
    optimizer: Optimizer = Field(default_factory=Optimizer)
    trainer: dict[str, Any]
    amp: Any = None
    data_command: str = ""

    @property
    def wants_amp(self) -> bool:
        """Is mixed precision asked for? ``amp: false`` is the host as it is, to the bit."""
        return self.amp is not None and self.amp is not False

    @property
    def output_dir(self) -> str:
        """The folder that the run writes."""
        return str(self.trainer["output_dir"])


SECTIONS: Mapping[str, type[BaseModel]] = {"model": Model, "data": Data, "optimizer": Optimizer}
_KINDS = {
    "int_type": ("a whole number", "整数"),
    "float_type": ("a number", "数"),
    "bool_type": ("true, false", "true、false"),
    "string_type": ("text", "文本"),
    "tuple_type": ("a list", "列表"),
    "dict_type": ("a mapping", "映射"),
    "model_type": ("a mapping", "映射"),
    "missing": ("a value", "一个值"),
}
_BOUNDS = {
    "greater_than_equal": ("ge", "≥"),
    "greater_than": ("gt", ">"),
    "less_than_equal": ("le", "≤"),
    "less_than": ("lt", "<"),
}


def problems_of(error: ValidationError) -> Iterator[Problem]:
    """Each fault that pydantic found as one of ours (AMP217), with its dotted path."""
    seen = set()
    for item in error.errors(include_url=False):
        path = ".".join(plain(str(part)) for part in item["loc"] if part not in ("str", "int"))
        if path in seen:  # a union says each of its members' faults
            continue
        seen.add(path)
        yield _problem(path, item["type"], item.get("ctx", {}), item["input"])


def _problem(path: str, kind: str, context: Mapping[str, Any], value: object) -> Problem:
    if kind == "extra_forbidden":
        return unknown_key(path, value)
    if kind == "missing":
        return Problem("AMP217", path, tr("the key is missing", "缺少该键"), allowed=_allowed_of(path))
    message = tr("cannot be used (found: {v})", "无法使用（实际值：{v}）", v=show(value))
    if kind == "literal_error":
        choices = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        allowed = ", ".join(choices)
        return Problem("AMP217", path, message, value=value, allowed=allowed, suggestion=nearest(value, choices))
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return Problem("AMP217", path, message, value=value, allowed=f"{sign} {context[name]}")
    return Problem("AMP217", path, message, value=value, allowed=tr(*_KINDS[kind]) if kind in _KINDS else kind)


def _allowed_of(path: str) -> str:
    return ", ".join(TASKS) if path == "task" else ""


def unknown_key(path: str, value: object) -> Problem:
    """The Problem of a key that the recipe does not have."""
    parent, _, name = path.rpartition(".")
    known = _names_in(parent)
    near = nearest(name, known)
    if not near and not parent:  # a key of a section, written at the top level
        for section, model in SECTIONS.items():
            if name in model.model_fields:
                near = f"{section}.{name}"
    message = tr("unknown key (value: {v})", "未知的键（其值：{v}）", v=show(value))
    return Problem("AMP217", path, message, value=value, allowed=", ".join(known), suggestion=near)


def _names_in(parent: str) -> tuple[str, ...]:
    if parent == "model.freeze":
        return tuple(Freeze.model_fields)
    model = SECTIONS.get(parent, Recipe)
    return tuple(model.model_fields)
