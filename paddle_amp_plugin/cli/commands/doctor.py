"""``paddle-amp doctor``: its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command(
        "doctor",
        help=tr(
            "Say whether AMP will work here, at which dtype and level, and why; with -c, what a config's run would do. "
            "Exit code: 0 it will, 1 it will not.",
            "说明 AMP 在此能否工作、用哪种 dtype 与级别以及原因；加 -c 则说明该配置的运行情况。退出码：0 能，1 不能。",
        ),
    )(command)


def command(
    config: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            help=tr("a PaddleOCR config or an NLP recipe", "PaddleOCR 配置或 NLP 配方"),
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help=tr("as JSON, in English, for an issue", "输出 JSON（英文），用于提交 issue"))
    ] = False,
    self_test: Annotated[
        bool, typer.Option("--self-test/--no-self-test", help=tr("train five steps", "训练五步进行自检"))
    ] = True,
) -> None:
    from paddle_amp_plugin.cli.doctor import doctor

    found = 0

    def action() -> None:
        nonlocal found
        found = doctor(config, as_json=as_json, self_test=self_test)

    raise typer.Exit(guarded(action) or found)
