"""Casts between FP32 and half with rounding to nearest even, forward and backward.

Three ways to the same bits, chosen by what the installation offers, found out by trying:

* Paddle's own CPU cast, where it rounds to nearest even (see ``_paddle_casts_well``), for small tensors;
* for large float16 tensors OpenCV's vectorised conversion, where cv2 is installed (it is wherever PaddleOCR
  is): Paddle converts one value at a time, about ten times slower; for large bfloat16 tensors arithmetic on the bits;
* NumPy, whose float16 conversion is the definition here (IEEE 754 roundTiesToEven).

The last two are autograd layers, since the backward of an up-cast is a down-cast and must round as well.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops
from paddle.autograd import PyLayer
from paddle.base import core

from paddle_amp_plugin.software_half.dtypes import BFLOAT16, FLOAT16, FLOAT32, dtype_of, is_half

_cast = _C_ops.cast  # bound before install() puts a wrapper in its place
_CPU = paddle.CPUPlace()
#: Below this many values Paddle's cast costs less than the way through an autograd layer (measured).
_SMALL = 8192
#: Values rounded to bfloat16 at a time: 32768 floats and their scratch space fit a core's second-level cache.
_BLOCK = 32768
_empty = _C_ops.empty
_SINGLE, _BITS = np.dtype(np.float32), np.dtype(np.int16)  # OpenCV takes float16 as the bits of int16


def to_bfloat16_bits(values: np.ndarray, into: np.ndarray) -> None:
    """Write the bfloat16 bit patterns (uint16) nearest to flat float32 ``values``, ties to even, NaN kept quiet.

    In blocks that stay in the cache: four passes over memory would cost more than the arithmetic.
    """
    bits = values.view(np.uint32)
    scratch = np.empty(min(_BLOCK, bits.size), np.uint32)
    for start in range(0, bits.size, _BLOCK):
        block = bits[start : start + _BLOCK]
        work = scratch[: block.size]
        np.right_shift(block, 16, out=work)
        np.bitwise_and(work, 1, out=work)
        np.add(work, 0x7FFF, out=work)
        np.add(work, block, out=work)
        np.right_shift(work, 16, out=into[start : start + _BLOCK], casting="unsafe")
    nan = np.isnan(values)
    if nan.any():
        into[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x40


def _numpy_to_float16(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def _opencv_convert() -> Callable[[np.ndarray, np.ndarray], Any] | None:
    """OpenCV's conversion between flat float32 arrays and int16 arrays of float16 bits, (from, into).

    None where cv2 is missing or does not give NumPy's bits in the memory it was told to write.
    """
    try:
        import cv2

        convert = cv2.convertFp16
        edges = [0.0, -0.0, 65504.0, 65519.99, 65520.0, 1e9, -1e9, 1e-8, 2.0**-25, 3 * 2.0**-25, 1 + 2.0**-11]
        probe = np.array([*edges, 1 + 3 * 2.0**-11, np.inf, -np.inf, *np.geomspace(1e-9, 1e6, 999)], np.float32)
        expected = _numpy_to_float16(probe)
        bits, back = np.zeros(probe.shape, np.int16), np.zeros_like(probe)
        convert(probe, bits)
        convert(bits, back)
        same = (bits == expected.view(np.int16)).all() and (back == expected.astype(np.float32)).all()
        return convert if same else None
    except Exception:  # whatever an odd OpenCV build raises: it is an accelerator, not a need
        return None


def _paddle_casts_well() -> frozenset[Any]:
    """The halves to which Paddle's own CPU cast rounds to nearest even, over every binary exponent and the ties.

    Paddle 2.6.2 truncates to both. Paddle 3.3.1 does bfloat16 well; of float16 it makes 1.8e-5 out of 1e-24 (from
    2e-27 to 4e-24, where a shift by the exponent wraps).
    """
    powers = 2.0 ** np.arange(-149, 128)
    ties = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65519.0, 65520.0, 2.0**-25, 3 * 2.0**-25]
    with np.errstate(over="ignore"):
        probe = np.concatenate([powers, 1.3 * powers, 1.9 * powers, ties, [0.0, np.inf]]).astype(np.float32)
    expected = np.empty(probe.shape, np.uint16)
    to_bfloat16_bits(probe, expected)
    tensor = paddle.to_tensor(probe, place=_CPU)
    good = set()
    if (_cast(tensor, BFLOAT16).numpy().view(np.uint16) == expected).all():
        good.add(BFLOAT16)
    if (_cast(tensor, FLOAT16).numpy().view(np.uint16) == _numpy_to_float16(probe).view(np.uint16)).all():
        good.add(FLOAT16)
    return frozenset(good)


#: The halves for which Paddle's own cast can be used.
NATIVE = _paddle_casts_well()
_OPENCV = _opencv_convert()


def _size(x: Any) -> int:
    return math.prod(x.shape)  # Tensor.size goes through NumPy and costs twenty times as much


def _memory(x: Any, dtype: Any) -> np.ndarray:
    """The memory of a contiguous CPU tensor as a flat array; valid while ``x`` lives."""
    memory = (ctypes.c_byte * (_size(x) * dtype.itemsize)).from_address(x.data_ptr())
    return np.frombuffer(memory, dtype)


def _by_opencv(x: Any, dtype: Any) -> Any:
    x = x.contiguous()
    out = _empty(x.shape, dtype, _CPU)
    source, target = (_SINGLE, _BITS) if dtype is FLOAT16 else (_BITS, _SINGLE)
    _OPENCV(_memory(x, source), _memory(out, target))
    return out


def _bfloat16_down(x: Any) -> Any:
    x = x.contiguous()
    out = _empty(x.shape, BFLOAT16, _CPU)
    to_bfloat16_bits(_memory(x, _SINGLE), _memory(out, _BITS).view(np.uint16))
    return out


def _bfloat16_up(x: Any) -> Any:
    x = x.contiguous()
    out = _empty(x.shape, FLOAT32, _CPU)
    words = _memory(out, _SINGLE).view(np.uint32)
    np.left_shift(_memory(x, _BITS).view(np.uint16), 16, out=words, dtype=np.uint32, casting="unsafe")
    return out


def _raw_down(x: Any, dtype: Any) -> Any:
    if not _size(x):
        return _cast(x, dtype)
    if dtype is BFLOAT16:
        return _bfloat16_down(x)
    if _OPENCV is not None:
        return _by_opencv(x, FLOAT16)
    if FLOAT16 in NATIVE:
        return _cast(x, dtype)
    return core.eager.Tensor(value=_numpy_to_float16(x.numpy()), place=_CPU)


def _raw_up(x: Any) -> Any:
    source = dtype_of(x)
    if not _size(x) or not is_half(source):
        return _cast(x, FLOAT32)
    if source is BFLOAT16:
        return _bfloat16_up(x)
    return _by_opencv(x, FLOAT32) if _OPENCV is not None else _cast(x, FLOAT32)


# The backward passes call the differentiable functions below, so that a second derivative finds its way too.


class _Down(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any, dtype: Any) -> Any:
        return _raw_down(x, dtype)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return up(grad)


class _Up(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.half = dtype_of(x)
        return _raw_up(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return down(grad, ctx.half)


class _Through(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any, half: Any) -> Any:
        ctx.half = half
        return _raw_up(_raw_down(x, half))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return through(grad, ctx.half)


def _by_paddle(x: Any, half: Any) -> bool:
    return half in NATIVE and (_size(x) < _SMALL or (half is FLOAT16 and _OPENCV is None))


def down(x: Any, dtype: Any) -> Any:
    """FP32 -> ``dtype`` (float16 or bfloat16), rounded to nearest even; the gradient comes back exact, in FP32."""
    if _by_paddle(x, dtype):
        return _cast(x, dtype)
    return _raw_down(x, dtype) if x.stop_gradient else _Down.apply(x, dtype)


def up(x: Any) -> Any:
    """Half -> FP32, exact; the gradient goes back rounded to nearest even, in ``x``'s dtype."""
    if _by_paddle(x, dtype_of(x)):
        return _cast(x, FLOAT32)
    return _raw_up(x) if x.stop_gradient else _Up.apply(x)


def through(x: Any, dtype: Any) -> Any:
    """FP32 values rounded to what ``dtype`` can hold, still FP32: a cast down and up, in both directions."""
    if _by_paddle(x, dtype):
        return _cast(_cast(x, dtype), FLOAT32)
    return _raw_up(_raw_down(x, dtype)) if x.stop_gradient else _Through.apply(x, dtype)


def convert(x: Any, dtype: Any) -> Any:
    """A floating tensor in ``dtype`` (float32 or a half), rounded to nearest even, with its gradient."""
    source = dtype_of(x)
    if source is dtype:
        return x
    if dtype is FLOAT32:
        return up(x) if is_half(source) else _cast(x, dtype)
    if source is FLOAT32:
        return down(x, dtype)
    return down(up(x) if is_half(source) else _cast(x, FLOAT32), dtype)
