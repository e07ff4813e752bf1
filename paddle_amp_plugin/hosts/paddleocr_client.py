"""What the official ``paddleocr`` client needs beside a model: its ``inference.yml``, the dictionary, the arguments.

The host writes the training pipeline into ``inference.yml`` as it is. The client 3.x refuses such a file: it knows
these operators only (paddlex 3.7, ``text_recognition/predictor.py`` and ``text_detection/predictor.py``), and the
character dictionary must lie inside it. Pure: no Paddle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

REC_OPS = ("DecodeImage", "RecResizeImg")
DET_OPS = ("DecodeImage", "DetResizeForTest", "NormalizeImage", "ToCHWImage")
DICTIONARY = "dict.txt"
CONFIG = "inference.yml"
#: The operators that resize a line; a client does it by itself, to the shape in ``RecResizeImg``.
_RESIZES = ("RecResizeImg", "SVTRRecResizeImg")


def write_client_files(folder: Path, config: dict[str, Any], post_process: Any) -> dict[str, Any]:
    """Rewrites ``inference.yml``, writes ``dict.txt``; returns ``files`` and ``client`` for ``export.json``."""
    kind = config["Architecture"]["model_type"]
    transforms = config["Eval"]["dataset"]["transforms"]
    operators, unknown = client_transforms(kind, transforms)
    post = {k: v for k, v in config["PostProcess"].items()}
    characters = dictionary_of(post_process, bool(config["Global"].get("use_space_char")))
    if characters:
        post["character_dict"] = characters
        (folder / DICTIONARY).write_text("\n".join(characters) + "\n", encoding="utf-8")
    document: dict[str, Any] = {}
    if config["Global"].get("pdx_model_name"):
        document["Global"] = {"model_name": config["Global"]["pdx_model_name"]}
    document.update(PreProcess={"transform_ops": operators}, PostProcess=post)
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    (folder / CONFIG).write_text(text, encoding="utf-8")
    section: dict[str, Any] = {"paddleocr_3": arguments_3(kind, config), "paddleocr_2": arguments_2(kind, config)}
    reason = refusal(kind, post, unknown)
    if reason:
        section = {"not_loadable": reason}
    return {"files": sorted({f.name for f in folder.iterdir()} | {"export.json"}), "client": section}


def client_transforms(kind: str, transforms: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The operators as the client reads them, and the names of those it does not know.

    Labels and ``KeepKeys`` belong to training. ``SVTRRecResizeImg`` is ``RecResizeImg`` of the same shape; that it does
    not pad is said to the client by an argument (``input_shape``).
    """
    known = REC_OPS if kind == "rec" else DET_OPS
    kept, unknown = [], []
    for operator in transforms:
        name, values = next(iter(operator.items()))
        if "Label" in name or name == "KeepKeys":
            continue
        if kind == "rec" and name in _RESIZES:
            kept.append({"RecResizeImg": {"image_shape": list(values["image_shape"])}})
            continue
        kept.append({name: values})
        if name not in known:
            unknown.append(name)
    return kept, unknown


def refusal(kind: str, post: dict[str, Any], unknown: list[str]) -> str:
    """Why the official client cannot load the model; empty if it can."""
    wanted = {"rec": "CTCLabelDecode", "det": "DBPostProcess"}.get(kind)
    if post.get("name") != wanted:
        return f"PostProcess.name {post.get('name')}: the client decodes {wanted} only"
    return f"the client has no operator {', '.join(unknown)}" if unknown else ""


def dictionary_of(post_process: Any, use_space_char: bool) -> list[str]:
    """The characters of a CTC decoder in order, without its blank and without the space that clients add themselves."""
    characters = list(getattr(post_process, "character", None) or [])
    if not characters:
        return []
    characters = characters[1:] if characters[0] == "blank" else characters
    return characters[:-1] if use_space_char and characters and characters[-1] == " " else characters


def _shape(config: dict[str, Any]) -> tuple[list[int] | None, bool]:
    """Image shape of a recognizer, and whether lines are padded to it."""
    for operator in config["Eval"]["dataset"]["transforms"]:
        name, values = next(iter(operator.items()))
        if name in _RESIZES:
            return list(values["image_shape"]), bool(values.get("padding", True))
    return None, True


def _det_limits(config: dict[str, Any]) -> dict[str, Any]:
    for operator in config["Eval"]["dataset"]["transforms"]:
        values = operator.get("DetResizeForTest")
        if values:
            return {k: values[k] for k in ("limit_side_len", "limit_type") if k in values}
    return {}


def arguments_3(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``paddleocr.PaddleOCR`` (3.x) for this model, without its folder.

    ``enable_mkldnn`` is off because Paddle 3.3.1's oneDNN cannot run an FPN's ``nearest_interp``. A detector's limits
    and thresholds are given, because those of the client's own pipeline come before those of ``inference.yml``.
    """
    made: dict[str, Any] = {"enable_mkldnn": False}
    if kind == "rec":
        shape, padded = _shape(config)
        if shape is not None and not padded:
            made["text_rec_input_shape"] = shape
    else:
        made.update({f"text_det_{key}": value for key, value in {**_det_limits(config), **_thresholds(config)}.items()})
    return made


def arguments_2(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``paddleocr.PaddleOCR`` (2.10) for this model, without its folder and its dictionary.

    ``then``: attributes to set on the object afterwards.
    """
    if kind == "rec":
        shape, padded = _shape(config)
        made: dict[str, Any] = {"use_space_char": bool(config["Global"].get("use_space_char"))}
        if shape is not None:
            made["rec_image_shape"] = ", ".join(map(str, shape))
        if not padded:
            # Of its resizing methods that of "SVTR" does not pad, but the constructor takes CRNN and SVTR_LCNet only.
            made["then"] = {"text_recognizer.rec_algorithm": "SVTR"}
        return made
    made = {f"det_db_{key}": value for key, value in _thresholds(config).items()}
    return {**made, **{f"det_{key}": value for key, value in _det_limits(config).items()}}


def _thresholds(config: dict[str, Any]) -> dict[str, Any]:
    post = config["PostProcess"]
    return {name: post[name] for name in ("thresh", "box_thresh", "unclip_ratio") if name in post}
