"""What the rules say of Paddle is so: their own wrong examples misbehave in software half, their right ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from paddle_amp_plugin import software_half
from paddle_amp_plugin.lint import RULES


@pytest.fixture(autouse=True)
def _emulated():
    with software_half.emulate():
        yield


def example(code: str, kind: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(getattr(RULES[code], kind), names)
    return names


def layer(code: str, kind: str) -> Any:
    """The one Layer of an example."""
    (found,) = (v for v in example(code, kind).values() if isinstance(v, type) and issubclass(v, paddle.nn.Layer))
    return found()


def half(values: Any) -> paddle.Tensor:
    return paddle.to_tensor(np.asarray(values, np.float32)).astype("float16")


def numbers(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy()


SCORES = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_masks(level):
    """The first row is masked in full: NaN with -1e9, finite with the lowest value of the dtype."""
    mask = half([[0.0, 0.0], [1.0, 0.0]])
    with paddle.amp.auto_cast(level=level, dtype="float16"):
        bad = numbers(layer("AMP110", "bad")(half(SCORES), mask))
        good = numbers(layer("AMP110", "good")(half(SCORES), mask))
    assert np.isnan(bad[0]).all() and np.isfinite(bad[1]).all()
    np.testing.assert_allclose(good, [[0.5, 0.5], [1.0, 0.0]], atol=1e-6)
    with pytest.raises(ValueError):
        paddle.full_like(half(SCORES), -1e9)


def test_minus_ten_thousand():
    """In range; the fully masked row is an average, its scores lost in steps of 8; seven of them are -inf."""
    bad = layer("AMP111", "bad")(half(SCORES), half([[0.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(numbers(F.softmax(bad)), [[0.5, 0.5], [1.0, 0.0]], atol=1e-6)
    assert np.spacing(np.float16(1e4)) == 8
    assert numbers(half([-10000.0]) * 7.0)[0] == -np.inf and np.isfinite(numbers(half([-10000.0]) * 6.0)[0])


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_bce(level):
    """Logit 12 against label 0: the loss stops at 100 and its gradient is inf; with logits 12 and 1."""
    results = {}
    for kind in ("bad", "good"):
        logits = paddle.to_tensor([12.0])
        logits.stop_gradient = False
        with paddle.amp.auto_cast(level=level, dtype="float16"):
            loss = layer("AMP120", kind)(logits.astype("float16"), half([0.0]))
        loss.backward()
        results[kind] = float(loss), float(logits.grad)
    assert results["bad"] == (100.0, np.inf)
    assert results["good"] == pytest.approx((12.0, 1.0), rel=1e-3)


def test_where_a_sigmoid_is_one():
    x = np.array([8.31, 8.32, -17.3, -17.4], np.float64)
    assert list((1 / (1 + np.exp(-x))).astype(np.float16)) == [np.float16(0.9995117), 1.0, np.float16(5.96e-08), 0.0]


def test_log_of_softmax():
    """At O2 with Paddle's own lists; at O1 both are in FP32."""
    x = half([0.0, -20.0])
    with paddle.amp.auto_cast(level="O2", dtype="float16"):
        assert numbers(layer("AMP121", "bad")(x))[1] == -np.inf
        assert numbers(layer("AMP121", "good")(x))[1] == -20.0
    with paddle.amp.auto_cast(level="O1", dtype="float16"):
        assert numbers(layer("AMP121", "bad")(x))[1] == pytest.approx(-20.0)
        assert numbers(paddle.log(F.sigmoid(x)))[1] == -np.inf


def test_epsilon():
    zeros = half([[0.0, 0.0]])
    with paddle.amp.auto_cast(level="O2", dtype="float16"):
        assert np.isnan(numbers(layer("AMP122", "bad")(zeros))).all()
        assert (numbers(layer("AMP122", "good")(zeros)) == 0).all()


