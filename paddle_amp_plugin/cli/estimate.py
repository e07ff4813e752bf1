"""``paddle-amp estimate``: how much memory a config's training takes, and the largest batch that fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin.atomic import write_whole
from paddle_amp_plugin.cli.options import overrides
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.estimate.result import Result, advice, rows
from paddle_amp_plugin.estimate.sizes import parse_size, shown
from paddle_amp_plugin.messages import tr

DOES_NOT_FIT = 1


def estimate(
    config: Path,
    *,
    batch: int | None,
    memory: str | None,
    reserve: str,
    as_json: bool,
    picture: Path | None,
    options: Sequence[str],
    paddleocr_dir: str | None,
) -> None:
    """Prints the estimate. Ends with SystemExit 1 if the config's batch does not fit into ``memory``; raises AmpError:
    AMP285 a size, AMP288 ``batch``, AMP289 ``reserve``, AMP291 the picture.
    """
    limit = parse_size(memory, "--memory") if memory is not None else None
    kept = parse_size(reserve, "--reserve")
    _check(batch, limit, kept)
    settings = overrides(options)
    from paddle_amp_plugin.hosts.workloads import open_workload
    from paddle_amp_plugin.nlp.recipe import looks_nlp

    # what is counted is the CPU's allocator, also where there is a GPU
    on_cpu = {"trainer.device": "cpu"} if looks_nlp(config) else {"Global.use_gpu": False}
    with open_workload(config, {**settings, **on_cpu}, paddleocr_dir=paddleocr_dir, synthetic=True) as work:
        result = _with_progress(work, batch, limit, kept, quiet=as_json)
    if picture is not None:
        from paddle_amp_plugin.estimate.picture import draw

        hint = tr("--picture takes a file to write", "--picture 应为可写入的文件")
        write_whole(picture, lambda path: path.write_text(draw(result), encoding="utf-8"), code="AMP291", hint=hint)
    if as_json:
        print(json.dumps(result.as_dict(), indent=2, ensure_ascii=False))
    else:
        _print(result)
    if not result.fits:
        raise SystemExit(DOES_NOT_FIT)


def _check(batch: int | None, memory: int | None, reserve: int) -> None:
    if batch is not None and batch < 1:
        raise AmpError("AMP288", tr("--batch {b}: 1 or more", "--batch {b}：应为 1 或更大", b=batch))
    if memory is not None and memory <= reserve:
        raise AmpError(
            "AMP289",
            tr("--reserve leaves nothing of --memory", "--reserve 已占满 --memory"),
            hint=tr("--reserve 0MiB counts tensors only", "--reserve 0MiB 表示只计张量"),
        )


def _with_progress(work: Any, batch: int | None, memory: int | None, reserve: int, *, quiet: bool) -> Result:
    from rich.console import Console
    from rich.progress import Progress

    from paddle_amp_plugin.estimate.measure import BATCH_SIZES
    from paddle_amp_plugin.estimate.run import estimate_workload

    with Progress(console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task(tr("measuring the model", "正在测量模型"), total=len(BATCH_SIZES) + 1)
        return estimate_workload(work, batch=batch, memory=memory, reserve=reserve, progress=lambda: bar.advance(task))


def _print(result: Result) -> None:
    from rich.console import Console
    from rich.table import Table

    title = tr("{n}: memory at batch {b}", "{n}：批大小 {b} 时的显存", n=result.name, b=result.samples)
    if result.accumulate_steps > 1:
        title += tr(
            " (× {k} accumulated = {t} an update)",
            "（× 累积 {k} 次 = 每次更新 {t}）",
            k=result.accumulate_steps,
            t=result.samples * result.accumulate_steps,
        )
    table = Table(title=title)
    table.add_column("")
    for mode, _, _ in result.columns:
        head = mode.name if mode.dtype == "float32" else f"{mode.name} {mode.dtype}"
        table.add_column(head + (" *" if mode.name == result.asked else ""), justify="right", overflow="fold")
    for row in rows(result):
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print(tr("* what the config asks for", "* 配置所用的方式"), highlight=False)
    console.print(advice(result), highlight=False)
    for line in _remarks(result):
        console.print(line, highlight=False)


def _remarks(result: Result) -> list[str]:
    lines = []
    if result.unknown_ops:
        lines.append(
            tr(
                "counted in full, as they could not be measured: {o}",
                "以下算子无法测量，按最大值计：{o}",
                o=", ".join(result.unknown_ops),
            )
        )
    if not result.same_ops:
        lines.append(
            tr(
                "this model loops over its samples: totals are a line through batch {a} and {b}",
                "该模型逐样本循环：合计为批大小 {a} 与 {b} 两点的直线外推",
                a=result.measured_at[0],
                b=result.measured_at[1],
            )
        )
    if result.memory is not None:
        total, limit = shown(result.column(result.asked)[1].total), shown(result.memory)
        lines.append(
            tr("{m}: {t} of {l}: it fits", "{m}：{t} / {l}：放得下", m=result.asked, t=total, l=limit)
            if result.fits
            else tr("{m}: {t} of {l}: it does not fit", "{m}：{t} / {l}：放不下", m=result.asked, t=total, l=limit)
        )
    return lines
