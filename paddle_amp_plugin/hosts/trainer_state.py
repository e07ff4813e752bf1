"""What a Trainer loads, whatever the precision it was saved in: FP32 weights, masters of a host's own O2 run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin.autocast import HALF, _same_half
from paddle_amp_plugin.scaler import optimizer_parameters


def without_masters(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """A state without its masters, which become the weights; the session finds its moments under either naming."""
    _take_masters(state.get("master_weights") or {}, optimizer)
    return {key: value for key, value in state.items() if key != "master_weights"}


def _take_masters(loaded: dict[str, Any], optimizer: Any) -> None:
    """A checkpoint of the host's own O2 run: half weights, and masters that hold more."""
    current = getattr(optimizer, "_master_weights", None) or {}
    with paddle.no_grad():
        for parameter in optimizer_parameters(optimizer):
            if parameter.name not in loaded:
                continue
            master = paddle.to_tensor(loaded[parameter.name])
            target = current.get(parameter.name, parameter)
            if target.dtype not in HALF and any(_same_half(master, target.astype(half)) for half in HALF):
                target.set_value(master)


def move_to_masters(optimizer: Any) -> None:
    """What an optimizer that trained in FP32 remembers goes on under the masters' names (another ``train()``)."""
    masters = getattr(optimizer, "_master_weights", None) or {}
    for accumulators in (getattr(optimizer, "_accumulators", None) or {}).values():
        for name, master in masters.items():
            if name in accumulators and master.name not in accumulators:
                accumulators[master.name] = accumulators.pop(name)


def float32_weights(loaded: dict[str, Any], model: paddle.nn.Layer) -> tuple[dict[str, Any], bool]:
    """``loaded`` with FP32 values where the model has FP32 ones, and whether there were others.

    Paddle's ``set_state_dict`` raises AssertionError at half weights. In NumPy, bfloat16 is uint16 bit patterns.
    """
    wanted = {name: value.dtype for name, value in model.state_dict().items()}
    state, cast = dict(loaded), False
    for name, value in loaded.items():
        if wanted.get(name) == paddle.float32 and _is_half(value):
            state[name], cast = _as_float32(value), True
    return state, cast


def _is_half(value: Any) -> bool:
    return value.dtype in HALF if isinstance(value, paddle.Tensor) else value.dtype in (np.float16, np.uint16)


def _as_float32(value: Any) -> Any:
    if isinstance(value, paddle.Tensor) or value.dtype == np.float16:
        return value.astype("float32")
    return (value.astype(np.uint32) << 16).view(np.float32)


def call_with(owner: Any, name: str, change: Callable[[Any, Any], Any]) -> Callable[[], None]:
    """``owner.name(...)`` becomes ``change(original, arguments)`` for this object; returns the undoing."""
    original = getattr(owner, name)
    had_own = name in vars(owner)

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(lambda *a: original(*a, **kwargs), args)

    setattr(owner, name, changed)

    def undo() -> None:
        if had_own:
            setattr(owner, name, original)
        else:
            vars(owner).pop(name, None)

    return undo
