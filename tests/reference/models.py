"""The test models: real PaddleOCR and PaddleNLP networks, made tiny so that a step takes milliseconds.

``build(name)`` returns ``(model, inputs)``: a ``paddle.nn.Layer`` in training mode and the numpy arrays its forward
takes, both from fixed seeds. Every architecture is the host's own class at a small width (no dropout, so that two runs
agree); where a host computes the loss under ``auto_cast`` (PaddleNLP's Trainer does, PaddleOCR's does not) the model
returns the loss. ``why_not(name)`` says why a model cannot be built in this environment.
"""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import op_zoo
import paddle
import paddle.nn.functional as F
from paddle import nn

Built = tuple[nn.Layer, list[np.ndarray]]
CLASSES = 12


def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


def image(*shape: int) -> np.ndarray:
    return rng().standard_normal(shape).astype("float32")


def integers(high: int, *shape: int, low: int = 0) -> np.ndarray:
    return rng().integers(low, high, shape).astype("int64")


@cache
def paddleocr_tree() -> Path | None:
    """Where the PaddleOCR training tree is installed (package ``unstructured-paddleocr``), without importing it.

    Asked once: importing ``ppocr`` puts the tree itself on ``sys.path``, where a module of the same name lies.
    """
    spec = importlib.util.find_spec("unstructured_paddleocr")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def ocr_model(config: dict[str, Any]) -> nn.Layer:
    tree = str(paddleocr_tree())
    if tree not in sys.path:
        sys.path.append(tree)
    from ppocr.modeling.architectures.base_model import BaseModel

    return BaseModel(config)


class WithLoss(nn.Layer):
    """A network and its loss in one forward, as PaddleNLP's Trainer runs them under ``auto_cast``."""

    def __init__(self, net: nn.Layer, loss, targets: int):
        super().__init__()
        self.net, self.loss, self.targets = net, loss, targets

    def forward(self, *inputs):
        cut = len(inputs) - self.targets
        return self.loss(self.net(*inputs[:cut]), *inputs[cut:])


def cross_entropy(logits, label):
    return F.cross_entropy(logits, label)


def ctc(out, labels, input_lengths, label_lengths):
    """PaddleOCR's CTCLoss (ppocr/losses/rec_ctc_loss.py): logits [B, T, C] -> mean of the losses."""
    logits = out["ctc"] if isinstance(out, dict) else out
    return F.ctc_loss(logits.transpose([1, 0, 2]), labels, input_lengths, label_lengths, reduction="mean")


def ctc_targets(batch: int, steps: int) -> list[np.ndarray]:
    labels = integers(CLASSES, batch, 3, low=1).astype("int32")
    return [labels, np.full(batch, steps, "int64"), np.full(batch, 3, "int64")]


class MultiHeadInputs(nn.Layer):
    """Hands PaddleOCR's BaseModel its targets as the list it wants."""

    def __init__(self, net: nn.Layer):
        super().__init__()
        self.net = net

    def forward(self, x, *targets):
        out = self.net(x, data=list(targets))
        return out["ctc"], out["gtc"]


def db() -> Built:
    """DB text detection: MobileNetV3 small, DBFPN, DBHead (configs/det/det_mv3_db.yml)."""
    model = ocr_model(
        {
            "model_type": "det",
            "Backbone": {"name": "MobileNetV3", "scale": 0.35, "model_name": "small", "disable_se": False},
            "Neck": {"name": "DBFPN", "out_channels": 16},
            "Head": {"name": "DBHead", "k": 50},
        }
    )
    return model, [image(2, 3, 64, 64)]


def crnn() -> Built:
    """CRNN: MobileNetV3 small, two LSTMs, CTC (configs/rec/rec_mv3_none_bilstm_ctc.yml), with the CTC loss."""
    model = ocr_model(
        {
            "model_type": "rec",
            "Backbone": {"name": "MobileNetV3", "scale": 0.35, "model_name": "small", "small_stride": [1, 2, 2, 2]},
            "Neck": {"name": "SequenceEncoder", "encoder_type": "rnn", "hidden_size": 8},
            "Head": {"name": "CTCHead", "out_channels": CLASSES, "fc_decay": 0},
        }
    )
    return WithLoss(model, ctc, 3), [image(2, 3, 32, 64), *ctc_targets(2, 16)]


def crnn_resnet() -> Built:
    """CRNN on ResNet-34 vd (configs/rec/rec_r34_vd_none_bilstm_ctc.yml), without the loss."""
    model = ocr_model(
        {
            "model_type": "rec",
            "Backbone": {"name": "ResNet", "layers": 18},
            "Neck": {"name": "SequenceEncoder", "encoder_type": "rnn", "hidden_size": 8},
            "Head": {"name": "CTCHead", "out_channels": CLASSES, "fc_decay": 0},
        }
    )
    return model, [image(1, 3, 32, 32)]


def svtr() -> Built:
    """SVTR-tiny's layout: local and global mixing, conv downsampling, CTC (configs/rec/rec_svtrnet.yml)."""
    model = ocr_model(
        {
            "model_type": "rec",
            "Backbone": {
                "name": "SVTRNet",
                "img_size": [32, 64],
                "out_char_num": 16,
                "out_channels": 16,
                "patch_merging": "Conv",
                "embed_dim": [8, 16, 16],
                "depth": [1, 1, 1],
                "num_heads": [1, 2, 2],
                "mixer": ["Local", "Global", "Global"],
                "local_mixer": [[7, 11], [7, 11], [7, 11]],
                "last_stage": True,
                "prenorm": False,
                "drop_path_rate": 0.0,
                "last_drop": 0.0,
            },
            "Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"},
            "Head": {"name": "CTCHead", "out_channels": CLASSES, "fc_decay": 0},
        }
    )
    return model, [image(2, 3, 32, 64)]


