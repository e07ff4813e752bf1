"""The rows of a data file, read and checked. Pure: no Paddle.

``.jsonl``: one JSON object a line. ``.tsv`` / ``.txt``: ``text<TAB>label`` (with ``text_pair`` between them for
sentence pairs; the text alone for masked LM). ``.conll`` / ``.bio``: ``token label`` a line, an empty line ends a
sentence. Keys by task::

    sequence_classification   text, label
    sentence_pair             text, text_pair, label
    token_classification      tokens (a list), labels (as many)
    question_answering        context, question, answers {"text": […], "answer_start": […]}, and id if you like
    masked_lm                 text

Codes: AMP219 no such file, or nothing in it; AMP220 a row that is none; AMP221 a label outside ``data.labels``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.nlp.recipe_schema import Recipe
from paddle_amp_plugin.spelling import nearest, show

Row = dict[str, Any]
#: The keys a row must have, in the order of a .tsv's columns; the last is missing in rows only to be predicted.
KEYS = {
    "sequence_classification": ("text", "label"),
    "sentence_pair": ("text", "text_pair", "label"),
    "token_classification": ("tokens", "labels"),
    "question_answering": ("context", "question", "answers"),
    "masked_lm": ("text",),
}
#: Faulty rows named in one message.
NAMED = 5


class _Fault(Exception):
    """One row is wrong; ``code`` says how."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_rows(recipe: Recipe, part: str, *, limit: int | None = None) -> list[Row]:
    """The rows of ``recipe.data.<part>`` (``train``, ``eval``, ``test``); ``limit``: the first so many.

    Labels become their ids. Raises AmpError: AMP219, AMP220, AMP221 (the first ``NAMED`` faulty rows at once).
    """
    path = getattr(recipe.data, part)
    if path is None:
        raise AmpError("AMP219", tr("data.{p} is not set", "未设置 data.{p}", p=part))
    return read_file(recipe, path, key=f"data.{part}", labelled=True, limit=limit)


def read_file(recipe: Recipe, path: str, *, key: str, labelled: bool, limit: int | None = None) -> list[Row]:
    """The rows of a file; ``key`` is how the user named it, ``labelled`` whether labels are needed."""
    file = Path(path)
    if not file.is_file():
        hint = tr("relative paths start at {d}", "相对路径以 {d} 为起点", d=os.getcwd())
        if recipe.data_command:
            hint = tr("make it: {c}", "请先生成：{c}", c=recipe.data_command)
        raise AmpError("AMP219", tr("{k}: no such file: {f}", "{k}：文件不存在：{f}", k=key, f=path), hint=hint)
    check = _checker(recipe, labelled)
    rows: list[Row] = []
    faults: list[tuple[int, _Fault]] = []
    try:
        for number, raw in _raw_rows(recipe.task, file):
            if limit is not None and len(rows) >= limit:
                break
            try:
                if isinstance(raw, _Fault):
                    raise raw
                rows.append(check(raw))
            except _Fault as fault:
                faults.append((number, fault))
                if len(faults) >= NAMED:
                    break
    except UnicodeDecodeError as error:
        raise AmpError(
            "AMP220", tr("{f} is not UTF-8 text: {e}", "{f} 不是 UTF-8 文本：{e}", f=path, e=error)
        ) from None
    if faults:
        listed = [f"{path}:{number}: {fault}" for number, fault in faults]
        raise AmpError(faults[0][1].code, listed[0], hint="\n    ".join(listed[1:]))
    if not rows:
        raise AmpError("AMP219", tr("{k}: {f} has no rows", "{k}：{f} 中没有数据", k=key, f=path))
    return rows


def _raw_rows(task: str, path: Path) -> Iterator[tuple[int, Row | _Fault]]:
    """(line number from 1, row) of a file, by its suffix."""
    suffix = path.suffix.lower()
    readers = {".jsonl": _jsonl, ".json": _jsonl, ".tsv": _tsv, ".txt": _tsv, ".conll": _conll, ".bio": _conll}
    if suffix not in readers:
        allowed = ", ".join(readers)
        raise AmpError("AMP219", tr("{f}: not one of {a}", "{f}：不是 {a} 之一", f=path, a=allowed))
    with path.open(encoding="utf-8-sig") as lines:
        yield from readers[suffix](task, lines)


