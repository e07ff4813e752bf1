"""A workload without a host: two Linear layers and a regression, on which a fault can be planted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.hosts.workloads import plan_for


class Net(paddle.nn.Layer):
    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.body = paddle.nn.Linear(8, hidden)
        self.norm = paddle.nn.LayerNorm(hidden)
        self.act = paddle.nn.ReLU()
        self.drop = paddle.nn.Dropout(0.2)
        self.head = paddle.nn.Linear(hidden, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.drop(self.act(self.norm(self.body(x)))))


class Loss(paddle.nn.Layer):
    """Mean squared error times ``factor``."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, found: Any, wanted: Any) -> Any:
        return ((found - wanted) ** 2).mean() * self.factor


class Toy:
    """See ``workloads.Workload``. ``amp``: the value of the key. ``factor``: of the loss, and so of gradients."""

    name, family, host, batch_size, steps_per_epoch, missing = "toy", "rec/toy", "none", 16, 10, None

    def __init__(self, amp: Any = True, *, factor: float = 1.0, rate: float = 1e-2, bad_batch: int = 0, seed: int = 3):
        self.settings = read_amp({"amp": amp})
        self.factor, self.rate, self.bad_batch, self.seed = factor, rate, bad_batch, seed
        self.weights: dict[str, Any] | None = None

    @property
    def plan(self) -> Any:
        return plan_for(self)

    def build_model(self) -> Any:
        paddle.seed(self.seed)
        return Net()

    def build_criterion(self) -> Any:
        return Loss(self.factor)

    def loss(self, model: Any, batch: Any, criterion: Any = None) -> Any:
        return (criterion or self.build_criterion())(model(batch[0]), batch[1])

    def build_optimizer(self, model: Any) -> tuple[Any, Any]:
        schedule = paddle.optimizer.lr.StepDecay(self.rate, step_size=100)
        return paddle.optimizer.Adam(schedule, parameters=model.parameters()), schedule

    def train_batches(self) -> Iterator[Any]:
        random = np.random.default_rng(self.seed)
        for number in itertools.count(1):
            x = random.standard_normal((self.batch_size, 8)).astype("float32")
            if number == self.bad_batch:
                x[0, 0] = np.inf
            yield [paddle.to_tensor(x), paddle.to_tensor(x.sum(1, keepdims=True))]

    def synthetic_batch(self, batch_size: int | None = None) -> Any:
        return next(self.train_batches())

    def samples(self, batch: Any) -> int:
        return int(batch[0].shape[0])

    def evaluate(self, model: Any) -> dict[str, float]:
        return {}


def scaled(layer: str, factor: float) -> Any:
    """A ``change`` that multiplies one layer's weight."""

    def change(model: Any, optimizer: Any) -> None:
        weight = dict(model.named_sublayers())[layer].weight
        weight.set_value(weight.numpy() * factor)

    return change
