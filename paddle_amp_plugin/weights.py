"""Weights from a file into a model: half becomes FP32, what does not fit is counted, what half cannot hold is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.checkpoint_words import first_of
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.norms import is_norm_layer

FLOAT16_MAX = 65504.0  # IEEE 754 binary16


@dataclass
class Loaded:
    """What became of one file. ``half``: the half types found, with how many tensors had them."""

    file: str
    wanted: int = 0
    half: dict[str, int] = field(default_factory=dict)
    fitting: int = 0
    absent: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    not_finite: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What is worth saying, one line each."""
        said = []
        if self.half:
            said.append(
                tr(
                    "amp: {f}: {n} tensors are {d}: read into FP32 (they hold no more than {d} had)",
                    "amp：{f}：{n} 个张量为 {d}：已读入为 FP32（精度仍只有 {d}）",
                    f=self.file,
                    n=sum(self.half.values()),
                    d=" / ".join(sorted(self.half)),
                )
            )
        if self.not_finite:
            said.append(
                tr(
                    "amp: {f}: {n} tensors are not finite: {w}",
                    "amp：{f}：{n} 个张量含非有限值：{w}",
                    f=self.file,
                    n=len(self.not_finite),
                    w=first_of(self.not_finite),
                )
            )
        if self.absent or self.unknown or self.shapes:
            said.append(self._mismatch())
        return said

    def _mismatch(self) -> str:
        parts = []
        for names, en, zh in (
            (self.absent, "{n} are not in the file ({w})", "{n} 个不在文件中（{w}）"),
            (self.shapes, "{n} have another shape ({w})", "{n} 个形状不符（{w}）"),
            (self.unknown, "{n} of the file are not in the model ({w})", "文件中有 {n} 个不属于该模型（{w}）"),
        ):
            if names:
                parts.append(tr(en, zh, n=len(names), w=first_of(names)))
        return tr(
            "amp: {f}: {k} of the model's {m} weights were read; {p}",
            "amp：{f}：模型的 {m} 个权重中读入了 {k} 个；{p}",
            f=self.file,
            k=self.fitting,
            m=self.wanted,
            p=tr("; ", "；").join(parts),
        )


def float32_state(state: Any, loaded: Loaded) -> Any:
    """A loaded state dict with every half tensor as FP32; other values, and other things than dicts, as they are."""
    if not isinstance(state, Mapping):
        return state
    result: dict[Any, Any] = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray) and value.dtype == np.float16:
            value = paddle.to_tensor(value)
        if isinstance(value, paddle.Tensor) and value.dtype in autocast.HALF:
            kind = "float16" if value.dtype == paddle.float16 else "bfloat16"
            loaded.half[kind] = loaded.half.get(kind, 0) + 1
            own, value = value.name, value.astype("float32")
            value.name = own
        result[name] = value
    return result


def compare(state: Mapping[str, Any], model: paddle.nn.Layer, loaded: Loaded) -> None:
    """Counts what fits. Raises AmpError AMP094 if nothing does."""
    wanted = model.state_dict()
    loaded.wanted = len(wanted)
    for name, tensor in wanted.items():
        value = state.get(name)
        if value is None:
            loaded.absent.append(name)
        elif list(value.shape) != list(tensor.shape):
            loaded.shapes.append(
                tr(
                    "{n}: file {f}, model {m}",
                    "{n}：文件 {f}，模型 {m}",
                    n=name,
                    f=list(value.shape),
                    m=list(tensor.shape),
                )
            )
        else:
            loaded.fitting += 1
            if isinstance(value, paddle.Tensor) and paddle.is_floating_point(value) and not _finite(value):
                loaded.not_finite.append(name)
    loaded.unknown += [str(name) for name in state if name not in wanted]
    if wanted and not loaded.fitting:
        raise AmpError(
            "AMP094",
            tr(
                "no weight in {f} fits this model ({n} in the file: {w})",
                "{f} 中没有任何权重适合该模型（文件中有 {n} 个：{w}）",
                f=loaded.file,
                n=len(state),
                w=first_of([str(name) for name in state]),
            ),
            hint=tr("the model's are named: {w}", "模型的权重名为：{w}", w=first_of(list(wanted))),
        )


def _finite(tensor: paddle.Tensor) -> bool:
    return bool(paddle.isfinite(tensor).all())


def beyond_range(model: paddle.nn.Layer, dtype: str, optimizer: Any = None) -> str:
    """One line that names the weights of layers computing in float16 that it cannot hold; "" if there are none."""
    if dtype != "float16":
        return ""
    found: list[str] = []
    layers: list[str] = []
    for name, layer in model.named_sublayers(include_self=True):
        if hasattr(type(layer), "_amp_unpinned") or is_norm_layer(layer, name):
            continue
        for part, tensor in layer._parameters.items():
            if tensor is None or not tensor._is_initialized() or not paddle.is_floating_point(tensor):
                continue
            value = autocast.master_of(tensor, model, optimizer) if tensor.dtype in autocast.HALF else tensor
            largest = float(value.abs().max()) if value.size else 0.0
            if largest > FLOAT16_MAX:
                found.append(f"{name}.{part} ({largest:.3g})".lstrip("."))
                layers.append(name)
    if not found:
        return ""
    return tr(
        "amp: {n} weights are beyond the range of float16 (65504) and become inf in it: {w}. Write "
        "amp.dtype: bfloat16, or amp.fp32_layers: [{l}]",
        "amp：{n} 个权重超出 float16 的范围（65504），转换后为 inf：{w}。请写 amp.dtype: bfloat16，"
        "或 amp.fp32_layers: [{l}]",
        n=len(found),
        w=first_of(found),
        l=", ".join(f'"{name}"' for name in dict.fromkeys(layers)),
    )
