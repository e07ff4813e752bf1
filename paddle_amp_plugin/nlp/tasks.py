"""The tasks: how a row becomes token ids, which head and loss it takes, and how predictions are judged and shown.

One class a task, found by ``task_of``. ``extractive.py`` holds question answering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from paddle_amp_plugin.data.words import is_han
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.nlp import losses, metrics
from paddle_amp_plugin.nlp.batches import Collator, Feature, Features, hide
from paddle_amp_plugin.nlp.recipe_schema import Recipe
from paddle_amp_plugin.nlp.rows import Row

#: Seed of the tokens that an evaluation of masked LM hides: the same ones every time.
EVALUATION_SEED = 2024
_METASPACE = "▁"


class Task:
    """What all tasks share. ``head`` is PaddleNLP's name of the model's head, ``metric`` what "best" means."""

    head: str
    metric: str
    loss: type[paddle.nn.Layer]
    label_names: tuple[str, ...] = ("labels",)

    def __init__(self, recipe: Recipe, tokenizer: Any) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.labels = [str(label) for label in recipe.data.labels]
        self.length = recipe.data.max_seq_length

    def features(self, rows: Sequence[Row], *, evaluation: bool) -> Features:
        """All rows as token ids, with a progress bar; ``row`` of each feature is its row's place."""
        console = Console(stderr=True)
        label = tr("tokenizing", "正在分词")
        out: list[Feature] = []
        for place, row in enumerate(track(rows, label, console=console, transient=True)):
            out.extend({**feature, "row": place} for feature in self.encode(row, evaluation=evaluation))
        return Features(out)

    def encode(self, row: Row, *, evaluation: bool) -> list[Feature]:
        """The feature of a row (several, if its text is cut into windows)."""
        raise NotImplementedError

    def collator(self) -> Collator:
        """Makes batches of features."""
        return Collator(self.tokenizer)

    def reduce(self, logits: Any, labels: Any) -> Any:
        """What is kept of a batch's logits for the metric: the best class. Runs on the device."""
        return paddle.argmax(losses.first_output(logits), axis=-1)

    def judge(self, features: Features, rows: Sequence[Row]) -> Callable[[Any], dict[str, float]]:
        """A ``compute_metrics`` for the host's Trainer."""
        raise NotImplementedError

    def show(self, features: Features, rows: Sequence[Row], predictions: Any) -> list[Row]:
        """The predictions as rows for a person, in the order of ``rows``."""
        raise NotImplementedError


class SequenceClassification(Task):
    """One label a text."""

    head, metric, loss = "SequenceClassification", "accuracy", losses.ClassificationLoss

    def encode(self, row: Row, *, evaluation: bool) -> list[Feature]:
        text = self.recipe.data.prefix + row["text"]
        encoded = self.tokenizer(text, row.get("text_pair"), max_length=self.length, truncation=True)
        feature = {name: list(encoded[name]) for name in ("input_ids", "token_type_ids")}
        return [{**feature, "labels": row.get("label", 0)}]

    def judge(self, features: Features, rows: Sequence[Row]) -> Callable[[Any], dict[str, float]]:
        def compute(result: Any) -> dict[str, float]:
            return metrics.classification(np.asarray(result.predictions), np.asarray(result.label_ids).reshape([-1]))

        return compute

    def show(self, features: Features, rows: Sequence[Row], predictions: Any) -> list[Row]:
        out = []
        for row, label in zip(rows, np.asarray(predictions), strict=True):
            texts = {name: row[name] for name in ("text", "text_pair") if name in row}
            out.append({**texts, "label": self.labels[int(label)]})
        return out


class SentencePair(SequenceClassification):
    """One label a pair of texts; the second has token type 1."""


def pieces_of(tokenizer: Any, token: str, cache: dict[str, list[int]]) -> list[int]:
    """The ids of one token of a sentence, never none.

    A sentencepiece tokenizer takes each token for the start of a word; in a Chinese sentence there are no words,
    so a Han character is looked up without the mark of one.
    """
    found = cache.get(token)
    if found is None:
        pieces = [piece for piece in tokenizer.tokenize(token) if piece != _METASPACE]
        if pieces and pieces[0].startswith(_METASPACE) and is_han(pieces[0][1:2] or " "):
            bare = tokenizer.convert_tokens_to_ids(pieces[0][1:])
            pieces[0] = pieces[0] if bare == tokenizer.unk_token_id else pieces[0][1:]
        found = tokenizer.convert_tokens_to_ids(pieces) if pieces else [tokenizer.unk_token_id]
        found = cache[token] = [int(i) for i in found]
    return found


