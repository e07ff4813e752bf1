"""What an optimizer remembers of each parameter, under the parameter's own name, whatever the precision.

Paddle names an accumulator after the tensor that is updated: ``linear_0.w_0_moment1_0`` in FP32, and at O2, after the
master, ``linear_0.w_0_fp32_master_0_moment1_0`` (``Optimizer._add_accumulator``, 2.6 to 3.3). A ``.pdopt`` of the one
does not fit the other: Paddle raises "Optimizer set error, … should in state dict" at the first step. Here files have
the parameters' own names always, and both spellings are read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import paddle

from paddle_amp_plugin.autocast import HALF
from paddle_amp_plugin.scaler import optimizer_parameters

_MASTER = re.compile(r"_fp32_master_\d+(?=_)")


@contextlib.contextmanager
def own_names(optimizer: Any) -> Iterator[None]:
    """While it is open, ``optimizer.state_dict()`` names every accumulator after its parameter."""
    renamed: list[tuple[paddle.Tensor, str]] = []
    try:
        owners = _owners(optimizer)
        for kind, by_tensor in (getattr(optimizer, "_accumulators", None) or {}).items():
            for name, accumulator in by_tensor.items():
                renamed.append((accumulator, accumulator.name))
                # the number is that of a process that makes one optimizer, which is what will read it
                accumulator.name = f"{owners.get(name, name)}_{kind}_0"
        yield
    finally:
        for accumulator, name in renamed:
            accumulator.name = name


def _owners(optimizer: Any) -> dict[str, str]:
    """Master's name -> its parameter's name."""
    masters = getattr(optimizer, "_master_weights", None) or {}
    return {master.name: name for name, master in masters.items()}


def take_over(optimizer: Any, missing: Callable[[list[str]], None]) -> None:
    """From here on, loaded state finds its parameter under either name.

    To be called when model and optimizer are as they will be trained; a state may be loaded before or after, until
    the first step. ``missing`` is called, once, with the names of parameters that the loaded state says nothing
    about: their accumulators start anew (Paddle alone raises AssertionError).
    """
    add = getattr(optimizer, "_add_accumulator", None)
    if add is None or "_add_accumulator" in vars(optimizer):
        return
    lost: list[str] = []
    loaded = False

    def add_accumulator(name: str, param: paddle.Tensor, *args: Any, **kwargs: Any) -> Any:
        holder = optimizer._accumulators_holder
        kind = f"{optimizer._name}_{name}" if optimizer._name is not None else name
        if not loaded or param.name in optimizer._accumulators.get(kind, {}):
            return add(name, param, *args, **kwargs)
        optimizer._accumulators_holder = {}
        try:
            made = add(name, param, *args, **kwargs)
        finally:
            optimizer._accumulators_holder = holder
        own = _owners(optimizer).get(param.name, param.name)
        key = _key(holder, own, kind)
        value = _fitting(holder.pop(key), made) if key is not None else None
        if value is not None:
            made.set_value(value)
        elif own not in lost:
            lost.append(own)
        return made

    create = optimizer._create_accumulators

    def create_accumulators(*args: Any, **kwargs: Any) -> Any:
        nonlocal loaded
        loaded = loaded or bool(optimizer._accumulators_holder)  # it empties while it is used
        made = create(*args, **kwargs)
        if lost:
            missing(list(lost))
            lost.clear()
        return made

    optimizer._add_accumulator = add_accumulator
    optimizer._create_accumulators = create_accumulators


def give_back(optimizer: Any) -> None:
    """Undoes ``take_over``."""
    for name in ("_add_accumulator", "_create_accumulators"):
        vars(optimizer).pop(name, None)


def _key(holder: dict[str, Any], own: str, kind: str) -> str | None:
    """The entry for ``kind`` of the parameter ``own``; Paddle puts a number behind it (``unique_name``)."""
    wanted = re.compile(re.escape(f"{own}_{kind}") + r"_\d+")
    exact = f"{own}_{kind}_0"
    if exact in holder:
        return exact
    return next((key for key in holder if wanted.fullmatch(_MASTER.sub("", key, count=1))), None)


def _fitting(value: Any, made: paddle.Tensor) -> paddle.Tensor | None:
    """A loaded value in the accumulator's dtype; None if it has another shape."""
    tensor = _tensor(value)
    if list(tensor.shape) != list(made.shape):
        return None
    return tensor.astype(made.dtype) if tensor.dtype != made.dtype else tensor


def _tensor(value: Any) -> paddle.Tensor:
    return value if isinstance(value, paddle.Tensor) else paddle.to_tensor(value)


def settle_masters(optimizer: Any) -> int:
    """Masters that a loaded state brought for parameters that are FP32 themselves become their values.

    So a checkpoint of an O2 run of the host alone (half ``.pdparams``, masters in ``.pdopt``) goes on in FP32 or at
    O1 from what was learned and not from its half copy. Returns how many; a master that does not round to the
    parameter belongs to other weights, and is dropped.
    """
    masters = getattr(optimizer, "_master_weights", None)
    if not masters:
        return 0
    settled = 0
    with paddle.no_grad():
        for parameter in optimizer_parameters(optimizer):
            if parameter.dtype in HALF or parameter.name not in masters:
                continue
            master = _tensor(masters.pop(parameter.name)).astype("float32")
            if list(master.shape) == list(parameter.shape) and _rounds_to(master, parameter):
                parameter.set_value(master)
                settled += 1
    return settled


def _rounds_to(master: paddle.Tensor, parameter: paddle.Tensor) -> bool:
    """Is ``parameter`` (FP32) ``master`` in bfloat16 or better, but for one unit in the last place?"""
    distance = (master - parameter).abs()
    return bool((distance <= parameter.abs() * 2.0**-7 + 2.0**-24).all())
