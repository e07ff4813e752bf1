"""The modes that are estimated for one model: FP32, and what the plugin's own plan makes of it at O1 and at O2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import paddle

from paddle_amp_plugin import autocast, software_half
from paddle_amp_plugin.config import AmpConfig, read_amp
from paddle_amp_plugin.device import current_device
from paddle_amp_plugin.estimate.measure import Step
from paddle_amp_plugin.estimate.modes import Mode
from paddle_amp_plugin.estimate.observed import observe
from paddle_amp_plugin.estimate.policy import Policy, match
from paddle_amp_plugin.estimate.retention import size_of
from paddle_amp_plugin.estimate.trace_model import TracedModel
from paddle_amp_plugin.norm_buffers import norm_buffers
from paddle_amp_plugin.plan import make_plan
from paddle_amp_plugin.plan_model import Device, Plan
from paddle_amp_plugin.software_half.state import STATE

#: Without a GPU at hand: one that holds both half types.
ANY_GPU = Device(kind="gpu", name="", capability=None, float16=True, bfloat16=True)
FP32 = Mode("FP32", "float32", Policy())


def modes_for(
    settings: AmpConfig | None, step: Step, traced: TracedModel, *, family: str = "", accumulated: bool = False
) -> list[Mode]:
    """FP32, O1, O2 (and OD for a config that asks for it), with the dtype, lists and pins of ``settings``.

    ``settings``: what the config's AMP keys say, None if it has none; ``traced``: of ``step``, whose model is half
    afterwards; ``accumulated``: several passes make an update. Raises AmpError: AMP016 a dtype beyond the GPU at
    hand, AMP036 a pattern of ``fp32_layers`` that names no layer.
    """
    asked = settings if settings is not None else read_amp({"amp": True}, source="amp")
    assert asked is not None
    device = gpu_at_hand()
    off = make_plan(asked.model_copy(update={"enabled": False}), device, family=family)
    levels = ["O1", *(["OD"] if asked.level == "OD" else []), "O2"]  # O2 last: it changes the model
    modes = [mode_of(off, step.model)]
    batch = step.batch(traced.small.batch)
    for level in levels:
        changed = asked.model_copy(update={"enabled": True, "level": level, "cpu": "emulate"})
        plan = make_plan(changed, device, family=family)
        mode = replace(mode_of(plan, step.model), accumulated=accumulated)
        if traced.same_ops:  # else a call has one number in one trace and another in the other: the rules must do
            seen = match(traced.small, observe(plan, step.model, lambda: step.loss(batch)))
            mode = replace(mode, policy=replace(mode.policy, seen=seen))
        modes.append(mode)
    return modes


def gpu_at_hand() -> Device:
    """The GPU of this machine, though everything here runs on the CPU; ``ANY_GPU`` where there is none."""
    if not paddle.device.is_compiled_with_cuda() or not paddle.device.cuda.device_count():
        return ANY_GPU
    before = paddle.device.get_device()
    paddle.device.set_device("gpu:0")
    try:
        return current_device()
    finally:
        paddle.device.set_device(before)


def mode_of(plan: Plan, model: paddle.nn.Layer) -> Mode:
    """The mode that a run under ``plan`` is in; FP32 if the plan is off."""
    copies = _copies(plan, model)
    if not plan.enabled:
        return replace(FP32, copies=copies)
    layers = autocast.float32_layers(plan, model)
    policy = Policy(
        settings=_cast_settings(plan),
        half_tensors=_half_tensors(plan, model) if plan.level == "O2" else frozenset(),
        pinned=tuple(layers),
    )
    master_grad = bool(plan.master_grad) and plan.level == "O2"
    return Mode(plan.level, plan.dtype, policy, plan.master_weight, master_grad, copies=copies)


def _copies(plan: Plan, model: paddle.nn.Layer) -> int:
    """Bytes that a session keeps besides: the last good norm statistics, and the FP32 average of the weights."""
    if not plan.enabled and not plan.changes_the_loop:
        return 0  # no session
    statistics = norm_buffers(model)
    averaged: dict[int, Any] = {}
    if plan.ema_decay is not None:
        trained = [p for p in model.parameters() if not p.stop_gradient and paddle.is_floating_point(p)]
        averaged = {id(t): t for t in (*trained, *statistics)}
    return sum(map(size_of, statistics)) + 4 * sum(size_of(t) // int(t.element_size()) for t in averaged.values())


def asked_mode(settings: AmpConfig | None, modes: list[Mode]) -> Mode:
    """The one that the config would train in."""
    level = settings.level if settings is not None and settings.enabled else "FP32"
    return next((mode for mode in modes if mode.name == level), modes[0])


def _cast_settings(plan: Plan) -> Any:
    """What Paddle's own ``auto_cast`` makes of the plan's lists."""
    with software_half.emulate(), autocast.auto_cast(plan):
        return STATE.settings


def _half_tensors(plan: Plan, model: paddle.nn.Layer) -> frozenset[str]:
    """Qualified names of the parameters and buffers that ``decorate`` casts at O2."""
    kept = {id(s) for s in autocast.stays_fp32(model, autocast.pinned_layers(model, plan.fp32_layers).values())}
    return frozenset(
        f"{name}.{key}" if name else key
        for name, layer in model.named_sublayers(include_self=True)
        if id(layer) not in kept
        for key, tensor in (*layer._parameters.items(), *layer._buffers.items())
        if tensor is not None and tensor.dtype == paddle.float32
    )