def _jsonl(task: str, lines: Iterator[str]) -> Iterator[tuple[int, Row | _Fault]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            yield number, _Fault("AMP220", tr("not JSON: {e}", "不是 JSON：{e}", e=error))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            yield number, _Fault("AMP220", tr("not a JSON object", "不是 JSON 对象"))


def _tsv(task: str, lines: Iterator[str]) -> Iterator[tuple[int, Row | _Fault]]:
    names = KEYS[task]
    for number, line in enumerate(lines, start=1):
        columns = line.rstrip("\r\n").split("\t")
        if not line.strip() or columns == list(names):  # a header
            continue
        if task in ("token_classification", "question_answering"):
            said = tr("{t} is read from .jsonl (or .conll)", "{t} 请使用 .jsonl（或 .conll）", t=task)
            yield number, _Fault("AMP220", said)
        elif len(columns) > len(names):
            said = tr("{n} columns; expected: {k}", "有 {n} 列；应为：{k}", n=len(columns), k="<TAB>".join(names))
            yield number, _Fault("AMP220", said)
        else:
            yield number, dict(zip(names, columns, strict=False))


def _conll(task: str, lines: Iterator[str]) -> Iterator[tuple[int, Row | _Fault]]:
    tokens: list[str] = []
    labels: list[str] = []
    first = 1
    for number, line in enumerate(lines, start=1):
        parts = line.split()
        if parts:
            first = number if not tokens else first
            tokens.append(parts[0])
            labels.extend(parts[-1:] if len(parts) > 1 else [])
        elif tokens:
            yield first, {"tokens": tokens, "labels": labels}
            tokens, labels = [], []
    if tokens:
        yield first, {"tokens": tokens, "labels": labels}


def _checker(recipe: Recipe, labelled: bool) -> Callable[[Row], Row]:
    """A function that checks one row of the recipe's task and returns it with label ids; raises ``_Fault``."""
    names = KEYS[recipe.task]
    needed = names if labelled or recipe.task == "masked_lm" else names[:-1]
    ids = {str(label): i for i, label in enumerate(recipe.data.labels)}

    def label_id(value: object) -> int:
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value) in ids:
            return ids[str(value)]
        said = tr(
            "label {v} is not one of data.labels: {a}",
            "标签 {v} 不在 data.labels 中：{a}",
            v=show(value),
            a=", ".join(ids),
        )
        near = nearest(value, ids)
        raise _Fault("AMP221", said + (tr("; did you mean: {n}", "；您是不是想写：{n}", n=near) if near else ""))

    def check(row: Row) -> Row:
        missing = [name for name in needed if row.get(name) is None]
        if missing:
            said = tr(
                "{m} is missing; a row needs: {k}", "缺少 {m}；每行需要：{k}", m=", ".join(missing), k=", ".join(needed)
            )
            raise _Fault("AMP220", said)
        for name in ("text", "text_pair", "context", "question"):
            if name in needed and not (isinstance(row[name], str) and row[name].strip()):
                raise _Fault("AMP220", tr("{n} is no text or empty", "{n} 不是文本或为空", n=name))
        out = {name: row[name] for name in names if name in row}
        if recipe.task == "token_classification":
            return _tokens(out, label_id)
        if recipe.task == "question_answering":
            return {**out, "id": str(row.get("id", "")), **({"answers": _answers(out)} if "answers" in out else {})}
        if "label" in out:
            out["label"] = label_id(out["label"])
        return out

    return check


def _tokens(row: Row, label_id: Callable[[object], int]) -> Row:
    tokens = row["tokens"]
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) and t.strip() for t in tokens):
        raise _Fault("AMP220", tr("tokens is no list of texts", "tokens 不是文本列表"))
    if "labels" not in row:
        return row
    labels = row["labels"]
    if not isinstance(labels, Sequence) or len(labels) != len(tokens):
        count = len(labels) if isinstance(labels, Sequence) else 0
        said = tr("{a} tokens and {b} labels", "{a} 个 token 与 {b} 个标签", a=len(tokens), b=count)
        raise _Fault("AMP220", said)
    return {"tokens": tokens, "labels": [label_id(label) for label in labels]}


def _answers(row: Row) -> list[tuple[str, int]]:
    """(text, start in the context) of each answer; empty if the question has none."""
    answers = row["answers"]
    if isinstance(answers, dict):  # the layout of SQuAD in data sets hubs
        texts, starts = answers.get("text"), answers.get("answer_start", answers.get("start"))
    else:  # DuReader's: parallel lists beside each other, or a list of objects
        items: list[Any] = answers if isinstance(answers, list) else [None]
        if not all(isinstance(item, dict) for item in items):
            raise _Fault("AMP220", tr("answers has neither text nor answer_start", "answers 缺少 text 与 answer_start"))
        texts, starts = [item.get("text") for item in items], [item.get("answer_start") for item in items]
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise _Fault("AMP220", tr("answers has neither text nor answer_start", "answers 缺少 text 与 answer_start"))
    pairs = []
    for text, start in zip(texts, starts, strict=True):
        if not isinstance(text, str) or not isinstance(start, int) or row["context"][start : start + len(text)] != text:
            said = tr(
                "the answer {t} does not stand at {s} of the context",
                "答案 {t} 不在上下文的位置 {s}",
                t=show(text),
                s=start,
            )
            raise _Fault("AMP220", said)
        pairs.append((text, start))
    return pairs
