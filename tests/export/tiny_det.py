"""A detector (DB) so small that an export takes seconds, and pages for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np


def make_pages(folder: Path, count: int = 6, size: int = 128) -> None:
    """White pages with dark boxes of digits; ``pages.txt`` in PaddleOCR's detection format."""
    rng = np.random.default_rng(3)
    (folder / "pages").mkdir(parents=True, exist_ok=True)
    rows = []
    for index in range(count):
        image = np.full((size, size, 3), 255, np.uint8)
        boxes = []
        for line in range(3):
            x, y = int(rng.integers(5, 40)), 10 + line * 38
            cv2.putText(image, "".join(map(str, rng.integers(0, 10, 3))), (x, y + 20), 0, 0.8, (0, 0, 0), 2)
            boxes.append({"transcription": "1", "points": [[x, y], [x + 55, y], [x + 55, y + 26], [x, y + 26]]})
        cv2.imwrite(str(folder / "pages" / f"{index}.png"), image)
        rows.append(f"pages/{index}.png\t{json.dumps(boxes)}")
    (folder / "pages.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")


def config(folder: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """DB with MobileNetV3-small x0.35. ``changes`` replace top-level sections."""

    def section(transforms: list[dict[str, Any]], batch: int) -> dict[str, Any]:
        return {
            "dataset": {
                "name": "SimpleDataSet",
                "data_dir": str(folder),
                "label_file_list": [str(folder / "pages.txt")],
                "transforms": transforms,
            },
            "loader": {"shuffle": False, "batch_size_per_card": batch, "drop_last": False, "num_workers": 0},
        }

    decode = {"DecodeImage": {"img_mode": "BGR", "channel_first": False}}
    normal = {
        "NormalizeImage": {
            "scale": "1./255.",
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "order": "hwc",
        }
    }
    maps = ["threshold_map", "threshold_mask", "shrink_map", "shrink_mask"]
    train = [
        decode,
        {"DetLabelEncode": None},
        {"EastRandomCropData": {"size": [128, 128], "max_tries": 10, "keep_ratio": True}},
        {"MakeBorderMap": {"shrink_ratio": 0.4, "thresh_min": 0.3, "thresh_max": 0.7}},
        {"MakeShrinkMap": {"shrink_ratio": 0.4, "min_text_size": 8}},
        normal,
        {"ToCHWImage": None},
        {"KeepKeys": {"keep_keys": ["image", *maps]}},
    ]
    evaluate = [
        decode,
        {"DetLabelEncode": None},
        {"DetResizeForTest": {"limit_side_len": 128, "limit_type": "min"}},
        normal,
        {"ToCHWImage": None},
        {"KeepKeys": {"keep_keys": ["image", "shape", "polys", "ignore_tags"]}},
    ]
    document: dict[str, Any] = {
        "Global": {
            "epoch_num": 2,
            "log_smooth_window": 5,
            "print_batch_step": 5,
            "save_model_dir": str(output),
            "save_epoch_step": 1000,
            "eval_batch_step": [0, 1000],
            "cal_metric_during_train": False,
            "seed": 5,
        },
        "Architecture": {
            "model_type": "det",
            "algorithm": "DB",
            "Transform": None,
            "Backbone": {"name": "MobileNetV3", "scale": 0.35, "model_name": "small", "disable_se": True},
            "Neck": {"name": "DBFPN", "out_channels": 48},
            "Head": {"name": "DBHead", "k": 50},
        },
        "Loss": {
            "name": "DBLoss",
            "balance_loss": True,
            "main_loss_type": "DiceLoss",
            "alpha": 5,
            "beta": 10,
            "ohem_ratio": 3,
        },
        "PostProcess": {
            "name": "DBPostProcess",
            "thresh": 0.3,
            "box_thresh": 0.4,
            "max_candidates": 1000,
            "unclip_ratio": 1.6,
        },
        "Metric": {"name": "DetMetric", "main_indicator": "hmean"},
        "Optimizer": {
            "name": "Adam",
            "beta1": 0.9,
            "beta2": 0.999,
            "lr": {"name": "Const", "learning_rate": 0.004},
            "regularizer": {"name": "L2", "factor": 1e-5},
        },
        "Train": section(train, 2),
        "Eval": section(evaluate, 1),
    }
    document.update(changes)
    return document
