"""The mean over the valid labels, against NumPy; and the host's own loss, which divides by all of them."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from paddle_amp_plugin.nlp.losses import IGNORED, SpanLoss, TokenLoss, valid_mean_cross_entropy


@pytest.fixture
def case():
    """(logits [2, 5, 7], labels [2, 5] of which 4 count, the loss by NumPy in float64)."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(2, 5, 7)).astype("float32")
    labels = np.full((2, 5), IGNORED)
    labels[0, 1], labels[0, 3], labels[1, 0], labels[1, 4] = 2, 0, 6, 3
    wide = logits.astype("float64")
    log_p = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    right = -np.mean([log_p[0, 1, 2], log_p[0, 3, 0], log_p[1, 0, 6], log_p[1, 4, 3]])
    return paddle.to_tensor(logits), paddle.to_tensor(labels), float(right)


def test_only_valid_labels_count(case) -> None:
    logits, labels, right = case
    assert float(valid_mean_cross_entropy(logits, labels)) == pytest.approx(right, rel=1e-6)
    assert float(TokenLoss()((logits, None), labels)) == pytest.approx(right, rel=1e-6)


@pytest.mark.skipif(not paddle.__version__.startswith("3."), reason="Paddle 2.6.2 divides by the valid labels")
def test_paddle_3_divides_by_all_labels(case) -> None:
    """The fault this loss is for: 4 of 10 labels count, and Paddle's mean is 4/10 of the right one."""
    logits, labels, right = case
    host = float(F.cross_entropy(logits.reshape([-1, 7]), labels.reshape([-1]), ignore_index=IGNORED, reduction="mean"))
    assert host == pytest.approx(right * 4 / 10, rel=1e-5)


def test_gradients_are_those_of_the_mean(case) -> None:
    logits, labels, _ = case
    logits.stop_gradient = False
    valid_mean_cross_entropy(logits, labels).backward()
    wide = logits.numpy().astype("float64")
    p = np.exp(wide) / np.exp(wide).sum(-1, keepdims=True)
    wanted = np.zeros_like(p)
    for row, column in np.argwhere(labels.numpy() != IGNORED):
        wanted[row, column] = p[row, column] / 4
        wanted[row, column, labels.numpy()[row, column]] -= 1 / 4
    np.testing.assert_allclose(logits.grad.numpy(), wanted, rtol=1e-5, atol=1e-7)


def test_no_valid_label_is_zero_and_finite(case) -> None:
    logits, labels, _ = case
    logits.stop_gradient = False
    loss = valid_mean_cross_entropy(logits, paddle.full_like(labels, IGNORED))
    loss.backward()
    assert float(loss) == 0.0 and not logits.grad.numpy().any()


def test_half_logits_are_computed_in_float32(case) -> None:
    logits, labels, right = case
    loss = valid_mean_cross_entropy(logits.astype("float16"), labels)
    assert loss.dtype == paddle.float32 and float(loss) == pytest.approx(right, rel=2e-3)


def test_span_is_the_mean_of_both_ends(case) -> None:
    logits, _, _ = case
    start, end = logits[0], logits[1]
    labels = (paddle.to_tensor([1, 2, 3, 4, 5]), paddle.to_tensor([0, 0, 1, 1, 2]))
    ends = [float(F.cross_entropy(x, y.reshape([-1, 1]))) for x, y in zip((start, end), labels, strict=True)]
    assert float(SpanLoss()((start, end), labels)) == pytest.approx(sum(ends) / 2, rel=1e-6)
