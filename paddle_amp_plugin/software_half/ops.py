"""Wrappers around Paddle's ops: inputs cast as ``auto_cast`` asks, computed in FP32, results cast down.

A Tensor Core multiplies half values and accumulates in FP32; so does an op here: its half inputs are lifted to
FP32 (exactly), the CPU's FP32 kernel runs, the result is rounded to half. All casts carry gradients, so what
flows backward is rounded at the same places as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.op_rules import FIRST_OUTPUT_ONLY, NORM_OPS, ONLY_X_DECIDES, Rule, is_cast_input
from paddle_amp_plugin.software_half import records
from paddle_amp_plugin.software_half.dtypes import BFLOAT16, FLOAT16, FLOAT32, canonical, dtype_of, is_half
from paddle_amp_plugin.software_half.rounding import convert, down, through, up
from paddle_amp_plugin.software_half.state import STATE

SEEN_FLOAT32, SEEN_FLOAT16, SEEN_BFLOAT16 = 1, 2, 4
SEEN_HALF = SEEN_FLOAT16 | SEEN_BFLOAT16
_SEEN = {FLOAT32: SEEN_FLOAT32, FLOAT16: SEEN_FLOAT16, BFLOAT16: SEEN_BFLOAT16}

#: Outside auto_cast these refuse inputs of mixed dtypes on a GPU (the kernel is chosen by one input and reads the
#: others as that dtype), where elementwise ops promote instead.
REFUSE_MIXED = frozenset(
    """
    matmul_v2 matmul bmm mv linear linear_v2 conv2d depthwise_conv2d conv3d conv2d_transpose conv3d_transpose
    depthwise_conv2d_transpose addmm baddbmm concat stack
    """.split()
)

_is_tensor_class: dict[type, bool] = {}


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a dygraph tensor or parameter (a static ``Value`` is not)."""
    cls = value.__class__
    known = _is_tensor_class.get(cls)
    if known is None:
        known = _is_tensor_class[cls] = issubclass(cls, paddle.Tensor)
    return known


def scan(values: Any) -> int:
    """Bits ``SEEN_*`` for the dtypes of the tensors in ``values``, looking into lists and tuples."""
    seen = 0
    for value in values:
        cls = value.__class__
        if cls is list or cls is tuple:
            if value and not isinstance(value[0], int):
                seen |= scan(value)
        elif is_tensor(value):
            dtype = dtype_of(value)
            if dtype is FLOAT32:
                seen |= SEEN_FLOAT32
            elif dtype is FLOAT16:
                seen |= SEEN_FLOAT16
            elif dtype is BFLOAT16:
                seen |= SEEN_BFLOAT16
    return seen


def map_tensors(values: Any, function: Callable[[Any], Any]) -> Any:
    """``values`` with every tensor replaced, in lists and tuples too (not deeper than lists of tensors)."""
    if is_tensor(values):
        return function(values)
    if values.__class__ is list or values.__class__ is tuple:
        return values.__class__(map_tensors(v, function) for v in values)
    return values


def _floating(x: Any) -> bool:
    return dtype_of(x) in _SEEN


def _lift(x: Any) -> Any:
    # Some ops have inputs and outputs without values (a dropout state, the indices unique was not asked for).
    return up(x) if is_half(dtype_of(x)) and x._is_initialized() else x


def _through(x: Any, half: Any) -> Any:
    """FP32 values of ``x`` as they are once it has been cast to ``half``."""
    dtype = dtype_of(x)
    if not x._is_initialized():
        return x
    if dtype is half:
        return up(x)
    if dtype is FLOAT32:
        return through(x, half)
    return through(up(x), half) if is_half(dtype) else x


def _to_half(x: Any, half: Any) -> Any:
    return down(x, half) if dtype_of(x) is FLOAT32 and x._is_initialized() else x


