"""The monitor of one run: counts, writes, and says every N steps whether the skips are normal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.monitor.console import Verdict, judge
from paddle_amp_plugin.monitor.events import EVENTS_FILE, StepEvent
from paddle_amp_plugin.monitor.gradients import global_grad_norm, zero_share
from paddle_amp_plugin.monitor.writer import VDL_FOLDER, JsonlWriter, VisualDLWriter

__all__ = ["Monitor", "global_grad_norm", "zero_share"]

#: The share of zero gradients is taken at step 1 and every so many steps: it costs about what the norm costs.
ZERO_SHARE_EVERY = 50
#: Steps that an alarm ahead of its turn looks back at.
ALARM_WINDOW = 50


class _Writer(Protocol):
    def close(self) -> None: ...


_W = TypeVar("_W", bound=_Writer)


class Monitor:
    """Takes one event a step.

    ``folder``: the run's ``amp/`` folder. ``every_n_steps``: which steps are written (a skipped step always is); all
    of them are counted. ``verdict_every``: steps between verdict lines, 0 for none. ``say``: gets the lines.
    ``policy``: how the scale moves, None without loss scaling.

    Only rank 0 writes and speaks; the others count. Nothing raised by a file, a disk or VisualDL reaches the caller:
    ``say`` gets one line, and that writer is off.
    """

    def __init__(
        self,
        folder: Path,
        *,
        visualdl: bool = True,
        every_n_steps: int = 1,
        verdict_every: int = 100,
        rank: int = 0,
        say: Callable[[str], None],
        policy: ScalingPolicy | None = None,
    ) -> None:
        self.policy = policy
        self._say = say
        self._every = max(1, every_n_steps)
        self._verdict_every = max(0, verdict_every)
        self._rank = rank
        self._skips: deque[bool] = deque(maxlen=max(self._verdict_every, ALARM_WINDOW))
        self._since_verdict = 0
        self._quiet_until = 0
        self._last_step = 0
        self._jsonl: JsonlWriter | None = None
        self._vdl: VisualDLWriter | None = None
        if rank == 0:
            self._jsonl = self._opened(EVENTS_FILE, lambda: JsonlWriter(Path(folder) / EVENTS_FILE))
            if visualdl:
                self._vdl = self._opened("VisualDL", lambda: VisualDLWriter(Path(folder) / VDL_FOLDER))

    @property
    def skip_rate(self) -> float:
        """Share of skipped steps in the window of the verdict, 0 to 1."""
        return sum(self._skips) / len(self._skips) if self._skips else 0.0

    def wants_zero_share(self, step: int) -> bool:
        """Whether ``zero_grad_share`` is due at this step: the first, and every 50th (``ZERO_SHARE_EVERY``)."""
        return step == 1 or step % ZERO_SHARE_EVERY == 0

    def step(self, event: StepEvent) -> Verdict | None:
        """Counts and writes one event. Returns the verdict if it was time for one (``say`` got its line)."""
        if event.step <= self._last_step:  # resumed from a checkpoint: what came after it is not part of this run
            self.judge_anew()
        self._last_step = event.step
        self._skips.append(bool(event.skipped))
        if event.skipped or event.step == 1 or event.step % self._every == 0:
            self._write(event)
        verdict = self._verdict(event)
        if verdict is not None and self._rank == 0:
            self._say("amp: " + verdict.text())
        return verdict

    def judge_anew(self) -> None:
        """The skips so far are of a run that was another: before a resume, or before a healing."""
        self._skips.clear()
        self._since_verdict = self._quiet_until = 0

    def _verdict(self, event: StepEvent) -> Verdict | None:
        """The verdict when it is due, or an alarm ahead of its turn; one alarm in ``verdict_every`` steps."""
        if not self._verdict_every:
            return None
        self._since_verdict += 1
        if self._since_verdict >= self._verdict_every:
            self._since_verdict = 0
            return self._judge(event, self._verdict_every)
        if event.skipped and event.step >= self._quiet_until:
            alarm = self._judge(event, ALARM_WINDOW)
            if not alarm.normal:
                self._quiet_until = event.step + self._verdict_every
                return alarm
        return None

    def _judge(self, event: StepEvent, window: int) -> Verdict:
        skips = list(self._skips)[-window:]
        return judge(skips, self.policy, last_step=event.step, loss_scale=event.loss_scale)

    def _write(self, event: StepEvent) -> None:
        if self._jsonl is not None:
            try:
                self._jsonl.write(event)
            except Exception as error:  # whatever it is, a training is worth more than its log
                self._off(EVENTS_FILE, error, self._jsonl)
                self._jsonl = None
        if self._vdl is not None:
            try:
                self._vdl.write(event, skip_rate=self.skip_rate)
            except Exception as error:
                self._off("VisualDL", error, self._vdl)
                self._vdl = None

    def _opened(self, name: str, make: Callable[[], _W]) -> _W | None:
        try:
            return make()
        except Exception as error:  # VisualDL's import alone may fail in many ways (protobuf, a read-only home)
            self._off(name, error, None)
            return None

    def _off(self, name: str, error: Exception, writer: _Writer | None) -> None:
        """Says that a writer is off, in one line; closes it."""
        if writer is not None:
            with suppress(Exception):
                writer.close()
        self._say(
            tr(
                "amp: {n} is off from here on ({e}); training goes on",
                "amp：{n} 从现在起停止记录（{e}）；训练继续",
                n=name,
                e=_reason(error),
            )
        )

    def close(self) -> None:
        """Closes the files. May be called twice."""
        for name, writer in ((EVENTS_FILE, self._jsonl), ("VisualDL", self._vdl)):
            if writer is not None:
                try:
                    writer.close()
                except Exception as error:
                    self._off(name, error, None)
        self._jsonl = self._vdl = None


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return tr("not installed: pip install visualdl", "未安装：pip install visualdl")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
