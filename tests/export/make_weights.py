"""Weights that need no training and yet give each image another answer: random ones with a sharpened last layer."""

from __future__ import annotations

import sys
from pathlib import Path

import paddle_amp_plugin  # noqa: F401  (before Paddle)
from paddle_amp_plugin.hosts.paddleocr_tree import find_tree, put_first
from tests.export import tiny_det
from tests.hosts import tiny


def sharpen(weight, factor: float):
    """Larger, and centred over the inputs, which are positive and alike: else one class wins everywhere."""
    return (weight - weight.mean(axis=0, keepdim=True)) * factor


def main(folder: Path) -> None:
    put_first(find_tree())
    import paddle
    from ppocr.modeling.architectures import build_model

    tiny.make_data(folder)
    tiny_det.make_pages(folder)
    rec, det = tiny.config(folder, folder / "rec", amp=True), tiny_det.config(folder, folder / "det", amp=True)
    tiny.write(folder / "rec.yml", rec)
    tiny.write(folder / "det.yml", det)
    rec["Architecture"]["Head"]["out_channels"] = 11
    paddle.seed(4)
    model = build_model(rec["Architecture"])
    model.head.fc.weight.set_value(sharpen(model.head.fc.weight, 60.0))
    paddle.save(model.state_dict(), str(folder / "rec.pdparams"))
    model = build_model(det["Architecture"])
    last = model.head.binarize.conv3.weight
    last.set_value(sharpen(last, 100.0))
    paddle.save(model.state_dict(), str(folder / "det.pdparams"))


if __name__ == "__main__":  # python -m tests.export.make_weights FOLDER
    main(Path(sys.argv[1]))