def ppocrv4_rec() -> Built:
    """PP-OCRv4 mobile recognition: PPLCNetV3, MultiHead of CTC (SVTR neck) and NRTR (configs/rec/PP-OCRv4)."""
    svtr_neck = {"name": "svtr", "dims": 8, "depth": 1, "hidden_dims": 8, "kernel_size": [1, 3], "use_guide": True}
    model = ocr_model(
        {
            "model_type": "rec",
            "Backbone": {"name": "PPLCNetV3", "scale": 0.25},
            "Head": {
                "name": "MultiHead",
                "head_list": [
                    {"CTCHead": {"Neck": svtr_neck, "Head": {"fc_decay": 0}}},
                    {"NRTRHead": {"nrtr_dim": 32, "max_text_length": 5, "num_decoder_layers": 1}},
                ],
                "out_channels_list": {"CTCLabelDecode": CLASSES, "NRTRLabelDecode": CLASSES + 3},
            },
        }
    )
    for layer in model.sublayers():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    targets = [integers(CLASSES, 2, 5, low=1), integers(CLASSES, 2, 7, low=1), np.full(2, 4, "int64")]
    return MultiHeadInputs(model), [image(2, 3, 48, 64), *targets]


def cls() -> Built:
    """The text direction classifier: MobileNetV3 small, ClsHead (configs/cls/cls_mv3.yml), with cross entropy."""
    model = ocr_model(
        {
            "model_type": "cls",
            "Backbone": {"name": "MobileNetV3", "scale": 0.35, "model_name": "small"},
            "Head": {"name": "ClsHead", "class_dim": 2},
        }
    )
    return WithLoss(model, cross_entropy, 1), [image(2, 3, 48, 64), integers(2, 2, 1)]


def encoder_sizes() -> dict[str, Any]:
    return {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_labels": 3,
    }


def bert() -> Built:
    """PaddleNLP's BERT for sequence classification, with its loss."""
    from paddlenlp.transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(**encoder_sizes()))
    return WithLoss(model, cross_entropy, 1), [integers(50, 2, 8, low=1), integers(3, 2, 1)]


def ernie() -> Built:
    """PaddleNLP's ERNIE for token classification, with its loss."""
    from paddlenlp.transformers import ErnieConfig, ErnieForTokenClassification

    model = ErnieForTokenClassification(ErnieConfig(**encoder_sizes()))
    return WithLoss(model, cross_entropy, 1), [integers(50, 2, 8, low=1), integers(3, 2, 8, 1)]


class LanguageModel(nn.Layer):
    """A word-level LSTM language model: embedding, two LSTM layers, projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2)
        self.fc = nn.Linear(16, 50)

    def forward(self, ids):
        out, _ = self.lstm(self.embedding(ids))
        return self.fc(out)


def lstm_lm() -> Built:
    return WithLoss(LanguageModel(), cross_entropy, 1), [integers(50, 2, 6), integers(50, 2, 6, 1)]


class GruSpeech(nn.Layer):
    """Convolution, GroupNorm, a bidirectional GRU and an upsampling: what the other models lack."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1D(6, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.gru = nn.GRU(8, 8, direction="bidirect")
        self.up = nn.Conv1DTranspose(16, 8, 2, stride=2)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        y = F.gelu(self.norm(self.conv(x)))
        y, _ = self.gru(y.transpose([0, 2, 1]))
        y = self.up(y.transpose([0, 2, 1]))
        y = F.interpolate(y.unsqueeze(2), scale_factor=[1, 2], mode="nearest").squeeze(2)
        return F.log_softmax(self.fc(y.transpose([0, 2, 1])))


def gru() -> Built:
    return GruSpeech(), [image(2, 6, 10)]


BUILDERS = {
    "db": db,
    "crnn": crnn,
    "crnn_resnet": crnn_resnet,
    "svtr": svtr,
    "ppocrv4_rec": ppocrv4_rec,
    "cls": cls,
    "bert": bert,
    "ernie": ernie,
    "lstm_lm": lstm_lm,
    "gru": gru,
}
NAMES = tuple(BUILDERS)
NEEDS_OCR = {"db", "crnn", "crnn_resnet", "svtr", "ppocrv4_rec", "cls"}
NEEDS_NLP = {"bert", "ernie"}


def why_not(name: str) -> str | None:
    """A reason to skip this model here, or None."""
    if name in NEEDS_OCR and paddleocr_tree() is None:
        return "package unstructured-paddleocr (the PaddleOCR training tree) is not installed"
    if name in NEEDS_NLP and importlib.util.find_spec("paddlenlp") is None:
        return "package paddlenlp is not installed"
    return None


def build(name: str) -> Built:
    """The model, in training mode, and its inputs; the same numbers every time."""
    paddle.seed(1234)
    # PaddleOCR gives some parameters fixed names; the guard lets a model be built twice in a process.
    with paddle.utils.unique_name.guard():
        model, inputs = op_zoo.build(name[3:]) if name.startswith("op:") else BUILDERS[name]()
    model.train()
    return model, inputs
