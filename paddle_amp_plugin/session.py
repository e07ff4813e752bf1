"""One training run under a plan: the only thing the host patches talk to.

A session owns the plan, the scaler and the model's preparation. Hosts call ``prepare`` (after weights are
loaded), then run their loop inside ``training``; ``evaluation`` and ``saving`` wrap what hosts do in between.
While ``training`` is active every call of the model runs under ``auto_cast`` and returns FP32 (so loss, metric
and post-processing are outside the cast), ``Tensor.backward`` scales, and ``optimizer.step`` unscales, tests,
steps or skips. Everything is as before afterwards, also after an exception.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.average import WeightAverage
from paddle_amp_plugin.checkpoint import Checkpoints
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.loss_scaling import Outcome
from paddle_amp_plugin.master_grads import added_in_float32
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.modes import Modes
from paddle_amp_plugin.norm_buffers import NormBuffers
from paddle_amp_plugin.replicas import Exchange, several_processes
from paddle_amp_plugin.routing import op_counter, routed_backward, routed_call, routed_method
from paddle_amp_plugin.run_words import never_best, no_update, summary
from paddle_amp_plugin.scaler import LossScaler, optimizer_parameters
from paddle_amp_plugin.step_observer import StepObserver, batch_size
from paddle_amp_plugin.treatment import Treatment
from paddle_amp_plugin.window import Window, scale_gradients, share_of

if TYPE_CHECKING:
    from pathlib import Path

    from paddle_amp_plugin.monitor import Monitor, Verdict
    from paddle_amp_plugin.plan import Plan


class Session:
    """State of one run. Not thread-safe: a training loop has one thread.

    ``logger`` receives the few lines a session writes; a host passes its own. ``folder``: the run's ``amp``
    folder, where diagnoses and a healed plan are written; None for no files. ``plan`` follows a healing.
    ``checkpoints`` saves and resumes all of it.
    Counters: ``steps`` (calls of ``optimizer.step``, or windows of several), ``skips``, ``updates``. ``held``: the
    last call of ``optimizer.step`` changed no weight.
    """

    def __init__(self, plan: Plan, *, logger: logging.Logger | None = None, folder: Path | None = None) -> None:
        self.plan = plan
        self.logger = logger or logging.getLogger("paddle_amp_plugin")
        self.scaler: LossScaler | None = None
        self.model: paddle.nn.Layer | None = None
        self.loss: Any = None
        self.optimizer: Any = None
        self.ops: dict[str, int] | None = None
        self.steps = self.skips = 0
        self.modes = Modes(self)
        self.window = Window(plan.accumulate_steps)
        self.average: WeightAverage | None = None
        self._busy = False
        self._samples: int | None = None
        self._half_installed = False
        self._calls = 0
        self.norms: NormBuffers | None = None
        self.held = False
        self._observer: StepObserver | None = None
        self.updates_judged = 0
        self._finished: tuple[Outcome, Verdict | None] | None = None
        self._exchange: Exchange | None = None
        self.around: Callable[[], Any] = contextlib.nullcontext
        self.treatment = Treatment(self, folder)
        self.checkpoints = Checkpoints(self)

    @property
    def updates(self) -> int:
        """Steps whose update was made."""
        return self.steps - self.skips

    # -- preparing and the training loop ---------------------------------------------------------------

    def prepare(self, model: paddle.nn.Layer, optimizer: Any = None) -> None:
        """Decorates model and optimizer once, after the weights are loaded and before ``DataParallel``."""
        inner = autocast.inner(model)
        if self.model is not None:
            if self.model is not inner:
                raise AmpError(
                    "AMP042",
                    tr("this session already holds another model", "此会话已绑定另一个模型"),
                )
            return
        self.checkpoints.preparing(inner)
        if self.plan.software_half:
            self.use_software_half()
        autocast.decorate(self.plan, inner, optimizer)
        self.model, self.optimizer = inner, optimizer
        self.scaler = LossScaler(
            self.plan.scaling, use_loss_scaling=self.plan.use_loss_scaling, on_outcome=self._on_outcome
        )
        self.norms = NormBuffers(inner)
        if self.plan.ema_decay is not None and optimizer is not None:
            self.average = WeightAverage(inner, optimizer, self.plan.ema_decay)
        self.checkpoints.prepared()

    def use_software_half(self) -> None:
        from paddle_amp_plugin import software_half

        if not self._half_installed:
            software_half.install()  # counted: an emulate() around us stays in force after close()
            self._half_installed = True

    def close(self) -> None:
        """Gives the model its classes back and removes software half, if this session installed it."""
        self.treatment.close()
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None
        self.checkpoints.close()
        if self._observer is not None:
            self._observer.monitor.close()
            self._observer = None
        if self.model is not None:
            autocast.unpin(self.model)
        if self._half_installed:
            from paddle_amp_plugin import software_half

            software_half.uninstall()
            self._half_installed = False

    def attach(
        self, model: paddle.nn.Layer, loss: Any, optimizer: Any, *, batches_a_step: int = 1
    ) -> contextlib.AbstractContextManager[None]:
        """``prepare`` if that was not done, then the context of the training loop.

        ``batches_a_step``: so many backward passes the host itself makes before a step.
        """
        self.prepare(model, optimizer)
        self.loss = loss
        if isinstance(model, paddle.DataParallel) and several_processes():
            self._exchange = Exchange(model, self.plan, accumulates=max(batches_a_step, self.window.size) > 1)
            self.around = model.no_sync  # a batch that is run again exchanges no gradients
        return self.training(optimizer)

    @contextlib.contextmanager
    def training(self, optimizer: Any) -> Iterator[None]:
        """While it is open, model calls, ``Tensor.backward`` and ``optimizer.step`` go through the session."""
        assert self.model is not None, "prepare() comes first"
        self.optimizer = optimizer
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            stack.enter_context(routed_call(self.model, self.model_called))
            stack.enter_context(routed_call(self.loss, self._loss_called))
            stack.enter_context(routed_method(optimizer, "step", self.optimizer_step))
            stack.enter_context(routed_method(optimizer, "clear_grad", self.between_windows))
            stack.enter_context(routed_backward(self.backward))
            yield

    def watch(self, monitor: Monitor, *, average_of: int = 1) -> None:
        """Every step from here on is an event of this monitor; it is closed with the session.

        ``average_of``: so many losses of a step the host averages, by its gradients, after their backward passes.
        """
        self._observer = StepObserver(monitor, average_of, self.window.begun)

    def follow(self, plan: Plan) -> None:
        """A healing has changed the plan: from here on the forward pass runs under this one."""
        if self._exchange is not None:
            self._exchange.follow(plan)
        self.plan = self.modes.cast = plan
        self.ops, self._calls = None, 0

    def healed(self) -> None:
        """What is skipped or not is judged anew from here on."""
        if self._observer is not None:
            self._observer.monitor.judge_anew()

    @contextlib.contextmanager
    def by_itself(self) -> Iterator[None]:
        """Inside it, what the model calls is not routed through the session."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    def model_called(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.modes.current != "train" or self._busy:
            return self.forward(call)
        self._samples = batch_size((*args, *kwargs.values()))
        if self._observer is not None:
            self._observer.called(self._samples)
        if self._exchange is not None and self.window.size > 1:
            self._exchange.hold(not self.window.closing)
        self.treatment.model_called(call, args, kwargs)
        result = self.forward(call)
        self.treatment.model_returned(result)
        return result

    def _loss_called(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = call()
        if self.modes.current == "train" and not self._busy:
            self.treatment.loss_called(args, kwargs)
            if self._observer is not None:
                self._observer.lost(result)
        return result

    def loss_again(self, again: Callable[[Any], Any]) -> None:
        """For a loop that computes the loss itself: ``again`` computes this step's from outputs of the model."""
        if self.modes.current == "train" and not self._busy:
            self.treatment.loss_again(again)

    def forward(self, call: Callable[[], Any]) -> Any:
        """One call of the model: under ``auto_cast`` while training, outputs in FP32."""
        if self._busy:
            return call()
        self._busy = True
        try:
            if self.modes.current == "float32":
                return autocast.to_float32(call())
            self._calls += 1
            counting = self._calls == 2 and self.modes.current == "train" and self.plan.enabled
            with autocast.auto_cast(self.modes.cast), op_counter(self._set_ops if counting else None):
                result = call()
            return autocast.to_float32(result)
        finally:
            self._busy = False

    def _set_ops(self, ops: dict[str, int]) -> None:
        self.ops = ops
        if sum(ops.values()) and not ops["half"]:
            self.logger.warning(
                tr(
                    "amp: not one op of the forward pass computes in {d}: AMP has no effect on this model",
                    "amp：前向计算中没有任何算子以 {d} 计算：AMP 对该模型没有作用",
                    d=self.plan.dtype,
                )
            )

    def backward(self, loss: paddle.Tensor, call: Callable[[paddle.Tensor], Any]) -> Any:
        """One ``loss.backward(...)``: of the scaled loss. Calls from inside a backward pass are left alone."""
        if self._busy or self.scaler is None:
            return call(loss)
        share = self.window.weight(self._samples)
        self.treatment.backward(loss, share)
        self._busy = True
        try:
            loss = loss if share == 1.0 else share_of(loss, share)
            if self._observer is not None:
                self._observer.backward(loss)
            with added_in_float32(self.optimizer) if self.plan.master_grad else contextlib.nullcontext():
                result = call(self.scaler.scale(loss))
            self.treatment.backward_done()
            return result
        finally:
            self._busy = False

    def optimizer_step(self, call: Callable[[], Any]) -> Any:
        """One ``optimizer.step()``: unscale, test, step or skip, move the scale on; then heal, if need be.

        Within a window of several batches nothing happens, and ``held`` says so.
        Raises AmpError: AMP045 on a collapse that is not to be healed, AMP054 if FP32 fails as well.
        """
        assert self.scaler is not None
        if self._busy:
            return call()
        if not self.window.batch_done(self._samples):
            self.held = True
            return None
        self._busy, self._finished = True, None
        try:
            correction = self.window.correction
            if correction != 1.0:
                scale_gradients(optimizer_parameters(self.optimizer), correction)
            if self._exchange is not None:
                self._exchange.gradients()
            self.treatment.examine()
            if self._observer is not None:
                self.scaler.unscale_(self.optimizer)
                self._observer.unscaled(self.optimizer, self.steps + 1, correction)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self._finished is not None:
                self.treatment.stepped(*self._finished)
        finally:
            self.window.close()
            self._busy = False
        return None

    def between_windows(self, call: Callable[[], Any]) -> Any:
        """One ``optimizer.clear_grad()``: not while gradients are being accumulated."""
        return None if self.window.inside else call()

    def after_update(self, call: Callable[[], Any]) -> Any:
        """What a host does once an update was made (LR schedule): not after a skip, nor within a window."""
        return None if self.held else call()

    def judged(self, metric: dict[str, Any], indicator: str) -> dict[str, Any]:
        """An evaluation's metrics as a best-model rule may see them.

        If no update was made since the last evaluation the model cannot have become better, and hosts compare
        with ``>=`` (a model that never learned, metric 0, would be the best). The value then compares as
        never greater or equal; it prints as it is.
        """
        fresh, self.updates_judged = self.updates > self.updates_judged, self.updates
        if fresh or not isinstance(metric.get(indicator), (int, float)):
            return metric
        in_a_row = self.scaler.loss_scale.skips_in_a_row if self.scaler is not None else 0
        self.logger.warning(no_update(in_a_row))
        return never_best(metric, indicator)

    def _on_outcome(self, outcome: Outcome) -> None:
        self.steps += 1
        self.held = outcome.skipped
        if outcome.skipped:
            self.skips += 1
            if self.norms is not None:
                self.norms.repair()
        else:
            if self.norms is not None:
                self.norms.remember()
            if self.average is not None:
                self.average.update(self.updates)
        verdict = None
        if self._observer is not None:
            scale = outcome.old_scale if self.scaler is not None and self.scaler.use_loss_scaling else 1.0
            verdict = self._observer.finished(
                outcome, step=self.steps, updates=self.updates, half_share=self.half_share(), loss_scale=scale
            )
        self._finished = (outcome, verdict)

    # -- what a host does in between (see ``modes``) --------------------------------------------------------

    def evaluation(self, model: paddle.nn.Layer | None = None) -> contextlib.AbstractContextManager[None]:
        """Evaluation as the plan wants it, during training or (with ``model``) by itself."""
        return self.modes.evaluation(model)

    def saving(self) -> contextlib.AbstractContextManager[None]:
        """The host saves inside it: FP32 masters. Raises AmpError (AMP046) when a weight is not finite."""
        return self.modes.saving()

    def exporting(self) -> contextlib.AbstractContextManager[None]:
        """The host traces or copies the model inside it: plain classes, FP32 weights, no auto_cast."""
        return self.modes.exporting()

    def window_state(self) -> dict[str, Any]:
        """Where in a window of gradient accumulation the session is, as JSON values; empty between two."""
        state = self.window.state_dict()
        seen = self._observer.partial() if state and self._observer is not None else None
        return {**state, "begun": seen} if seen else state

    # -- words -----------------------------------------------------------------------------------------------

    def numbers(self) -> dict[str, float]:
        """What a host's log line shows: the scale now (where there is one) and the skips so far."""
        scale = {"loss_scale": self.scaler.current_scale} if self.scaler and self.scaler.use_loss_scaling else {}
        return {**scale, "skipped_steps": float(self.skips)}

    def half_share(self) -> float | None:
        """Share of the forward pass's ops that computed in half, counted in the second step; None if unknown."""
        if not self.ops or not sum(self.ops.values()):
            return None
        return self.ops["half"] / sum(self.ops.values())

    def summary(self) -> str:
        """One line for the end of a run."""
        return summary(self)
