"""Softmax of a row without a finite maximum is NaN, as on a GPU.

Paddle's vectorised CPU kernels give such a row uniform probabilities instead when its length is a multiple of 8
(8, 16, 32, 64, … on 2.6.2 and 3.3.1): a fully masked attention row, or an overflow, would go unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops

# Bound before install() puts wrappers in their places.
_max, _sum, _any = _C_ops.max, _C_ops.sum, _C_ops.any
_isfinite, _isnan, _not, _or = _C_ops.isfinite, _C_ops.isnan, _C_ops.logical_not, _C_ops.logical_or
_multiply = _C_ops.multiply


def _row_factor(x: Any, axis: int) -> Any:
    """NaN for each row along ``axis`` without a finite maximum and 1 for the others; None if all have one."""
    # A value of a static program has no numbers to look at.
    if not isinstance(x, paddle.Tensor) or not x.shape or not x._is_initialized():
        return None
    x = x.detach()
    # Paddle's CPU maximum steps over a NaN, a sum does not; a sum of finite values and -inf (a mask) is -inf.
    bad = _or(_not(_isfinite(_max(x, [axis], True))), _isnan(_sum(x, [axis], x.dtype, True)))
    if not bool(_any(bad, [], False)):
        return None
    return paddle.to_tensor(np.where(bad.numpy(), np.nan, 1.0).astype(np.float32), place=x.place)


def nan_aware_softmax(function: Callable[..., Any]) -> Callable[..., Any]:
    """``softmax(x, axis)`` with NaN rows where they belong, in the gradient too."""

    def softmax(x: Any, axis: int = -1, **options: Any) -> Any:
        out = function(x, axis, **options)
        factor = _row_factor(x, axis)
        return out if factor is None else _multiply(out, factor)

    return softmax


def nan_aware_cross_entropy(function: Callable[..., Any]) -> Callable[..., Any]:
    """``cross_entropy_with_softmax(logits, label, soft_label, use_softmax, numeric_stable, ignore_index, axis)``."""

    def cross_entropy_with_softmax(logits: Any, label: Any, *attributes: Any) -> Any:
        softmax, loss = function(logits, label, *attributes)
        use_softmax, axis = attributes[1], attributes[4]
        factor = _row_factor(logits, axis) if use_softmax else None
        return (softmax, loss) if factor is None else (_multiply(softmax, factor), _multiply(loss, factor))

    return cross_entropy_with_softmax
