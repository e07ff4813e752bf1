"""``paddle-amp compare``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command(
        "compare",
        help=tr(
            "A/B of FP32 and mixed precision on your own training: losses, metric, speed, memory, and why it is not "
            "faster. On a CPU it compares numbers, not speed.",
            "在您自己的训练上对比 FP32 与混合精度：损失、指标、速度、内存，以及为何没有更快。"
            "在 CPU 上只比较数值，不比较速度。",
        ),
    )(command)


def command(
    config: Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help=tr("the config", "配置文件"))],
    options: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("-o", "--set", metavar="KEY=VALUE", help=tr("over the config; repeatable", "覆盖配置，可重复")),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help=tr("steps of each training", "每次训练的步数"))] = 50,
    seeds: Annotated[int, typer.Option("--seeds", help=tr("trainings of each mode", "每种模式的训练次数"))] = 1,
    modes: Annotated[
        str, typer.Option("--modes", help="fp32, O1, O2, OD, O1-bf16, O2-bf16, OD-bf16")
    ] = "fp32,O1,O1-bf16",
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help=tr("made-up data of the same shapes", "使用形状相同的合成数据"))
    ] = False,
    metric: Annotated[
        bool, typer.Option("--metric/--no-metric", help=tr("evaluate at the end", "结束时进行评估"))
    ] = True,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="DIR", help=tr("default: output/compare/NAME", "默认 output/compare/名称")),
    ] = None,
    png: Annotated[bool, typer.Option("--png", help=tr("also a picture", "同时生成图片"))] = False,
    lang: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--lang", metavar="en|zh", help=tr("the language the page opens in", "页面打开时的语言")),
    ] = None,
    paddleocr: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--paddleocr", metavar="DIR", help=tr("PaddleOCR's folder", "PaddleOCR 目录")),
    ] = None,
) -> None:
    from paddle_amp_plugin.cli.compare import compare

    code = guarded(
        lambda: compare(
            config,
            options=options or [],
            steps=steps,
            seeds=seeds,
            modes=modes,
            synthetic=synthetic,
            metric=metric,
            out=out,
            png=png,
            lang=lang,
            paddleocr_dir=paddleocr,
        )
    )
    raise typer.Exit(code)
