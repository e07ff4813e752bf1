"""PaddleOCR's trainer and tools: what is patched, and why.

The host's own AMP branch is not used. It has drifted from the FP32 branch (cases are missing, tuples stay half,
evaluation drops the white list), decorates before it loads weights, and scales statically by 1.0. So the host
is told ``use_amp: false``, runs its FP32 branch, and precision is added around it: ``load_model`` decorates
after the weights are there, ``train`` runs inside a session, ``eval`` and ``save_model`` see FP32 masters.

Without AMP settings in the config all patches are taken out again before the host builds anything.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from paddle_amp_plugin import config as amp_config
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.host_spellings import PADDLEOCR as PADDLEOCR_AMP
from paddle_amp_plugin.hosts.paddleocr_args import is_amp_option
from paddle_amp_plugin.hosts.paddleocr_checkpoint import RunCheckpoints
from paddle_amp_plugin.hosts.paddleocr_data import RetryGuard, check_dataset
from paddle_amp_plugin.hosts.paddleocr_patches import patches_of
from paddle_amp_plugin.hosts.paddleocr_steps import StartFacts
from paddle_amp_plugin.hosts.paddleocr_tree import MARKERS, Tree, missing_markers
from paddle_amp_plugin.hosts.patching import PatchSet, bound
from paddle_amp_plugin.hosts.settings import settings_mapping
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.monitor import Monitor


class Controller:
    """Decides, once the config is known, what one run of a PaddleOCR script gets; holds its session."""

    def __init__(self) -> None:
        self.guard = RetryGuard()
        self.checkpoints = RunCheckpoints(self)
        self.patches = PatchSet("PaddleOCR", patches_of(self))
        self.settings: Any = None
        self.plan: Any = None
        self.session: Any = None
        self.logger: logging.Logger | None = None
        self.config: dict[str, Any] | None = None
        self.training = False
        self.trained = False
        self._document: dict[str, Any] | None = None
        self._source = ""
        self._unsaid: list[str] = []
        self._indicator = ""

    def close(self) -> None:
        """Takes every patch out and gives model and Paddle back as they were."""
        if self.session is not None:
            self.session.close()
        self.patches.restore()
        if self.logger is not None:
            self.logger.removeFilter(self.guard)

    def say(self, text: str) -> None:
        """Through the host's logger; what comes before there is one, is said when there is."""
        if self.logger is None:
            self._unsaid.append(text)
        else:
            self.logger.info(text)

    # -- the config ----------------------------------------------------------------------------------------

    def load_config(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        loaded = wrapped(*args, **kwargs)
        if isinstance(loaded, dict) and "Global" in loaded:
            self._document = copy.deepcopy(loaded)
            self._source = str(next(iter(bound(wrapped, args, kwargs).values()), ""))
        return loaded

    def merge_config(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """The first merge after a load brings ``-o``: here the settings are read and the config is adapted.

        ``amp`` keys are kept from the host's own merge, which cannot put ``amp.level`` into ``amp: true``.
        """
        arguments = bound(wrapped, args, kwargs)
        options = arguments["opts"] or {}
        document, self._document = self._document, None
        if document is None:
            return wrapped(*args, **kwargs)
        settings = amp_config.read_amp(document, host="paddleocr", overrides=options, source=self._source)
        if settings is None:
            self.close()
            return wrapped(*args, **kwargs)
        merged = wrapped(arguments["config"], {k: v for k, v in options.items() if not is_amp_option(k)})
        self.settings, self.config = settings, merged
        merged["amp"] = settings_mapping(settings)
        self._adapt(merged["Global"])
        return merged

    def _adapt(self, section: dict[str, Any]) -> None:
        """Switches the host's own AMP off, and makes one YAML serve a CPU and a GPU, Paddle 2 and 3."""
        import paddle

        for name in ("amp", *PADDLEOCR_AMP):
            section.pop(name, None)  # the host's default is off; `amp` at the top says it all
        others = any(section.get(f"use_{kind}") for kind in ("xpu", "npu", "mlu", "gcu"))
        gpu = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
        if not others and section.get("use_gpu") is None:
            section["use_gpu"] = gpu
            self.say(
                tr("amp: Global.use_gpu is not set: using {g}", "amp：未设置 Global.use_gpu：使用 {g}", g=_device(gpu))
            )
        elif not others and section["use_gpu"] and not gpu:
            section["use_gpu"] = False
            self.say(
                tr(
                    "amp: Global.use_gpu is true, but this machine or this Paddle has no GPU: using {g}",
                    "amp:Global.use_gpu 为 true，但本机或当前 Paddle 没有 GPU：使用 {g}",
                    g=_device(gpu),
                )
            )
        if section.get("export_with_pir") is None or section["export_with_pir"]:
            section["export_with_pir"] = bool(paddle.get_flags("FLAGS_enable_pir_api")["FLAGS_enable_pir_api"])

    def preprocess(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """After it the device is set and there is a logger: the plan can be made and shown."""
        result = wrapped(*args, **kwargs)
        if self.settings is None:
            return result
        config, logger = result[0], result[2]
        self.training = bool(bound(wrapped, args, kwargs).get("is_train"))
        self.config, self.logger = config, logger
        logger.addFilter(self.guard)
        for text in self._unsaid:
            logger.info(text)
        self._unsaid.clear()
        self._make_session(config, logger)
        return result

    def _make_session(self, config: dict[str, Any], logger: logging.Logger) -> None:
        from paddle_amp_plugin import plan as plans
        from paddle_amp_plugin import plan_table
        from paddle_amp_plugin.device import current_device
        from paddle_amp_plugin.session import Session

        architecture = config.get("Architecture", {})
        family = f"{architecture.get('model_type', '')}/{architecture.get('algorithm', '')}"
        plan = plans.make_plan(self.settings, current_device(), family=family)
        self.plan = plan
        if self.training and _rank() == 0:
            plan_table.print_plan(plan)
            plans.write_plan(plan, Path(config["Global"]["save_model_dir"]) / "amp" / "plan.yml")
        if plan.enabled or plan.changes_the_loop:
            folder = Path(config["Global"]["save_model_dir"]) / "amp"
            writes = self.training and _rank() == 0
            self.session = Session(plan, logger=logger, folder=folder if writes else None)
        if self.training and not plan.enabled:
            logger.info(tr("amp: off for this run", "amp：本次运行已关闭"))

    def _monitor(self, plan: Any, folder: Path) -> Monitor:
        return Monitor(
            folder,
            visualdl=plan.monitor.visualdl,
            every_n_steps=plan.monitor.every_n_steps,
            rank=_rank(),
            say=self.say,
            policy=plan.scaling if plan.use_loss_scaling else None,
        )

    # -- training --------------------------------------------------------------------------------------------

    def load_model(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """Weights first, then the cast to half: pretrained FP32 weights reach the masters as they are.

        Before ``DataParallel`` too, whose buckets are made by dtype.
        """
        result = self.checkpoints.load(wrapped, args, kwargs)
        arguments = bound(wrapped, args, kwargs)
        self._say_without_weights(arguments["config"]["Global"])
        if self.session is not None and self.training and arguments["optimizer"] is not None:
            self.session.prepare(arguments["model"], arguments["optimizer"])
        return result

    def _say_without_weights(self, section: dict[str, Any]) -> None:
        given = section.get("checkpoints") or section.get("pretrained_model")
        if self.session is not None and not self.training and not given:
            self.say(
                tr(
                    "amp: no weights were given, the model is random: -o Global.pretrained_model=…/best_accuracy",
                    "amp：未指定权重，模型为随机初始化：-o Global.pretrained_model=…/best_accuracy",
                )
            )

    def build_optimizer(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """The LR schedule is stepped once an update, so with accumulation an epoch has fewer steps."""
        arguments = bound(wrapped, args, kwargs)
        arguments["step_each_epoch"] = self._updates_an_epoch(arguments["step_each_epoch"])
        return wrapped(**arguments)

    def _updates_an_epoch(self, batches: int) -> int:
        return -(-batches // self.session.window.size) if self.session is not None else batches

    def train(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        self.trained = True
        if self.session is None:
            return wrapped(*args, **kwargs)
        from paddle_amp_plugin.routing import routed_method  # imports Paddle, which is there by now

        arguments = bound(wrapped, args, kwargs)
        arguments["scaler"] = None
        session = self.session
        # Not before: a run that fails on its data or its pins leaves no record of steps it never made.
        session.watch(self._monitor(session.plan, Path(arguments["config"]["Global"]["save_model_dir"]) / "amp"))
        if "step_pre_epoch" in arguments:
            arguments["step_pre_epoch"] = self._updates_an_epoch(arguments["step_pre_epoch"])
        self._indicator = getattr(arguments["eval_class"], "main_indicator", "") if "eval_class" in arguments else ""
        if "pre_best_model_dict" in arguments:
            arguments["pre_best_model_dict"] = StartFacts(arguments["pre_best_model_dict"], lambda: session.held)
        schedule = arguments.get("lr_scheduler")
        held = routed_method(schedule, "step", session.after_update) if hasattr(schedule, "step") else nullcontext()
        try:
            with held, session.attach(arguments["model"], arguments["loss_class"], arguments["optimizer"]):
                self.checkpoints.position.begin()
                return wrapped(**arguments)
        finally:
            if session.steps:
                self.say(session.summary())

    def stats(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """The host's log line and its log writers also show the loss scale and the skips."""
        result = wrapped(*args, **kwargs)
        if self.session is not None and self.session.scaler is not None:
            result.update(self.session.numbers())
        return result

    def evaluate(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if self.session is None:
            return wrapped(*args, **kwargs)
        arguments = bound(wrapped, args, kwargs)
        if "scaler" in arguments:
            arguments["scaler"] = None
        with self.session.evaluation(arguments["model"]):
            metric = wrapped(**arguments)
        return self.session.judged(metric, self._indicator) if self.trained and self._indicator else metric

    def save_model(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return self.checkpoints.save(wrapped, args, kwargs)

    def export(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if self.session is None:
            return wrapped(*args, **kwargs)
        with self.session.exporting():
            return wrapped(*args, **kwargs)

    # -- data and the host's manners -------------------------------------------------------------------------

    def build_dataloader(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if self.settings is not None:
            arguments = bound(wrapped, args, kwargs)
            logger = self.logger or arguments["logger"]
            check_dataset(arguments["config"], arguments["mode"], logger)
            loader = self.guard.watch(wrapped(*args, **kwargs))
            follow = arguments["mode"] == "Train" and self.session is not None
            return self.checkpoints.position.watch(loader, self.session.window.open) if follow else loader
        return wrapped(*args, **kwargs)

    def set_signal_handlers(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """The host's handler answers Ctrl-C with SIGKILL to the whole process group, in mid-write."""
        return None if self.settings is not None else wrapped(*args, **kwargs)

    def check_install(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """The host runs ``pip install`` by itself here; we say what to install instead."""
        arguments = bound(wrapped, args, kwargs)
        module, package = arguments["module_name"], arguments["install_name"]
        if importlib.util.find_spec(module) is not None:
            return None
        # raised from inside a data set, the host would swallow it and try another sample
        self.guard.fatal = AmpError(
            "AMP044",
            tr(
                "PaddleOCR needs the package {p} (module {m}) for this config, and it is not installed",
                "此配置需要软件包 {p}（模块 {m}），但尚未安装",
                p=package,
                m=module,
            ),
            hint=f"pip install {package}",
        )
        raise self.guard.fatal


def _device(gpu: bool) -> str:
    return "GPU" if gpu else "CPU"


def _rank() -> int:
    return int(os.environ.get("PADDLE_TRAINER_ID", "0"))


_controller: Controller | None = None


def detect(folder: str | os.PathLike[str]) -> Tree | None:
    """The tree, if ``folder`` is a PaddleOCR training tree; else None."""
    path = Path(folder)
    return None if missing_markers(path) else Tree(path.resolve(), str(folder))


def patch() -> Controller:
    """Patches PaddleOCR in this process, now or when it is imported. A second call returns the same controller."""
    global _controller
    if _controller is None:
        _controller = Controller()
    _controller.patches.apply()
    return _controller


def unpatch() -> None:
    """Restores the host's functions; without ``patch`` before, does nothing."""
    global _controller
    if _controller is not None:
        _controller.close()
        _controller = None


def supported_versions() -> tuple[str, ...]:
    """What was tested. Other versions work if their functions have the parameters that the patches need."""
    return ("PaddleOCR 2.10 (unstructured-paddleocr 2.10.0)",)


__all__ = ["MARKERS", "Controller", "Tree", "detect", "patch", "supported_versions", "unpatch"]
