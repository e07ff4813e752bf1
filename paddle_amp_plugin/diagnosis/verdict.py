"""A diagnosis in words (English and Chinese), the YAML to paste, and ``amp/overflow-<step>.json``."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from paddle_amp_plugin.diagnosis.overflow import Diagnosis
from paddle_amp_plugin.messages import language


def cause(diagnosis: Diagnosis) -> tuple[str, str]:
    """The cause in one or two sentences: (English, Chinese)."""
    en, zh = _WORDS[diagnosis.kind]
    fields = _fields(diagnosis)
    texts = en.format(**fields["en"]), zh.format(**fields["zh"])
    if diagnosis.network:
        others = ", ".join(diagnosis.other_networks)
        texts = (
            f"{texts[0]} Only the sub-network {diagnosis.network} is affected, not {others}.",
            f"{texts[1]}只有子网络 {diagnosis.network} 受影响，{others} 正常。",
        )
    return texts[0] + _remedy_words(diagnosis)[0], texts[1] + _remedy_words(diagnosis)[1]


def says(diagnosis: Diagnosis) -> str:
    """The cause in the user's language."""
    return cause(diagnosis)[language() == "zh"]


def _fields(d: Diagnosis) -> dict[str, dict[str, str]]:
    place = str(d.details.get("place", ""))
    common = {
        "value": number(d.value),
        "limit": number(d.limit),
        "half": d.plan.get("dtype", "float16"),
        "scale": number(d.loss_scale),
        "to": next((pin.name for pin in d.pins if pin.kind == "scale"), "1"),
        "place": place,
        "norm": str(d.details.get("norm", "")),
        "weight": number(d.details.get("norm_weight")),
        "growth": _growth(d, "not finite any more", "times {g}"),
        "growth_zh": _growth(d, "变为非有限值", "变为 {g} 倍"),
        "op": d.culprit_op or "",
        "error": str(d.details.get("error", "")),
    }
    terms = ", ".join(d.terms) or "loss"
    # a loss term's op lies outside the model
    own = ("", "") if d.kind == "loss_term" else (" in the model's own forward", "模型自身 forward 中的")
    where = {
        "en": _where(d, "layer {c}", "op {o}" + own[0], "op {o} in layer {c}", "the model itself"),
        "zh": _where(d, "层 {c}", own[1] + "算子 {o}", "层 {c} 中的算子 {o}", "模型自身的 forward"),
    }
    return {
        language: {**common, "who": where[language], "Who": _capital(where[language]), "terms": terms}
        for language in ("en", "zh")
    }


def _where(d: Diagnosis, layer: str, op: str, both: str, nobody: str) -> str:
    form = both if d.culprit and d.culprit_op else layer if d.culprit else op if d.culprit_op else nobody
    return form.format(c=d.culprit, o=d.culprit_op)


def _growth(d: Diagnosis, endless: str, times: str) -> str:
    growth = d.details.get("growth")
    if not isinstance(growth, float) or not math.isfinite(growth):
        return endless
    return times.format(g=number(growth))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def number(value: Any) -> str:
    """A magnitude as a person reads it: ``240000``, ``1e+09``, ``65504``, ``nan``."""
    if not isinstance(value, int | float):
        return "?"
    if math.isfinite(value) and 1 <= abs(value) < 1e7:
        return f"{round(value):d}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:.3g}"


