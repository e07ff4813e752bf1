"""``paddle-amp run``: its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command(
        "run",
        help=tr(
            "Run your own script (for example your checkout's tools/train.py, or a script of PaddleNLP's Trainer) with "
            "AMP from the config's `amp` key.",
            "运行您自己的脚本（例如 PaddleOCR 目录中的 tools/train.py，或使用 PaddleNLP Trainer 的脚本），"
            "按配置中的 `amp` 启用混合精度。",
        ),
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    )(command)


def command(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help=tr("the script to run", "要运行的脚本"))],
    show_patches: Annotated[
        bool, typer.Option("--show-patches", help=tr("list what would be patched, and stop", "列出将打的补丁后退出"))
    ] = False,
    paddleocr: Annotated[
        Optional[str],  # noqa: UP045  (typer evaluates it, on Python 3.10 too)
        typer.Option("--paddleocr", metavar="DIR", help=tr("PaddleOCR's folder", "PaddleOCR 目录")),
    ] = None,
) -> None:
    from paddle_amp_plugin.cli.run import run

    code = guarded(lambda: run(script, context.args, show_patches=show_patches, paddleocr_dir=paddleocr))
    raise typer.Exit(code)
