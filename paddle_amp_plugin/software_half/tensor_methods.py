"""The C methods of ``Tensor`` that compute: arithmetic, comparison and indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import _C_ops

from paddle_amp_plugin.software_half import records
from paddle_amp_plugin.software_half.dtypes import dtype_of, is_half
from paddle_amp_plugin.software_half.ops import SEEN_HALF, is_tensor, run, scan, target_dtype
from paddle_amp_plugin.software_half.rounding import convert, down, up
from paddle_amp_plugin.software_half.state import STATE

#: method -> AMP name with a tensor on the other side. With a number there Paddle computes the first group by
#: ``scale`` (Paddle 3 a division by ``div_scale``) and ``x ** number`` by ``pow``, which is on the black list
#: (eager_math_op_patch.cc; tests/reference/eager_names.py reads the names out of Paddle's own log).
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


def name_with_number(method: str) -> str:
    if method in ("__div__", "__truediv__"):
        return "div_scale" if hasattr(_C_ops, "div_scale") else "scale"
    if method == "__pow__":
        return "pow"
    return "scale" if method in _BY_SCALE else OPERATORS[method]


def wrap_operator(method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The software-half form of one arithmetic or comparison method of ``Tensor``."""
    op = OPERATORS[method]
    with_number = name_with_number(method)

    def software_half_operator(self: Any, other: Any) -> Any:
        seen = scan((self, other))
        if not seen or (STATE.half is None and not seen & SEEN_HALF and not records.ACTIVE):
            return function(self, other)
        return run(op if is_tensor(other) else with_number, function, (self, other), {}, seen, False)

    software_half_operator.__name__ = method
    return software_half_operator


def _basic(index: Any) -> bool:
    """Whether an index item only slices (Paddle's CPU half kernels do that, forward and backward)."""
    if index is None or index is Ellipsis or isinstance(index, slice):
        return True
    return isinstance(index, int) and not isinstance(index, bool)


def _is_position(item: Any) -> bool:
    """An integer, or a tensor that holds one."""
    if is_tensor(item):
        return not item.shape and item.dtype != paddle.bool
    return _basic(item) and isinstance(item, int)


def _strides(step: Any) -> bool:
    """A tensor is not compared with None: Paddle 2.6 refuses that."""
    return step is not None and (is_tensor(step) or step != 1)


def index_ops(x: Any, index: Any) -> list[str]:
    """AMP names of the ops that ``x[index]`` runs on ``x``, in order, as Paddle's eager log shows them.

    (tests/software_half/test_eager_names.py; ops on the index itself are not named.)
    """
    items = list(index) if isinstance(index, tuple) else [index]
    positions = [i for i in items if _is_position(i)]
    slices = [i for i in items if isinstance(i, slice) and not (i.start is i.stop is i.step is None)]
    names = []
    if any(_strides(i.step) for i in slices):
        names += ["strided_slice", "squeeze2"] if positions else ["strided_slice"]
    elif positions or slices:
        names.append("slice")
    if any(i is None for i in items):
        names.append("unsqueeze2")
    gathers = [i for i in items if not _basic(i) and not _is_position(i)]
    if gathers:
        names += _gather_ops(x, items, gathers)
    return names


def _gather_ops(x: Any, items: list[Any], gathers: list[Any]) -> list[str]:
    if hasattr(_C_ops, "index_elementwise_get"):
        mask = gathers[0]
        whole = len(items) == 1 and is_tensor(mask) and mask.dtype == paddle.bool and list(mask.shape) == list(x.shape)
        return ["masked_select" if whole else "index_elementwise_get"]
    kept = [i for i in items if not _is_position(i)]
    leads = any(kept[0] is g for g in gathers)
    return ["gather_nd"] if leads else ["transpose2", "gather_nd", "transpose2"]


def wrap_getitem(function: Callable[..., Any]) -> Callable[..., Any]:
    """``x[index]``: views by slices stay in half; gathers go by FP32, which changes no value."""

    def software_half_getitem(self: Any, index: Any) -> Any:
        seen = scan((self,))
        if not seen or (STATE.half is None and not seen & SEEN_HALF and not records.ACTIVE):
            return function(self, index)
        x, names = self, index_ops(self, index)
        for op in names:
            x = convert(x, target_dtype(op, scan((x,)), x))
        basic = all(_basic(i) for i in (index if isinstance(index, tuple) else (index,)))
        dtype = dtype_of(x)
        out = function(x, index) if basic or not is_half(dtype) else down(function(up(x), index), dtype)
        if records.ACTIVE:
            for op in names:
                records.note(op, dtype, (self,), out)
        return out

    return software_half_getitem


def wrap_clone(function: Callable[..., Any]) -> Callable[..., Any]:
    """``x.clone()``, which is the op ``assign``."""

    def software_half_clone(self: Any) -> Any:
        seen = scan((self,))
        if not seen or (STATE.half is None and not records.ACTIVE):
            return function(self)
        return run("assign", function, (self,), {}, seen, True)

    return software_half_clone


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
