"""Quantisation-aware fine-tuning: a few steps from the masters, with the rounding of 8 bits in the forward pass."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from rich.progress import track

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.export import int8
from paddle_amp_plugin.export.exported import NAME, input_shapes
from paddle_amp_plugin.export.onnx_model import to_onnx
from paddle_amp_plugin.messages import tr

if TYPE_CHECKING:
    from paddle_amp_plugin.export.pipeline import Loss, Subject
    from paddle_amp_plugin.export.wanted import Wanted

#: Small: the weights are trained already and only have to settle on the grid of 8 bits.
LEARNING_RATE = 1e-5
#: PaddleSlim's own defaults for 8 bits; ``onnx_format`` stores int8 weights and quantize_linear operators.
CONFIG = {
    "weight_quantize_type": "channel_wise_abs_max",
    "activation_quantize_type": "moving_average_abs_max",
    "weight_bits": 8,
    "activation_bits": 8,
    "dtype": "int8",
    "window_size": 10000,
    "moving_rate": 0.9,
    "quantizable_layer_type": ["Conv2D", "Linear"],
    "onnx_format": True,
}


def fine_tuned(subject: Subject, wanted: Wanted, target: Path) -> None:
    """Fine-tunes a second model for ``wanted.qat_steps`` steps and writes it as INT8 into ``target``.

    Raises AmpError: AMP242 a loss that is not finite, or a conversion that failed.
    """
    from paddleslim import QAT  # type: ignore[import-not-found]

    model = subject.again()
    for name, layer in model.named_sublayers():
        if transformer_pooler(name):
            layer.skip_quant = True  # PaddleSlim cannot convert a layer whose input is a slice of a sequence
    # The layers are replaced, their parameters are not: these stay the ones that are trained.
    trained = dict(model.state_dict())
    quanter: Any = QAT(config=CONFIG)
    quanter.quantize(model)
    _train(model, subject.losses(wanted.qat_steps), wanted.qat_steps)
    model.eval()
    target.mkdir(parents=True, exist_ok=True)
    if int8.backend() == "paddleslim":
        spec = [paddle.static.InputSpec(shape, dtype) for shape, dtype in input_shapes(wanted.out)]
        quanter.save_quantized_model(model, str(target / NAME), input_spec=spec)
        (target / f"{NAME}.pdiparams.info").unlink(missing_ok=True)
        return
    plain = subject.again()
    plain.set_state_dict(trained)
    plain.eval()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subject.save(plain, folder)
        to_onnx(folder, folder / f"{NAME}.onnx")
        int8.quantise(folder, target, subject.batches(), transformer=subject.transformer)


def transformer_pooler(name: str) -> bool:
    return name.endswith("pooler.dense")


def _train(model: paddle.nn.Layer, losses: Iterable[Loss], steps: int) -> None:
    model.train()
    for layer in model.sublayers():
        if isinstance(layer, paddle.nn.BatchNorm1D | paddle.nn.BatchNorm2D | paddle.nn.BatchNorm):
            layer.eval()  # a few batches would only blur the statistics of the whole training
    parameters = [p for p in model.parameters() if not p.stop_gradient]
    optimizer = paddle.optimizer.Adam(LEARNING_RATE, parameters=parameters)
    for loss_of in track(losses, description="QAT", total=steps):
        loss = loss_of(model)
        if not np.isfinite(float(loss)):
            raise AmpError("AMP242", tr("the loss of the fine-tuning is not finite", "微调的损失含有非有限值"))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
