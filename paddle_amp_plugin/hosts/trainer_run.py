"""One Trainer under a plan: a session while it trains, FP32 weights whenever it saves, evaluates or is done.

The host runs its FP32 branch. After ``train`` the model is FP32 throughout (its masters), so what a script does
next (``save_model``, ``evaluate``, ``predict``, an export) needs no care.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paddle
import wrapt

from paddle_amp_plugin import autocast, healing, plan_table
from paddle_amp_plugin.hosts import trainer_state
from paddle_amp_plugin.hosts.trainer_checkpoint import TrainerCheckpoints, finish_interrupted, wanted_folder
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.monitor import Monitor
from paddle_amp_plugin.plan import write_plan
from paddle_amp_plugin.routing import routed_method
from paddle_amp_plugin.session import Session

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan


class TrainerRun:
    """What one Trainer gets. ``session`` is the present or the last training's; ``plan`` follows a healing."""

    def __init__(self, trainer: Any, plan: Plan, logger: Any, module: Any, *, averages_gradients: bool = False) -> None:
        self.trainer = trainer
        self.plan = plan
        self.logger = logger
        self._module = module
        self._averages_gradients = averages_gradients
        self.checkpoints = TrainerCheckpoints(trainer, module, logger.info)
        self.session: Session | None = None
        self._training = self._prepare_late = False
        self._evaluating = False
        self._stack = ExitStack()
        self._finite_loss: paddle.Tensor | None = None
        self._any_finite: paddle.Tensor | None = None

    @property
    def folder(self) -> Path:
        """The run's ``amp`` folder."""
        return Path(self.trainer.args.output_dir) / "amp"

    @property
    def active(self) -> Session | None:
        """The session, while it holds the model."""
        session = self.session
        return session if self._training and session is not None and session.model is not None else None

    # -- training ------------------------------------------------------------------------------------------------

    def train(self, call: Callable[[Any], Any], resume: Any) -> Any:
        """``Trainer.train(resume_from_checkpoint=resume)``."""
        if self._training:
            return call(resume)
        first = _rank() == 0
        if first:
            plan_table.print_plan(self.plan)
            write_plan(self.plan, self.folder / "plan.yml")
        if not self.plan.enabled:
            self.logger.info(tr("amp: off for this run", "amp：本次运行已关闭"))
            return call(resume)
        self.session = Session(self.plan, logger=self.logger, folder=self.folder if first else None)
        # PaddleFormers reads such a checkpoint after the model was wrapped, and wants everything as it was written
        flex = getattr(self.trainer.args, "load_checkpoint_format", None) == "flex_checkpoint"
        self._prepare_late = bool(resume) and flex
        self._training, self._finite_loss, self._any_finite = True, None, None
        try:
            with self._stack:
                return call(self._resume(self.session, resume))
        finally:
            self._end(self.session)

    def _resume(self, session: Session, resume: Any) -> str | None:
        """The folder to go on from: the hosts take True for the weights, and stumble over it after that."""
        output = self.trainer.args.output_dir
        finish_interrupted(Path(output))
        folder = wanted_folder(resume, self._module, output)
        if folder is not None:
            if folder.parent != Path(output):
                finish_interrupted(folder.parent)
            self.checkpoints.resume(session, folder)
        return str(folder) if folder is not None else None

    def _end(self, session: Session) -> None:
        session.close()
        if session.model is not None:
            healing.all_float32(session.model, session.optimizer)
        self.plan, self._training = session.plan, False
        if session.steps:
            self.logger.info(session.summary())

    def prepare(self, model: paddle.nn.Layer) -> None:
        """The weights are loaded, the optimizer is made, nothing is wrapped for several devices yet."""
        if self.session is None or not self._training or self._prepare_late or self.session.model is not None:
            return
        optimizer = self.trainer.optimizer
        if any(True for _ in autocast._half_tensors(model)):
            self._say_half()
            healing.all_float32(model, optimizer)
        self.session.prepare(model, optimizer)
        trainer_state.move_to_masters(optimizer)

    def begin(self) -> None:
        """The loop is about to start (``on_train_begin``)."""
        session, trainer = self.session, self.trainer
        if session is None or not self._training:
            return
        self._prepare_late = False
        self.prepare(autocast_inner(trainer.model_wrapped))
        enter = self._stack.enter_context
        enter(
            session.attach(
                trainer.model_wrapped,
                trainer.criterion,
                trainer.optimizer,
                batches_a_step=trainer.args.gradient_accumulation_steps,
            )
        )
        enter(routed_method(trainer.lr_scheduler, "step", session.after_update))
        self._stack.callback(trainer_state.call_with(trainer, "compute_loss", self._compute_loss))
        self._stack.callback(trainer_state.call_with(trainer, "training_step", self._training_step))
        monitor = session.plan.monitor
        session.watch(
            Monitor(
                self.folder,
                visualdl=monitor.visualdl,
                every_n_steps=monitor.every_n_steps,
                rank=_rank(),
                say=self.logger.info,
                policy=session.plan.scaling if session.plan.use_loss_scaling else None,
            ),
            average_of=trainer.args.gradient_accumulation_steps if self._averages_gradients else 1,
        )

    def _compute_loss(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Tells the session how to compute the loss again: with a stand-in for the model that gives other outputs."""
        session = self.active
        if session is None or len(args) < 2 or not isinstance(args[1], dict):
            return call(*args)
        model, inputs = args[0], type(args[1])(args[1])
        steps = 1 if self._averages_gradients else self.trainer.args.gradient_accumulation_steps

        def again(outputs: Any) -> Any:
            return call(_Answers(model, outputs), type(inputs)(inputs)) / steps

        result = call(*args)
        session.loss_again(again)
        return result

    def _training_step(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The loss that the host adds up for its log.

        A step that is not finite counts with the last finite loss: the host's sum would stay NaN for good
        (``inf - inf``), and one of the versions ends the run. The run's own records have the true value.
        """
        loss = call(*args)
        finite = paddle.isfinite(loss)
        last = paddle.zeros_like(loss) if self._finite_loss is None else self._finite_loss
        self._any_finite = finite if self._any_finite is None else paddle.logical_or(self._any_finite, finite)
        self._finite_loss = paddle.where(finite, loss, last)
        return self._finite_loss

    def logged(self, logs: dict[str, Any]) -> None:
        """The host's log line, about to be shown: with the loss scale and the skips."""
        if self.active is None or "loss" not in logs:
            return
        if self._any_finite is not None and not bool(self._any_finite):
            logs["loss"] = float("nan")  # there was none yet that could stand in
        logs.update(self.active.numbers())

    # -- in between ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """``evaluate`` and ``predict``, while training or by themselves."""
        if self._evaluating or not self.plan.enabled:
            yield
            return
        session = self.active or Session(self.plan, logger=self.logger)
        self._evaluating = True
        try:
            with session.evaluation(None if session.model is not None else self.trainer.model):
                yield
        finally:
            self._evaluating = False

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Whatever is saved inside has FP32 weights, and an optimizer state that fits every precision."""
        session = self.active
        if session is None:
            yield
            return
        with session.saving():
            yield

    def save_checkpoint(self, call: Callable[[Any], Any], metrics: Any) -> Any:
        """``_save_checkpoint``: the folder ``checkpoint-<global_step>``; ``metrics`` of the evaluation before it."""
        session, name = self.active, self.trainer.args.metric_for_best_model
        if session is None:
            return call(metrics)
        if metrics is not None and name is not None:
            key = name if name.startswith("eval_") else f"eval_{name}"
            if session.judged(metrics, key) is not metrics:
                metrics = None  # nothing was learned since the last evaluation: not a best model
        return self.checkpoints.save(session, lambda: call(metrics))

    def load_checkpoint(self, call: Callable[[], Any], folder: Any) -> Any:
        """``_load_optimizer_and_scheduler``: masters of a host's own O2 checkpoint become the weights."""
        session = self.active
        if session is None or folder is None:
            return call()
        undo = trainer_state.call_with(
            session.optimizer,
            "set_state_dict",
            lambda load, args: load(trainer_state.without_masters(args[0], session.optimizer)),
        )
        try:
            return call()
        finally:
            undo()

    def weights_replaced(self, loaded: dict[str, Any]) -> dict[str, Any]:
        """The host is about to load these weights (a checkpoint's, or the best ones at the end): FP32 from here on."""
        if not self.plan.enabled:
            return loaded
        session = self.active
        model = self.trainer.model if session is None else session.model
        healing.all_float32(model, None if session is None else session.optimizer)
        state, cast = trainer_state.float32_weights(loaded, model)
        if cast:
            self._say_half()
        return state

    def _say_half(self) -> None:
        self.logger.info(
            tr(
                "amp: the weights were in half precision; FP32 weights are learned from them",
                "amp：权重原为半精度；将由它们得到 FP32 权重进行学习",
            )
        )


class _Answers(wrapt.ObjectProxy):  # type: ignore[misc]
    """A model in everything but that calling it gives ``outputs``."""

    def __init__(self, model: Any, outputs: Any) -> None:
        super().__init__(model)
        self._self_outputs = outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._self_outputs


def autocast_inner(model: paddle.nn.Layer) -> paddle.nn.Layer:
    """The model without ``DataParallel`` around it."""
    return model._layers if isinstance(model, paddle.DataParallel) else model


def _rank() -> int:
    return int(os.environ.get("PADDLE_TRAINER_ID", "0"))
