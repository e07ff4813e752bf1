"""Several backward passes before one step, where gradients are kept in FP32 (``master_grad``).

Paddle casts the gradients to FP32 when a backward pass is over; the half gradients of the next one cannot be added to
them (InvalidArgument, Paddle 2.6 and 3.3). So what is there is put aside for the pass, and added in FP32 after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.scaler import optimizer_parameters


@contextlib.contextmanager
def added_in_float32(optimizer: Any) -> Iterator[None]:
    """One backward pass; FP32 gradients that half parameters have already are added to its own."""
    aside = []
    for parameter in optimizer_parameters(optimizer):
        grad = parameter._grad_ivar()
        if grad is not None and grad._is_initialized() and grad.dtype == paddle.float32 != parameter.dtype:
            aside.append((parameter, autocast._alias(grad)))
            parameter.clear_gradient(False)
    yield
    with paddle.no_grad():
        for parameter, before in aside:
            grad = parameter._grad_ivar()
            if grad is not None and grad._is_initialized():
                grad.add_(before)
            else:
                parameter.grad = before
