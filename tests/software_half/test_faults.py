"""Known constants (half precision's arithmetic) and what follows from them in training."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from paddle_amp_plugin import software_half


@pytest.fixture(autouse=True)
def _emulated():
    with software_half.emulate():
        yield


def half(*values):
    return paddle.to_tensor(np.array(values, np.float32)).astype("float16")


def test_constants_of_float16():
    assert half(-1e9).item() == -np.inf
    assert half(65536.0).item() == np.inf
    assert half(1e-8).item() == 0.0
    masked = paddle.full([1, 4], -1e9).astype("float16")
    assert np.isnan(F.softmax(masked).numpy()).all()
    assert F.sigmoid(half(8.5)).item() == 1.0 and F.sigmoid(half(8.0)).item() < 1.0


@pytest.mark.parametrize("length", [4, 7, 8, 9, 16, 32, 64])
@pytest.mark.parametrize("bad", ["masked", "inf", "nan"])
def test_a_row_without_a_finite_maximum_is_nan(length, bad):
    """At multiples of 8 Paddle's CPU kernel gives uniform probabilities instead; a GPU does not."""
    rows = np.random.default_rng(0).standard_normal((2, length)).astype(np.float32)
    if bad == "masked":
        rows[0] = -np.inf
    else:
        rows[0, 1] = np.inf if bad == "inf" else np.nan
    x = paddle.to_tensor(rows)
    x.stop_gradient = False
    out = F.softmax(x)
    assert np.isnan(out[0].numpy()).all() and np.isfinite(out[1].numpy()).all()
    loss = F.cross_entropy(x, paddle.to_tensor([0, 0]), reduction="none")
    assert np.isnan(loss.numpy().reshape(-1)[0]) and np.isfinite(loss.numpy().reshape(-1)[1])
    assert np.isnan(F.log_softmax(x)[0].numpy()).any()
    loss.sum().backward()
    assert np.isnan(x.grad[0].numpy()).any() and np.isfinite(x.grad[1].numpy()).all()


def test_a_long_dot_product_overflows_and_bfloat16_does_not():
    """R2: 4096 products of 4 x 4.1 are 67,174, past 65,504."""
    a, b = paddle.full([1, 4096], 4.0), paddle.full([4096, 1], 4.1)
    with paddle.amp.auto_cast(level="O1", dtype="float16"):
        assert (a @ b).item() == np.inf
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        assert 66000 < (a @ b).item() < 68000


def test_without_masters_small_updates_are_lost():
    """R5: 1000 updates of 1e-4 leave a float16 weight of 1.0 at 1.0; a master moves to 0.9."""
    results = {}
    for multi_precision in (False, True):
        weight = paddle.create_parameter([1], "float16", default_initializer=paddle.nn.initializer.Constant(1.0))
        optimizer = paddle.optimizer.SGD(1e-4, parameters=[weight], multi_precision=multi_precision)
        for _ in range(1000):
            weight.grad = paddle.ones([1], dtype="float16")
            optimizer.step()
        results[multi_precision] = weight.item()
        if multi_precision:
            (master,) = optimizer._master_weights.values()
            assert master.dtype == paddle.float32 and abs(master.item() - 0.9) < 1e-4
    assert results[False] == 1.0
    assert results[True] == np.float16(0.9)


def test_clipping_while_scaled_destroys_the_gradient():
    """R12: a gradient of 0.01 scaled by 65536 and clipped to norm 1 becomes 1.5e-5 once unscaled."""
    weight = paddle.create_parameter([1], "float32")
    weight.grad = paddle.to_tensor([0.01 * 65536])
    ((_, clipped),) = paddle.nn.ClipGradByGlobalNorm(1.0)([(weight, weight.grad)])
    assert abs(clipped.item() / 65536 - 1.5e-5) < 1e-6


def test_gradients_underflow_without_scaling():
    """R4: gradients near 3e-9 are all zero at scale 1 and survive at 65536."""
    weight = paddle.create_parameter([64, 64], "float32")
    x = paddle.full([1, 64], 1.0)
    zeros = []
    for scale in (1.0, 1024.0, 65536.0):
        with paddle.amp.auto_cast(level="O1"):
            loss = (x @ weight).astype("float32").sum() * 3e-9
        (loss * scale).backward()
        zeros.append(float((weight.grad == 0).astype("float32").mean()))
        weight.clear_grad()
    assert zeros == [1.0, 0.0, 0.0]


def test_collapse_with_a_finite_loss():
    """R1: an inf hidden behind a sigmoid; the loss stays finite while every step is skipped."""
    first = paddle.nn.Linear(4, 4, weight_attr=paddle.nn.initializer.Constant(30.0))
    second = paddle.nn.Linear(4, 1, weight_attr=paddle.nn.initializer.Constant(0.5))
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = paddle.optimizer.SGD(1e-3, parameters=parameters)
    scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)
    before = [p.numpy() for p in parameters]
    for _ in range(5):
        with paddle.amp.auto_cast(level="O1"):
            out = F.sigmoid(second(F.relu(first(paddle.full([2, 4], 2000.0)))).astype("float32"))
        loss = F.mse_loss(out, paddle.full([2, 1], 0.5))
        assert np.isfinite(loss.item())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    assert scaler.state_dict()["scale"] == 1024.0 / 2**5
    for parameter, old in zip(parameters, before, strict=True):
        np.testing.assert_array_equal(parameter.numpy(), old)
