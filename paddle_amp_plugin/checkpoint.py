"""Checkpoints of one session: what it adds to a host's files, how they are replaced whole, and how a run goes on.

For hosts (``session.checkpoints`` is a :class:`Checkpoints`):

* saving: ``with session.checkpoints.write(folder, "latest", host={"epoch": 3}) as staging: …``; inside, the host
  saves its files into ``staging`` under the names they shall have in ``folder`` (``staging / "latest.pdparams"``, or
  a whole folder ``staging / "checkpoint-100" / …``). Weights are FP32 masters and ``optimizer.state_dict()`` has the
  parameters' own names there. On leaving, ``latest.pdamp`` is written and everything takes its place at once.
* resuming: ``saved = read(folder / "latest", say=…)`` finishes an interrupted replacement and verifies every file
  (None: a checkpoint of the host alone); ``session.checkpoints.resume(saved)`` before ``session.prepare``, or after it
  where a host decorates first. ``saved.host`` is what was given to ``write``. The host loads its own files: weights
  before ``prepare``, the optimizer's state any time before the first step (either naming fits).
* random states: ``set_rng_state(saved.rng)`` (module ``rng``), just before the loop goes on.

A session that was resumed counts steps on from the checkpoint's. Policy is the YAML's, state is the file's; what
differs is said, one line each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paddle

import paddle_amp_plugin
from paddle_amp_plugin import average, healing, moments, pdamp, weights, window
from paddle_amp_plugin.checkpoint_files import read
from paddle_amp_plugin.checkpoint_words import differences, no_moments, resumed
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.file_set import replacing
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.pdamp import Pdamp, Pins
from paddle_amp_plugin.plan_file import plan_to_mapping
from paddle_amp_plugin.rng import rng_state
from paddle_amp_plugin.scaler import optimizer_parameters

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan
    from paddle_amp_plugin.session import Session

__all__ = ["Checkpoints", "read", "world_size"]


class Checkpoints:
    """Belongs to one session. ``resumed``: the state it goes on from, None for a run that started by itself."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wanted: Plan = session.plan  # as the YAML says, without what a healing changed
        self.resumed: Pdamp | None = None
        self._prefix: Path | None = None

    # -- saving ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def write(
        self,
        folder: Path,
        name: str,
        *,
        host: Mapping[str, Any] | None = None,
        also: Iterable[str] = (),
        at: str | None = None,
    ) -> Iterator[Path]:
        """The host saves into the folder it is given; see above. ``host``: JSON values it wants to have back.

        ``also``: further prefixes that are checkpoints by themselves (copies), relative to ``folder``; they get a
        ``.pdamp`` each if the host wrote them. ``at``: the prefix of the ``.pdamp`` where it is not ``name``, for a
        checkpoint that is a folder: ``checkpoint-100/amp``. Raises AmpError: AMP046 a weight is not finite, AMP091 the
        system refuses to write; the former checkpoint is whole then.
        """
        session = self._session
        with session.saving(), replacing(folder, name) as staging:
            yield staging
            if session.norms is not None:
                session.norms.anchor()
            saved = self.gather(host or {})
            for prefix in (name, *also):
                if (staging / prefix).parent.is_dir():
                    self._write_more(staging / prefix)
            made = [path for path in staging.rglob("*") if path.is_file()]
            for prefix in also:
                beside = staging / prefix
                files = [path for path in made if path.parent == beside.parent]
                if files:
                    _write_pdamp(beside, saved, files)
                    made = [path for path in made if path not in files]
            _write_pdamp(staging / (at or name), saved, made)

    def _write_more(self, prefix: Path) -> None:
        """The moving average, as weights of its own, and the gradients of a window that is not over yet."""
        session = self._session
        if session.average is not None:
            paddle.save(session.average.state_dict(), f"{prefix}{pdamp.AVERAGE}.pdparams")
        if session.window.inside:
            window.save_gradients(Path(f"{prefix}{window.SUFFIX}"), optimizer_parameters(session.optimizer))

    def gather(self, host: Mapping[str, Any]) -> Pdamp:
        """The session's state now, without the files."""
        session = self._session
        assert session.scaler is not None, "prepare() comes first"
        return Pdamp(
            step=session.steps,
            updates=session.updates,
            updates_judged=session.updates_judged,
            scaler=session.scaler.loss_scale.state_dict(),
            use_loss_scaling=session.scaler.use_loss_scaling,
            level=str(session.plan.level),
            dtype=str(session.plan.dtype),
            plan=plan_to_mapping(self._wanted),
            pins=_pins(self._wanted, session.plan),
            treatment=session.treatment.state_dict(),
            window=session.window_state(),
            rng=rng_state(),
            paddle=paddle.__version__,
            plugin=paddle_amp_plugin.__version__,
            world_size=world_size(),
            device=paddle.device.get_device(),
            host=dict(host),
        )

    # -- resuming --------------------------------------------------------------------------------------------

    def resume(self, saved: Pdamp, prefix: Path | None = None) -> None:
        """This run goes on where ``saved`` (of the checkpoint ``prefix``) was written; each difference is said."""
        session = self._session
        self.resumed, self._prefix = saved, prefix
        session.steps, session.skips = saved.step, saved.step - saved.updates
        session.updates_judged = saved.updates_judged
        session.logger.info(resumed(saved))
        for line in differences(saved, self._wanted, world_size=world_size(), paddle_version=paddle.__version__):
            session.logger.info(line)
        if session.model is not None:
            self.preparing(session.model)
            self.prepared()

    def preparing(self, model: paddle.nn.Layer) -> None:
        """The session is about to decorate ``model`` (or has done so): pins of a healing come back."""
        saved, session = self.resumed, self._session
        if saved is None:
            return
        if self._wanted.probe and saved.plan.get("probe") and saved.dtype == "bfloat16":
            reason = tr("auto: as the earlier run found", "auto：与早先运行的结论一致")
            session.treatment.dtype_auto.to_bfloat16(reason)
        if not saved.pins:
            return
        pins = saved.pins
        if pins.dtype != session.plan.dtype:
            session.logger.info(
                tr(
                    "amp: the earlier run's pins were made for {o} and are not taken over: {n}",
                    "amp：早先运行的固定设置是针对 {o} 的，不再沿用：{n}",
                    o=pins.dtype,
                    n=", ".join([*pins.layers, *pins.ops]) or tr("AMP off", "AMP 关闭"),
                )
            )
            return
        if pins.off:
            self._off(pins)
        else:
            self._pin(pins, model)
        session.treatment.write_plan()

    def _pin(self, pins: Pins, model: paddle.nn.Layer) -> None:
        session = self._session
        known = dict(model.named_sublayers())
        layers = [name for name in pins.layers if name in known]
        if session.model is not None:
            healing.pin_layers(model, session.optimizer, layers)
        scale = session.plan.scaling.init
        if pins.static_scale is not None and not _another_scale(self.resumed, session.plan):
            scale = pins.static_scale
        session.follow(healing.plan_with_pins(session.plan, layers, pins.ops, scale))
        session.logger.info(
            tr(
                "amp: pins of the earlier run come back, in FP32: {n}",
                "amp：恢复早先运行的固定设置，保持 FP32：{n}",
                n=", ".join([*layers, *pins.ops]) or f"loss scale {scale:g}",
            )
        )

    def _off(self, pins: Pins) -> None:
        session = self._session
        if session.model is not None:
            assert session.scaler is not None
            healing.all_float32(session.model, session.optimizer)
            session.scaler.without_scaling()
        session.follow(healing.plan_float32(session.plan, pins.off))
        session.logger.warning(
            tr(
                "amp: stays off, as in the earlier run ({r}): training goes on in FP32. Another amp.dtype, or "
                "-o Global.pretrained_model=… in place of Global.checkpoints, starts with AMP again",
                "amp：与早先运行一致，保持关闭（{r}）：以 FP32 继续训练。换用其他 amp.dtype，或用 "
                "-o Global.pretrained_model=… 代替 Global.checkpoints，可重新启用 AMP",
                r=pins.off,
            )
        )

    def prepared(self) -> None:
        """The session has decorated its model and has a scaler."""
        session = self._session
        optimizer, saved = session.optimizer, self.resumed
        assert session.model is not None and session.scaler is not None
        if optimizer is not None:
            moments.settle_masters(optimizer)
            moments.take_over(optimizer, lambda names: session.logger.warning(no_moments(names)))
        line = weights.beyond_range(session.model, str(session.plan.dtype), optimizer)
        if line:
            session.logger.warning(line)
        if saved is not None:
            _restore_scale(session, saved)
            self._read_more(saved)
            session.treatment.load_state_dict(saved.treatment, same_scale=_same_scale(session, saved))

    def _read_more(self, saved: Pdamp) -> None:
        """What ``_write_more`` wrote. Raises AmpError: AMP096 an average, AMP098 gradients that cannot be used."""
        session, prefix = self._session, self._prefix
        if session.average is not None:
            path = Path(f"{prefix}{pdamp.AVERAGE}.pdparams")
            # a file of that name which is none of the checkpoint's is an earlier run's
            line = average.read(session.average, path, there=any(e.name == path.name for e in saved.files))
            if line:
                session.logger.warning(line)
        if not saved.window:
            return
        if session.window.size == saved.plan.get("accumulate_steps") and _same_scale(session, saved):
            try:
                session.window.load_state_dict(saved.window)
            except ValueError as error:
                raise AmpError("AMP092", tr("the .pdamp is damaged: {e}", ".pdamp 已损坏：{e}", e=error)) from None
            window.load_gradients(Path(f"{prefix}{window.SUFFIX}"), optimizer_parameters(session.optimizer))
            return
        session.logger.warning(
            tr(
                "amp: saved within a window of {n} batches, of which {k} were done: their gradients do not fit these "
                "settings and are dropped",
                "amp：保存于 {n} 个批次的累积窗口之内（已完成 {k} 个）：其梯度与当前设置不符，予以丢弃",
                n=saved.window.get("planned"),
                k=saved.window.get("count"),
            )
        )

    def close(self) -> None:
        """Gives the optimizer its own methods back."""
        if self._session.optimizer is not None:
            moments.give_back(self._session.optimizer)