def lower_outputs(op: str, out: Any, half: Any) -> Any:
    """The FP32 results of ``op`` rounded to ``half`` (for the norms only the first result)."""
    if is_tensor(out):
        return _to_half(out, half)
    if not isinstance(out, (list, tuple)) or not out:
        return out
    if op in FIRST_OUTPUT_ONLY:
        return out.__class__((_to_half(out[0], half), *out[1:]))
    return map_tensors(out, lambda x: _to_half(x, half))


def target_dtype(op: str, seen: int, first: Any) -> Any:
    """The dtype ``op`` computes in (float32 or a half), given the dtypes seen among its inputs.

    ``first`` is the op's first tensor, which alone decides for the norms. Inside auto_cast the lists
    decide; outside it half inputs compute in half, mixed ones in FP32. Raises AmpError AMP060 where a GPU would
    refuse the mixture.
    """
    rule = STATE.rule(op)
    if rule is Rule.HALF:
        return STATE.half
    if rule is Rule.FLOAT32:
        return FLOAT32
    if op in ONLY_X_DECIDES and first is not None:
        seen = _SEEN.get(dtype_of(first), 0)
    if rule is Rule.PROMOTE:
        return FLOAT32 if seen & SEEN_FLOAT32 else STATE.half
    if not seen & SEEN_HALF:
        return FLOAT32
    if seen == SEEN_FLOAT16:
        return FLOAT16
    if seen == SEEN_BFLOAT16:
        return BFLOAT16
    if op in NORM_OPS and first is not None:
        return dtype_of(first)
    if op in REFUSE_MIXED:
        raise AmpError(
            "AMP060",
            tr(
                "op {op} got half and float32 inputs outside auto_cast; a GPU refuses that",
                "算子 {op} 在 auto_cast 之外同时收到半精度与 float32 输入；GPU 会拒绝这样的输入",
                op=op,
            ),
            hint=tr(
                "run the model inside paddle.amp.auto_cast, or cast the input to the weights' dtype",
                "请在 paddle.amp.auto_cast 内运行模型，或把输入转换为权重的 dtype",
            ),
        )
    return FLOAT32


def first_tensor(args: Any, kwargs: Any) -> Any:
    """The op's ``x``: its first tensor argument, or the first of its first list."""
    for value in (*args, *kwargs.values()):
        if is_tensor(value):
            return value
        if value.__class__ in (list, tuple) and value and is_tensor(value[0]):
            return value[0]
    return None


def run(
    op: str, function: Callable[..., Any], args: Any, kwargs: Any, seen: int, moving: bool, asked: Any = None
) -> Any:
    """Run ``function`` (the FP32 op) as ``op`` would run on a GPU. ``seen`` is ``scan`` of its inputs.

    ``asked`` is a half dtype that the caller wants the result in (``sum(x, dtype="float16")``), or None.
    """
    first = first_tensor(args, kwargs)
    target = target_dtype(op, seen, first)
    before = (*args, *kwargs.values())
    if target is FLOAT32:
        if seen & SEEN_HALF:
            args = map_tensors(tuple(args), _lift)
            kwargs = {k: map_tensors(v, _lift) for k, v in kwargs.items()}
        out = function(*args, **kwargs)
    elif moving:
        # Values only move: Paddle's own CPU half kernel does it without the way up and down.
        args = map_tensors(tuple(args), lambda x: convert(x, target) if _floating(x) else x)
        out = function(*args, **kwargs)
    else:
        lifted, lifted_kwargs = _lift_for(op, args, kwargs, first, target)
        out = lower_outputs(op, function(*lifted, **lifted_kwargs), target)
    if asked is not None:
        out = map_tensors(out, lambda x: _to_half(x, asked))
    if records.ACTIVE:
        records.note(op, target, before, out)
    return out


def _lift_for(op: str, args: Any, kwargs: Any, first: Any, half: Any) -> tuple[Any, dict[str, Any]]:
    name = "float16" if half is FLOAT16 else "bfloat16"
    if is_cast_input(op, 1, name):

        def lift(x: Any) -> Any:
            return _through(x, half)
    else:

        def lift(x: Any) -> Any:
            return _through(x, half) if x is first else _lift(x)

    return map_tensors(tuple(args), lift), {k: map_tensors(v, lift) for k, v in kwargs.items()}


