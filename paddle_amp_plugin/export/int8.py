"""8-bit models from the FP32 export, along the one path that works on the installed Paddle.

Paddle 2.6: ``ptq`` is PaddleSlim's ``quant_post_static`` on the inference model, ``qat`` its ``QAT`` (fine-tuning with
fake quantisation); both write a ``.pdmodel`` with int8 weights. Paddle 3: ``ptq`` is ONNX Runtime's
``quantize_static`` (QDQ) on the ONNX model; ``qat`` is the same fine-tuning, whose weights are exported and quantised
as for ``ptq``.

Paddle 3.3 cannot convert its own quantised models: PIR is not supported by any of its quantisation passes, and without
PIR its activation functions (``gelu``, ``sigmoid``, … are C++ functions that take PIR values only) cannot be traced.
The work is done in a child process: some of these paths end in a signal.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.export.exported import NAME, Array, OnnxRunner, PaddleRunner, Runner
from paddle_amp_plugin.export.onnx_model import paddle_major, require_onnx
from paddle_amp_plugin.export.wanted import Method
from paddle_amp_plugin.messages import tr

SLIM = "pip install --no-deps paddleslim==2.6.0 && pip install decorator pyzmq scikit-learn matplotlib"
TIMEOUT = 3600  # seconds
FOLDER = "int8"
_ROOT = Path(__file__).resolve().parents[2]


def require_int8(method: Method) -> None:
    """Raises AmpError (AMP241) with the reason and the exact install line if ``method`` cannot work here."""
    reasons = []
    if paddle_major() >= 3:
        try:
            require_onnx()
        except AmpError as error:
            raise AmpError(
                "AMP241",
                tr(
                    "INT8 on Paddle {v} goes by ONNX Runtime; {e}",
                    "Paddle {v} 上的 INT8 经由 ONNX Runtime；{e}",
                    v=_version(),
                    e=error.message,
                ),
                hint=error.hint,
            ) from None
    if paddle_major() < 3 or method == "qat":
        reasons = [name for name in ("paddleslim", "decorator") if importlib.util.find_spec(name) is None]
    if reasons:
        raise AmpError(
            "AMP241",
            tr("INT8 needs {p}, which is missing", "INT8 需要 {p}，但尚未安装", p=", ".join(reasons)),
            # paddleslim pins opencv-python 4.6, which overwrites the cv2 of opencv-python-headless
            hint=SLIM,
        )


def backend() -> str:
    """``onnxruntime`` or ``paddleslim``: what makes and runs the INT8 model on the installed Paddle."""
    return "onnxruntime" if paddle_major() >= 3 else "paddleslim"


def quantise(folder: Path, target: Path, batches: Sequence[Sequence[Array]], *, transformer: bool) -> Path:
    """The FP32 export in ``folder`` (with ``inference.onnx`` on Paddle 3) as an INT8 model in ``target``.

    ``batches``: real inputs that the activations' ranges are read from. Raises AmpError (AMP242).
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        arrays = {f"{b}.{i}": a for b, batch in enumerate(batches) for i, a in enumerate(batch)}
        np.savez(Path(place) / "batches.npz", **arrays)
        job = {
            "backend": backend(),
            "source": str(folder),
            "target": str(target),
            "batches": str(Path(place) / "batches.npz"),
            "transformer": transformer,
        }
        _run(job)
    return target


def _run(job: dict[str, Any]) -> None:
    code = "from paddle_amp_plugin.export.int8_child import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(job)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(tr("it took longer than {s} s", "超过 {s} 秒仍未完成", s=TIMEOUT), "") from None
    if done.returncode:
        how = tr("signal {n}", "信号 {n}", n=-done.returncode) if done.returncode < 0 else f"exit {done.returncode}"
        raise _failed(how, done.stdout)


def _failed(how: str, output: str) -> AmpError:
    last = [line.strip() for line in output.splitlines() if line.strip()][-1:]
    return AmpError(
        "AMP242",
        tr(
            "the INT8 conversion ended with {h}: {l}. The FP32 export is complete",
            "INT8 转换以 {h} 结束：{l}。FP32 导出已完成",
            h=how,
            l=" ".join(last)[:400],
        ),
    )


def runner_of(folder: Path) -> Runner:
    """The model in ``folder`` in the runtime that INT8 uses here (the FP32 export too, for a fair comparison)."""
    return OnnxRunner(folder / f"{NAME}.onnx") if backend() == "onnxruntime" else PaddleRunner(folder)


def size(folder: Path) -> int:
    """Bytes of the model in ``folder`` in that runtime: one ONNX file, or program and parameters."""
    if backend() == "onnxruntime":
        return (folder / f"{NAME}.onnx").stat().st_size
    return sum((folder / f"{NAME}{suffix}").stat().st_size for suffix in (".pdmodel", ".pdiparams"))


def _version() -> str:
    import paddle

    return str(paddle.__version__)
