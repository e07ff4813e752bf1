"""One training of a comparison, in a process of its own so that its peak of memory is its own.

``python -m paddle_amp_plugin.comparison.child REQUEST.json RESULT.json``: the request names config, options, mode and
steps (see ``runner.Request``); the result is a ``Run`` with the facts about device and model, or an error. While it
runs it prints ``STEP n`` lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from paddle_amp_plugin.comparison.record import FP32, MODES, Model, Run, strict
from paddle_amp_plugin.errors import AmpError

MARK = "\x1eSTEP "


def main(request_file: str, result_file: str) -> None:
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    try:
        result = train(request, lambda step: print(f"{MARK}{step}", flush=True))
    except AmpError as error:
        result = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    Path(result_file).write_text(json.dumps(strict(result), ensure_ascii=False), encoding="utf-8")


def train(request: dict[str, Any], say: Any) -> dict[str, Any]:
    """Opens the workload, trains one mode of it, measures. Raises AmpError."""
    from paddle_amp_plugin.hosts.workloads import no_data, open_workload

    options = request["options"]
    with open_workload(
        request["config"], options, paddleocr_dir=request["paddleocr"], synthetic=request["synthetic"]
    ) as work:
        if work.missing is not None and not request["synthetic"]:
            raise no_data(work.missing)
        return measure(work, request["mode"], request["steps"], say=say, metric=request["metric"])


def measure(work: Any, mode: str, steps: int, *, say: Any = lambda step: None, metric: bool = False) -> dict[str, Any]:
    """``{"run": …, "model": …, "device": …, "about": …}`` of ``steps`` steps of a workload in a mode.

    ``model`` is there for FP32 only. ``say(step)`` is called after every step; ``metric``: evaluates at the end.
    """
    import paddle

    from paddle_amp_plugin.rehearsal.side import Side

    plan = _plan(work, mode)
    start = _memory(now=True)
    side = Side(work, plan)
    row = {"mode": mode, "seed": work.seed, "memory_start": start or 0, "used": f"{plan.level} {plan.dtype}"}
    batches = work.train_batches()
    with contextlib.closing(batches), side:
        run = _train(side, batches, steps, Run(**row), say)
        found = _evaluate(work, side) if metric and not run.failed else {}
        model = dataclasses.asdict(_model(work, side)) if mode == FP32 else None
        share = side.session.half_share() if side.session is not None else None
    run = dataclasses.replace(run, metric=found, half_share=share)
    device = {**dataclasses.asdict(plan.device), "software_half": plan.software_half, "paddle": paddle.__version__}
    about = {"name": work.name, "family": work.family, "batch_size": work.batch_size}
    return {"run": dataclasses.asdict(run), "model": model, "device": device, "about": about}


def _plan(work: Any, mode: str) -> Any:
    from paddle_amp_plugin.healing import plan_float32
    from paddle_amp_plugin.hosts.workloads import plan_for
    from paddle_amp_plugin.rehearsal.keys import amp_with
    from paddle_amp_plugin.rehearsal.runner import amp_mapping

    plan = plan_for(work, {**amp_with(amp_mapping(work), **MODES.get(mode, MODES["O1"])), "cpu": "emulate"})
    plan = dataclasses.replace(plan, accumulate_steps=1)
    return plan_float32(plan, "FP32") if mode == FP32 else plan


def _train(side: Any, batches: Any, steps: int, run: Run, say: Any) -> Run:
    losses: list[float] = []
    parts = dict.fromkeys(("reader", "forward", "backward", "update"), 0.0)
    skipped = timed = samples = 0
    failed = ""
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        batch = next(batches)
        read = time.perf_counter() - begin
        try:
            done = side.step(batch)
        except AmpError as error:
            failed = f"[{error.code}] {error.message}"
            break
        losses.append(done.loss)
        skipped += done.skipped
        if step > warm_up(steps):
            timed += 1
            samples += side.work.samples(batch)
            for name, value in zip(parts, (read, done.forward, done.backward, done.update), strict=True):
                parts[name] += value
        say(step)
    peak = _memory(now=False)
    return dataclasses.replace(
        run,
        losses=tuple(losses),
        skipped=skipped,
        timed=timed,
        samples=samples,
        memory=peak if peak is not None else _gpu_peak(),
        failed=failed,
        **parts,
    )


def warm_up(steps: int) -> int:
    """First steps that are not timed: allocations, algorithm searches, the loader's first batches."""
    return min(10, max(1, steps // 4))


def _evaluate(work: Any, side: Any) -> dict[str, float]:
    context = side.session.evaluation() if side.session is not None else contextlib.nullcontext()
    try:
        with context:
            return dict(work.evaluate(side.model))
    except AmpError:  # no evaluation data: then there is no metric
        return {}


def _memory(*, now: bool) -> int | None:
    """Bytes of this process in memory, now or at the peak; None on a GPU, which keeps its own books."""
    import paddle

    if paddle.device.get_device().startswith("gpu"):
        return None
    if not now:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _gpu_peak() -> int:
    import paddle

    return int(paddle.device.cuda.max_memory_allocated())


def _model(work: Any, side: Any) -> Model:
    """Sizes of the products in one forward pass in FP32, by hooks; nothing of the model changes."""
    import paddle

    from paddle_amp_plugin.diagnosis.state import untouched

    model = side.model
    found: list[tuple[str, int, int, int]] = []  # name, in, out, multiply-accumulates
    handles = []
    for name, layer in model.named_sublayers():
        weight = getattr(layer, "weight", None)
        if isinstance(weight, paddle.Tensor) and len(weight.shape) in (2, 4) and _is_product(layer):
            hook = _counting(name, weight, found)
            handles.append(layer.register_forward_post_hook(hook))
    batches = work.train_batches()
    try:
        with contextlib.closing(batches), untouched(model), paddle.no_grad():
            work.loss(model, next(batches), side.criterion)
    finally:
        for handle in handles:
            handle.remove()
    total = sum(macs for *_, macs in found)
    odd = sorted((row for row in found if row[1] % 8 or row[2] % 8), key=lambda row: -row[3])
    share = sum(row[3] for row in odd) / total if total else 0.0
    names = tuple(f"{name} ({a} x {b})" for name, a, b, _ in odd[:3])
    return Model(sum(int(p.size) for p in model.parameters()), total, len(found), share, names)


def _is_product(layer: Any) -> bool:
    """A Linear layer, or a convolution that is not depth-wise (those do not run on Tensor Cores)."""
    kind = type(layer).__name__
    return kind.startswith("Linear") or ("Conv2D" in kind and getattr(layer, "_groups", 1) == 1)


def _counting(name: str, weight: Any, found: list[tuple[str, int, int, int]]) -> Any:
    shape = [int(n) for n in weight.shape]

    def hook(layer: Any, inputs: Any, output: Any) -> None:
        if len(shape) == 2:
            width_in, width_out = shape
        elif "Transpose" in type(layer).__name__:
            width_in, width_out = shape[0], shape[1]
        else:
            width_in, width_out = shape[1], shape[0]
        size = 1
        for n in shape:
            size *= n
        places = int(output.size) // width_out
        if "Transpose" in type(layer).__name__:  # each input place meets the whole weight
            places = int(inputs[0].size) // width_in
        found.append((name, width_in, width_out, size * places))

    return hook


if __name__ == "__main__":
    main(*sys.argv[1:])
