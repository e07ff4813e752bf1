"""Which functions of PaddleOCR are patched, and by what of the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle_amp_plugin.hosts.patching import Patch
from paddle_amp_plugin.messages import tr

if TYPE_CHECKING:
    from paddle_amp_plugin.hosts.paddleocr import Controller

_COPIES = (  # of check_install
    "ppocr.data.imaug.ct_process",
    "ppocr.data.imaug.drrg_targets",
    "ppocr.postprocess.east_postprocess",
    "ppocr.utils.e2e_metric.Deteval",
)
_DATASETS = (
    ("ppocr.data.simple_dataset", "SimpleDataSet"),
    ("ppocr.data.simple_dataset", "MultiScaleDataSet"),
    ("ppocr.data.pgnet_dataset", "PGDataSet"),
    ("ppocr.data.pubtab_dataset", "PubTabDataSet"),
    ("ppocr.data.latexocr_dataset", "LaTeXOCRDataSet"),
)


def patches_of(controller: Controller) -> list[Patch]:
    """All of them, in the order of ``--show-patches``."""
    program, save_load = "tools.program", "ppocr.utils.save_load"
    reads = tr("reads the amp key", "读取 amp 设置")
    saves = tr("saves FP32 masters and .pdamp, whole or not at all", "保存 FP32 主权重和 .pdamp，要么完整要么不变")
    half = tr("reads half weights into FP32", "半精度权重读入为 FP32")
    exports = tr("exports from FP32 masters", "从 FP32 主权重导出")
    checks = tr("looks at the data before training", "训练前检查数据")
    installs = tr("no pip install behind your back", "不擅自执行 pip install")
    shows = tr("loss scale in the log", "日志显示 loss scale")
    patches = [
        Patch(program, "load_config", controller.load_config, reads),
        Patch(program, "merge_config", controller.merge_config, reads, ("config", "opts")),
        Patch(program, "preprocess", controller.preprocess, tr("shows the plan", "显示计划"), ("is_train",)),
        Patch(
            program,
            "train",
            controller.train,
            tr("training under the plan", "按计划训练"),
            ("config", "model", "loss_class", "optimizer", "scaler"),
        ),
        Patch(program, "eval", controller.evaluate, tr("evaluates in eval_dtype", "按 eval_dtype 评估"), ("model",)),
        Patch(
            save_load,
            "load_model",
            controller.load_model,
            tr("casts after loading", "加载权重之后再转换"),
            ("config", "model", "optimizer"),
        ),
        Patch(save_load, "save_model", controller.save_model, saves, ("model", "optimizer", "model_path", "prefix")),
        Patch(program, "save_model", controller.save_model, saves),
        Patch(
            "ppocr.optimizer",
            "build_optimizer",
            controller.build_optimizer,
            tr("the schedule counts updates", "学习率按更新次数变化"),
            ("step_each_epoch",),
        ),
        Patch("ppocr.utils.export_model", "export", controller.export, exports, required=False),
        Patch(program, "export", controller.export, exports, required=False),
        Patch("ppocr.data", "build_dataloader", controller.build_dataloader, checks, ("config", "mode", "logger")),
        Patch(program, "build_dataloader", controller.build_dataloader, checks),
        Patch(
            "ppocr.data",
            "set_signal_handlers",
            controller.set_signal_handlers,
            tr("Ctrl-C ends cleanly", "Ctrl-C 干净退出"),
            required=False,
        ),
        Patch("ppocr.utils.stats", "TrainingStats.get", controller.stats, shows),
        Patch("ppocr.utils.utility", "check_install", controller.check_install, installs, required=False),
    ]
    patches += [Patch(m, "check_install", controller.check_install, installs, required=False) for m in _COPIES]
    patches += [
        Patch(
            m, "load_pretrained_params", controller.checkpoints.load_pretrained, half, ("model", "path"), required=False
        )
        for m in (save_load, "ppocr.modeling.architectures.distillation_model")
    ]
    retries = tr("no endless retry on bad samples", "坏样本不再无限重试")
    patches += [Patch(m, f"{c}.__getitem__", controller.guard.getitem, retries, required=False) for m, c in _DATASETS]
    return patches
