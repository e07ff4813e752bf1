"""From a workload to a ``Result``: trace, rewrite, search."""

from __future__ import annotations

from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.estimate.allocator import on_cpu
from paddle_amp_plugin.estimate.measure import BATCH_SIZES, trace_step
from paddle_amp_plugin.estimate.modes import largest_batch, parts
from paddle_amp_plugin.estimate.plans import asked_mode, modes_for
from paddle_amp_plugin.estimate.result import Result
from paddle_amp_plugin.estimate.step import WorkloadStep
from paddle_amp_plugin.messages import tr


def estimate_workload(work: Any, *, batch: int | None, memory: int | None, reserve: int, progress: Any = None) -> Result:
    """``work``: an open ``hosts.workloads.Workload``; ``batch``: samples a backward pass, the config's by default.

    ``progress``: called before each traced step. Raises AmpError: AMP286 if the model cannot be traced, AMP288 for a
    ``batch`` below 1, AMP289 if ``reserve`` alone fills ``memory``.
    """
    samples = work.batch_size if batch is None else batch
    _check(samples, memory, reserve)
    with on_cpu():
        step = WorkloadStep(work)
        traced = trace_step(step, BATCH_SIZES, progress=progress)
        modes = modes_for(work.settings, step, traced, family=work.family)
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
        accumulate_steps=work.settings.accumulate_steps if work.settings is not None else 1,
        memory=memory,
        reserve=reserve,
        asked=asked_mode(work.settings, modes).name,
        columns=columns,
        measured_at=BATCH_SIZES,
        made_up=step.made_up,
        unknown_ops=traced.large.notes,
        same_ops=traced.same_ops,
    )


def _check(samples: int, memory: int | None, reserve: int) -> None:
    if samples < 1:
        raise AmpError("AMP288", tr("--batch {b}: 1 or more", "--batch {b}：应为 1 或更大", b=samples))
    if memory is not None and memory <= reserve:
        raise AmpError(
            "AMP289",
            tr("--reserve leaves nothing of --memory", "--reserve 已占满 --memory"),
            hint=tr("--reserve 0MiB counts tensors only", "--reserve 0MiB 表示只计张量"),
        )