_WORDS: dict[str, tuple[str, str]] = {
    "finite": ("The step was finite: nothing to treat.", "该步的梯度均为有限值，无需处理。"),
    "data": (
        "Not an AMP problem: the batch itself is not finite ({place} holds {value}). Look at this sample and at what "
        "prepares it.",
        "不是 AMP 的问题：数据本身含有非有限值（{place} 中有 {value}）。请检查该样本及其预处理。",
    ),
    "weights": (
        "Not an AMP problem: the weight {place} already is {value}; no precision can repair it. Go back to the "
        "last checkpoint; if it happens again, lower the learning rate.",
        "不是 AMP 的问题：权重 {place} 已经是 {value}，"
        "任何精度都无法挽回。请回到上一个检查点；若再次发生，请降低学习率。",
    ),
    "fp32_forward": (
        "Not an AMP problem: in FP32 the forward pass is not finite either ({who}: {value}). The usual reason is a "
        "learning rate that is too high.",
        "不是 AMP 的问题：FP32 的前向计算同样出现非有限值（{who}:{value}）。最常见的原因是学习率过高。",
    ),
    "fp32_loss": (
        "Not an AMP problem: in FP32 the outputs are finite, but the loss term {terms} is {value}.",
        "不是 AMP 的问题：FP32 下网络输出有限，但损失项 {terms} 为 {value}。",
    ),
    "fp32_backward": (
        "Not an AMP problem: in FP32 forward pass and loss are finite, but gradients are not (first at {who}).",
        "不是 AMP 的问题：FP32 下前向与损失有限，但梯度非有限（最先出现在 {who}）。",
    ),
    "learning_rate": (
        "Not an AMP problem: in plain FP32 training the loss runs away as well at the learning rate {value} "
        "({growth} within a few updates on this very batch). Lower it, or warm it up for longer.",
        "不是 AMP 的问题：以学习率 {value} 做纯 FP32 训练，损失同样发散（在同一批数据上更新数次后{growth_zh}）。"
        "请降低学习率或延长预热。",
    ),
    "forward_overflow": (
        "{Who} needs {value} in FP32, and {half} ends at {limit}: it became infinite in the forward pass. A finite "
        "loss does not clear it: an activation can hide an infinity, the gradients cannot.",
        "{Who} 在 FP32 下达到 {value}，而 {half} 的上限是 {limit}：前向计算中变成了无穷大。损失有限并不代表模型正常："
        "激活函数可以掩盖无穷大，梯度则不能。",
    ),
    "norm_scale": (
        "{Who} is given or gives up to {value}, past the {limit} of {half}: the normalization layer {norm} has "
        "scales up to {weight}.",
        "{Who} 的数值达到 {value}，超过 {half} 的上限 {limit}：归一化层 {norm} 的缩放参数高达 {weight}。",
    ),
    "mask_constant": (
        "A mask constant of magnitude {value} becomes -inf in {half} (limit {limit}) at {who}; the softmax of a row "
        "that is masked throughout is then NaN.",
        "掩码常数（量级 {value}）在 {half} 中变成 -inf（上限 {limit}），"
        "位置：{who}；整行被掩盖时 softmax 的结果为 NaN。",
    ),
    "unsafe_op": (
        "{Who} computes in {half} and reaches {value}, past {limit}. Paddle lists this op as one that needs FP32; "
        "preset: safe keeps it there.",
        "{Who} 以 {half} 计算，数值达到 {value}，超过 {limit}。"
        "Paddle 将该算子列为需要 FP32 的算子；preset: safe 会保持 FP32。",
    ),
    "underflow": (
        "{Who} computes in {half}, where a value too small for it became 0 or a share too near to 1 became 1; its "
        "result is then not finite (in FP32: {value}).",
        "{Who} 以 {half} 计算：过小的值变成了 0，或过于接近 1 的值变成了 1，结果因而非有限（FP32 下为 {value}）。",
    ),
    "loss_term": (
        "The loss term {terms} is not finite though the loss is computed in FP32 ({who}): what it is given was rounded "
        "away in {half}. In FP32 it is finite.",
        "损失以 FP32 计算，但损失项 {terms} 仍非有限（{who}）：其输入在 {half} 中被舍入掉了。全程 FP32 时它是有限的。",
    ),
    "loss_scale": (
        "The forward pass is fine; only the loss scale {scale} is too high for this batch: at {who} the scaled "
        "gradient is {value}, past {limit}. At a scale of {to} the step is finite; "
        "dynamic loss scaling finds that by itself.",
        "前向计算正常，只是 loss scale {scale} 对这批数据过大：{who} 处放大后的梯度达到 {value}，超过 {limit}。"
        "scale 为 {to} 时该步有限。动态 loss scaling 会自行找到。",
    ),
    "backward": (
        "The forward pass is fine, the backward pass of {who} leaves the range of {half} at any loss scale (FP32 "
        "gradient: {value}).",
        "前向计算正常，{who} 的反向计算在任何 loss scale 下都超出 {half} 的范围（FP32 梯度：{value}）。",
    ),
    "replay_failed": (
        "{Who} is the first whose output is not finite. The batch could not be run again ({error}), so neither FP32 "
        "nor a remedy could be tried.",
        "{Who} 最先输出非有限值。该批数据无法重跑（{error}），因此未能验证 FP32 及补救办法。",
    ),
    "unknown": (
        "The step was not finite, but run again the same batch is, or no layer could be shown to be at fault.",
        "该步出现非有限值，但重跑同一批数据时正常，或未能确定是哪一层的问题。",
    ),
}


