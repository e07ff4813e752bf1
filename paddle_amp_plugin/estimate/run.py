"""From a workload to a ``Result``: trace, rewrite, search."""

from __future__ import annotations

from typing import Any

from paddle_amp_plugin.estimate.allocator import on_cpu
from paddle_amp_plugin.estimate.measure import BATCH_SIZES, trace_step
from paddle_amp_plugin.estimate.modes import largest_batch, parts
from paddle_amp_plugin.estimate.plans import asked_mode, modes_for
from paddle_amp_plugin.estimate.result import Result
from paddle_amp_plugin.estimate.step import WorkloadStep, accumulate_steps


def estimate_workload(
    work: Any, *, batch: int | None, memory: int | None, reserve: int, progress: Any = None
) -> Result:
    """``work``: an open ``hosts.workloads.Workload``; ``batch``: samples a backward pass, the config's by default.

    ``progress``: called before each traced step. Raises AmpError: AMP286 if no gradient reaches the parameters,
    AMP287 if the data are too few to measure with; the workload's own.
    """
    samples = work.batch_size if batch is None else batch
    with on_cpu():
        step = WorkloadStep(work)
        traced = trace_step(step, BATCH_SIZES, progress=progress)
        passes = accumulate_steps(work)
        modes = modes_for(work.settings, step, traced, family=work.family, accumulated=passes > 1)
    columns = tuple(
        (
            mode,
            parts(traced, mode, samples, reserve=reserve),
            None if memory is None else largest_batch(traced, mode, memory, reserve=reserve),
        )
        for mode in modes
    )
    return Result(
        name=work.name,
        samples=samples,
        accumulate_steps=passes,
        memory=memory,
        reserve=reserve,
        asked=asked_mode(work.settings, modes).name,
        columns=columns,
        measured_at=BATCH_SIZES,
        made_up=step.made_up,
        unknown_ops=traced.large.notes,
        same_ops=traced.same_ops,
    )
