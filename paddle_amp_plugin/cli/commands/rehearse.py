"""``paddle-amp rehearse``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr

BREAKS = 1


def register(app: typer.Typer) -> None:
    app.command(
        "rehearse",
        help=tr(
            "Will it hold? Some steps of your own training in mixed precision beside FP32, before the real one. "
            "Exit code 0: will hold, 1: would break, 2: bad use.",
            "能否稳定训练？正式训练前，用您自己的模型与数据以混合精度和 FP32 并行试跑若干步。"
            "退出码 0：可以，1：会出问题，2：用法有误。",
        ),
    )(command)


def command(
    config: Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help=tr("the config", "配置文件"))],
    options: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("-o", "--set", metavar="KEY=VALUE", help=tr("over the config; repeatable", "覆盖配置，可重复")),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help=tr("steps", "步数"))] = 20,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help=tr("made-up data of the same shapes", "使用形状相同的合成数据"))
    ] = False,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="DIR", help=tr("default: output/rehearsal/NAME", "默认 output/rehearsal/名称")),
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
    from paddle_amp_plugin.cli.rehearse import rehearse

    found: list[bool] = []
    code = guarded(
        lambda: found.append(
            rehearse(
                config,
                options=options or [],
                steps=steps,
                synthetic=synthetic,
                out=out,
                png=png,
                lang=lang,
                paddleocr_dir=paddleocr,
            )
        )
    )
    # an error that is none of ours (its code is 1) must not look like a verdict
    raise typer.Exit((2 if code == BREAKS else code) if not found else 0 if found[0] else BREAKS)
