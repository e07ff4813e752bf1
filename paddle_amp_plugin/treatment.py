"""Diagnosis and healing of one run: after several skips a step is watched, the culprit is found, and treated.

A normal search of the loss scale is never treated: the diagnosis runs the batch again at the lowest scale, and if that
is finite the scale is left to find its place. What it costs, it costs when armed; until then a run is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin import healing
from paddle_amp_plugin.calibration import Calibration
from paddle_amp_plugin.diagnosis import Batch, Diagnosis, LayerWatch, Subject, diagnose, says, write_diagnosis, yaml_of
from paddle_amp_plugin.dtype_auto import DtypeAuto
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.plan_file import write_plan
from paddle_amp_plugin.recorded import Recorded
from paddle_amp_plugin.replicas import of_all_processes
from paddle_amp_plugin.run_errors import collapsed, not_an_amp_problem
from paddle_amp_plugin.scaler import gradients_finite

if TYPE_CHECKING:
    from paddle_amp_plugin.loss_scaling import Outcome
    from paddle_amp_plugin.monitor import Verdict
    from paddle_amp_plugin.session import Session

#: So many skips in a row arm the watch (a verdict that is not normal does too). A growth of the scale costs one skip;
#: a scale that starts too high costs more, but then the diagnosis says so and nothing is treated.
ARM_AFTER = 3
#: An armed watch waits so many steps for one that is not finite, then goes off.
ARMED_STEPS = 16
#: After a diagnosis that led to nothing, so many steps pass before the next.
QUIET_STEPS = 16
_COUNTERS = ("armed", "quiet_until", "search_down_to", "healthy", "lost_before")
#: So many treatments in one run; what comes after goes to FP32 as a whole.
MOST_TREATMENTS = 5


class Treatment:
    """Belongs to one session, which tells it what the host does; raises AmpError where the run must stop.

    ``treated``: the diagnoses acted upon, in order; ``treatments``: how many, with those before a
    resume. ``folder``: the run's ``amp`` folder, None for no files.
    """

    def __init__(self, session: Session, folder: Path | None) -> None:
        self.folder = folder
        self.treated: list[Diagnosis] = []
        self.treatments = 0
        self._session = session
        self._lost_before = 0
        self._armed = 0
        self._quiet_until = 0
        self._search_down_to = 0.0  # while the scale is above it, skips are its search
        self._healthy: float | None = None
        self._watch: LayerWatch | None = None
        self._recorded: Recorded | None = None
        self._blamed: Recorded | None = None
        self._found: Diagnosis | None = None
        self._last: Diagnosis | None = None  # since the last update
        self._calibration = Calibration() if session.plan.calibrate else None
        self.dtype_auto = DtypeAuto(session, self)

    # -- what the host does ------------------------------------------------------------------------------------

    def model_called(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is about to be called for a training step."""
        if not paddle.is_grad_enabled():
            return
        self.dtype_auto.model_called(call)
        if not (self._armed or self._calibration is not None):
            return
        if self._blamed is not None:
            return  # gradients are accumulated, and this step has its culprit
        another = self._recorded is not None and self._recorded.differentiated
        self._recorded = Recorded(call, args, kwargs)
        if self._watch is not None and another:
            self._watch.__exit__(None, None, None)
            self._watch = None
        if self._armed and self._watch is None:
            assert self._session.model is not None
            self._watch = LayerWatch(self._session.model)
            self._watch.__enter__()

    def model_returned(self, outputs: Any) -> None:
        """What that call returned, in FP32."""
        if self._recorded is not None and self._blamed is None:
            self._recorded.outputs = outputs

    def loss_called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The host's loss object was called."""
        if self._recorded is not None and self._blamed is None:
            self._recorded.loss_called(self._session.loss, args, kwargs)

    def loss_again(self, again: Callable[[Any], Any]) -> None:
        """The loop computed a loss; ``again`` does so from other outputs of the model."""
        if self._recorded is not None and self._blamed is None and self._recorded.loss is None:
            self._recorded.loss = again

    def backward(self, loss: paddle.Tensor, share: float = 1.0) -> None:
        """``backward`` is about to run from this loss, which enters the step with this share."""
        self.dtype_auto.gradients_wait = True
        if self._recorded is not None and self._blamed is None:
            self._recorded.backward(loss, share)

    def backward_done(self) -> None:
        """``backward`` has run. Of the batches of an accumulated step the first that was not finite is kept."""
        if self._watch is None or self._recorded is None or self._blamed is not None:
            return
        if not gradients_finite(self._session.optimizer):
            self._watch.forward_done()
            self._blamed = self._recorded

    def examine(self) -> None:
        """The gradients are there, scaled: reads the watch, and runs the batch again if the step was not finite."""
        recorded, self._recorded, self._blamed = self._recorded, None, None
        if self._calibration is not None and recorded is not None:
            self._calibration.look(self._subject(recorded))
            self._calibration.agree(of_all_processes)
        watch, self._watch = self._watch, None
        if watch is None:
            return
        watch.read_gradients()
        watch.__exit__(None, None, None)
        self._armed -= 1
        if watch.finite or recorded is None:
            return
        self._armed = 0
        mine = diagnose(watch, self._subject(recorded), step=self._session.steps + 1)
        self._found = self._last = together(of_all_processes(mine))

    def _subject(self, recorded: Recorded) -> Subject:
        session = self._session
        assert session.model is not None and session.scaler is not None
        batch = Batch(recorded.call, recorded.loss_of, recorded.inputs, session.around, recorded.share)
        return Subject(
            session.model, session.plan, batch, scale=session.scaler.current_scale, optimizer=session.optimizer
        )

    def stepped(self, outcome: Outcome, verdict: Verdict | None) -> None:
        """The step is over, made or skipped: acts on what was found, or arms the watch for the next one."""
        found, self._found = self._found, None
        self.dtype_auto.gradients_wait = False
        if not outcome.skipped:
            self._healthy, self._last, self._search_down_to = outcome.old_scale, None, 0.0
        self._calibrate()
        if found is not None and self._act(found, outcome):
            return
        if outcome.collapsed:
            self._collapsed(outcome)
        elif self._alarming(outcome, verdict):
            self._arm()

    def close(self) -> None:
        """Takes an armed watch off the model."""
        watch, self._watch, self._recorded, self._blamed = self._watch, None, None, None
        if watch is not None:
            watch.__exit__(None, None, None)

    def forget_calibration(self) -> None:
        """There is no loss scale any more to be calibrated."""
        self._calibration = None

    # -- checkpoints -------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a run needs to go on as if it had not been stopped, as JSON values."""
        counters = {name: getattr(self, f"_{name}") for name in _COUNTERS}
        calibration = None if self._calibration is None else list(self._calibration.fits)
        return {**counters, "treatments": self.treatments, "calibration": calibration}

    def load_state_dict(self, state: Mapping[str, Any], *, same_scale: bool) -> None:
        """``same_scale``: scales of the run it comes from mean something in this one."""
        self.treatments = int(state.get("treatments", 0))
        self._lost_before = int(state.get("lost_before", 0))
        if not same_scale:
            return
        for name in _COUNTERS:
            setattr(self, f"_{name}", state.get(name, getattr(self, f"_{name}")))
        fits = state.get("calibration")
        self._calibration = Calibration(list(fits)) if fits is not None else None

    # -- arming ----------------------------------------------------------------------------------------------

    def _alarming(self, outcome: Outcome, verdict: Verdict | None) -> bool:
        session = self._session
        assert session.scaler is not None
        state = session.scaler.loss_scale
        if self._armed or session.steps < self._quiet_until or state.scale > self._search_down_to > 0.0:
            return False
        if outcome.skipped and state.skips_in_a_row >= ARM_AFTER:
            return True
        return verdict is not None and not verdict.normal

    def _arm(self) -> None:
        self._armed = ARMED_STEPS

    def _calibrate(self) -> None:
        """Moves the scale to where the batches looked at so far allow it; says why once it is done."""
        calibration, scaler = self._calibration, self._session.scaler
        if calibration is None or scaler is None or not (calibration.fits or calibration.failure):
            return
        chosen = calibration.scale
        if chosen is not None and (len(calibration.fits) == 1 or chosen < scaler.current_scale):
            scaler.restore(chosen)
        if calibration.done:
            self._calibration = None
            self._session.logger.info(calibration.words(chosen if chosen is not None else scaler.current_scale))

    # -- acting ----------------------------------------------------------------------------------------------

    def _act(self, found: Diagnosis, outcome: Outcome) -> bool:
        """Acts on a diagnosis; False if there is nothing to be treated."""
        session = self._session
        assert session.scaler is not None
        dynamic = session.plan.scaling.dynamic
        self._write(found)
        self._quiet_until = session.steps + QUIET_STEPS
        if found.not_amp:
            session.scaler.restore(outcome.old_scale)
            raise not_an_amp_problem(says(found), steps=session.steps, skips=session.skips, file=self._file(found))
        if found.kind == "loss_scale" and dynamic and found.pin.scale is not None:
            self._search_down_to, self._quiet_until = found.pin.scale, 0
            session.logger.info(_line(session.steps, says(found)))
            return False
        if found.kind == "unknown" or (found.kind == "replay_failed" and found.where != "forward"):
            session.logger.info(_line(session.steps, says(found)))
            return False
        session.logger.warning(_line(session.steps, says(found)))
        if session.plan.on_collapse == "stop" or not session.plan.enabled:
            raise self._stop(outcome, found)
        pins = found.pins and found.level is None and found.dtype is None
        if session.plan.on_collapse == "pin" and pins and self.treatments < MOST_TREATMENTS:
            self._pin(found)
        else:
            self._float32(found)
        return True

    def _pin(self, found: Diagnosis) -> None:
        session = self._session
        assert session.model is not None and session.scaler is not None
        layers = [pin.name for pin in found.pins if pin.kind == "layer"]
        ops = [pin.name for pin in found.pins if pin.kind == "op"]
        scale = min([self._healthy_scale(), *(p.scale for p in found.pins if p.scale is not None)])
        healing.pin_layers(session.model, session.optimizer, layers)
        session.scaler.restore(scale)
        session.follow(healing.plan_with_pins(session.plan, layers, ops, scale))
        lost = self._lost()
        self._treated(found)
        what = tr("in FP32 from here on: {n}", "从现在起保持 FP32：{n}", n=", ".join([*layers, *ops]))
        if not layers and not ops:
            what = tr("a lower static scale", "降低静态 loss scale")
        session.logger.warning(
            tr(
                "amp: healed at step {s} ({what}{scale}); {k} steps were lost; training goes on "
                "(treatment {n} of at most {m}). To have it from the start, write:\n{yaml}",
                "amp：已在第 {s} 步修复（{what}{scale}）；损失 {k} 步；训练继续"
                "（第 {n} 次修复，最多 {m} 次）。若要从一开始就避免，请写：\n{yaml}",
                s=session.steps,
                what=what,
                scale=self._scale_words(),
                k=lost,
                n=self.treatments,
                m=MOST_TREATMENTS,
                yaml=yaml_of(found).rstrip(),
            )
        )

    def _float32(self, found: Diagnosis | None) -> None:
        """AMP is off from here on."""
        session = self._session
        assert session.model is not None and session.scaler is not None
        reason = tr("switched off at step {s}", "在第 {s} 步关闭", s=session.steps)
        healing.all_float32(session.model, session.optimizer)
        session.scaler.without_scaling()
        session.follow(healing.plan_float32(session.plan, reason))
        lost = self._lost()
        self._treated(found)
        yaml = yaml_of(found).rstrip() if found is not None else ""
        session.logger.warning(
            tr(
                "amp: off from step {s} on, training goes on in FP32 ({k} steps were lost){yaml}",
                "amp：从第 {s} 步起关闭，以 FP32 继续训练（损失 {k} 步）{yaml}",
                s=session.steps,
                k=lost,
                yaml=tr(". For the next run, write:\n{y}", "。下次运行请写：\n{y}", y=yaml) if yaml else "",
            )
        )

    def _collapsed(self, outcome: Outcome) -> None:
        """The scale can go no lower. If it was not looked into where it stands, the next step is watched first."""
        looked = self._last is not None and self._last.loss_scale <= outcome.old_scale
        if not looked and not self._armed:
            self._arm()
        elif looked or self._watch_failed():
            if self._session.plan.on_collapse == "stop" or not self._session.plan.enabled:
                raise self._stop(outcome, self._last)
            self._float32(self._last)

    def _watch_failed(self) -> bool:
        """Armed, and yet the step went by unseen: the model was not called through the session."""
        return self._last is None and self._armed == ARMED_STEPS

    def _stop(self, outcome: Outcome, found: Diagnosis | None) -> AmpError:
        session = self._session
        return collapsed(
            str(session.plan.dtype),
            outcome,
            steps=session.steps,
            skips=session.skips,
            diagnosis=says(found) if found is not None else "",
            yaml=yaml_of(found).rstrip() if found is not None else "",
        )

    # -- words and files ---------------------------------------------------------------------------------------

    def _healthy_scale(self) -> float:
        return self._healthy if self._healthy is not None else float(self._session.plan.scaling.init)

    def _treated(self, found: Diagnosis | None) -> None:
        if found is not None:
            self.treated.append(found)
            self.treatments += 1
        self._armed, self._quiet_until, self._search_down_to, self._last = 0, 0, 0.0, None
        self._lost_before = self._session.skips
        self._session.healed()
        self.write_plan()

    def write_plan(self) -> None:
        """``plan.yml`` again: the session's plan is not the one it started with."""
        if self.folder is not None:
            self._guarded(lambda folder: write_plan(self._session.plan, folder / "plan.yml"))

    def _lost(self) -> int:
        """Steps skipped since the start or the last treatment."""
        return self._session.skips - self._lost_before

    def _scale_words(self) -> str:
        scaler = self._session.scaler
        if scaler is None or not scaler.use_loss_scaling:
            return ""
        return tr(", loss scale back at {s:g}", "，loss scale 恢复为 {s:g}", s=scaler.current_scale)

    def _file(self, found: Diagnosis) -> str:
        return str(self.folder / f"overflow-{found.step}.json") if self.folder is not None else ""

    def _write(self, found: Diagnosis) -> None:
        if self.folder is not None:
            self._guarded(lambda folder: write_diagnosis(found, folder))

    def _guarded(self, write: Callable[[Path], Any]) -> None:
        """A full disk does not end a training."""
        assert self.folder is not None
        try:
            write(self.folder)
        except (OSError, AmpError) as error:
            self._session.logger.warning(
                tr("amp: not written: {e}", "amp：无法写入：{e}", e=str(error).splitlines()[0] or type(error).__name__)
            )


def together(found: list[Diagnosis]) -> Diagnosis:
    """One diagnosis that all processes act upon: the first of the weightiest, with everybody's pins.

    Gradients are exchanged before they are tested, so one process's overflow skips the step of all.
    """

    def weight(one: Diagnosis) -> int:
        if one.not_amp:
            return 3
        return 0 if one.kind in ("unknown", "finite") else 1 if one.kind in ("loss_scale", "replay_failed") else 2

    first = max(found, key=weight)
    same = [one for one in found if weight(one) == weight(first)]
    first.pins = tuple(dict.fromkeys(pin for one in same for pin in one.pins))
    return first


def _line(step: int, text: str) -> str:
    return tr("amp: step {s}: {t}", "amp：第 {s} 步：{t}", s=step, t=text)
