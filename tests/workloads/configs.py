"""PaddleOCR configs of several kinds, small in their batches and images, large in nothing but what they are about."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

NORMALIZE = {
    "NormalizeImage": {
        "scale": "1./255.",
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "order": "hwc",
    }
}
DECODE = {"DecodeImage": {"img_mode": "BGR", "channel_first": False}}
ADAM = {
    "name": "Adam",
    "beta1": 0.9,
    "beta2": 0.999,
    "lr": {"name": "Cosine", "learning_rate": 0.001, "warmup_epoch": 2},
    "regularizer": {"name": "L2", "factor": 5.0e-05},
}


def _document(folder: Path, **sections: Any) -> dict[str, Any]:
    """``folder / "nowhere"`` is where its data would be: it is not there."""
    dictionary = folder / "dict.txt"
    if not dictionary.is_file():
        dictionary.write_text("\n".join("0123456789abcdefghijklmnopqrstuvwxyz") + "\n", encoding="utf-8")
    section = {
        "epoch_num": 4,
        "log_smooth_window": 20,
        "print_batch_step": 10,
        "save_model_dir": str(folder / "out"),
        "save_epoch_step": 100,
        "eval_batch_step": [0, 400],
        "cal_metric_during_train": False,
        "character_dict_path": str(dictionary),
        "max_text_length": 8,
        "use_space_char": False,
        "seed": 11,
    }
    return {"Global": section, "Eval": None, "Optimizer": ADAM, **sections}


def _data(folder: Path, transforms: list[dict[str, Any]], batch: int) -> dict[str, Any]:
    nowhere = folder / "nowhere"
    return {
        "dataset": {
            "name": "SimpleDataSet",
            "data_dir": str(nowhere),
            "label_file_list": [str(nowhere / "train.txt")],
            "transforms": transforms,
        },
        "loader": {"shuffle": True, "drop_last": True, "batch_size_per_card": batch, "num_workers": 0},
    }


def _rec_data(folder: Path, keys: list[str], batch: int, encode: dict[str, Any] | None = None) -> dict[str, Any]:
    transforms = [
        DECODE,
        encode or {"CTCLabelEncode": None},
        {"RecResizeImg": {"image_shape": [3, 48, 96]}},
        {"KeepKeys": {"keep_keys": keys}},
    ]
    return _data(folder, transforms, batch)


def crnn(folder: Path, batch: int = 4) -> dict[str, Any]:
    """CRNN with MobileNetV3 small and a BiLSTM, CTC; 32 x 100."""
    train = _rec_data(folder, ["image", "label", "length"], batch)
    train["dataset"]["transforms"][2]["RecResizeImg"]["image_shape"] = [3, 32, 100]
    return _document(
        folder,
        Architecture={
            "model_type": "rec",
            "algorithm": "CRNN",
            "Transform": None,
            "Backbone": {"name": "MobileNetV3", "scale": 0.5, "model_name": "small"},
            "Neck": {"name": "SequenceEncoder", "encoder_type": "rnn", "hidden_size": 48},
            "Head": {"name": "CTCHead", "fc_decay": 0},
        },
        Loss={"name": "CTCLoss"},
        PostProcess={"name": "CTCLabelDecode"},
        Metric={"name": "RecMetric", "main_indicator": "acc"},
        Train=train,
    )


def _multi_head() -> dict[str, Any]:
    """PP-OCRv3's recognizer: SVTR_LCNet with a CTC and a SAR head."""
    return {
        "model_type": "rec",
        "algorithm": "SVTR_LCNet",
        "Transform": None,
        "Backbone": {
            "name": "MobileNetV1Enhance",
            "scale": 0.5,
            "last_conv_stride": [1, 2],
            "last_pool_type": "avg",
            "last_pool_kernel_size": [2, 2],
        },
        "Head": {
            "name": "MultiHead",
            "head_list": [
                {
                    "CTCHead": {
                        "Neck": {
                            "name": "svtr",
                            "dims": 64,
                            "depth": 1,
                            "hidden_dims": 120,
                            "use_guide": True,
                        },
                        "Head": {"fc_decay": 0.00001},
                    }
                },
                {"SARHead": {"enc_dim": 64, "max_text_length": 8}},
            ],
        },
    }


