"""Tiny PaddleOCR trainings that draw random numbers wherever a real one does: augmentation, dropout, order of data."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle

from tests.hosts import tiny

MANY = str(Path(__file__).with_name("many.py"))


def rec(data: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """SVTR + CTC, 3 steps an epoch; stochastic depth and augmentation on; warm-up and cosine."""
    document = tiny.config(data, output, **changes)
    document["Global"].update(save_epoch_step=1, eval_batch_step=[0, 1000], cal_metric_during_train=False)
    document["Architecture"]["Backbone"].update(drop_path_rate=0.1, drop_rate=0.1)
    document["Train"]["dataset"]["transforms"].insert(2, {"RecAug": None})
    document["Train"]["loader"]["batch_size_per_card"] = 16
    document["Optimizer"]["lr"] = {"name": "Cosine", "learning_rate": 0.002, "warmup_epoch": 1}
    return document


def make_pages(folder: Path) -> None:
    """Pages of 96 x 96 with two words each and their boxes; ``det.txt`` in PaddleOCR's format."""
    rng = np.random.default_rng(3)
    lines = []
    for index in range(12):
        image = np.full((96, 96, 3), 255, np.uint8)
        boxes = []
        for row in (30, 75):
            text = "".join(str(d) for d in rng.integers(0, 10, size=3))
            cv2.putText(image, text, (12, row), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (0, 0, 0), 2)
            quad = [[10, row - 24], [70, row - 24], [70, row + 4], [10, row + 4]]
            boxes.append({"transcription": text, "points": quad})
        cv2.imwrite(str(folder / "images" / f"page{index}.png"), image)
        lines.append(f"images/page{index}.png\t{json.dumps(boxes)}")
    (folder / "det.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def det(data: Path, output: Path, *, epochs: int, amp: Any) -> dict[str, Any]:
    """DB on MobileNetV3-small x 0.35, 3 steps an epoch, with PaddleOCR's augmentation."""
    document = tiny.config(data, output, epochs=epochs, amp=amp)
    document["Global"].update(save_epoch_step=1, eval_batch_step=[0, 1000], cal_metric_during_train=False)
    document["Architecture"] = {
        "model_type": "det",
        "algorithm": "DB",
        "Transform": None,
        "Backbone": {"name": "MobileNetV3", "scale": 0.35, "model_name": "small", "disable_se": True},
        "Neck": {"name": "DBFPN", "out_channels": 16},
        "Head": {"name": "DBHead", "k": 50},
    }
    document["Loss"] = {"name": "DBLoss", "balance_loss": True, "main_loss_type": "DiceLoss", "alpha": 5, "beta": 10}
    document["PostProcess"] = {"name": "DBPostProcess", "thresh": 0.3, "box_thresh": 0.6, "max_candidates": 100}
    document["Metric"] = {"name": "DetMetric", "main_indicator": "hmean"}
    normalise = {
        "NormalizeImage": {
            "scale": "1./255.",
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "order": "hwc",
        }
    }
    read = [{"DecodeImage": {"img_mode": "BGR", "channel_first": False}}, {"DetLabelEncode": None}]
    augment = [{"type": "Fliplr", "args": {"p": 0.5}}, {"type": "Affine", "args": {"rotate": [-10, 10]}}]
    crop = {"EastRandomCropData": {"size": [64, 64], "max_tries": 10, "keep_ratio": True}}
    maps = [
        {"MakeBorderMap": {"shrink_ratio": 0.4, "thresh_min": 0.3, "thresh_max": 0.7}},
        {"MakeShrinkMap": {"shrink_ratio": 0.4, "min_text_size": 4}},
    ]
    keep = ["image", "threshold_map", "threshold_mask", "shrink_map", "shrink_mask"]
    training = [*read, {"IaaAugment": {"augmenter_args": augment}}, crop, *maps, normalise, {"ToCHWImage": None}]
    for section, transforms, keys in (
        ("Train", training, keep),
        ("Eval", [*read, {"DetResizeForTest": {"image_shape": [96, 96]}}, normalise, {"ToCHWImage": None}], None),
    ):
        keys = keys or ["image", "shape", "polys", "ignore_tags"]
        dataset = document[section]["dataset"]
        dataset["label_file_list"] = [str(data / "det.txt")]
        dataset["transforms"] = [*transforms, {"KeepKeys": {"keep_keys": keys}}]
        document[section]["loader"]["batch_size_per_card"] = 4 if section == "Train" else 1
    return document


@dataclass(frozen=True)
class Done:
    """What a run printed, and its exit code or error code."""

    code: str
    text: str

    @property
    def said(self) -> list[str]:
        """The plugin's own lines."""
        return [line.split("INFO: ", 1)[1] for line in self.text.splitlines() if "INFO: amp: " in line]


def many(jobs: list[list[str]], cwd: Path) -> list[Done]:
    """Trainings one after another in one child process."""
    result = tiny.call([MANY, json.dumps(jobs)], cwd, timeout=60 + 30 * len(jobs))
    found = re.findall(r"^=== (\d+)\n(.*?)^=== \1 (\w+)$", result.stdout, re.DOTALL | re.MULTILINE)
    assert len(found) == len(jobs), result.stdout[-6000:]
    return [Done(code, text) for _, text, code in found]


def differing(one: Path, other: Path) -> list[str]:
    """What is not the same to the bit in two checkpoints: weights, moments, masters, schedule, scaler, counters."""
    from paddle_amp_plugin.checkpoint_files import read

    found = []
    for suffix in (".pdparams", ".pdopt"):
        a, b = (_flat(paddle.load(f"{prefix}{suffix}")) for prefix in (one, other))
        assert a.keys() == b.keys() and a
        found += [name for name in a if not np.array_equal(a[name], b[name], equal_nan=True)]
    first, second = (read(prefix, say=print) for prefix in (one, other))
    for name in ("step", "updates", "scaler", "rng", "pins"):
        if getattr(first, name) != getattr(second, name):
            found.append(f".pdamp {name}")
    return found


def _flat(state: Any, prefix: str = "") -> dict[str, np.ndarray]:
    values = {}
    for name, value in state.items():
        if isinstance(value, dict):
            values.update(_flat(value, f"{prefix}{name}/"))
        else:
            values[f"{prefix}{name}"] = np.asarray(value)
    return values
