"""A model with a convolution, a BatchNorm, dropout and a linear layer, trained in a session; saved and resumed."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.utils import unique_name

from paddle_amp_plugin import config
from paddle_amp_plugin.checkpoint_files import read
from paddle_amp_plugin.plan import make_plan
from paddle_amp_plugin.plan_model import Device
from paddle_amp_plugin.rng import set_rng_state
from paddle_amp_plugin.session import Session

CPU = Device(kind="cpu", name="CPU", capability=None, float16=False, bfloat16=False)


#: Sessions of the present test; ``conftest.py`` closes them.
STARTED: list[Session] = []


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(1, 4, 3)
        self.bn = nn.BatchNorm2D(4)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.drop(self.bn(self.conv(x)).mean([2, 3])))


def plan(amp: Any):
    settings = config.read_amp({"amp": amp}, host="paddleocr")
    return make_plan(settings, CPU, family="rec/SVTR")


class Lines(logging.Logger):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__("lines")
        self.said: list[str] = []
        self.addHandler(self)  # type: ignore[arg-type]

    def handle(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())

    @property
    def text(self) -> str:
        return "\n".join(self.said)


@dataclasses.dataclass
class Training:
    """One process's worth of a run: its session, model, optimizer and schedule."""

    session: Session
    model: nn.Layer
    optimizer: Any
    schedule: Any
    lines: Lines

    def loss(self, out):
        return (out - 1.0).square().mean()

    def steps(self, numbers: Iterable[int], *, bad: tuple[int, ...] = (3, 6)) -> None:
        """One step a number; batches whose number is in ``bad`` are infinite."""
        for number in numbers:
            x = np.random.RandomState(number).randn(8, 1, 6, 6).astype("float32")
            if number in bad:
                x = x * math.inf
            self.loss(self.model(paddle.to_tensor(x))).backward()
            self.optimizer.step()
            self.optimizer.clear_grad()
            self.session.after_update(self.schedule.step)

    def save(self, folder: Path, name: str = "latest", **host: Any) -> None:
        with self.session.checkpoints.write(folder, name, host=host) as staging:
            paddle.save(self.model.state_dict(), str(staging / f"{name}.pdparams"))
            paddle.save(self.optimizer.state_dict(), str(staging / f"{name}.pdopt"))

    def state(self) -> dict[str, Any]:
        """Weights, moments, schedule and scaler, to be compared to the bit."""
        with self.session.saving():
            weights = {f"weight {k}": v.numpy().copy() for k, v in self.model.state_dict().items()}
            moments = dict(self.optimizer.state_dict())
            average = self.session.average.state_dict() if self.session.average is not None else {}
        masters = moments.pop("master_weights", {})
        schedule = moments.pop("LR_Scheduler", {})
        return {
            **weights,
            **{f"moment {k}": v.numpy().copy() for k, v in moments.items()},
            **{f"average {k}": v.numpy().copy() for k, v in average.items()},
            **{f"master {k}": v.numpy().copy() for k, v in masters.items()},
            **{f"schedule {k}": np.array(v) for k, v in schedule.items()},
            **{f"scaler {k}": np.array(v) for k, v in self.session.scaler.loss_scale.state_dict().items()},
            "steps": np.array([self.session.steps, self.session.skips]),
        }


def start(amp: Any = "O1", *, net=Net, optimizer=None) -> Training:
    """A fresh run. Parameters get the names of a fresh process."""
    with unique_name.guard():
        paddle.seed(1)
        model = net()
        schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.05, 20)
        make = optimizer or (lambda **kw: paddle.optimizer.Adam(weight_decay=1e-4, **kw))
        made = make(learning_rate=schedule, parameters=model.parameters())
    lines = Lines()
    session = Session(plan(amp), logger=lines)
    STARTED.append(session)
    return Training(session, model, made, schedule, lines)


def resumed(prefix: Path, amp: Any = "O1", *, prepared_first: bool = False, **kw: Any) -> Training:
    """A fresh run that goes on from ``prefix``: the order in which PaddleOCR does it, or one that decorates first."""
    run = start(amp, **kw)
    paddle.seed(77)
    saved = read(prefix, say=run.lines.said.append)
    run.model.set_state_dict(paddle.load(f"{prefix}.pdparams"))
    run.optimizer.set_state_dict(paddle.load(f"{prefix}.pdopt"))
    if prepared_first:
        run.session.prepare(run.model, run.optimizer)
    if saved is not None:
        run.session.checkpoints.resume(saved, prefix)
    run.session.prepare(run.model, run.optimizer)
    if saved is not None:
        set_rng_state(saved.rng)
    return run


def equal(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of what is not the same to the bit."""
    assert one.keys() == other.keys()
    return [k for k in one if not np.array_equal(one[k], other[k], equal_nan=True)]
