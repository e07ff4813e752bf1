"""Small models that overflow or do not, for the diagnosis tests."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

Constant = nn.initializer.Constant


def rand(*shape, scale=1.0, seed=0):
    return paddle.to_tensor((np.random.default_rng(seed).standard_normal(shape) * scale).astype("float32"))


class R1(nn.Layer):
    """Linear of weight 30 on input 2000: 240000; relu, Linear, sigmoid."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, weight_attr=Constant(30.0))
        self.second = nn.Linear(4, 1, weight_attr=Constant(0.5))

    def forward(self, x):
        return F.sigmoid(self.second(F.relu(self.first(x))))


def half_target(out):
    return F.mse_loss(out, paddle.full_like(out, 0.5))


def seeded_linear():
    paddle.seed(2)
    return nn.Sequential(nn.Linear(4, 4))
