"""One object a dtype, so that the op wrappers may compare with ``is``.

Paddle 3 hands out the same object for every ``tensor.dtype``; Paddle 2.6 makes a new one each time, whose
comparison is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import paddle

FLOAT32 = paddle.float32
FLOAT16 = paddle.float16
BFLOAT16 = paddle.bfloat16


def is_half(dtype: Any) -> bool:
    """Whether a dtype, as ``dtype_of`` gives it, is float16 or bfloat16."""
    return dtype is FLOAT16 or dtype is BFLOAT16


_CLASS = type(FLOAT32)
_SINGLE = paddle.zeros([1]).dtype is FLOAT32

dtype_of: Callable[[Any], Any]
"""The dtype of a tensor, as one of the constants of this module where it is one of those."""

if _SINGLE:
    dtype_of = attrgetter("dtype")

    def canonical(value: Any) -> Any:
        """``value`` itself; a dtype equal to a constant of this module is that constant."""
        return value
else:
    _BY_VALUE = {int(d): d for d in (FLOAT32, FLOAT16, BFLOAT16)}

    def dtype_of(tensor: Any) -> Any:
        dtype = tensor.dtype
        return _BY_VALUE.get(dtype.value, dtype)

    def canonical(value: Any) -> Any:
        """``value`` itself; a dtype equal to a constant of this module is that constant."""
        return _BY_VALUE.get(value.value, value) if value.__class__ is _CLASS else value
