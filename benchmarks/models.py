"""The models that are measured: small enough for two CPU cores, shaped like the real ones."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import paddle


@dataclass
class Case:
    """A model, one batch, and the loss of its output (a float32 scalar)."""

    model: Any
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Any]


@lru_cache(maxsize=1)
def _paddleocr() -> Any:
    found = importlib.util.find_spec("unstructured_paddleocr")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("PaddleOCR's tree is not installed: make venv / 没有安装 PaddleOCR:make venv")
    tree = str(Path(next(iter(found.submodule_search_locations))))
    if tree not in sys.path:
        sys.path.insert(0, tree)
    from ppocr.modeling.architectures import build_model

    return build_model


def _mean(x: Any) -> Any:
    return x.astype("float32").square().mean()


def db() -> Case:
    """DB with MobileNetV3-large x0.5 and DBFPN, 4 images of 256 x 256."""
    config = {
        "model_type": "det",
        "algorithm": "DB",
        "Transform": None,
        "Backbone": {"name": "MobileNetV3", "scale": 0.5, "model_name": "large", "disable_se": False},
        "Neck": {"name": "DBFPN", "out_channels": 96},
        "Head": {"name": "DBHead", "k": 50},
    }
    return Case(_paddleocr()(config), (paddle.randn([4, 3, 256, 256]),), lambda out: _mean(out["maps"]))


def svtr() -> Case:
    """SVTR of the quick start's class, 48 lines of 32 x 96."""
    config = {
        "model_type": "rec",
        "algorithm": "SVTR",
        "Transform": None,
        "Backbone": {
            "name": "SVTRNet",
            "img_size": [32, 96],
            "out_char_num": 24,
            "out_channels": 96,
            "patch_merging": "Conv",
            "embed_dim": [32, 48, 64],
            "depth": [1, 1, 1],
            "num_heads": [1, 2, 2],
            "mixer": ["Conv", "Global", "Global"],
            "prenorm": False,
            "last_stage": True,
        },
        "Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"},
        "Head": {"name": "CTCHead", "out_channels": 60},
    }
    return Case(_paddleocr()(config), (paddle.randn([48, 3, 32, 96]),), _mean)


def bert() -> Case:
    """BERT with 4 layers of 256, 8 sequences of 64."""
    from paddlenlp.transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=2000,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_act="relu",
    )
    return Case(BertModel(config), (paddle.randint(0, 2000, [8, 64]),), lambda out: _mean(out[1]))


CASES: dict[str, Callable[[], Case]] = {"DB": db, "SVTR": svtr, "BERT-4": bert}
