"""Made-up images and labels in PaddleOCR's own file formats, for a config whose data is not at hand.

They go through the transforms of the config's own Train section, so shapes and dtypes are what the host makes of real
data. What is on the images means nothing: ranges of a rehearsal on them say something about the model, not about the
user's data.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from paddle_amp_plugin.hosts.workloads import no_synthetic

KINDS = ("rec", "det", "cls")
#: Data sets that read one image and one label a line; what else reads rec, det or cls data is replaced by the first.
LINES = ("SimpleDataSet", "MultiScaleDataSet", "TextDetDataset", "TextRecDataset", "MSTextRecDataset")
LONGEST = 8  # characters of a made-up text line
PAGE = 736  # pixels of a made-up page
BATCHES = 4
SEED = 7


def with_synthetic_data(
    config: dict[str, Any], folder: Path, batch_size: int, characters: Iterable[str]
) -> dict[str, Any]:
    """A copy of ``config`` whose Train section reads made-up data, written into ``folder`` (once).

    ``characters``: of the host's decoder, for rec. Raises AmpError (AMP261) for other kinds of model.
    """
    kind = str(config["Architecture"].get("model_type", ""))
    if kind not in KINDS:
        raise no_synthetic(f"Architecture.model_type: {kind}")
    changed = copy.deepcopy(dict(config))
    train = changed["Train"]
    if not (folder / "label.txt").is_file():
        _write(folder, kind, max(16, BATCHES * batch_size), _texts(config, characters), _labels(train))
    dataset = train["dataset"]
    if dataset.get("name") not in LINES:
        dataset["name"] = "SimpleDataSet"
    dataset.update(data_dir=str(folder), label_file_list=[str(folder / "label.txt")], ratio_list=[1.0], delimiter="\t")
    train["loader"].update(batch_size_per_card=batch_size, num_workers=0, drop_last=True, shuffle=True)
    if "first_bs" in (train.get("sampler") or {}):
        train["sampler"]["first_bs"] = batch_size
    return changed


def _texts(config: dict[str, Any], characters: Iterable[str]) -> tuple[list[str], int]:
    """(characters to write, most of them in a line)."""
    usable = [c for c in characters if len(c) == 1 and not c.isspace()] or list("0123456789")
    return usable, min(LONGEST, int(config["Global"].get("max_text_length") or LONGEST))


def _labels(train: dict[str, Any]) -> list[str]:
    """The class names of ``ClsLabelEncode``; the host's default is the direction of a line."""
    for transform in train["dataset"].get("transforms") or []:
        if isinstance(transform, dict) and isinstance(transform.get("ClsLabelEncode"), dict):
            return [str(label) for label in transform["ClsLabelEncode"].get("label_list") or ["0", "180"]]
    return ["0", "180"]


def _write(folder: Path, kind: str, count: int, texts: tuple[list[str], int], labels: list[str]) -> None:
    import cv2  # the host's own dependency

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(SEED)
    lines = []
    for index in range(count):
        if kind == "det":
            image, label = _page(random)
        else:
            image, label = _line(random, *texts)
            label = label if kind == "rec" else labels[index % len(labels)]
        name = f"{index}.png"
        cv2.imwrite(str(folder / name), image)
        lines.append(f"{name}\t{label}\n")
    (folder / "label.txt").write_text("".join(lines), encoding="utf-8")


def _strokes(random: Any, height: int, width: int) -> Any:
    """Dark strokes on a bright ground, uint8 [height, width, 3]: about what text looks like to a convolution."""
    import cv2

    image = np.full((height, width, 3), random.integers(190, 256), np.uint8)
    for _ in range(max(3, width // 8)):
        ends = [(int(random.integers(width)), int(random.integers(height))) for _ in range(2)]
        cv2.line(image, ends[0], ends[1], [int(random.integers(90))] * 3, int(random.integers(1, 4)))
    return image


def _line(random: Any, characters: list[str], longest: int) -> tuple[Any, str]:
    length = int(random.integers(min(2, longest), longest + 1))
    text = "".join(characters[int(i)] for i in random.integers(0, len(characters), length))
    return _strokes(random, 48, 28 * length + 16), text


def _page(random: Any) -> tuple[Any, str]:
    """A page with six lines of strokes, and its label as JSON."""
    page = np.full((PAGE, PAGE, 3), 245, np.uint8)
    boxes = []
    for row in range(6):
        height, width = int(random.integers(32, 72)), int(random.integers(160, 480))
        left, top = int(random.integers(16, PAGE - width - 16)), 24 + row * 116 + int(random.integers(0, 24))
        page[top : top + height, left : left + width] = _strokes(random, height, width)
        right, bottom = left + width, top + height
        points = [[left, top], [right, top], [right, bottom], [left, bottom]]
        boxes.append({"transcription": "text", "points": points})
    return page, json.dumps(boxes)
