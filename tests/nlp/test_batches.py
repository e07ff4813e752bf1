"""Padding, masking and buckets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from paddle_amp_plugin.nlp.batches import BucketSampler, Collator, Features, hide
from paddle_amp_plugin.nlp.losses import IGNORED


class Tokenizer(SimpleNamespace):
    def __len__(self) -> int:
        return 1000


TOKENIZER = Tokenizer(pad_token_id=9, mask_token_id=4, all_special_ids=[2, 3, 4, 9])


def feature(length: int, **more):
    return {"input_ids": [2, *range(100, 98 + length), 3], "token_type_ids": [0] * length, **more}


def test_padding() -> None:
    batch = Collator(TOKENIZER)(
        [feature(3, labels=[IGNORED, 1, IGNORED]), feature(5, labels=[IGNORED, 1, 2, 1, IGNORED])]
    )
    assert batch["input_ids"].numpy().tolist() == [[2, 100, 3, 9, 9], [2, 100, 101, 102, 3]]
    assert batch["attention_mask"].numpy().tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert batch["labels"].numpy()[0].tolist() == [IGNORED, 1, IGNORED, IGNORED, IGNORED]
    assert Collator(TOKENIZER)([feature(3, labels=1), feature(4, labels=0)])["labels"].numpy().tolist() == [1, 0]


def test_hiding_takes_its_share_and_never_a_special_token() -> None:
    random = np.random.default_rng(0)
    kinds = {"mask": 0, "kept": 0, "other": 0}
    for _ in range(300):
        ids = feature(42)["input_ids"]
        out, labels = hide(ids, TOKENIZER, 0.15, random)
        chosen = [i for i, label in enumerate(labels) if label != IGNORED]
        assert len(chosen) == 6 and 0 not in chosen and 41 not in chosen
        assert all(labels[i] == ids[i] for i in chosen)
        assert all(out[i] == ids[i] for i in range(42) if i not in chosen)
        for i in chosen:
            kinds["mask" if out[i] == 4 else "kept" if out[i] == ids[i] else "other"] += 1
    shares = {kind: count / 1800 for kind, count in kinds.items()}
    assert shares == {
        "mask": pytest.approx(0.8, abs=0.03),
        "kept": pytest.approx(0.1, abs=0.03),
        "other": pytest.approx(0.1, abs=0.03),
    }
    assert hide([2, 3], TOKENIZER, 0.15, random) == ([2, 3], [IGNORED, IGNORED])


def test_training_hides_others_each_time_and_an_evaluation_the_same() -> None:
    collate = Collator(TOKENIZER, mask=0.5)
    np.random.seed(0)
    first, second = (collate([feature(20)])["labels"].numpy() for _ in range(2))
    assert (first != second).any() and (first != IGNORED).sum() == 9
    np.random.seed(0)
    np.testing.assert_array_equal(collate([feature(20)])["labels"].numpy(), first)
    fixed = feature(20, labels=[IGNORED] * 19 + [5])
    np.testing.assert_array_equal(collate([fixed])["labels"].numpy()[0], fixed["labels"])


@pytest.fixture
def features() -> Features:
    random = np.random.default_rng(0)
    return Features([feature(int(n)) for n in random.integers(3, 60, 1003)])


def test_buckets_hold_every_text_once_in_batches_of_like_length(features) -> None:
    sampler = BucketSampler(features, 16, seed=1, drop_last=False)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 63
    assert sorted(i for batch in batches for i in batch) == list(range(1003))
    padding = sum(len(b) * max(sampler.lengths[i] for i in b) - sum(sampler.lengths[i] for i in b) for b in batches)
    assert padding < 0.05 * sum(sampler.lengths)
    assert len(list(BucketSampler(features, 16, seed=1, drop_last=True))) == 62


def test_buckets_are_a_function_of_seed_and_epoch(features) -> None:
    def draw(seed: int, epoch: int):
        sampler = BucketSampler(features, 16, seed=seed, drop_last=False)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert draw(1, 0) == draw(1, 0) != draw(1, 1) != draw(2, 1)


def test_two_processes_share_an_epoch(features) -> None:
    halves = [list(BucketSampler(features, 16, seed=1, drop_last=False, num_replicas=2, rank=r)) for r in (0, 1)]
    drawn = [{i for batch in half for i in batch} for half in halves]
    assert drawn[0] | drawn[1] == set(range(1003)) and len(drawn[0] & drawn[1]) <= 1
    assert len(halves[0]) == len(halves[1])