class TokenClassification(Task):
    """One label a token (for Chinese: a character). The first piece of a token bears its label."""

    head, metric, loss = "TokenClassification", "f1", losses.TokenLoss

    def __init__(self, recipe: Recipe, tokenizer: Any) -> None:
        super().__init__(recipe, tokenizer)
        self._cache: dict[str, list[int]] = {}

    def encode(self, row: Row, *, evaluation: bool) -> list[Feature]:
        ids: list[int] = []
        heads: list[int] = []
        for token in row["tokens"]:
            pieces = pieces_of(self.tokenizer, token, self._cache)
            if len(ids) + len(pieces) > self.length - 2:
                break
            heads.append(len(ids) + 1)
            ids.extend(pieces)
        ids = [self.tokenizer.cls_token_id, *ids, self.tokenizer.sep_token_id]
        labels = [losses.IGNORED] * len(ids)
        for place, label in zip(heads, row.get("labels", [0] * len(heads)), strict=False):
            labels[place] = label
        return [{"input_ids": ids, "token_type_ids": [0] * len(ids), "labels": labels}]

    def judge(self, features: Features, rows: Sequence[Row]) -> Callable[[Any], dict[str, float]]:
        """Names that a too long text lost count as not found: the gold labels are those of the rows."""

        def compute(result: Any) -> dict[str, float]:
            guessed = self._names(np.asarray(result.predictions), np.asarray(result.label_ids), features, rows)
            right = [[self.labels[label] for label in row["labels"]] for row in rows]
            return metrics.entities(guessed, right)

        return compute

    def _names(
        self, found: NDArray[Any], marked: NDArray[Any], features: Features, rows: Sequence[Row]
    ) -> list[list[str]]:
        """The predicted label of every token of every row, "O" beyond what fitted."""
        out = [[self._outside()] * len(row["tokens"]) for row in rows]
        for feature, predicted, labels in zip(features.features, found, marked, strict=True):
            places = labels[: len(feature["input_ids"])] != losses.IGNORED
            names = [self.labels[int(i)] for i in predicted[: len(places)][places]]
            out[feature["row"]][: len(names)] = names
        return out

    def _outside(self) -> str:
        return "O" if "O" in self.labels else self.labels[0]

    def show(self, features: Features, rows: Sequence[Row], predictions: Any) -> list[Row]:
        found = np.asarray(predictions)
        marked = np.full(found.shape, losses.IGNORED)
        for i, feature in enumerate(features.features):
            marked[i, : len(feature["labels"])] = feature["labels"]
        names = self._names(found, marked, features, rows)
        return [{"tokens": row["tokens"], "labels": labels} for row, labels in zip(rows, names, strict=True)]


class MaskedLm(Task):
    """Hidden tokens are to be guessed. Training hides others every time, an evaluation always the same."""

    head, metric, loss = "MaskedLM", "accuracy", losses.TokenLoss

    def features(self, rows: Sequence[Row], *, evaluation: bool) -> Features:
        self._random = np.random.default_rng(EVALUATION_SEED)
        return super().features(rows, evaluation=evaluation)

    def encode(self, row: Row, *, evaluation: bool) -> list[Feature]:
        encoded = self.tokenizer(self.recipe.data.prefix + row["text"], max_length=self.length, truncation=True)
        feature: Feature = {name: list(encoded[name]) for name in ("input_ids", "token_type_ids")}
        if evaluation:
            share = self.recipe.data.mask_probability
            ids, labels = hide(feature["input_ids"], self.tokenizer, share, self._random)
            feature.update(input_ids=ids, labels=labels)
        return [feature]

    def collator(self) -> Collator:
        return Collator(self.tokenizer, mask=self.recipe.data.mask_probability)

    def judge(self, features: Features, rows: Sequence[Row]) -> Callable[[Any], dict[str, float]]:
        def compute(result: Any) -> dict[str, float]:
            return metrics.tokens(np.asarray(result.predictions), np.asarray(result.label_ids))

        return compute

    def show(self, features: Features, rows: Sequence[Row], predictions: Any) -> list[Row]:
        out = []
        for feature, row, found in zip(features.features, rows, np.asarray(predictions), strict=True):
            places = [i for i, label in enumerate(feature["labels"]) if label != losses.IGNORED]
            guessed = self.tokenizer.convert_ids_to_tokens([int(found[i]) for i in places])
            hidden = self.tokenizer.convert_ids_to_tokens([feature["labels"][i] for i in places])
            out.append({"text": row["text"], "hidden": hidden, "guessed": guessed})
        return out


def task_of(recipe: Recipe, tokenizer: Any) -> Task:
    """The task of a recipe, ready to encode with ``tokenizer``."""
    from paddle_amp_plugin.nlp.extractive import QuestionAnswering

    kinds: dict[str, type[Task]] = {
        "sequence_classification": SequenceClassification,
        "sentence_pair": SentencePair,
        "token_classification": TokenClassification,
        "question_answering": QuestionAnswering,
        "masked_lm": MaskedLm,
    }
    return kinds[recipe.task](recipe, tokenizer)
