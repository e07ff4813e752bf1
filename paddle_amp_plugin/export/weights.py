"""The weights that an export starts from: float32, finite, and known to the bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class Masters:
    """A checkpoint's tensors by structured name; float32 whatever the file held (integers stay what they are).

    ``half``: how many tensors of the file were float16 or bfloat16; ``digest``: SHA-256 of the file.
    """

    path: Path
    tensors: dict[str, np.ndarray[Any, Any]] = field(repr=False)
    half: int
    digest: str


def read_masters(path: Path, *, convert_half: bool) -> Masters:
    """Reads a ``.pdparams`` file.

    Raises AmpError: AMP231 it holds half tensors and ``convert_half`` is False; AMP232 a type that is neither;
    AMP244 a value that is not finite; AMP056 the file cannot be read.
    """
    try:
        content = paddle.load(str(path), return_numpy=False)
    except Exception as error:  # paddle.load raises whatever its unpickling raises
        reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise AmpError(
            "AMP056", tr("{f} cannot be read as weights: {e}", "无法将 {f} 读取为权重：{e}", f=path, e=reason[0])
        ) from None
    tensors = {k: v for k, v in content.items() if isinstance(v, paddle.Tensor)} if isinstance(content, dict) else {}
    if not tensors:
        raise AmpError("AMP056", tr("{f} holds no tensors", "{f} 中没有张量", f=path))
    kinds = {name: str(value.dtype).rpartition(".")[2] for name, value in tensors.items()}
    half = [name for name, kind in kinds.items() if kind in HALF]
    if half and not convert_half:
        raise _half(path, half, len(tensors), kinds[half[0]])
    for name, kind in kinds.items():
        if kind in ("float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"):
            raise AmpError(
                "AMP232",
                tr("{f}: {n} is {t}, not float32", "{f}：{n} 是 {t}，不是 float32", f=path, n=name, t=kind),
            )
    arrays = {n: (v.astype("float32") if n in set(half) else v).numpy() for n, v in tensors.items()}
    refuse_non_finite(arrays, str(path))
    return Masters(path, arrays, len(half), file_digest(path))


def _half(path: Path, names: list[str], count: int, kind: str) -> AmpError:
    return AmpError(
        "AMP231",
        tr(
            "{f} holds half weights: {n} of {c} tensors are {k} (first: {first}). The FP32 masters are not in it: "
            "it was saved by a host's own O2, not by this plugin",
            "{f} 含有半精度权重：{c} 个张量中有 {n} 个为 {k}（例如 {first}）。其中没有 FP32 主权重："
            "它由宿主自身的 O2 保存，而非由本插件保存",
            f=path,
            n=len(names),
            c=count,
            k=kind,
            first=names[0],
        ),
        hint=tr(
            "export a checkpoint with FP32 weights, or accept the rounded values with --convert-half",
            "请导出含 FP32 权重的检查点，或用 --convert-half 接受已舍入的值",
        ),
    )


def refuse_non_finite(arrays: Mapping[str, np.ndarray[Any, Any]], source: str) -> None:
    """Raises AmpError (AMP244) naming the first array with a NaN or an infinity."""
    for name, value in arrays.items():
        if value.dtype.kind == "f" and not bool(np.isfinite(value).all()):
            raise AmpError(
                "AMP244",
                tr("{s}: {n} is not finite", "{s}：{n} 含有非有限值", s=source, n=name),
                hint=tr("export an earlier checkpoint", "请导出更早的检查点"),
            )


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
