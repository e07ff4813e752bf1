"""A recognizer so small that 20 steps take two seconds, its data made on the fly, and a way to run the tools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 120  # seconds


def make_data(folder: Path, train: int = 48, val: int = 8) -> None:
    """Digits drawn with OpenCV, 32 x 64; ``train.txt`` / ``val.txt`` in PaddleOCR's format; ``dict.txt``."""
    import cv2  # here, since the environments of other hosts have none

    rng = np.random.default_rng(7)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text("\n".join("0123456789") + "\n", encoding="utf-8")
    for name, count in (("train", train), ("val", val)):
        lines = []
        for index in range(count):
            text = "".join(str(d) for d in rng.integers(0, 10, size=2))
            image = np.full((32, 64, 3), 255, np.uint8)
            cv2.putText(image, text, (8, 26), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (0, 0, 0), 2)
            cv2.imwrite(str(folder / "images" / f"{name}{index}.png"), image)
            lines.append(f"images/{name}{index}.png\t{text}")
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def dataset(folder: Path, name: str, batch: int, workers: int) -> dict[str, Any]:
    """The Train or Eval section of a config."""
    return {
        "dataset": {
            "name": "SimpleDataSet",
            "data_dir": str(folder),
            "label_file_list": [str(folder / f"{name}.txt")],
            "transforms": [
                {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
                {"CTCLabelEncode": None},
                {"SVTRRecResizeImg": {"image_shape": [3, 32, 64], "padding": False}},
                {"KeepKeys": {"keep_keys": ["image", "label", "length"]}},
            ],
        },
        "loader": {
            "shuffle": name == "train",
            "batch_size_per_card": batch,
            "drop_last": name == "train",
            "num_workers": workers,
        },
    }


def config(folder: Path, output: Path, *, epochs: int = 2, workers: int = 0, **changes: Any) -> dict[str, Any]:
    """A tiny SVTR with CTC: 6 steps an epoch. ``changes`` replace top-level sections (``amp=…``)."""
    document: dict[str, Any] = {
        "Global": {
            "epoch_num": epochs,
            "log_smooth_window": 5,
            "print_batch_step": 2,
            "save_model_dir": str(output),
            "save_epoch_step": 1000,
            "eval_batch_step": [0, 6],
            "cal_metric_during_train": True,
            "character_dict_path": str(folder / "dict.txt"),
            "max_text_length": 4,
            "use_space_char": False,
            "seed": 11,
        },
        "Architecture": {
            "model_type": "rec",
            "algorithm": "SVTR",
            "Transform": None,
            "Backbone": {
                "name": "SVTRNet",
                "img_size": [32, 64],
                "out_char_num": 16,
                "out_channels": 32,
                "embed_dim": [16, 32, 32],
                "depth": [1, 1, 1],
                "num_heads": [1, 2, 2],
                "mixer": ["Conv", "Global", "Global"],
                "local_mixer": [[5, 5], [5, 5], [5, 5]],
                "patch_merging": "Conv",
                "last_stage": True,
                "prenorm": False,
                "drop_path_rate": 0.0,
                "mlp_ratio": 2,
            },
            "Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"},
            "Head": {"name": "CTCHead"},
        },
        "Loss": {"name": "CTCLoss"},
        "PostProcess": {"name": "CTCLabelDecode"},
        "Metric": {"name": "RecMetric", "main_indicator": "acc"},
        "Optimizer": {
            "name": "Adam",
            "beta1": 0.9,
            "beta2": 0.99,
            "lr": {"name": "Const", "learning_rate": 0.002},
            "regularizer": {"name": "L2", "factor": 1e-5},
        },
        "Train": dataset(folder, "train", 8, workers),
        "Eval": dataset(folder, "val", 4, 0),
    }
    document.update(changes)
    return document


def write(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def environment(**changes: str) -> dict[str, str]:
    values = {
        **os.environ,
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "NO_ALBUMENTATIONS_UPDATE": "1",
        "PADDLE_AMP_LANG": "en",
        "PYTHONPATH": str(ROOT),
    }
    values.pop("PADDLEOCR_HOME", None)
    values.pop("PADDLE_AMP_DEBUG", None)
    return {**values, **changes}


def call(command: list[str], cwd: Path, *, timeout: int = TIMEOUT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment(**env),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
    )


def tool(name: str, *arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """``python tools/<name>.py`` of this project."""
    return call([str(ROOT / "tools" / f"{name}.py"), *arguments], cwd, **env)


if __name__ == "__main__":  # python tiny.py FOLDER AMP: a config to try things with
    place = Path(sys.argv[1]).resolve()
    make_data(place)
    write(place / "c.yml", config(place, place / "out", amp=yaml.safe_load(sys.argv[2])))
