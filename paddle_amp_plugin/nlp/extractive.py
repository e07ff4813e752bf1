"""Question answering: the answer is a span of the context, found by the logits of its first and last token."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle_amp_plugin.nlp import losses, metrics
from paddle_amp_plugin.nlp.batches import Feature, Features
from paddle_amp_plugin.nlp.recipe_schema import Recipe
from paddle_amp_plugin.nlp.rows import Row
from paddle_amp_plugin.nlp.tasks import Task, pieces_of

#: Pairs of ends that are looked at: the best so many starts with the best so many ends.
BEST = 20
#: Longest answer, in pieces.
LONGEST = 64
#: What stands for a whole piece of text before the tokenizer sees it: a Latin word or number, else one character.
_UNIT = re.compile(r"[A-Za-z0-9]+|\S")


class QuestionAnswering(Task):
    """``[CLS] question [SEP] window of the context [SEP]``; windows overlap by ``doc_stride`` pieces.

    A window without the answer points at the first token.
    """

    head, metric, loss = "QuestionAnswering", "f1", losses.SpanLoss
    label_names = ("start_positions", "end_positions")

    def __init__(self, recipe: Recipe, tokenizer: Any) -> None:
        super().__init__(recipe, tokenizer)
        self._cache: dict[str, list[int]] = {}

    def _pieces(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """(ids, where in ``text`` each one stands)."""
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for unit in _UNIT.finditer(text):
            pieces = pieces_of(self.tokenizer, unit.group(), self._cache)
            ids.extend(pieces)
            spans.extend([unit.span()] * len(pieces))
        return ids, spans

    def encode(self, row: Row, *, evaluation: bool) -> list[Feature]:
        question = self._pieces(self.recipe.data.prefix + row["question"])[0][: self.length // 2 - 3]
        ids, spans = self._pieces(row["context"])
        head = [self.tokenizer.cls_token_id, *question, self.tokenizer.sep_token_id]
        room = self.length - len(head) - 1
        step = max(1, room - self.recipe.data.doc_stride)
        features = []
        for start in range(0, max(1, len(ids)), step):
            window = ids[start : start + room]
            body = [*window, self.tokenizer.sep_token_id]
            feature: Feature = {
                "input_ids": head + body,
                "token_type_ids": [0] * len(head) + [1] * len(body),
                "offsets": [None] * len(head) + spans[start : start + room] + [None],
            }
            feature["start_positions"], feature["end_positions"] = _ends(feature["offsets"], row.get("answers", []))
            features.append(feature)
            if start + room >= len(ids):
                break
        return features

    def reduce(self, logits: Any, labels: Any) -> Any:
        return logits[0], logits[1]

    def judge(self, features: Features, rows: Sequence[Row]) -> Callable[[Any], dict[str, float]]:
        def compute(result: Any) -> dict[str, float]:
            found = self._answers(features, rows, result.predictions)
            return metrics.answers(found, [[text for text, _ in row["answers"]] for row in rows])

        return compute

    def _answers(self, features: Features, rows: Sequence[Row], predictions: Any) -> list[str]:
        """The best answer of each row over its windows; "" where "none" scores higher."""
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(rows)
        none = [np.inf] * len(rows)
        starts, ends = (np.asarray(part) for part in predictions)
        for feature, start, end in zip(features.features, starts, ends, strict=True):
            place = feature["row"]
            none[place] = min(none[place], float(start[0] + end[0]))
            score, span = best_span(start, end, feature["offsets"])
            if span is not None and score > best[place][0]:
                best[place] = score, rows[place]["context"][span[0] : span[1]]
        return [text if score > limit else "" for (score, text), limit in zip(best, none, strict=True)]

    def show(self, features: Features, rows: Sequence[Row], predictions: Any) -> list[Row]:
        found = self._answers(features, rows, predictions)
        return [{"id": r["id"], "question": r["question"], "answer": a} for r, a in zip(rows, found, strict=True)]


def _ends(offsets: Sequence[tuple[int, int] | None], answers: Sequence[tuple[str, int]]) -> tuple[int, int]:
    """Places of the first answer's first and last piece, (0, 0) if it is not all in this window."""
    if not answers:
        return 0, 0
    text, begin = answers[0]
    end = begin + len(text)
    inside = [i for i, span in enumerate(offsets) if span is not None and span[0] < end and span[1] > begin]
    if not inside:
        return 0, 0
    first, last = offsets[inside[0]], offsets[inside[-1]]
    assert first is not None and last is not None
    whole = first[0] <= begin and last[1] >= begin + len(text.rstrip())
    return (inside[0], inside[-1]) if whole else (0, 0)


def best_span(
    start: NDArray[Any], end: NDArray[Any], offsets: Sequence[tuple[int, int] | None]
) -> tuple[float, tuple[int, int] | None]:
    """(score, (from, to) in the context) of the best pair of ends; (-inf, None) if there is none."""
    best: tuple[float, tuple[int, int] | None] = (-np.inf, None)
    count = len(offsets)
    for first in np.argsort(-start[:count])[:BEST]:
        for last in np.argsort(-end[:count])[:BEST]:
            here, there = offsets[first], offsets[last]
            if here is None or there is None or not first <= last < first + LONGEST:
                continue
            score = float(start[first] + end[last])
            if score > best[0]:
                best = score, (here[0], there[1])
    return best
