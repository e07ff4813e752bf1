"""What a healing changes in a model that is training: layers, or everything, go from half to FP32 for good.

At O1 the weights are FP32 already and only the computation changes. At O2 the half parameters become their FP32
masters (the same storage), and what the optimizer keeps under a master's name goes back to the parameter's own:
``Optimizer._get_accumulator_master`` (Paddle 2.6 to 3.3) looks accumulators up by the master's name while the
parameter is half, and by the parameter's once it is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin import autocast

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan


def pin_layers(model: paddle.nn.Layer, optimizer: Any, names: Iterable[str]) -> None:
    """The named layers, and what is inside them, compute in FP32 on FP32 weights from here on."""
    layers = dict(model.named_sublayers())
    wanted = [layers[name] for name in names if name in layers]
    inside = [sub for layer in wanted for sub in layer.sublayers(include_self=True)]
    _to_masters(model, optimizer, inside)
    for layer in wanted:
        autocast._pin_class(layer)


def all_float32(model: paddle.nn.Layer, optimizer: Any) -> None:
    """Every half parameter and buffer of the model becomes its FP32 master."""
    _to_masters(model, optimizer, model.sublayers(include_self=True))


def to_bfloat16(model: paddle.nn.Layer, optimizer: Any) -> None:
    """Every float16 parameter and buffer is its FP32 master rounded to bfloat16; masters and their moments stay."""
    for tensor in list(autocast._half_tensors(model)):
        if tensor._grad_ivar() is not None:
            tensor.clear_gradient(False)  # an emptied one in float16 (see below)
        with paddle.no_grad(), autocast.no_auto_cast():
            autocast._share(tensor, autocast.master_of(tensor, model, optimizer).astype("bfloat16"))  # noqa: AMP101


def _to_masters(model: paddle.nn.Layer, optimizer: Any, layers: Iterable[paddle.nn.Layer]) -> None:
    layers = list(layers)
    for layer in layers:
        if "float16" in str(layer._dtype).lower():  # also bfloat16; what says so is left out by the next decorate
            layer._dtype = "float32"
    own = (t for layer in layers for t in (*layer._parameters.values(), *layer._buffers.values()))
    half = {id(t): t for t in own if t is not None and t._is_initialized() and t.dtype in autocast.HALF}
    for tensor in half.values():
        master = autocast.master_of(tensor, model, optimizer)
        if tensor._grad_ivar() is not None:
            tensor.clear_gradient(False)  # a half gradient, which the FP32 one of the next step cannot be added to
        autocast._share(tensor, master)
        autocast.forget_master(tensor, model)
        _own_state(optimizer, tensor, master)


def _own_state(optimizer: Any, parameter: paddle.Tensor, master: paddle.Tensor) -> None:
    """The optimizer's masters and accumulators of one parameter, under the parameter's own name."""
    masters = getattr(optimizer, "_master_weights", None) or {}
    if masters.pop(parameter.name, None) is None:
        return
    for accumulators in optimizer._accumulators.values():
        if master.name in accumulators:
            accumulators[parameter.name] = accumulators.pop(master.name)


def plan_with_pins(plan: Plan, layers: Iterable[str], ops: Iterable[str], scale: float) -> Plan:
    """The plan of a run that has these layers and ops in FP32 as well; ``scale``: a static one's value."""
    ops = set(ops)
    return dataclasses.replace(
        plan,
        fp32_layers=tuple(dict.fromkeys([*plan.fp32_layers, *layers])),
        custom_black_list=tuple(sorted({*plan.custom_black_list, *ops})),
        custom_white_list=tuple(op for op in plan.custom_white_list if op not in ops),
        scaling=plan.scaling if plan.scaling.dynamic else dataclasses.replace(plan.scaling, init=scale),
    )


def plan_bfloat16(plan: Plan, reason: str) -> Plan:
    """The same plan in bfloat16, which has the range of FP32 and needs no loss scale."""
    return dataclasses.replace(
        plan,
        dtype="bfloat16",
        dtype_reason=reason,
        use_loss_scaling=False,
        calibrate=False,
        probe=False,
        eval_dtype="float32" if plan.eval_dtype == "float32" else "bfloat16",
    )


def plan_float32(plan: Plan, reason: str) -> Plan:
    """The plan of a run whose AMP was switched off on the way."""
    return dataclasses.replace(
        plan,
        enabled=False,
        off_reason=reason,
        dtype_reason=reason,
        level="O0",
        dtype="float32",
        use_loss_scaling=False,
        calibrate=False,
        probe=False,
        master_weight=False,
        master_grad=False,
        eval_dtype="float32",
        software_half=False,
    )
