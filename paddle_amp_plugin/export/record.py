"""``export.json``: what was exported, from what, and what the comparison saw."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from paddle_amp_plugin import __version__
from paddle_amp_plugin.diagnosis.ranges import RangeReport
from paddle_amp_plugin.diagnosis.verdict import strict
from paddle_amp_plugin.export.compare import Difference, Parameters
from paddle_amp_plugin.export.folder import RECORD
from paddle_amp_plugin.export.weights import Masters
from paddle_amp_plugin.messages import tr

VERSION = 1
_PACKAGES = ("paddlepaddle", "paddlepaddle-gpu", "unstructured-paddleocr", "paddlenlp", "paddle2onnx", "onnxruntime")
_SHOWN = 20  # layers of a range note


def base(masters: Masters, *, kind: str) -> dict[str, Any]:
    """The head of a record: what was exported, by which versions."""
    versions = {"paddle-amp-plugin": __version__, "python": platform.python_version()}
    for package in (*_PACKAGES, "paddleslim"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    record: dict[str, Any] = {"version": VERSION, "kind": kind, "versions": versions}
    record["checkpoint"] = {
        "file": str(masters.path),
        "sha256": masters.digest,
        "tensors": len(masters.tensors),
        "converted_from_half": masters.half,
    }
    record.update(beside_checkpoint(masters.path))
    return record


def beside_checkpoint(weights: Path) -> dict[str, Any]:
    """Facts of the training run that lie beside the weights (``<prefix>.pdamp``), if they do and are JSON."""
    manifest = weights.with_suffix(".pdamp")
    try:
        facts = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(facts, dict):
        return {}
    kept = {key: facts[key] for key in ("plan", "step", "steps", "updates", "skips", "epoch") if key in facts}
    return {"training": kept} if kept else {}


def parameters_section(parameters: Parameters) -> dict[str, Any]:
    """How many parameters are the masters to the bit, and the names of the others."""
    return {
        "dtype": "float32",
        "bit_equal_to_masters": parameters.equal,
        "unused_in_inference": list(parameters.unused),
        "derived_by_the_host": list(parameters.derived),
        "bytes": parameters.bytes,
    }


def difference_section(gap: Difference) -> dict[str, float]:
    """``max_abs``, ``max_rel``, ``largest_output``."""
    values = asdict(gap)
    return {"max_abs": values["max_abs"], "max_rel": values["max_rel"], "largest_output": values["scale"]}


def range_section(ranges: RangeReport) -> dict[str, Any]:
    """What a later float16 deployment would meet: layers past 65504, and within a factor of 8 of it."""

    def rows(layers: Any) -> list[dict[str, Any]]:
        return [{"layer": r.name, "type": r.type, "absmax": strict(float(r.out_absmax))} for r in layers[:_SHOWN]]

    return {
        "batches": ranges.batches,
        "holds_float16": ranges.holds_float16,
        "overflowing": rows(ranges.overflowing),
        "near": rows(ranges.near),
    }


def range_note(ranges: RangeReport) -> str:
    """One sentence about float16 deployment."""
    if ranges.overflowing:
        first = ranges.overflowing[0]
        return tr(
            "a float16 deployment would overflow: {k} layer(s) are past 65504 on real batches, first {n} ({v:.4g}): "
            "deploy in FP32, bfloat16 or INT8",
            "以 float16 部署会溢出：在真实批次上有 {k} 层超过 65504，首先是 {n}（{v:.4g}）："
            "请以 FP32、bfloat16 或 INT8 部署",
            k=len(ranges.overflowing),
            n=first.name or "-",
            v=first.out_absmax,
        )
    if ranges.near:
        first = ranges.near[0]
        return tr(
            "a float16 deployment has little room: {n} reaches {v:.4g} of 65504",
            "以 float16 部署余量很小：{n} 达到 {v:.4g}（上限 65504）",
            n=first.name or "-",
            v=first.out_absmax,
        )
    return tr(
        "every layer stays within float16 on {b} real batch(es)",
        "在 {b} 个真实批次上所有层均在 float16 范围内",
        b=ranges.batches,
    )


def write_record(folder: Path, record: dict[str, Any]) -> Path:
    """Writes ``export.json`` (strict JSON, UTF-8) into ``folder``."""
    path = folder / RECORD
    path.write_text(json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read_record(folder: Path) -> dict[str, Any]:
    """The record of an export folder."""
    return dict(json.loads((folder / RECORD).read_text(encoding="utf-8")))
