"""A fault in a plain training loop through ``Session``, its FP32 twin, and the loop with Paddle's own GradScaler."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin import autocast, software_half
from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.monitor import Monitor
from paddle_amp_plugin.plan import Device, make_plan
from paddle_amp_plugin.session import Session

CPU = Device(kind="cpu", name="CPU", capability=None, float16=False, bfloat16=False)


def plan_of(**amp: Any) -> Any:
    """The plan of a YAML with these keys under ``amp``."""
    config = read_amp({"amp": {"level": "O1", "dtype": "float16", **amp}})
    assert config is not None
    return make_plan(config, CPU)


class Loss:
    """A host's loss object: called with the model's outputs and the batch."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, outputs: Any, batch: Any) -> Any:
        return self.function(outputs, batch)


@dataclasses.dataclass
class Result:
    """What a run was: its losses (of every step), the session, the lines it said, the error that ended it."""

    losses: list[float]
    skipped: list[bool]
    session: Any
    lines: list[str]
    error: AmpError | None = None
    model: Any = None
    optimizer: Any = None

    @property
    def treated(self) -> list[Any]:
        return self.session.treatment.treated

    @property
    def lost(self) -> int:
        """Steps without an update."""
        return self.session.skips

    @property
    def culprits(self) -> list[str | None]:
        return [found.culprit for found in self.treated]

    @property
    def finite(self) -> bool:
        return all(np.isfinite(t.astype("float32").numpy()).all() for t in self.model.state_dict().values())


@dataclasses.dataclass
class Fault:
    """``build`` makes the same model each time. ``batch(step)``: the model's inputs and, last, what the loss gets."""

    build: Callable[[], paddle.nn.Layer]
    batch: Callable[[int], tuple[Any, ...]]
    loss: Callable[[Any, Any], Any] | None  # None: the model returns its loss
    rate: float = 1e-3
    optimizer: type = paddle.optimizer.Adam
    spoil: Callable[[int, Any], None] | None = None  # what happens to the model before a step

    def _made(self) -> tuple[Any, Any, Any]:
        paddle.seed(5)
        model = self.build()
        optimizer = self.optimizer(self.rate, parameters=model.parameters())
        return model, optimizer, Loss(self.loss) if self.loss is not None else None

    def run(self, steps: int, *, folder: Any = None, **amp: Any) -> Result:
        """Trains through a session; an AmpError ends it and is kept."""
        model, optimizer, loss = self._made()
        lines: list[str] = []
        logger = logging.getLogger(f"faults.{id(lines)}")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        logger.addHandler(handler)
        session = Session(plan_of(**amp), logger=logger, folder=folder)
        if folder is not None:
            session.watch(Monitor(folder, visualdl=False, say=lines.append, policy=session.plan.scaling))
        result = Result([], [], session, lines, model=model, optimizer=optimizer)
        try:
            with session.attach(model, loss, optimizer):
                self._loop(steps, model, optimizer, loss, result)
        except AmpError as error:
            result.error = error
        return result

    def _loop(self, steps: int, model: Any, optimizer: Any, loss: Any, result: Result) -> None:
        for step in range(steps):
            if self.spoil is not None:
                with paddle.no_grad():
                    self.spoil(step, model)
            value = self._loss(model, loss, self.batch(step))
            before = result.session.skips if result.session is not None else 0
            result.losses.append(float(value))
            value.backward()
            optimizer.step()
            optimizer.clear_grad()
            if result.session is not None:
                result.skipped.append(result.session.skips > before)

    @staticmethod
    def _loss(model: Any, loss: Any, batch: tuple[Any, ...]) -> Any:
        if loss is None:
            return model(*batch)
        out = loss(model(*batch[:-1]), batch[-1])
        return out["loss"] if isinstance(out, dict) else out

    def float32(self, steps: int) -> list[float]:
        """The losses of the same run without AMP."""
        model, optimizer, loss = self._made()
        result = Result([], [], None, [])
        self._loop(steps, model, optimizer, loss, result)
        return result.losses

    def host_alone(self, steps: int, *, scale: float = 1024.0, dynamic: bool = True, level: str = "O1") -> Any:
        """Paddle's ``auto_cast`` and ``GradScaler`` as a host uses them; returns (losses, scales, skips, model)."""
        model, optimizer, loss = self._made()
        losses: list[float] = []
        scales: list[float] = []
        skips = 0
        with software_half.emulate():
            if level == "O2":
                model, optimizer = paddle.amp.decorate(model, optimizer, level=level, master_weight=True)
            scaler = paddle.amp.GradScaler(init_loss_scaling=scale, use_dynamic_loss_scaling=dynamic)
            for step in range(steps):
                if self.spoil is not None:
                    with paddle.no_grad():
                        self.spoil(step, model)
                batch = self.batch(step)
                with paddle.amp.auto_cast(level=level, dtype="float16"):
                    out = model(*(batch if loss is None else batch[:-1]))
                out = autocast.to_float32(out)
                value = out if loss is None else loss(out, batch[-1])
                value = value["loss"] if isinstance(value, dict) else value
                scaler.scale(value).backward()
                scaler.step(optimizer)
                scaler.update()
                skips += int(bool(scaler._found_inf))
                optimizer.clear_grad()
                losses.append(float(value))
                scales.append(float(scaler._scale))
        return losses, scales, skips, model


def near(healed: list[float], twin: list[float], share: float = 0.05) -> bool:
    """The end of a run within ``share`` of its FP32 twin's (of the way the loss has come, where that is larger).

    The twin's are the losses after as many *updates*: a run that lost k steps is k behind.
    """
    ours, theirs = float(np.mean(healed[-5:])), float(np.mean(twin[-5:]))
    return math.isfinite(ours) and abs(ours - theirs) <= share * max(abs(theirs), abs(twin[0] - theirs) * 0.2)


def rand(*shape: int, scale: float = 1.0, seed: int = 0) -> paddle.Tensor:
    return paddle.to_tensor((np.random.default_rng(seed).standard_normal(shape) * scale).astype("float32"))
