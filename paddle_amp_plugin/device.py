"""The device Paddle computes on, as a plan needs to know it."""

from __future__ import annotations

import sys

import paddle

from paddle_amp_plugin.plan_model import Device


def current_device() -> Device:
    """The device Paddle computes on now, and which half types its ``auto_cast`` casts to there (never raises)."""
    place = paddle.device.get_device()
    kind = place.split(":", 1)[0]
    if kind == "cpu":
        return Device(kind=kind, name="CPU", capability=None, float16=False, bfloat16=False)
    if kind != "gpu":
        rule = "xpu" if kind == "xpu" else "custom_device"
        return Device(
            kind=kind,
            name=kind.upper(),
            capability=None,
            float16=_casts(rule, "float16", otherwise=True),
            bfloat16=_casts(rule, "bfloat16", otherwise=False),
        )
    capability = tuple(paddle.device.cuda.get_device_capability())
    rocm = paddle.is_compiled_with_rocm()
    return Device(
        kind="gpu",
        name=paddle.device.cuda.get_device_name(),
        capability=capability,
        float16=_casts("gpu", "float16", otherwise=capability[0] >= 7 or rocm),
        bfloat16=_casts("gpu", "bfloat16", otherwise=capability[0] >= 8 or rocm),
    )


def _casts(kind: str, dtype: str, *, otherwise: bool) -> bool:
    """What ``paddle.amp.auto_cast`` itself asks before it casts; ``otherwise`` where this version asks nothing.

    Not ``paddle.amp.is_float16_supported``: it is true from compute capability 5.3 on, where ``auto_cast`` stays off.
    """
    rule = getattr(sys.modules.get("paddle.amp.auto_cast"), f"_is_{kind}_{dtype}_supported", None)
    try:
        return otherwise if rule is None else bool(rule())
    except Exception:  # a driver that does not answer
        return otherwise
