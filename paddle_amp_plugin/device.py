"""The device Paddle computes on, as a plan needs to know it."""

from __future__ import annotations

import paddle

from paddle_amp_plugin.plan_model import Device


def current_device() -> Device:
    """The device Paddle computes on now, and which half types it can compute in (never raises)."""
    place = paddle.device.get_device()
    kind = place.split(":", 1)[0]
    if kind != "gpu":
        return Device(kind=kind, name=kind.upper(), capability=None, float16=kind != "cpu", bfloat16=False)
    capability = tuple(paddle.device.cuda.get_device_capability())
    # Paddle's own thresholds: paddle/amp/auto_cast.py, _is_gpu_float16_supported and _is_gpu_bfloat16_supported.
    rocm = paddle.is_compiled_with_rocm()
    return Device(
        kind="gpu",
        name=paddle.device.cuda.get_device_name(),
        capability=capability,
        float16=capability[0] >= 7 or rocm,
        bfloat16=capability[0] >= 8 or rocm,
    )
