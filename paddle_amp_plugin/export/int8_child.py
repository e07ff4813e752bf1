"""What runs in the child process of ``int8``: one conversion. An exception ends it with a traceback's last line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

NAME = "inference"
#: The layers that 8 bits are worth it for: the convolutions and matrix products.
ONNX_OPS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
PADDLE_OPS = ("conv2d", "depthwise_conv2d", "conv2d_transpose", "mul", "matmul", "matmul_v2")


def main() -> None:
    job = json.loads(sys.argv[1])
    with np.load(job["batches"]) as stored:
        count = len({key.split(".")[0] for key in stored.files})
        batches = [
            [stored[f"{b}.{i}"] for i in range(sum(key.startswith(f"{b}.") for key in stored.files))]
            for b in range(count)
        ]
    make = {"onnxruntime": _by_onnxruntime, "paddleslim": _by_paddleslim}[job["backend"]]
    make(Path(job["source"]), Path(job["target"]), batches, job["transformer"])


def _by_onnxruntime(source: Path, target: Path, batches: list[list[Any]], transformer: bool) -> None:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = source / f"{NAME}.onnx"
    names = [value.name for value in onnx.load(str(model)).graph.input]

    class Batches(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = iter(batches)

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self.rest, None)
            return None if batch is None else dict(zip(names, batch, strict=True))

    prepared = target / "prepared.onnx"
    # symbolic shapes would need sympy, and are needed for transformers' fused attention only
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(target / f"{NAME}.onnx"),
        Batches(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        op_types_to_quantize=list(ONNX_OPS),
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        # 7-bit weights: CPUs without VNNI add two products in 16 bits and saturate (quick start: 0.85 -> 0.34; so 0.87)
        reduce_range=True,
    )
    prepared.unlink()


def _by_paddleslim(source: Path, target: Path, batches: list[list[Any]], transformer: bool) -> None:
    import paddle
    from paddleslim.quant import quant_post_static

    class Batches(paddle.io.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            yield from batches

    paddle.enable_static()
    executor = paddle.static.Executor(paddle.CPUPlace())
    program, names, _ = paddle.static.load_inference_model(str(source / NAME), executor)
    loader = paddle.io.DataLoader(
        Batches(),
        feed_list=[program.global_block().var(name) for name in names],
        places=[paddle.CPUPlace()],
        batch_size=None,
        return_list=False,
    )
    quant_post_static(
        executor,
        str(source),
        str(target),
        data_loader=loader,
        batch_nums=len(batches),
        batch_size=len(batches[0][0]),
        model_filename=f"{NAME}.pdmodel",
        params_filename=f"{NAME}.pdiparams",
        save_model_filename=f"{NAME}.pdmodel",
        save_params_filename=f"{NAME}.pdiparams",
        # PaddleSlim's default, "hist", cuts off the largest values: a DB then finds nothing (hmean 0.5 -> 0), while
        # the mean of the batches' maxima keeps it. A transformer needs its outliers whole.
        algo="abs_max" if transformer else "avg",
        quantizable_op_type=list(PADDLE_OPS),
        onnx_format=True,
    )
