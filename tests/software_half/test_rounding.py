"""Casts round to nearest even on every Paddle, forward and backward. The reference is NumPy's float16."""

import numpy as np
import paddle
import pytest

from paddle_amp_plugin import software_half
from paddle_amp_plugin.software_half import rounding
from paddle_amp_plugin.software_half.rounding import convert, down, through, up

EDGES = np.array(
    [0.0, -0.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 65504.0, 65519.0, 65520.0, 1e9, -1e9, 1e-8, 2.0**-25, 3 * 2.0**-25],
    np.float32,
)


def values(size: int) -> np.ndarray:
    """Values over the whole half range, with the edges, padded to ``size``."""
    rng = np.random.default_rng(0)
    spread = np.exp(rng.uniform(-22, 14, max(0, size - len(EDGES)))) * rng.choice([-1, 1], max(0, size - len(EDGES)))
    return np.concatenate([EDGES, spread.astype(np.float32)])[:size]


def bfloat16_reference(x: np.ndarray) -> np.ndarray:
    """Nearest bfloat16 by search among the two neighbours on the bits, ties to even: not the code under test."""
    bits = x.view(np.uint32).astype(np.uint64)
    low = bits & ~np.uint64(0xFFFF)
    distance = bits - low
    odd = (low >> np.uint64(16)) & np.uint64(1)
    go_up = (distance > 0x8000) | ((distance == 0x8000) & (odd == 1))
    return (low + go_up.astype(np.uint64) * np.uint64(0x10000)).astype(np.uint32).view(np.float32)


# 64 stays below the size from which the vectorised conversion is used, 20000 lies above it.
@pytest.mark.parametrize("size", [1, 64, 20000])
def test_float16_is_numpys_float16(size: int) -> None:
    x = values(size)
    got = down(paddle.to_tensor(x), paddle.float16)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    assert got.dtype == paddle.float16
    np.testing.assert_array_equal(got.numpy().view(np.uint16), expected.view(np.uint16))
    np.testing.assert_array_equal(up(got).numpy(), expected.astype(np.float32))
    np.testing.assert_array_equal(through(paddle.to_tensor(x), paddle.float16).numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("size", [1, 64, 20000])
def test_bfloat16_rounds_to_nearest_even(size: int) -> None:
    x = values(size)
    got = down(paddle.to_tensor(x), paddle.bfloat16)
    assert got.dtype == paddle.bfloat16
    np.testing.assert_array_equal(up(got).numpy(), bfloat16_reference(x))


@pytest.mark.parametrize("size", [831, 20000])
def test_every_exponent(size: int) -> None:
    """Paddle 3.3.1's own cast makes 1.8e-5 out of 1e-24."""
    x = np.resize(np.concatenate([m * 2.0 ** np.arange(-149, 128) for m in (1.0, 1.3, -1.9)]), size).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(down(paddle.to_tensor(x), paddle.float16).numpy(), expected)
    with software_half.emulate():
        np.testing.assert_array_equal(paddle.to_tensor(x).astype("float16").numpy(), expected)
        layer = paddle.nn.Linear(1, size, bias_attr=False)
        layer.weight.set_value(x.reshape(1, size))
        layer.to(dtype="float16")
        np.testing.assert_array_equal(layer.weight.numpy().reshape(-1), expected)
    bits = down(paddle.to_tensor(x), paddle.bfloat16)
    np.testing.assert_array_equal(up(bits).numpy(), bfloat16_reference(x))


@pytest.mark.parametrize("size", [64, 20000])
def test_gradients_are_rounded_where_a_gpu_rounds_them(size: int) -> None:
    upstream = values(size)
    with np.errstate(over="ignore"):
        rounded = upstream.astype(np.float16)
    half = paddle.ones([size], dtype="float16")
    half.stop_gradient = False
    up(half).backward(paddle.to_tensor(upstream))
    assert half.grad.dtype == paddle.float16
    np.testing.assert_array_equal(half.grad.numpy().view(np.uint16), rounded.view(np.uint16))

    single = paddle.ones([size])
    single.stop_gradient = False
    through(single, paddle.float16).backward(paddle.to_tensor(upstream))
    assert single.grad.dtype == paddle.float32
    np.testing.assert_array_equal(single.grad.numpy(), rounded.astype(np.float32))


def test_views_and_strides_are_read_as_they_are_seen() -> None:
    x = np.arange(40000, dtype=np.float32).reshape(200, 200) / 7
    view = paddle.to_tensor(x).transpose([1, 0])[10:190:2, 3:]
    np.testing.assert_array_equal(down(view, paddle.float16).numpy(), x.T[10:190:2, 3:].astype(np.float16))


@pytest.mark.parametrize("shape", [[], [0, 3], [1]])
def test_odd_shapes_survive(shape: list) -> None:
    for dtype in ("float16", "bfloat16"):
        half = down(paddle.ones(shape), getattr(paddle, dtype))
        assert list(half.shape) == shape and list(up(half).shape) == shape


def test_nan_and_infinity_stay() -> None:
    x = paddle.to_tensor(np.tile(np.array([np.nan, np.inf, -np.inf], np.float32), 5000))
    for dtype in (paddle.float16, paddle.bfloat16):
        back = up(down(x, dtype)).numpy()
        assert np.isnan(back[0::3]).all() and (back[1::3] == np.inf).all() and (back[2::3] == -np.inf).all()


def test_half_to_other_half_goes_by_float32() -> None:
    x = paddle.to_tensor([1.0009765625, 70000.0])
    as_bfloat16 = convert(x, paddle.bfloat16)
    assert convert(as_bfloat16, paddle.float16).numpy().tolist() == [1.0, np.inf]


def test_every_way_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle's cast, OpenCV's and NumPy's agree; whichever an installation lacks, results do not change."""
    x = paddle.to_tensor(values(20000))
    first = down(x, paddle.float16).numpy().view(np.uint16)
    monkeypatch.setattr(rounding, "_OPENCV", None)
    np.testing.assert_array_equal(down(x, paddle.float16).numpy().view(np.uint16), first)
    monkeypatch.setattr(rounding, "NATIVE", frozenset())
    np.testing.assert_array_equal(down(x, paddle.float16).numpy().view(np.uint16), first)
