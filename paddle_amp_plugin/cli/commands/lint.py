"""``paddle-amp lint``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command(
        "lint",
        short_help=tr(
            "Find what breaks auto_cast in model and training code.", "找出模型与训练代码中会破坏 auto_cast 的写法。"
        ),
        help=tr(
            "Find what breaks auto_cast in model and training code, without running it: casts to float16 by hand, FP32 "
            "constants in forward, masks of -1e9, BCE after sigmoid, optimizer.step() beside a scaler, a clip before "
            "unscale_, a missing clear_grad, …\n\n"
            "paddle-amp lint .                             a folder, with all below it\n\n"
            "paddle-amp lint model.py --select AMP11       only codes that begin so\n\n"
            "paddle-amp lint . --format github             annotations in GitHub Actions\n\n"
            "paddle-amp lint --explain AMP110              why, and what to write instead\n\n"
            "A comment silences a statement: # noqa: AMP110. Ends with 0: nothing found, 1: something found, 2: wrong "
            "arguments.",
            "不运行代码，找出模型与训练代码中会破坏 auto_cast 的写法：手工转换为 float16、forward 中的 FP32 常量、-"
            "1e9 的掩码、sigmoid 之后的 "
            "BCE、有 scaler 却调用 optimizer.step()、unscale_ 之前的裁剪、缺少 clear_grad 等。\n\n"
            "paddle-amp lint .                             一个文件夹及其下所有文件\n\n"
            "paddle-amp lint model.py --select AMP11       只看以此开头的代码\n\n"
            "paddle-amp lint . --format github             在 GitHub Actions 中显示为注释\n\n"
            "paddle-amp lint --explain AMP110              为什么，以及应当怎么写\n\n"
            "用注释忽略一条语句：# noqa: AMP110。退出码：0 没有发现，1 有发现，2 参数错误。",
        ),
    )(command)


def command(
    paths: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(metavar="PATH…", help=tr("Python files, or folders", "Python 文件或文件夹")),
    ] = None,
    select: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--select", metavar="CODES", help=tr("only these: AMP101,AMP13", "只看这些：AMP101,AMP13")),
    ] = None,
    ignore: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--ignore", metavar="CODES", help=tr("not these", "不看这些")),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", metavar="text|json|github", help=tr("how to print", "输出格式"))
    ] = "text",
    explain: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--explain", metavar="CODE", help=tr("what a code means, with an example", "解释一个代码，附示例")
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help=tr("all codes", "列出全部代码"))] = False,
) -> None:
    from paddle_amp_plugin.cli.lint import lint

    code = guarded(
        lambda: lint(paths or [], select=select or [], ignore=ignore or [], format=format, explain=explain, list_=list_)
    )
    raise typer.Exit(code)
