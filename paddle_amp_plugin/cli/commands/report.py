"""``paddle-amp report``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command(
        "report",
        help=tr(
            "Make the report of a run: one page with its curves, its skips, its verdict and the YAML to paste.",
            "生成一次运行的报告：曲线、跳过的步、结论以及可粘贴的 YAML，集中在一个页面。",
        ),
    )(command)


def command(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help=tr("the run's output folder", "运行的输出文件夹"))],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="FILE", help=tr("where to write the page", "页面写入的位置")),
    ] = None,
    png: Annotated[bool, typer.Option("--png", help=tr("also a picture", "同时生成图片"))] = False,
    lang: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--lang", metavar="en|zh", help=tr("the language the page opens in", "页面打开时的语言")),
    ] = None,
) -> None:
    from paddle_amp_plugin.cli.report import report

    code = guarded(lambda: print(report(run_dir, out=out, png=png, lang=lang)))
    raise typer.Exit(code)
