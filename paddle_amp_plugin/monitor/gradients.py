"""Two numbers about all gradients of a step: their L2 norm and the share of exact zeros."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import paddle


def global_grad_norm(parameters: Iterable[Any]) -> float:
    """L2 norm of all gradients together, ``main_grad`` where there is one; 0.0 where there is none.

    It is unscaled if the gradients are: call it after ``LossScaler.unscale_`` and before a clip. Infinity and NaN are
    kept. Sums of squares are FP32 on the device, and are read with one synchronisation.
    """
    import paddle
    from paddle import _C_ops

    with paddle.no_grad():
        gradients = _gradients(parameters)
        if not gradients:
            return 0.0
        # The op has no half kernel on a CPU, and squares leave float16 from 256 on.
        squares = [_C_ops.squared_l2_norm(_float32(g)).reshape([1]) for g in gradients]
        total = float(paddle.add_n(squares))
        if math.isinf(total):
            return _large_norm(gradients)
        return math.sqrt(total) if total >= 0.0 else math.nan


def _large_norm(gradients: list[paddle.Tensor]) -> float:
    """The norm where a square has left FP32 (elements from 1.8e19 on, float32's largest 3.4e38): scaled by the largest.

    Only steps with such gradients get here, nearly always because one is infinite and the step is skipped.
    """
    import paddle

    largest = max(float(_float32(g).abs().max()) for g in gradients)
    if not math.isfinite(largest):
        return largest
    squares = [(_float32(g) / largest).square().sum().reshape([1]) for g in gradients]
    return largest * math.sqrt(float(paddle.add_n(squares)))


def zero_share(parameters: Iterable[Any]) -> float:
    """Share of gradient elements that are exactly 0, from 0 to 1 (0.0 without gradients).

    Float16 gradients below 6e-8 become 0, so a share that grows under AMP means the loss scale is too low. Rows of an
    embedding that a batch does not use, and units that a ReLU closes, are zeros in FP32 too.
    """
    import paddle

    with paddle.no_grad():
        gradients = _gradients(parameters)
        elements = sum(math.prod(g.shape) for g in gradients)
        if not elements:
            return 0.0
        # not g == 0: on a CPU, Paddle 2.6 calls two floats equal that are less than 1e-8 apart
        zeros = [_zero(_float32(g).abs()).astype("float32").sum().reshape([1]) for g in gradients]
        return float(paddle.add_n(zeros)) / elements


def _zero(magnitude: paddle.Tensor) -> paddle.Tensor:
    import paddle

    return paddle.logical_not(paddle.logical_or(magnitude > 0, paddle.isnan(magnitude)))


def _gradients(parameters: Iterable[Any]) -> list[paddle.Tensor]:
    from paddle_amp_plugin.scaler import gradient

    found = (gradient(parameter) for parameter in parameters)
    return [_dense(g) for g in found if g is not None and g._is_initialized()]


def _dense(tensor: paddle.Tensor) -> paddle.Tensor:
    """The tensor itself, or the rows of a sparse embedding's gradient, added up where they repeat."""
    if not tensor.is_selected_rows():
        return tensor
    from paddle.nn import clip

    rows: Any = clip
    dense: paddle.Tensor = rows.get_tensor_from_selected_rows(rows.merge_selected_rows(tensor))
    return dense


def _float32(tensor: paddle.Tensor) -> paddle.Tensor:
    import paddle

    return tensor if tensor.dtype == paddle.float32 else tensor.astype("float32")
