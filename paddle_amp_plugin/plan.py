"""From the ``amp`` key, the device and the model family to the plan of one run (pure; no tensor in it)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from paddle_amp_plugin.config import AmpConfig, Note, Source
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST
from paddle_amp_plugin.plan_file import plan_from_yaml, plan_to_yaml, write_plan
from paddle_amp_plugin.plan_model import Device, Plan, Row
from paddle_amp_plugin.plan_table import print_plan

__all__ = ["Device", "Plan", "Row", "make_plan", "plan_from_yaml", "plan_to_yaml", "print_plan", "write_plan"]

Half = Literal["float16", "bfloat16"]
#: The lowest compute capability of an NVIDIA GPU for each half type (``paddle/amp/auto_cast.py``,
#: ``_is_gpu_float16_supported`` and ``_is_gpu_bfloat16_supported``).
LOWEST_CAPABILITY: dict[Half, tuple[int, int]] = {"float16": (7, 0), "bfloat16": (8, 0)}


@dataclass
class _Choice:
    """The dtype chosen, with its reason; or ``off``, the reason for no half precision at all."""

    dtype: Half = "float16"
    reason: str = ""
    off: str = ""
    notes: list[Note] = field(default_factory=list)
    probe: bool = False


def make_plan(config: AmpConfig, device: Device, *, family: str = "") -> Plan:
    """The plan for ``config`` on ``device``; ``family`` is ``model_type/algorithm``, e.g. ``det/DB``.

    Raises ``AmpError``: AMP016 the dtype asked for is beyond the device; AMP017 a CPU with ``cpu: error``.
    """
    choice = _choose(config, device, family)
    return _off_plan(config, device, family, choice) if choice.off else _on_plan(config, device, family, choice)


def _choose(config: AmpConfig, device: Device, family: str) -> _Choice:
    if not config.enabled:
        return _Choice(off=tr("amp is false", "amp 为 false"))
    if device.kind == "cpu" and config.cpu == "error":
        raise AmpError(
            "AMP017",
            tr("this run has no GPU, and amp.cpu is error", "本次运行没有 GPU，而 amp.cpu 为 error"),
            hint=tr(
                "amp.cpu: emulate runs mixed precision in software; amp.cpu: off trains in FP32",
                "amp.cpu: emulate 以软件方式运行混合精度；amp.cpu: off 以 FP32 训练",
            ),
        )
    if device.kind == "cpu" and config.cpu == "off":
        return _Choice(off=tr("a CPU, and amp.cpu is off: FP32", "设备为 CPU 且 amp.cpu 为 off：使用 FP32"))
    if config.dtype != "auto":
        return _explicit(config.dtype, device)
    choice = _automatic(device, family)
    return choice if choice.off or choice.dtype != "float16" else _to_be_probed(choice)


def _to_be_probed(choice: _Choice) -> _Choice:
    reason = tr("{r}; the first batches are asked", "{r}；并由最初几个批次验证", r=choice.reason)
    return replace(choice, reason=reason, probe=True)


def holds(device: Device, dtype: Half) -> bool:
    """Whether a run on ``device`` can compute in ``dtype`` (on a CPU: software half can)."""
    if device.kind == "cpu":
        return True
    native = device.float16 if dtype == "float16" else device.bfloat16
    too_old = device.kind == "gpu" and device.capability is not None and device.capability < LOWEST_CAPABILITY[dtype]
    return native and not too_old


def _lack(device: Device, dtype: Half) -> str:
    """Why ``device`` cannot hold ``dtype``, in words."""
    if device.kind == "gpu" and device.capability is not None:
        return tr(
            "{n} has compute capability {c}; {d} needs {m}",
            "{n} 的计算能力为 {c};{d} 需要 {m}",
            n=device.name,
            c=".".join(map(str, device.capability)),
            d=dtype,
            m=".".join(map(str, LOWEST_CAPABILITY[dtype])),
        )
    return tr("{n} cannot compute in {d}", "{n} 不支持 {d} 计算", n=device.name or device.kind, d=dtype)


def _explicit(dtype: Half, device: Device) -> _Choice:
    if holds(device, dtype):
        return _Choice(dtype, tr("as written", "按配置指定"))
    other: Half = "bfloat16" if dtype == "float16" else "float16"
    hint = tr("write amp: false to train in FP32", "写 amp: false 以 FP32 训练")
    if holds(device, other):
        hint = tr(
            "write amp.dtype: {o}, or auto; or amp: false to train in FP32",
            "写 amp.dtype: {o} 或 auto；或写 amp: false 以 FP32 训练",
            o=other,
        )
    raise AmpError("AMP016", _lack(device, dtype), hint=hint)


def _automatic(device: Device, family: str) -> _Choice:
    """``dtype: auto``: float16, but bfloat16 for text detection where the device has it.

    The convolutions of PP-OCRv2 / v3 detection exceed float16 (PaddleOCR PR #10119, #10180).
    """
    if not holds(device, "float16") and not holds(device, "bfloat16"):
        return _Choice(off=tr("{lack}: FP32", "{lack}：使用 FP32", lack=_lack(device, "float16")))
    detection = family.split("/")[0].strip().lower() == "det"
    if detection and holds(device, "bfloat16"):
        reason = tr(
            "auto: text detection can leave the range of float16 (65504), bfloat16 has that of FP32",
            "auto：文本检测可能超出 float16 的范围（65504），bfloat16 的范围与 FP32 相同",
        )
        return _Choice("bfloat16", reason)
    if not holds(device, "float16"):
        return _Choice("bfloat16", tr("auto: {lack}", "auto:{lack}", lack=_lack(device, "float16")))
    if detection:
        note = Note(
            "AMP018",
            "text detection can leave the range of float16 (65504), and this device has no bfloat16; if the loss "
            "scale collapses, keep the layers at fault in FP32 with amp.fp32_layers",
            "文本检测可能超出 float16 的范围（65504），而此设备不支持 bfloat16;"
            "若 loss scale 崩溃，请用 amp.fp32_layers 让出问题的层保持 FP32",
        )
        return _Choice("float16", tr("auto: {lack}", "auto:{lack}", lack=_lack(device, "bfloat16")), notes=[note])
    if device.kind == "cpu":
        return _Choice("float16", tr("auto: what most GPUs would use", "auto：与多数 GPU 的选择一致"))
    return _Choice("float16", tr("auto: this device computes in it", "auto：此设备支持"))


def _off_plan(config: AmpConfig, device: Device, family: str, choice: _Choice) -> Plan:
    return Plan(
        enabled=False,
        off_reason=choice.off,
        device=device,
        family=family,
        level="O0",
        dtype="float32",
        dtype_reason=choice.off,
        preset=config.preset,
        custom_white_list=(),
        custom_black_list=(),
        fp32_layers=(),
        use_loss_scaling=False,
        scaling=ScalingPolicy(),
        calibrate=False,
        master_weight=False,
        master_grad=False,
        on_collapse=config.on_collapse,
        accumulate_steps=config.accumulate_steps,
        ema_decay=config.ema.decay,
        eval_dtype="float32",
        cpu=config.cpu,
        software_half=False,
        monitor=config.monitor,
        whys={},
        sources=dict(config.sources),
        notes=(),
    )


def _on_plan(config: AmpConfig, device: Device, family: str, choice: _Choice) -> Plan:
    sources = dict(config.sources)
    whys: dict[str, str] = {}
    black = _black_list(config, sources)
    software_half = device.kind == "cpu"
    if software_half:
        whys["software_half"] = tr(
            "no GPU: half precision is computed in software; the numerics are real, the speed is not",
            "没有 GPU：以软件方式计算半精度；数值真实，速度不具参考性",
        )
    use_loss_scaling = choice.dtype == "float16"
    if not use_loss_scaling:
        whys["use_loss_scaling"] = tr("bfloat16 has the range of FP32", "bfloat16 的范围与 FP32 相同")
    if config.level == "O2":
        whys["master_weight"] = tr("O2 learns FP32 master weights", "O2 学习的是 FP32 主权重")
    else:
        whys["master_weight"] = tr("the weights are FP32 already", "权重本身就是 FP32")
    eval_dtype = config.eval_dtype if config.eval_dtype == "float32" else choice.dtype
    if eval_dtype != config.eval_dtype:
        whys["eval_dtype"] = tr(
            "evaluation cannot use another half type than training", "评估不能使用与训练不同的半精度"
        )
    return Plan(
        enabled=True,
        off_reason="",
        device=device,
        family=family,
        level=config.level,
        dtype=choice.dtype,
        dtype_reason=choice.reason,
        preset=config.preset,
        custom_white_list=tuple(sorted(config.custom_white_list)),
        custom_black_list=black,
        fp32_layers=config.fp32_layers,
        use_loss_scaling=use_loss_scaling,
        scaling=_policy(config),
        calibrate=_calibrate(config, use_loss_scaling, whys),
        master_weight=config.level == "O2",
        master_grad=_master_grad(config, whys),
        on_collapse=config.on_collapse,
        accumulate_steps=config.accumulate_steps,
        ema_decay=config.ema.decay,
        eval_dtype=eval_dtype,
        cpu=config.cpu,
        software_half=software_half,
        monitor=config.monitor,
        whys=whys,
        sources=sources,
        notes=(*_notes(config, choice), *choice.notes),
        probe=choice.probe,
    )


def _notes(config: AmpConfig, choice: _Choice) -> tuple[Note, ...]:
    """The config's remarks that still hold: a low static scale does not matter to bfloat16."""
    return tuple(n for n in config.notes if not (n.code == "AMP020" and choice.dtype == "bfloat16"))


def _black_list(config: AmpConfig, sources: dict[str, Source]) -> tuple[str, ...]:
    """The user's ops and, with ``safe``, the preset's, less those that the user has put on the white list."""
    own = set(config.custom_black_list)
    if config.preset == "safe":
        written = sources.get("custom_black_list", Source("default"))
        extra = f" + {written.spelling}" if written.kind != "default" else ""
        sources["custom_black_list"] = Source("preset", f"safe{extra}")
        own |= SAFE_BLACK_LIST - set(config.custom_white_list)
    return tuple(sorted(own))


def _policy(config: AmpConfig) -> ScalingPolicy:
    # auto: where the calibration starts from
    start = min(max(ScalingPolicy.init, config.min_loss_scaling), config.max_loss_scaling)
    init = config.init_loss_scaling
    return ScalingPolicy(
        init=start if isinstance(init, str) else init,
        dynamic=config.use_dynamic_loss_scaling,
        incr_ratio=config.incr_ratio,
        decr_ratio=config.decr_ratio,
        incr_every_n_steps=config.incr_every_n_steps,
        decr_every_n_nan_or_inf=config.decr_every_n_nan_or_inf,
        minimum=config.min_loss_scaling,
        maximum=config.max_loss_scaling,
    )


def _master_grad(config: AmpConfig, whys: dict[str, str]) -> bool:
    """``auto`` is off: the update is made on FP32 masters anyway, and FP32 gradients cost their memory twice.

    It is also the less travelled path: PaddleNLP's scaler never unscales ``main_grad`` on one process. Where
    gradients are accumulated it is on: sums of half gradients lose what is small beside the sum.
    """
    if isinstance(config.master_grad, bool):
        return config.master_grad
    if config.level == "O2" and config.accumulate_steps > 1:
        whys["master_grad"] = tr("auto: gradients are added up in FP32", "auto：梯度以 FP32 累加")
        return True
    if config.level == "O2":
        whys["master_grad"] = tr(
            "auto: off; the update is made on FP32 master weights anyway", "auto：关闭；更新本来就在 FP32 主权重上进行"
        )
    else:
        whys["master_grad"] = tr("auto: off; for O2 only", "auto：关闭；仅用于 O2")
    return False


def _calibrate(config: AmpConfig, use_loss_scaling: bool, whys: dict[str, str]) -> bool:
    """Whether the first batches decide the loss scale (``init_loss_scaling: auto``)."""
    if config.init_loss_scaling != "auto" or not use_loss_scaling:
        return False
    whys["init_loss_scaling"] = tr(
        "auto: the first batches decide, and the reason is said then", "auto：由最初几个批次决定，届时说明原因"
    )
    return True