def _another_scale(saved: Pdamp | None, plan: Plan) -> bool:
    """Does the YAML ask for another scale than it did when the checkpoint was saved?"""
    before = saved.plan.get("scaling") if saved is not None else None
    return not isinstance(before, Mapping) or before.get("init") != plan.scaling.init


def _same_scale(session: Session, saved: Pdamp) -> bool:
    assert session.scaler is not None
    return saved.use_loss_scaling == session.scaler.use_loss_scaling


def _restore_scale(session: Session, saved: Pdamp) -> None:
    """Scale and counters; only the totals where one of both runs has no loss scale (bfloat16, FP32)."""
    assert session.scaler is not None
    if not saved.scaler:
        session.logger.info(
            tr(
                "amp: the saved loss scaler is empty (it was switched off when it was saved): it starts at {s:g}",
                "amp：保存的 loss scaler 状态为空（保存时处于关闭状态）：从 {s:g} 开始",
                s=session.scaler.current_scale,
            )
        )
        return
    state = dict(saved.scaler)
    if not _same_scale(session, saved):
        state.update(scale=session.scaler.policy.init, good_steps=0, bad_steps=0, skips_in_a_row=0)
    try:
        session.scaler.load_state_dict({"paddle_amp": state})
    except ValueError as error:
        raise AmpError(
            "AMP092",
            tr("the saved loss scaler is damaged: {e}", "保存的 loss scaler 已损坏：{e}", e=error),
        ) from None


def _pins(wanted: Plan, plan: Plan) -> Pins:
    """What makes ``plan`` of the plan that the YAML wanted."""
    if plan is wanted or plan == wanted:
        return Pins()
    if wanted.enabled and not plan.enabled:
        return Pins(dtype=str(wanted.dtype), off=plan.off_reason)
    lowered = not plan.scaling.dynamic and plan.scaling.init != wanted.scaling.init
    return Pins(
        dtype=str(wanted.dtype),
        layers=tuple(name for name in plan.fp32_layers if name not in wanted.fp32_layers),
        ops=tuple(op for op in plan.custom_black_list if op not in wanted.custom_black_list),
        static_scale=plan.scaling.init if lowered else None,
    )


def _write_pdamp(prefix: Path, saved: Pdamp, files: Iterable[Path]) -> None:
    text = pdamp.to_text(dataclasses.replace(saved, files=pdamp.file_entries(prefix.parent, files)))
    Path(f"{prefix}{pdamp.SUFFIX}").write_text(text, encoding="utf-8")


def world_size() -> int:
    """Processes that train together."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
