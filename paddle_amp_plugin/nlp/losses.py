"""The tasks' losses: the mean over the labels that count, and nothing else.

Paddle 3.3.1's ``F.cross_entropy(ignore_index=-100, reduction="mean")`` divides by the number of **all** labels
where ``ignore_index`` is negative (2.6.2 divides by the valid ones): a batch that is half padding then trains at
half its learning rate. Here the sum is divided by the valid labels, as the loss is defined.
"""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F

#: The label of a position that has none; as in PaddleNLP and PyTorch.
IGNORED = -100


def valid_mean_cross_entropy(logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Mean cross-entropy over the labels that are not ``IGNORED``; 0 if there are none.

    ``logits``: [..., classes], any float dtype, computed in float32. ``labels``: [...], int64. Returns a float32
    scalar.
    """
    classes = logits.shape[-1]
    flat, wanted = logits.reshape([-1, classes]).astype("float32"), labels.reshape([-1])
    valid = wanted != IGNORED
    losses = F.cross_entropy(flat, paddle.where(valid, wanted, paddle.zeros_like(wanted)), reduction="none")
    weights = valid.astype("float32")
    return (losses.reshape([-1]) * weights).sum() / weights.sum().clip(min=1.0)


def first_output(outputs: Any) -> Any:
    """The logits of a PaddleNLP model, which returns a tensor, or a tuple of which they are the first."""
    return outputs[0] if isinstance(outputs, tuple | list) else outputs


class ClassificationLoss(paddle.nn.Layer):
    """One label a text: ``labels`` [batch]."""

    def forward(self, outputs: Any, labels: paddle.Tensor) -> paddle.Tensor:
        return valid_mean_cross_entropy(first_output(outputs), labels)


class TokenLoss(ClassificationLoss):
    """One label a token: ``labels`` [batch, length], ``IGNORED`` where none (token classification, masked LM)."""


class SpanLoss(paddle.nn.Layer):
    """The mean of the losses of an answer's first and last token: ``labels`` is (start [batch], end [batch])."""

    def forward(self, outputs: Any, labels: Any) -> paddle.Tensor:
        start, end = outputs[0], outputs[1]
        return (valid_mean_cross_entropy(start, labels[0]) + valid_mean_cross_entropy(end, labels[1])) / 2.0
