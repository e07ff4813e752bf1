"""Gathers what one training step did into a ``StepEvent`` for the monitor: loss, gradients, scale, time.

The gradient norm and the share of zero gradients are taken where they mean something: after the gradients were
unscaled and before the optimizer clips them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin.monitor import StepEvent, global_grad_norm, zero_share
from paddle_amp_plugin.scaler import optimizer_parameters

if TYPE_CHECKING:
    from paddle_amp_plugin.loss_scaling import Outcome
    from paddle_amp_plugin.monitor import Monitor, Verdict


class StepObserver:
    """One step's numbers, collected along its way; ``finished`` hands them to the monitor."""

    def __init__(self, monitor: Monitor, average_of: int = 1, begun: Mapping[str, Any] | None = None) -> None:
        self.monitor = monitor
        self._average_of = average_of
        self._loss: paddle.Tensor | None = None
        self._correction = 1.0
        self._terms: dict[str, Any] = {}
        self._samples: int | None = None
        self._batch: int | None = None
        self._norm: float | None = None
        self._zeros: float | None = None
        self._lr: float | None = None
        self._begin = time.perf_counter()
        if begun:
            self._loss = paddle.to_tensor(float(begun["loss"]), dtype="float32")
            self._samples = int(begun["samples"])

    def partial(self) -> dict[str, Any] | None:
        """What was seen of a step whose update is still to come, as JSON values (``begun`` of another observer)."""
        if self._loss is None or not math.isfinite(float(self._loss)):
            return None
        return {"loss": float(self._loss), "samples": self._samples or 0}

    def called(self, samples: int | None) -> None:
        """The model was called, with so many samples."""
        self._batch = samples

    def lost(self, result: Any) -> None:
        """The host's loss was computed: a dict of terms, or one tensor."""
        self._terms = result if isinstance(result, dict) else {}

    def backward(self, loss: paddle.Tensor) -> None:
        """``backward`` is about to run from this (unscaled) loss. Several before one step are added up."""
        own = loss.detach()
        self._loss = own if self._loss is None else self._loss + own
        if self._batch is not None:
            self._samples = (self._samples or 0) + self._batch
            self._batch = None

    def unscaled(self, optimizer: Any, step: int, correction: float = 1.0) -> None:
        """The gradients are unscaled and not clipped yet. ``step`` counts from 1; ``correction``: of its losses."""
        self._correction = correction
        parameters = optimizer_parameters(optimizer)
        self._norm = global_grad_norm(parameters)
        self._zeros = zero_share(parameters) if self.monitor.wants_zero_share(step) else None
        self._lr = float(optimizer.get_lr())

    def finished(
        self, outcome: Outcome, *, step: int, updates: int, half_share: float | None, loss_scale: float
    ) -> Verdict | None:
        """The step is over; the monitor's verdict if one was due. ``loss_scale``: its own, 1 without scaling."""
        now = time.perf_counter()
        event = StepEvent(
            step=step,
            loss=None if self._loss is None else float(self._loss) * self._correction / self._average_of,
            losses={name: _number(value) for name, value in self._terms.items() if _is_number(value)},
            loss_scale=loss_scale,
            skipped=outcome.skipped,
            grad_norm=self._norm,
            lr=self._lr,
            seconds=now - self._begin,
            samples=self._samples,
            half_share=half_share,
            zero_grad_share=self._zeros,
            updates=updates,
        )
        self._begin, self._loss, self._terms = now, None, {}
        self._samples = self._batch = None
        return self.monitor.step(event)


def batch_size(args: tuple[Any, ...]) -> int | None:
    """How many samples a call of the model with these arguments is for, by the first tensor among them."""
    tensor = _first_tensor(args)
    return int(tensor.shape[0]) if tensor is not None and tensor.shape else None


def _first_tensor(values: Any) -> paddle.Tensor | None:
    for value in values:
        if isinstance(value, paddle.Tensor):
            return value
        if isinstance(value, (list, tuple)) and (found := _first_tensor(value)) is not None:
            return found
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, paddle.Tensor) and value.size == 1)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
