"""The two numbers about gradients, against numpy in float64, for every dtype and place a gradient can have."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_amp_plugin import software_half
from paddle_amp_plugin.monitor import global_grad_norm, zero_share


class Holder:
    """A parameter as the functions see it: something with a gradient."""

    def __init__(self, grad, main_grad=None):
        self._grad, self.main_grad = grad, main_grad

    def _grad_ivar(self):
        return self._grad


def tensor(values, dtype="float32"):
    return paddle.to_tensor(np.asarray(values, dtype="float32")).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_norm_of_every_dtype(dtype):
    rng = np.random.default_rng(0)
    grads = [tensor(rng.normal(size=shape), dtype) for shape in ((3, 4), (5,), (2, 2, 2))]
    flat = np.concatenate([g.astype("float32").numpy().astype("float64").ravel() for g in grads])
    assert global_grad_norm([Holder(g) for g in grads]) == pytest.approx(float(np.linalg.norm(flat)), rel=1e-6)


def test_mixed_dtypes_and_parameters_without_gradients():
    holders = [Holder(tensor([3.0], "float16")), Holder(None), Holder(tensor([4.0]))]
    assert global_grad_norm(holders) == pytest.approx(5.0)
    assert global_grad_norm([Holder(None)]) == 0.0 and global_grad_norm([]) == 0.0


def test_main_grad_is_the_one_that_counts():
    assert global_grad_norm([Holder(None, tensor([3.0, 4.0]))]) == pytest.approx(5.0)
    assert global_grad_norm([Holder(tensor([9.0]), tensor([3.0, 4.0]))]) == pytest.approx(5.0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_infinity_and_nan_are_kept(dtype):
    assert global_grad_norm([Holder(tensor([1.0, -math.inf], dtype))]) == math.inf
    assert math.isnan(global_grad_norm([Holder(tensor([1.0, math.nan], dtype)), Holder(tensor([1.0]))]))


def test_half_squares_do_not_overflow_and_large_norms_are_finite():
    assert global_grad_norm([Holder(tensor([60000.0, 0.0], "float16"))]) == pytest.approx(60000.0, rel=1e-3)
    assert global_grad_norm([Holder(tensor([3e25, 4e25]))]) == pytest.approx(5e25, rel=1e-5)


def test_scalars():
    assert global_grad_norm([Holder(paddle.to_tensor(-2.0))]) == pytest.approx(2.0)
    assert zero_share([Holder(paddle.to_tensor(0.0))]) == 1.0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_zero_share(dtype):
    assert zero_share([Holder(tensor([0, 1, 0, 2], dtype)), Holder(tensor([0.0, -0.0], dtype))]) == pytest.approx(4 / 6)
    assert zero_share([]) == 0.0 and zero_share([Holder(None)]) == 0.0


def test_underflow_shows():
    """1e-8 is below half of float16's smallest number."""
    assert zero_share([Holder(tensor([1e-8, 1e-4], "float16"))]) == 0.5


@pytest.mark.parametrize("emulated", [False, True])
def test_of_a_real_model_and_without_changing_it(emulated):
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    unused = nn.Linear(3, 3)
    x = paddle.to_tensor(np.random.default_rng(0).normal(size=(5, 4)).astype("float32"))
    model(x).square().mean().backward()
    parameters = [*model.parameters(), *unused.parameters()]
    before = [p.grad.numpy().copy() for p in model.parameters()]
    expected = math.sqrt(sum(float((g.astype("float64") ** 2).sum()) for g in before))
    if emulated:
        with software_half.emulate(), paddle.amp.auto_cast(level="O2", dtype="float16"):
            norm, zeros = global_grad_norm(parameters), zero_share(parameters)
    else:
        norm, zeros = global_grad_norm(parameters), zero_share(parameters)
    assert norm == pytest.approx(expected, rel=1e-5)
    assert zeros == pytest.approx(sum((g == 0).sum() for g in before) / sum(g.size for g in before))
    for p, old in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), old)


def test_rows_of_a_sparse_embedding():
    table = nn.Embedding(10, 2, sparse=True)
    table(paddle.to_tensor([1, 1, 3])).sum().backward()
    # row 1 was used twice: 2, 2; row 3 once: 1, 1
    assert global_grad_norm([table.weight]) == pytest.approx(math.sqrt(4 + 4 + 1 + 1))
    assert zero_share([table.weight]) == 0.0
