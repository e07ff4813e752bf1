"""Back to where a run was in its data: samplers that count, samplers that shuffle on, readers that draw."""

from __future__ import annotations

import random

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.hosts.paddleocr_position import Position
from paddle_amp_plugin.pdamp import Pdamp
from paddle_amp_plugin.rng import rng_state


class Drawing(paddle.io.Dataset):
    """Every sample draws from NumPy's and Python's generators, as augmentation does."""

    need_reset = False

    def __getitem__(self, index):
        return np.array([index, np.random.rand(), random.random()])

    def __len__(self):
        return 12


class ShufflingOn(paddle.io.BatchSampler):
    """As PaddleOCR's MultiScaleSampler: each epoch shuffles what the one before has left."""

    def __init__(self, dataset):
        super().__init__(dataset=dataset, batch_size=2)
        self.order = list(range(6))

    def __iter__(self):
        random.seed(5)
        random.shuffle(self.order)
        for number in self.order:
            yield [2 * number, 2 * number + 1]


def counting(dataset):
    return paddle.io.DistributedBatchSampler(dataset, batch_size=2, shuffle=True)


def loader_of(position, sampler, workers):
    dataset = Drawing()
    return position.watch(paddle.io.DataLoader(dataset, batch_sampler=sampler(dataset), num_workers=workers))


def train(position, loader, epochs, stop=None):
    """Batches as lists; draws once after each, as dropout would. ``stop``: the batch (from 1) to be saved after."""
    seen, saved = [], None
    for _ in range(epochs):
        for batch in loader:
            seen.append((batch.numpy().tolist(), paddle.rand([1]).numpy().tolist()))
            if len(seen) == stop:
                saved = state(position)
        if len(seen) == stop and stop % 6 == 0:
            saved = state(position)
    return seen, saved


def state(position, **changes):
    values = {"step": 0, "updates": 0, "scaler": {}, "use_loss_scaling": True, "level": "O1", "dtype": "float16"}
    host = {**position.facts(), "epoch": 1}
    return Pdamp(**{**values, "paddle": paddle.__version__, "rng": rng_state(), "host": host, **changes})


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("sampler", [counting, ShufflingOn])
@pytest.mark.parametrize("stop", [6, 8, 12, 17])  # the ends of two epochs, and within two others
def test_the_batches_go_on(sampler, workers, stop):
    np.random.seed(1)
    random.seed(1)
    paddle.seed(1)
    position = Position(print)
    seen, saved = train(position, loader_of(position, sampler, workers), 4, stop)
    assert len(seen) == 24 and saved is not None
    np.random.seed(9)
    random.seed(9)
    paddle.seed(9)
    said: list[str] = []
    again = Position(said.append)
    again.resume(saved)
    assert again.inside_epoch == (stop % 6 != 0)
    loader = loader_of(again, sampler, workers)
    again.begin()
    rest, _ = train(again, loader, 4 - stop // 6)
    assert rest == seen[stop:]
    assert len(said) == (1 if stop % 6 else 0)


def test_another_number_of_processes_starts_an_epoch_of_its_own(monkeypatch):
    position = Position(print)
    loader = loader_of(position, counting, 0)
    _, saved = train(position, loader, 2, 8)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    again = Position(print)
    again.resume(saved)
    assert not again.inside_epoch
    again.begin()
    monkeypatch.delenv("PADDLE_TRAINERS_NUM")


def test_another_number_of_batches_is_said():
    position = Position(print)
    _, saved = train(position, loader_of(position, counting, 0), 2, 8)
    said: list[str] = []
    again = Position(said.append)
    again.resume(state(position, host={**saved.host, "batches": 99}))
    again.begin()
    rest, _ = train(again, loader_of(again, counting, 0), 1)
    assert len(rest) == 6 and len(said) == 1 and "99" in said[0]
