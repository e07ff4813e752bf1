"""What a Trainer's checkpoint holds, whatever the precision: FP32 weights, moments under the parameters' own names.

Paddle names an accumulator after the tensor that is updated: ``linear_0.w_0_moment1_0`` in FP32, and at O2, after the
master, ``linear_0.w_0_fp32_master_0_moment1_0`` (``Optimizer._add_accumulator``, Paddle 2.6 to 3.3); a state of the
one kind raises AssertionError in the other. Checkpoints have the parameters' own names always and no masters (the
weights in them are the masters); both kinds are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin.autocast import HALF, _same_half
from paddle_amp_plugin.scaler import optimizer_parameters

_MASTER = re.compile(r"_fp32_master_\d+(?=_)")


def own_names(state: dict[str, Any]) -> dict[str, Any]:
    """A state as it is written: accumulators under their parameters' names, without masters."""
    return {_MASTER.sub("", key, count=1): value for key, value in state.items() if key != "master_weights"}


def fitting_names(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """A state as this optimizer looks it up; the masters of a state that has them become the weights."""
    loaded = own_names(state)
    _take_masters(state.get("master_weights") or {}, optimizer)
    current = getattr(optimizer, "_master_weights", None) or {}
    masters = {p.name: current[p.name].name for p in optimizer_parameters(optimizer) if p.name in current}
    return {_renamed(key, masters): value for key, value in loaded.items()}


def _renamed(key: str, masters: dict[str, str]) -> str:
    owner = key
    while "_" in owner:  # parameters' names may begin with each other's: the longest counts
        owner = owner.rpartition("_")[0]
        if owner in masters:
            return masters[owner] + key[len(owner) :]
    return key


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