def half_dtype_argument(args: Any, kwargs: Any) -> Any:
    """A half dtype among the arguments (``full(..., dtype=float16)``), or None."""
    for value in (*args, *kwargs.values()):
        value = canonical(value)
        if value is FLOAT16 or value is BFLOAT16:
            return value
    return None


def _without_half_dtype(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def plain(value: Any) -> Any:
        return FLOAT32 if is_half(canonical(value)) else value

    return tuple(plain(v) for v in args), {k: plain(v) for k, v in kwargs.items()}


def wrap_op(op: str, function: Callable[..., Any], moving: bool) -> Callable[..., Any]:
    """The software-half form of the op function ``function``; ``op`` is its AMP name."""

    def software_half_op(*args: Any, **kwargs: Any) -> Any:
        seen = scan(args)
        if kwargs:
            seen |= scan(kwargs.values())
        if not seen or (STATE.half is None and not seen & SEEN_HALF):
            asked = None if moving else half_dtype_argument(args, kwargs)
            if asked is None:
                if records.ACTIVE and seen:
                    out = function(*args, **kwargs)
                    records.note(op, FLOAT32, (*args, *kwargs.values()), out)
                    return out
                return function(*args, **kwargs)
            args, kwargs = _without_half_dtype(args, kwargs)
            return map_tensors(function(*args, **kwargs), lambda x: _to_half(x, asked))
        asked = None if moving else half_dtype_argument(args, kwargs)
        if asked is None:
            return run(op, function, args, kwargs, seen, moving)
        args, kwargs = _without_half_dtype(args, kwargs)
        return run(op, function, args, kwargs, seen, False, asked)

    return _named(software_half_op, function)


def wrap_inplace(op: str, function: Callable[..., Any], twin: Callable[..., Any], assign: Any) -> Callable[..., Any]:
    """The form of an in-place op: no auto_cast (Paddle has none there), the result keeps ``x``'s dtype.

    ``twin`` is the out-of-place FP32 op, ``assign`` the original ``assign_out_``, which rebinds ``x`` and its gradient.
    """

    def software_half_inplace(x: Any, *args: Any, **kwargs: Any) -> Any:
        seen = scan((x, *args)) | (scan(kwargs.values()) if kwargs else 0)
        if not seen & SEEN_HALF:
            return function(x, *args, **kwargs)
        args = map_tensors(args, _lift)
        kwargs = {k: map_tensors(v, _lift) for k, v in kwargs.items()}
        if not is_tensor(x) or not is_half(dtype_of(x)):
            return function(x, *args, **kwargs)
        out = twin(up(x), *args, **kwargs)
        result = out[0] if isinstance(out, (list, tuple)) else out
        assign(_to_half(result, dtype_of(x)), x)
        if records.ACTIVE:
            records.note(op, dtype_of(x), (x, *args), x)
        return x

    return _named(software_half_inplace, function)


def wrap_linear(matmul: Callable[..., Any], add: Callable[..., Any], fused: Callable[..., Any] | None) -> Any:
    """``_C_ops.linear``: a CUDA build of Paddle 3.3 runs it as the one white-listed op ``linear_v2``, older
    ones as ``matmul_v2`` and ``elementwise_add``, each with its own cast.

    ``fused`` is the wrapped FP32 ``linear`` under the name ``linear_v2``, or None for the older form.
    """

    def software_half_linear(x: Any, weight: Any, bias: Any = None) -> Any:
        if bias is None:
            return matmul(x, weight, False, False)
        if fused is not None:
            return fused(x, weight, bias)
        return add(matmul(x, weight, False, False), bias)

    return software_half_linear


def _named(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    wrapper.__name__ = getattr(function, "__name__", wrapper.__name__)
    wrapper.__doc__ = getattr(function, "__doc__", None)
    return wrapper
