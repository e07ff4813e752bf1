"""One training of a workload under one plan, step by step; timed in its parts."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import paddle

if TYPE_CHECKING:
    from pathlib import Path

    from paddle_amp_plugin.hosts.workloads import Workload
    from paddle_amp_plugin.plan import Plan
    from paddle_amp_plugin.session import Session

_QUIET = logging.getLogger("paddle_amp_plugin.rehearsal")
_QUIET.propagate = False
_QUIET.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Done:
    """One step. ``loss``: not scaled. ``scale``: of this step. Seconds: forward with loss, backward, update."""

    loss: float
    scale: float
    skipped: bool
    forward: float
    backward: float
    update: float

    @property
    def seconds(self) -> float:
        return self.forward + self.backward + self.update


class Side(contextlib.ExitStack):
    """A model of its own, trained under ``plan`` (one that is off: FP32, untouched by any session).

    A context manager. ``folder``: where the session writes its diagnoses, None for no files. ``change``: called with
    model and optimizer before the first step (tests plant faults by it).
    """

    def __init__(self, work: Workload, plan: Plan, *, folder: Path | None = None, change: Any = None) -> None:
        super().__init__()
        self.work, self.plan = work, plan
        self.model = work.build_model()
        self.optimizer, self.schedule = work.build_optimizer(self.model)
        self.criterion = work.build_criterion()
        if change is not None:
            change(self.model, self.optimizer)
        self.session: Session | None = None
        if plan.enabled:
            from paddle_amp_plugin.session import Session

            self.session = Session(plan, logger=_QUIET, folder=folder)

    def __enter__(self) -> Side:
        super().__enter__()
        if self.session is not None:
            self.enter_context(self.session.attach(self.model, self.criterion, self.optimizer))
        return self

    def step(self, batch: Any, *, withhold: bool = False) -> Done:
        """One step on a batch; ``withhold``: without the update. Raises AmpError where the session gives up."""
        start = _now()
        self.model.train()
        loss = self.work.loss(self.model, batch, self.criterion)
        forward = _now()
        scale = self.session.scaler.current_scale if self.session is not None and self.session.scaler else 1.0
        if self.session is not None:
            loss.backward()
        else:  # Tensor.backward may be another side's
            paddle.autograd.backward([loss])
        backward = _now()
        skipped = withhold
        if not withhold:
            self.optimizer.step()
            skipped = self.session.last_skipped if self.session is not None else False
        self.optimizer.clear_grad()
        if self.schedule is not None and not skipped:
            self.schedule.step()
        end = _now()
        return Done(float(loss), scale, skipped, forward - start, backward - forward, end - backward)


def _now() -> float:
    """Wall-clock seconds, after the device has finished."""
    if paddle.is_compiled_with_cuda() and paddle.device.get_device().startswith("gpu"):
        paddle.device.synchronize()
    return time.perf_counter()