def _remedy_words(d: Diagnosis) -> tuple[str, str]:
    if d.not_amp or d.kind in ("finite", "unknown", "loss_scale", "replay_failed"):
        return "", ""
    text = yaml_of(d)
    if not text:
        return (
            " No layer or op in FP32 would have avoided it short of the whole model: train with amp: false.",
            "除非整个模型使用 FP32，固定任何层或算子都无济于事：请用 amp: false 训练。",
        )
    if d.dtype or d.level:
        now = d.plan.get("dtype" if d.dtype else "level", "")
        return (
            f" At {now}, no layer in FP32 would have avoided it; the YAML below does (this very step was run again).",
            f"在 {now} 下，固定任何层为 FP32 都无法避免；使用下面的 YAML 可以（已重跑验证该步）。",
        )
    en, zh = "", ""
    if sum(pin.kind == "layer" for pin in d.pins) > 1:
        en, zh = (
            " What it hands on is as large, so the next ones need FP32 as well.",
            "它的输出同样过大，后续层也需 FP32。",
        )
    return (
        f"{en} With the YAML below this very step is finite (it was run again).",
        f"{zh}使用下面的 YAML，该步即为有限（已重跑验证）。",
    )


def yaml_of(d: Diagnosis) -> str:
    """What to paste into the config: the ``amp`` key with what must change, and what it said there before."""
    plan = d.plan
    changes: dict[str, Any] = {}
    if d.dtype:
        changes["dtype"] = d.dtype
    if d.level:
        changes["level"] = d.level
    layers = [pin.name for pin in d.pins if pin.kind == "layer"]
    ops = [pin.name for pin in d.pins if pin.kind == "op"]
    if layers:
        changes["fp32_layers"] = list(dict.fromkeys([*plan.get("fp32_layers", []), *layers]))
    if ops:
        changes["custom_black_list"] = list(dict.fromkeys([*plan.get("custom_black_list", []), *ops]))
    for pin in d.pins:
        if pin.kind == "scale" and pin.scale is not None:
            if plan.get("dynamic", True):
                changes["max_loss_scaling"] = pin.scale
            if plan.get("init", 1024.0) > pin.scale:
                changes["init_loss_scaling"] = pin.scale
    if not changes or d.not_amp:
        return ""
    return "amp:\n" + "".join(f"  {key}: {_yaml_value(value)}\n" for key, value in changes.items())


def _yaml_value(value: Any) -> str:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)  # JSON's quoted lists are YAML
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def verdict_of(d: Diagnosis) -> dict[str, Any]:
    """The ``verdict`` entry of the file."""
    en, zh = cause(d)
    return {
        "culprit": d.culprit,
        "culprit_op": d.culprit_op,
        "where": d.where,
        "value": d.value,
        "limit": d.limit,
        "kind": d.kind,
        "cause_en": en,
        "cause_zh": zh,
        "yaml": yaml_of(d),
        "not_amp": d.not_amp,
        "pins": [{"kind": p.kind, "name": p.name, "scale": p.scale} for p in d.pins],
        "dtype": d.dtype,
        "level": d.level,
        "network": d.network,
        "terms": list(d.terms),
        "before": list(d.before),
        "replays": d.replays,
    }


def as_dict(d: Diagnosis) -> dict[str, Any]:
    """The whole file as plain data; what is not finite is the text ``inf``, ``-inf`` or ``nan``."""
    data = {"step": d.step, "loss_scale": d.loss_scale, "verdict": verdict_of(d), "layers": d.layers}
    return dict(strict(data))


def strict(value: Any) -> Any:
    """``value`` for strict JSON: ``inf`` and ``nan`` as texts."""
    if isinstance(value, dict):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def write_json(path: Path, data: Any) -> Path:
    """Writes strict JSON so that a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(strict(data), file, ensure_ascii=False, allow_nan=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would keep colleagues out
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def write_diagnosis(diagnosis: Diagnosis, folder: str | Path) -> Path:
    """Writes ``<folder>/overflow-<step>.json`` (``folder``: the run's ``amp``) and returns its path."""
    return write_json(Path(folder) / f"overflow-{diagnosis.step}.json", as_dict(diagnosis))


def read_diagnosis(path: str | Path) -> dict[str, Any]:
    """The file as data, with numbers where it has the texts ``inf`` and ``nan``.

    Raises ``ValueError`` if it is not such a file.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        layers, verdict = data["layers"], data["verdict"]
        for row in layers:
            for key in ("out_absmax", "grad_absmax", "fp32_absmax"):
                row[key] = _number_of(row.get(key))
        verdict["value"] = _number_of(verdict["value"])
        if not isinstance(verdict["kind"], str):
            raise TypeError("kind")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not an overflow file ({error!r})") from None
    return dict(data)


def _number_of(value: Any) -> float | None:
    return None if value is None else float(value)
