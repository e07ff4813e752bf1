"""The C methods of ``Tensor`` that compute: arithmetic, comparison and indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle_amp_plugin.software_half import records
from paddle_amp_plugin.software_half.dtypes import dtype_of, is_half
from paddle_amp_plugin.software_half.ops import SEEN_HALF, is_tensor, run, scan
from paddle_amp_plugin.software_half.rounding import down, up
from paddle_amp_plugin.software_half.state import STATE

#: method -> AMP name with a tensor on the other side. With a number on the other side Paddle computes the first
#: group by ``scale`` (eager_math_op_patch.cc).
_BY_SCALE = {
    "__add__": "elementwise_add",
    "__radd__": "elementwise_add",
    "__sub__": "elementwise_sub",
    "__rsub__": "elementwise_sub",
    "__mul__": "elementwise_mul",
    "__rmul__": "elementwise_mul",
    "__div__": "elementwise_div",
    "__truediv__": "elementwise_div",
}
_OTHERS = {
    "__rdiv__": "elementwise_div",
    "__rtruediv__": "elementwise_div",
    "__floordiv__": "elementwise_floordiv",
    "__rfloordiv__": "elementwise_floordiv",
    "__mod__": "elementwise_mod",
    "__rmod__": "elementwise_mod",
    "__pow__": "elementwise_pow",
    "__rpow__": "elementwise_pow",
    "__matmul__": "matmul_v2",
    "__rmatmul__": "matmul_v2",
    "__eq__": "equal",
    "__ne__": "not_equal",
    "__lt__": "less_than",
    "__le__": "less_equal",
    "__gt__": "greater_than",
    "__ge__": "greater_equal",
}
OPERATORS = {**_BY_SCALE, **_OTHERS}


def wrap_operator(method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The software-half form of one arithmetic or comparison method of ``Tensor``."""
    op = OPERATORS[method]
    by_scale = "scale" if method in _BY_SCALE else op

    def software_half_operator(self: Any, other: Any) -> Any:
        seen = scan((self, other))
        if not seen or (STATE.half is None and not seen & SEEN_HALF and not records.ACTIVE):
            return function(self, other)
        return run(op if is_tensor(other) else by_scale, function, (self, other), {}, seen, False)

    software_half_operator.__name__ = method
    return software_half_operator


def _basic(index: Any) -> bool:
    """Whether an index only slices (its CPU half kernels exist, forward and backward)."""
    if isinstance(index, tuple):
        return all(_basic(i) for i in index)
    return index is None or index is Ellipsis or (isinstance(index, (int, slice)) and not isinstance(index, bool))


def wrap_getitem(function: Callable[..., Any]) -> Callable[..., Any]:
    """``x[index]``: views by slices stay in half; gathers go by FP32, which changes no value."""

    def software_half_getitem(self: Any, index: Any) -> Any:
        dtype = dtype_of(self)
        if is_half(dtype) and not _basic(index):
            return down(function(up(self), index), dtype)
        return function(self, index)

    return software_half_getitem


def wrap_setitem(function: Callable[..., Any], assign: Callable[..., Any]) -> Callable[..., Any]:
    """``x[index] = value`` where one of them is half: the value takes ``x``'s dtype, rounded to nearest even."""

    def software_half_setitem(self: Any, index: Any, value: Any) -> Any:
        half = is_half(dtype_of(self))
        if is_tensor(value) and is_half(dtype_of(value)):
            value = up(value)
        if not half:
            return function(self, index, value)
        lifted = up(self)
        # A leaf's lifted copy is a new tensor, so the in-place write is allowed on it.
        function(lifted, index, value)
        assign(down(lifted, dtype_of(self)), self)
        return self

    return software_half_setitem