def multi_head(folder: Path, batch: int = 2) -> dict[str, Any]:
    keys = ["image", "label_ctc", "label_sar", "length", "valid_ratio"]
    return _document(
        folder,
        Architecture=_multi_head(),
        Loss={"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"SARLoss": None}]},
        PostProcess={"name": "CTCLabelDecode"},
        Metric={"name": "RecMetric", "main_indicator": "acc", "ignore_space": False},
        Train=_rec_data(folder, keys, batch, {"MultiLabelEncode": None}),
    )


def distillation(folder: Path, batch: int = 2) -> dict[str, Any]:
    """Two students that learn from each other, CTC heads."""
    student = {
        "pretrained": None,
        "freeze_params": False,
        "return_all_feats": True,
        "model_type": "rec",
        "algorithm": "CRNN",
        "Transform": None,
        "Backbone": {"name": "MobileNetV3", "scale": 0.5, "model_name": "small"},
        "Neck": {"name": "SequenceEncoder", "encoder_type": "rnn", "hidden_size": 32},
        "Head": {"name": "CTCHead", "fc_decay": 0, "mid_channels": 32},
    }
    train = _rec_data(folder, ["image", "label", "length"], batch)
    train["dataset"]["transforms"][2]["RecResizeImg"]["image_shape"] = [3, 32, 100]
    ctc = {
        "weight": 1.0,
        "model_name_list": ["Student", "Teacher"],
        "key": "head_out",
    }
    return _document(
        folder,
        Architecture={
            "model_type": "rec",
            "name": "DistillationModel",
            "algorithm": "Distillation",
            "Models": {"Teacher": student, "Student": copy.deepcopy(student)},
        },
        Loss={"name": "CombinedLoss", "loss_config_list": [{"DistillationCTCLoss": ctc}]},
        PostProcess={"name": "DistillationCTCLabelDecode", "model_name": ["Student", "Teacher"], "key": "head_out"},
        Metric={"name": "DistillationMetric", "base_metric_name": "RecMetric", "main_indicator": "acc", "key": "Student"},
        Train=train,
    )


def det_v3_student(folder: Path, batch: int = 2, size: int = 160) -> dict[str, Any]:
    """PP-OCRv3's detector (the student of ``ch_PP-OCRv3_det_student.yml``), on crops of ``size`` instead of 960."""
    transforms = [
        DECODE,
        {"DetLabelEncode": None},
        {"EastRandomCropData": {"size": [size, size], "max_tries": 10, "keep_ratio": True}},
        {"MakeBorderMap": {"shrink_ratio": 0.4, "thresh_min": 0.3, "thresh_max": 0.7}},
        {"MakeShrinkMap": {"shrink_ratio": 0.4, "min_text_size": 8}},
        NORMALIZE,
        {"ToCHWImage": None},
        {"KeepKeys": {"keep_keys": ["image", "threshold_map", "threshold_mask", "shrink_map", "shrink_mask"]}},
    ]
    return _document(
        folder,
        Architecture={
            "model_type": "det",
            "algorithm": "DB",
            "Transform": None,
            "Backbone": {"name": "MobileNetV3", "scale": 0.5, "model_name": "large", "disable_se": True},
            "Neck": {"name": "RSEFPN", "out_channels": 96, "shortcut": True},
            "Head": {"name": "DBHead", "k": 50},
        },
        Loss={
            "name": "DBLoss",
            "balance_loss": True,
            "main_loss_type": "DiceLoss",
            "alpha": 5,
            "beta": 10,
            "ohem_ratio": 3,
        },
        PostProcess={
            "name": "DBPostProcess",
            "thresh": 0.3,
            "box_thresh": 0.6,
            "max_candidates": 1000,
            "unclip_ratio": 1.5,
        },
        Metric={"name": "DetMetric", "main_indicator": "hmean"},
        Train=_data(folder, transforms, batch),
    )


def cls(folder: Path, batch: int = 4) -> dict[str, Any]:
    """The direction classifier."""
    transforms = [
        DECODE,
        {"ClsLabelEncode": {"label_list": ["0", "180"]}},
        {"ClsResizeImg": {"image_shape": [3, 48, 192]}},
        {"KeepKeys": {"keep_keys": ["image", "label"]}},
    ]
    return _document(
        folder,
        Architecture={
            "model_type": "cls",
            "algorithm": "CLS",
            "Transform": None,
            "Backbone": {"name": "MobileNetV3", "scale": 0.35, "model_name": "small"},
            "Neck": None,
            "Head": {"name": "ClsHead", "class_dim": 2},
        },
        Loss={"name": "ClsLoss"},
        PostProcess={"name": "ClsPostProcess", "label_list": ["0", "180"]},
        Metric={"name": "ClsMetric", "main_indicator": "acc"},
        Train=_data(folder, transforms, batch),
    )


def write(folder: Path, document: dict[str, Any], name: str = "c.yml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


KINDS = {
    "crnn": crnn,
    "multi_head": multi_head,
    "distillation": distillation,
    "det_v3_student": det_v3_student,
    "cls": cls,
}

if __name__ == "__main__":  # python -m tests.workloads.configs FOLDER: all of them, to try things with
    import sys

    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for name, make in KINDS.items():
        write(place, make(place), f"{name}.yml")