def test_constants():
    """FP32 makes its surroundings FP32; without auto_cast the joining ops refuse; half is half in an FP32 run."""
    x = half([[1.0] * 4])
    with paddle.amp.auto_cast(level="O1", dtype="float16"):
        assert layer("AMP106", "bad")(x).dtype == paddle.float32
        assert layer("AMP106", "good")(x).dtype == paddle.float16
    with pytest.raises(Exception, match="dtype"):
        layer("AMP106", "bad")(x)


def test_half_parameters_lose_small_updates():
    weight = layer("AMP107", "bad").gamma
    assert weight.dtype == paddle.float16
    assert np.float16(1.0) + np.float16(1e-4) == 1.0
    assert layer("AMP107", "good").gamma.dtype == paddle.float32


def training(kind: str, code: str, batches: tuple[float, ...] | list[float] = (0.01, 0.01)) -> dict[str, Any]:
    """The example's loop over ``batches`` (filled with a number) at a loss scale of 1024; the weights start at 1."""
    paddle.seed(0)
    names = example(code, kind)
    names["model"].weight.set_value(paddle.ones([4, 1]))
    names["scaler"].set_init_loss_scaling(1024.0)
    names["optimizer"] = paddle.optimizer.SGD(0.001, parameters=names["model"].parameters())
    names["train"]([paddle.full([2, 4], value) for value in batches])
    names["weight"] = float(names["model"].weight[0, 0])
    return names


#: Two steps of 0.001 times the mean gradient, 0.01, with nothing wrong.
RIGHT = 1.0 - 2 * 0.001 * 0.01


@pytest.mark.parametrize(
    ("code", "factor"),
    [("AMP130", 1024.0), ("AMP136", 0.0), ("AMP137", 1 / 1024)],
)
def test_steps(code, factor):
    """How far the weight moves, relative to what is right."""
    moved = 1.0 - training("bad", code)["weight"]
    assert moved == pytest.approx((1.0 - RIGHT) * factor, rel=1e-3, abs=7e-8)
    assert training("good", code)["weight"] == pytest.approx(RIGHT, abs=7e-8)


def test_missing_clear_grad():
    """One overflow, and every later batch is skipped while the scale falls; with `clear_grad` one is."""
    batches = [1e30, 0.01, 0.01]
    bad, good = training("bad", "AMP132", batches), training("good", "AMP132", batches)
    assert bad["weight"] == 1.0 and bad["scaler"]._scale.item() == 1024 / 2**3
    assert good["weight"] == pytest.approx(RIGHT, abs=7e-8) and good["scaler"]._scale.item() == 1024 / 2


def test_missing_clear_grad_without_a_scaler():
    """The second step uses the sum of both gradients."""
    weight = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
    optimizer = paddle.optimizer.SGD(0.1, parameters=[weight])
    for _ in range(2):
        (weight * 0.01).sum().backward()
        optimizer.step()
    assert float(weight) == pytest.approx(1.0 - 0.1 * (0.01 + 0.02), abs=1e-6)


def test_clip_of_scaled_gradients():
    """Clipped to norm 1 while scaled by 1024, then divided: at most 1 / 1024 is left (of the bias, 1 by right)."""
    bad, good = training("bad", "AMP131"), training("good", "AMP131")
    assert 0.0 < -float(bad["model"].bias) <= 2 * 0.001 / 1024 * 1.01
    assert -float(good["model"].bias) == pytest.approx(2 * 0.001, rel=1e-3)


def test_minimize_and_step_move_twice():
    assert training("bad", "AMP133")["weight"] != pytest.approx(RIGHT, abs=1e-9)
    assert training("good", "AMP133")["weight"] == pytest.approx(RIGHT, abs=7e-8)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("AMP134", r"unscale_\(\) is being called after step\(\)"),
        ("AMP135", r"unscale_\(\) has already been called on this optimizer since the last update\(\)"),
    ],
)
def test_what_paddle_refuses(code, words):
    with pytest.raises(RuntimeError, match=words):
        training("bad", code)
    training("good", code)
