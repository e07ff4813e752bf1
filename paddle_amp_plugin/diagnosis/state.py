"""What a replay must leave as it was: random states, buffers (BatchNorm's statistics), gradients."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin.autocast import _alias


def random_state() -> tuple[Any, ...]:
    """The states of Paddle's, NumPy's and Python's generators (models draw from all three)."""
    return paddle.get_rng_state(), np.random.get_state(), random.getstate()


def set_random_state(state: tuple[Any, ...]) -> None:
    """Puts the generators where ``random_state`` found them."""
    paddle.set_rng_state(state[0])
    np.random.set_state(state[1])
    random.setstate(state[2])


def _written_by_forward(model: paddle.nn.Layer) -> list[paddle.Tensor]:
    """Buffers, and the parameters no optimizer moves: Paddle keeps running statistics as such."""
    tensors = [*model.buffers(), *(p for p in model.parameters() if p.stop_gradient)]
    unique = {id(t): t for t in tensors if t is not None and t._is_initialized()}
    return list(unique.values())


@contextlib.contextmanager
def untouched(model: paddle.nn.Layer) -> Iterator[None]:
    """Whatever runs inside, afterwards random states, buffers and gradients are what they were, to the bit.

    Inside, the parameters start without gradients.
    """
    rng = random_state()
    buffers = _written_by_forward(model)
    with paddle.no_grad():
        copies = [_copy(t) for t in buffers]
    gradients = _take_gradients(model)
    try:
        yield
    finally:
        _drop_gradients(model)
        _give_gradients(gradients)
        with paddle.no_grad():
            for tensor, copy in zip(buffers, copies, strict=True):
                tensor.copy_(copy, True)
        set_random_state(rng)


def _copy(tensor: paddle.Tensor) -> paddle.Tensor:
    new = paddle.empty(tensor.shape, dtype=tensor.dtype)
    new.copy_(tensor, True)
    return new


def _take_gradients(model: paddle.nn.Layer) -> list[tuple[paddle.Tensor, Any, Any]]:
    taken = []
    for parameter in model.parameters():
        grad = parameter._grad_ivar()
        has_grad = grad is not None and grad._is_initialized()
        main = getattr(parameter, "main_grad", None)
        if has_grad or main is not None:
            # clear_gradient empties the very tensor, so its memory is held by another one
            taken.append((parameter, _alias(grad) if has_grad else None, main))
    _drop_gradients(model)
    return taken


def _drop_gradients(model: paddle.nn.Layer) -> None:
    for parameter in model.parameters():
        if parameter._grad_ivar() is not None:
            parameter.clear_gradient(False)
        if getattr(parameter, "main_grad", None) is not None:
            parameter.main_grad = None


def _give_gradients(taken: list[tuple[paddle.Tensor, Any, Any]]) -> None:
    for parameter, grad, main in taken:
        if grad is not None:
            parameter.grad = grad
        if main is not None:
            parameter.main_grad = main
