"""Traces a real model's training step at two small batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.estimate.allocator import Mark
from paddle_amp_plugin.estimate.modes import trained_parameters
from paddle_amp_plugin.estimate.retention import size_of, tensors_in
from paddle_amp_plugin.estimate.trace_model import Trace, TracedModel
from paddle_amp_plugin.estimate.tracer import Tracer
from paddle_amp_plugin.messages import tr

#: Two and four: at one sample some models squeeze the batch away.
BATCH_SIZES = (2, 4)


class Step(Protocol):
    """What is needed of a training: its model, optimizer, loss and batches of a size."""

    model: Any
    optimizer: Any

    def batch(self, size: int) -> Any: ...

    def loss(self, batch: Any) -> Any: ...


def trace_step(
    step: Step, sizes: Sequence[int] = BATCH_SIZES, *, progress: Callable[[], None] | None = None
) -> TracedModel:
    """Runs one step at each of the two ``sizes`` on the CPU, and one before them that makes the optimizer's states.

    Raises AmpError AMP286 if the loss does not depend on any parameter.
    """
    small, large = sizes
    step.model.train()
    _full_step(step, small)
    traces = []
    for size in (small, large):
        if progress is not None:
            progress()
        traces.append(_traced(step, size))
    if not trained_parameters(traces[0]):
        raise AmpError("AMP286", tr("no gradient reaches this model's parameters", "没有梯度到达该模型的参数"))
    return TracedModel(*traces)


def _full_step(step: Step, size: int) -> int:
    """One update; returns the bytes that ``optimizer.step()`` took at its highest point."""
    step.loss(step.batch(size)).backward()
    mark = Mark()
    step.optimizer.step()
    risen = mark.rise()
    step.optimizer.clear_grad()
    return risen


def _traced(step: Step, size: int) -> Trace:
    batch = step.batch(size)
    trace = Tracer(step.model).trace(size, batch, lambda: step.loss(batch))
    mark = Mark()
    step.optimizer.step()
    risen = mark.rise()
    step.optimizer.clear_grad()
    return replace(trace, state_bytes=state_bytes(step.optimizer), step_workspace=risen)


def state_bytes(optimizer: Any) -> int:
    """Bytes of the optimizer's accumulators (moments, powers of beta), as they are now."""
    inner = optimizer
    while not hasattr(inner, "_accumulators") and hasattr(inner, "_inner_opt"):
        inner = inner._inner_opt
    tables = getattr(inner, "_accumulators", {}).values()
    return sum(size_of(t) for table in tables for t in tensors_in(list(table.values())))
