"""The exported Paddle model as ONNX, by paddle2onnx."""

from __future__ import annotations

import importlib
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import paddle

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.export.exported import NAME, model_file
from paddle_amp_plugin.messages import tr

OPSET = 17


def versions_needed() -> dict[str, str]:
    """Distribution -> version for the installed Paddle: paddle2onnx 2.1.0 reads Paddle 3's models, 1.3.1 Paddle 2's."""
    common = {"onnx": "1.17.0", "onnxruntime": "1.32.0"}
    if paddle_major() < 3:
        return {"paddle2onnx": "1.3.1", **common}
    return {"paddle2onnx": "2.1.0", **common, "ml_dtypes": "0.5.4"}  # the last: of onnxruntime.quantization


def paddle_major() -> int:
    """The major version of the installed Paddle; 3 for a development build (0.0.0)."""
    return int(paddle.__version__.split(".")[0]) or 3


def require_onnx() -> None:
    """Raises AmpError (AMP240) with the exact install line if a package is missing or of a version that cannot work."""
    wrong = []
    for package, version in versions_needed().items():
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            wrong.append(tr("{p} is missing", "缺少 {p}", p=package))
            continue
        if package == "paddle2onnx" and found.split(".")[0] != version.split(".")[0]:
            reason = tr(
                "paddle2onnx {f} cannot read models of Paddle {v}",
                "paddle2onnx {f} 无法读取 Paddle {v} 的模型",
                f=found,
                v=paddle.__version__,
            )
            wrong.append(reason)
    if wrong:
        line = "pip install " + " ".join(f"{p}=={v}" for p, v in versions_needed().items())
        raise AmpError("AMP240", tr("no ONNX: {w}", "无法导出 ONNX：{w}", w="; ".join(wrong)), hint=line)


def to_onnx(folder: Path, target: Path) -> Path:
    """Converts the inference model in ``folder`` into ``target`` (opset 17). Raises AmpError (AMP240)."""
    require_onnx()
    source = _readable(model_file(folder), target.with_suffix(".tmp.json"))
    try:
        _convert(source, folder / f"{NAME}.pdiparams", target)
    finally:
        if source.parent == target.parent and source.name.endswith(".tmp.json"):
            source.unlink()
    return target


def _convert(source: Path, parameters: Path, target: Path) -> None:
    converter: Any = importlib.import_module("paddle2onnx")
    options: dict[str, Any] = {"opset_version": OPSET}
    if paddle_major() >= 3:
        # Its default optimiser, polygraphy, runs `pip install` by itself.
        options["optimize_tool"] = None
    try:
        converter.export(str(source), str(parameters), str(target), **options)
    except UnboundLocalError:  # 2.1.0 logs why, then stumbles over the result it does not have
        pass
    except Exception as error:
        raise _failed(str(error)) from None
    if not target.is_file() or not target.stat().st_size:
        raise _failed(tr("the reason is in the log above", "原因见上方日志"))


def _failed(reason: str) -> AmpError:
    text = re.sub(r"\s+", " ", reason).strip()
    return AmpError("AMP240", tr("paddle2onnx could not convert: {e}", "paddle2onnx 转换失败：{e}", e=text[:400]))


def _readable(source: Path, copy: Path) -> Path:
    """A copy with float32 where Paddle 3.3 writes lists of float64 attributes, which paddle2onnx 2.1.0 cannot read.

    These are the scales of ``nearest_interp`` and its kin: 2.0 is 2.0 in either type. The source if there are none.
    """
    if source.suffix != ".json":
        return source
    document = json.loads(source.read_text(encoding="utf-8"))
    if not _narrow(document):
        return source
    copy.write_text(json.dumps(document), encoding="utf-8")
    return copy


def _narrow(node: Any) -> int:
    """In Paddle's PIR format ``{"#": "0.a_array", "D": [{"#": "0.a_f64", …}]}`` is an array attribute of doubles."""
    if isinstance(node, list):
        return sum(_narrow(value) for value in node)
    if not isinstance(node, dict):
        return 0
    count = 0
    if str(node.get("#", "")).endswith(".a_array") and isinstance(node.get("D"), list):
        for value in node["D"]:
            if isinstance(value, dict) and str(value.get("#", "")).endswith(".a_f64"):
                value["#"] = value["#"].replace(".a_f64", ".a_f32")
                count += 1
    return count + sum(_narrow(value) for value in node.values())
