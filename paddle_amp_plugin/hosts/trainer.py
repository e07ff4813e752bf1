"""The Trainer of PaddleNLP and its successor PaddleFormers: what is patched in both, and why.

The host's own AMP is not used: it crashes or does nothing on a CPU, keeps half checkpoints, never unscales
``main_grad`` on one process, and turns the metrics of bfloat16 runs into garbage. The host is told
``fp16 = bf16 = False``, runs its FP32 branch, and precision is added around it: the model is decorated where the host
would wrap it (weights loaded, optimizer made), ``on_train_begin`` opens the session, and a callback of the Trainer
shows the loss scale. A Trainer whose arguments ask for no AMP is left alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddle_amp_plugin.hosts import trainer_args
from paddle_amp_plugin.hosts.patching import Extension, Patch, PatchSet, bound
from paddle_amp_plugin.hosts.settings import settings_mapping
from paddle_amp_plugin.messages import tr

_RUN = "_paddle_amp_run"


@dataclass(frozen=True)
class TrainerHost:
    """``name`` as users know it, ``package`` as it is imported.

    ``averages_gradients``: accumulated gradients are divided by their number before the step, and not the losses.
    """

    name: str
    package: str
    averages_gradients: bool = False


class Controller:
    """The patches on one host. ``run`` is that of the Trainer that was built last, None if it asked for no AMP."""

    def __init__(self, host: TrainerHost) -> None:
        self.host = host
        self.patches = PatchSet(host.name, self._registry())
        self.run: Any = None

    def close(self) -> None:
        """Takes every patch out."""
        self.patches.restore()

    # -- building a Trainer ----------------------------------------------------------------------------------------

    def init(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        arguments = bound(wrapped, args, kwargs)
        training_args = arguments["args"]
        settings = trainer_args.settings_of(training_args) if training_args is not None else None
        if settings is None or arguments["model"] is None:
            return wrapped(*args, **kwargs)
        plan = self._plan(settings, training_args, arguments["model"])
        trainer_args.adapt(training_args, settings_mapping(settings))
        result = wrapped(*args, **kwargs)
        self.run = self._make_run(instance, plan)
        return result

    def _plan(self, settings: Any, training_args: Any, model: Any) -> Any:
        from paddle_amp_plugin.device import current_device
        from paddle_amp_plugin.plan import make_plan

        if settings.enabled:
            trainer_args.refuse_beyond(training_args)
        return make_plan(settings, current_device(), family=f"nlp/{type(model).__name__}")

    def _make_run(self, trainer: Any, plan: Any) -> Any:
        from paddle_amp_plugin.hosts.trainer_run import TrainerRun

        run = TrainerRun(
            trainer,
            plan,
            importlib.import_module(f"{self.host.package}.utils.log").logger,
            importlib.import_module(f"{self.host.package}.trainer.trainer"),
            averages_gradients=self.host.averages_gradients,
        )
        setattr(trainer, _RUN, run)
        handler = trainer.callback_handler
        setattr(handler, _RUN, run)
        base = importlib.import_module(f"{self.host.package}.trainer.trainer_callback").TrainerCallback
        handler.callbacks.insert(0, _callback(base, run))  # before those that print
        return run

    # -- while it runs -----------------------------------------------------------------------------------------------

    def train(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run = getattr(instance, _RUN, None)
        if run is None:
            return wrapped(*args, **kwargs)
        arguments = bound(wrapped, args, kwargs)
        return run.train(
            lambda resume: wrapped(**{**arguments, "resume_from_checkpoint": resume}),
            arguments["resume_from_checkpoint"],
        )

    def wrap_model(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run, arguments = getattr(instance, _RUN, None), bound(wrapped, args, kwargs)
        if run is not None and arguments["training"]:
            from paddle_amp_plugin.hosts.trainer_run import autocast_inner

            run.prepare(autocast_inner(arguments["model"]))
        return wrapped(*args, **kwargs)

    def evaluation(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run = getattr(instance, _RUN, None)
        if run is None:
            return wrapped(*args, **kwargs)
        with run.evaluation():
            return wrapped(*args, **kwargs)

    def save_model(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run = getattr(instance, _RUN, None)
        if run is None:
            return wrapped(*args, **kwargs)
        with run.saving():
            return wrapped(*args, **kwargs)

    def save_checkpoint(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run = getattr(instance, _RUN, None)
        if run is None:
            return wrapped(*args, **kwargs)
        arguments = bound(wrapped, args, kwargs)
        metrics = arguments.pop("metrics")
        return run.save_checkpoint(lambda judged: wrapped(**arguments, metrics=judged), metrics)

    def load_checkpoint(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run = getattr(instance, _RUN, None)
        if run is None:
            return wrapped(*args, **kwargs)
        return run.load_checkpoint(lambda: wrapped(*args, **kwargs), bound(wrapped, args, kwargs)["checkpoint"])

    def random_states(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run = getattr(instance, _RUN, None)
        if run is None or run.active is None:
            return wrapped(*args, **kwargs)
        return run.checkpoints.random_states(lambda: wrapped(*args, **kwargs))

    def set_weights(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        run = getattr(instance, _RUN, None)
        if run is None:
            return wrapped(*args, **kwargs)
        return wrapped(run.weights_replaced(bound(wrapped, args, kwargs)["state_dict"]))

    def with_scaler(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """Callbacks are given the scaler, as by the host's own AMP."""
        run = getattr(instance, _RUN, None)
        if run is None or run.active is None:
            return wrapped(*args, **kwargs)
        arguments = bound(wrapped, args, kwargs)
        arguments["scaler"] = run.active.scaler
        return wrapped(**arguments)

    def _registry(self) -> list[Patch | Extension]:
        base = f"{self.host.package}.trainer"
        trainer, arguments = f"{base}.trainer", f"{base}.training_args"
        parser, callbacks = f"{base}.argparser", f"{base}.trainer_callback"
        reads = tr("reads the amp key", "读取 amp 设置")
        saves = tr("saves FP32 weights, never non-finite ones", "保存 FP32 权重，绝不保存非有限权重")
        evaluates = tr("evaluates in eval_dtype", "按 eval_dtype 评估")
        shows = tr("callbacks get the loss scaler", "回调可取得 loss scaler")
        replaced = tr("other weights are loaded in FP32", "以 FP32 载入其他权重")
        cls, own = "TrainingArguments", "PdArgumentParser"
        return [
            Extension(arguments, cls, trainer_args.extend, tr("a field for the amp key", "为 amp 键增加字段")),
            Patch(arguments, f"{cls}.__post_init__", trainer_args.post_init, reads),
            Patch(parser, f"{own}.parse_known_args", trainer_args.parse_known_args, reads, ("args", "namespace")),
            Patch(parser, f"{own}.parse_dict", trainer_args.parse_dict, reads, required=False),
            Patch(trainer, "Trainer.__init__", self.init, tr("makes the plan", "制定计划"), ("model", "args")),
            Patch(
                trainer,
                "Trainer.train",
                self.train,
                tr("training under the plan", "按计划训练"),
                ("resume_from_checkpoint",),
            ),
            Patch(
                trainer,
                "Trainer._wrap_model",
                self.wrap_model,
                tr("casts after loading", "加载权重之后再转换"),
                ("model", "training"),
            ),
            *(Patch(trainer, f"Trainer.{n}", self.evaluation, evaluates) for n in ("evaluate", "predict")),
            Patch(trainer, "Trainer.evaluation_loop", self.evaluation, evaluates),
            Patch(trainer, "Trainer.save_model", self.save_model, saves),
            Patch(trainer, "Trainer._save_checkpoint", self.save_checkpoint, saves, ("model", "metrics")),
            Patch(
                trainer,
                "Trainer._load_optimizer_and_scheduler",
                self.load_checkpoint,
                tr("resumes in any precision", "以任意精度恢复训练"),
                ("checkpoint",),
            ),
            Patch(
                trainer,
                "Trainer._load_rng_state",
                self.random_states,
                tr("goes on to the bit", "逐位一致地继续"),
                ("checkpoint",),
            ),
            Patch(trainer, "Trainer._set_state_dict_in_model", self.set_weights, replaced, ("state_dict",)),
            *(
                Patch(callbacks, f"CallbackHandler.{n}", self.with_scaler, shows, ("scaler",))
                for n in ("on_optimizer_begin", "on_optimizer_end")
            ),
        ]


def _callback(base: type, run: Any) -> Any:
    """A callback of the Trainer: opens the session when training begins, shows loss scale and skips in the log."""

    class AmpCallback(base):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            run.begin()

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if run.active is not None:
                run.checkpoints.epoch_begins()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            run.logged({} if logs is None else logs)

    return AmpCallback()


class HostModule:
    """``patch`` and ``unpatch`` of one host in this process."""

    def __init__(self, host: TrainerHost, make: Callable[[TrainerHost], Controller] = Controller) -> None:
        self.host = host
        self._make = make
        self._controller: Controller | None = None

    def patch(self) -> Controller:
        """Patches the host now, or when it is imported. A second call returns the same controller."""
        if self._controller is None:
            self._controller = self._make(self.host)
        self._controller.patches.apply()
        return self._controller

    def unpatch(self) -> None:
        """Restores the host; without ``patch`` before, does nothing."""
        if self._controller is not None:
            self._controller.close()
            self._controller = None

    def installed(self) -> str | None:
        """The version that is installed, without importing it; None if there is none."""
        from importlib import metadata

        try:
            return metadata.version(self.host.package)
        except metadata.PackageNotFoundError:
            return None
