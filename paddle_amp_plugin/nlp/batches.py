"""Rows of token ids to batches of tensors: padding, masking, and texts of like length together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.io import Dataset, DistributedBatchSampler

from paddle_amp_plugin.nlp.losses import IGNORED

#: One encoded text: input_ids, token_type_ids, labels…, and what is only for us (``row``, ``offsets``).
Feature = dict[str, Any]
#: Batches that one bucket holds: enough for like lengths to meet, few enough for the order to stay random.
BUCKET = 50
#: Of the hidden tokens, so many become [MASK] and so many another token; the rest stay (BERT, section 3.1).
MASKED, REPLACED = 0.8, 0.1


class Features(Dataset):  # type: ignore[misc]
    """Encoded texts, in memory."""

    def __init__(self, features: Sequence[Feature]) -> None:
        super().__init__()
        self.features = list(features)

    def __getitem__(self, index: int) -> Feature:
        return self.features[index]

    def __len__(self) -> int:
        return len(self.features)

    def sorted_by_length(self) -> Features:
        """The same texts, the longest first: an evaluation then pads little."""
        return Features(sorted(self.features, key=lambda feature: -len(feature["input_ids"])))


class Collator:
    """Pads to the longest of the batch; every array is int64.

    With ``mask`` (masked LM) tokens are hidden anew each time a text is drawn, by NumPy's global generator, whose
    state the host saves and restores; texts that bring labels are left alone.
    """

    def __init__(self, tokenizer: Any, *, mask: float | None = None) -> None:
        self.pad = tokenizer.pad_token_id
        self.mask = mask
        self.tokenizer = tokenizer

    def __call__(self, features: Sequence[Feature]) -> dict[str, paddle.Tensor]:
        length = max(len(feature["input_ids"]) for feature in features)
        batch = {
            "input_ids": _padded([f["input_ids"] for f in features], length, self.pad),
            "token_type_ids": _padded([f["token_type_ids"] for f in features], length, 0),
            "attention_mask": _padded([[1] * len(f["input_ids"]) for f in features], length, 0),
        }
        if self.mask is not None and "labels" not in features[0]:
            hidden = [hide(f["input_ids"], self.tokenizer, self.mask, np.random) for f in features]
            batch["input_ids"] = _padded([ids for ids, _ in hidden], length, self.pad)
            batch["labels"] = _padded([labels for _, labels in hidden], length, IGNORED)
        for name in ("labels", "start_positions", "end_positions"):
            if name in features[0]:
                values = [feature[name] for feature in features]
                batch[name] = _padded(values, length, IGNORED) if isinstance(values[0], list) else np.array(values)
        return {name: paddle.to_tensor(np.asarray(values, dtype="int64")) for name, values in batch.items()}


def _padded(rows: Sequence[Sequence[int]], length: int, filler: int) -> np.ndarray[Any, Any]:
    out = np.full((len(rows), length), filler, dtype="int64")
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def hide(ids: Sequence[int], tokenizer: Any, share: float, random: Any) -> tuple[list[int], list[int]]:
    """(ids with some hidden, labels) for masked LM: ``share`` of the tokens, at least one, never a special one.

    ``random``: a NumPy generator or ``numpy.random``. Labels are ``IGNORED`` where nothing is hidden.
    """
    special = set(tokenizer.all_special_ids)
    places = [i for i, token in enumerate(ids) if token not in special]
    out, labels = list(ids), [IGNORED] * len(ids)
    if not places:
        return out, labels
    chosen = random.permutation(len(places))[: max(1, round(share * len(places)))]
    for place in (places[i] for i in chosen):
        labels[place] = out[place]
        draw = random.random()
        if draw < MASKED:
            out[place] = tokenizer.mask_token_id
        elif draw < MASKED + REPLACED:
            out[place] = int(random.random() * len(tokenizer))
    return out, labels


class BucketSampler(DistributedBatchSampler):  # type: ignore[misc]
    """Random batches of texts of like length: shuffled, cut into buckets, sorted within each, batches shuffled.

    A function of (seed, epoch), so that every process and a resumed run draw the same batches. The host calls
    ``set_epoch``.
    """

    def __init__(self, features: Features, batch_size: int, *, seed: int, drop_last: bool, **ranks: Any) -> None:
        super().__init__(features, batch_size, shuffle=True, drop_last=drop_last, **ranks)
        self.seed = seed
        self.lengths = [len(feature["input_ids"]) for feature in features.features]

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(len(self.lengths))
        order = np.concatenate([order, order[: self.total_size - len(order)]])[self.local_rank :: self.nranks]
        batches: list[list[int]] = []
        for start in range(0, len(order), self.batch_size * BUCKET):
            bucket = sorted(order[start : start + self.batch_size * BUCKET], key=lambda i: (self.lengths[i], i))
            batches.extend(
                [int(i) for i in bucket[at : at + self.batch_size]] for at in range(0, len(bucket), self.batch_size)
            )
        if self.drop_last:
            batches = [batch for batch in batches if len(batch) == self.batch_size]
        for place in random.permutation(len(batches)):
            yield batches[place]
        self.epoch += 1
