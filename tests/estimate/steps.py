"""Small networks in the form that is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn

WIDE = (8, 32, 16, 4)


class NetStep:
    """A model on random rows of ``features`` floats, trained for the mean of its output."""

    def __init__(
        self, model: nn.Layer, features: int, optimizer: Callable[..., Any] | None = None, **settings: Any
    ) -> None:
        self.model, self.features = model, features
        trained = [p for p in model.parameters() if not p.stop_gradient]
        self.optimizer = (optimizer or paddle.optimizer.SGD)(learning_rate=0.01, parameters=trained, **settings)

    def batch(self, size: int) -> Any:
        return [paddle.randn([size, self.features])]

    def loss(self, batch: Any) -> Any:
        return self.model(batch[0]).astype("float32").mean()


def three_layers() -> nn.Layer:
    """Linear 8 -> 32, sigmoid, Linear 32 -> 16, sigmoid, Linear 16 -> 4."""
    a, b, c, d = WIDE
    return nn.Sequential(nn.Linear(a, b), nn.Sigmoid(), nn.Linear(b, c), nn.Sigmoid(), nn.Linear(c, d))
