"""Optimizer ops and the scaler's finite check with half parameters and gradients.

On a GPU these kernels read half values, compute in FP32 and write half values; with ``multi_precision`` the
FP32 master is updated and the half parameter is its rounded copy. The CPU kernels know FP32 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from paddle_amp_plugin.software_half import records
from paddle_amp_plugin.software_half.dtypes import dtype_of, is_half
from paddle_amp_plugin.software_half.ops import is_tensor, map_tensors
from paddle_amp_plugin.software_half.rounding import down, up

#: op -> (position of the master weight, position of ``multi_precision``, both counted in the positional
#: arguments; a negative one counts from the end). Read from the calls in ``paddle/optimizer/*.py``.
_POSITIONS: dict[str, tuple[int, int]] = {
    "sgd_": (3, -1),
    "momentum_": (4, -2),
    "merged_momentum_": (4, -2),
    "adagrad_": (4, -1),
    "adadelta_": (5, -1),
    "adamax_": (6, -1),
    "rmsprop_": (6, -1),
    "lamb_": (7, -1),
    "nadam_": (8, -1),
    "radam_": (8, -1),
    "asgd_": (6, -1),
    "rprop_": (4, -1),
}
#: Paddle 3 added ``moment2_max`` and ``amsgrad`` to the Adam family; told apart by the number of arguments.
_ADAM_OLD, _ADAM_NEW = (7, -2), (8, -3)
_ADAM_ARGUMENTS = {"adam_": 16, "adamw_": 19, "merged_adam_": 13}

OPTIMIZER_OPS = frozenset(_POSITIONS) | frozenset(_ADAM_ARGUMENTS)


def _positions(op: str, count: int) -> tuple[int, int]:
    if op in _ADAM_ARGUMENTS:
        return _ADAM_OLD if count <= _ADAM_ARGUMENTS[op] else _ADAM_NEW
    return _POSITIONS[op]


def _is_half(x: Any) -> bool:
    return is_tensor(x) and is_half(dtype_of(x))


def _any_half(values: Any) -> bool:
    return any(_any_half(v) if isinstance(v, (list, tuple)) else _is_half(v) for v in values)


def wrap_optimizer(op: str, function: Callable[..., Any], assign: Callable[..., Any]) -> Callable[..., Any]:
    """The form of an optimizer op that takes half parameters, gradients and accumulators."""

    def software_half_optimizer(*args: Any) -> Any:
        if records.ACTIVE:
            for param in args[0] if isinstance(args[0], (list, tuple)) else (args[0],):
                records.note_update(op, dtype_of(param))
        if not _any_half(args):
            return function(*args)
        master_at, flag_at = _positions(op, len(args))
        with paddle.no_grad():
            return _update(function, assign, list(args), master_at, flag_at)

    software_half_optimizer.__name__ = op
    return software_half_optimizer


def _update(function: Any, assign: Any, args: list[Any], master_at: int, flag_at: int) -> Any:
    params, masters = args[0], args[master_at]
    written: list[tuple[Any, Any]] = []  # (FP32 values, the half tensor they belong to)

    def lift(x: Any) -> Any:
        if not _is_half(x):
            return x
        lifted = up(x)
        written.append((lifted, x))
        return lifted

    if args[flag_at] and masters is not None:
        # The masters are the parameters; their half copies are rounded from them afterwards.
        many = isinstance(params, (list, tuple))
        pairs = zip(masters, params, strict=True) if many else [(masters, params)]
        written.extend((m, p) for m, p in pairs if _is_half(p))
        rest = [map_tensors(a, lift) for a in args[1:]]
        args = [masters, *rest]
    else:
        args = [map_tensors(a, lift) for a in args]
    args[master_at], args[flag_at] = None, False
    out = function(*args)
    for values, half in written:
        assign(down(values.detach(), dtype_of(half)), half)
    return out


def wrap_check_finite(function: Callable[..., Any], assign: Callable[..., Any], legacy: bool) -> Callable[..., Any]:
    """``check_finite_and_unscale``: gradients times 1/scale, in FP32, rounded back; found_inf.

    ``legacy``: the form of ``_legacy_C_ops`` (inputs, scale, outputs, found_inf); else (inputs, scale) in place.
    """

    def software_half_check(grads: Any, scale: Any, *rest: Any) -> Any:
        if not _any_half(grads):
            return function(grads, scale, *rest)
        with paddle.no_grad():
            lifted = [up(g) if _is_half(g) else g for g in grads]
            out = function(lifted, scale, lifted, *rest[1:]) if legacy else function(lifted, scale)
            targets = rest[0] if legacy else grads
            for values, target in zip(lifted, targets, strict=True):
                if _is_half(target):
                    assign(down(values.detach(), dtype_of(target)), target)
        return out if legacy else (grads, out[1])

    return software_half_check
