"""``paddle-amp estimate``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command(
        "estimate",
        help=tr(
            "How much memory a training takes in FP32, at O1 and at O2, and the largest batch that fits. Runs small "
            "steps of the config's own model on the CPU; no data and no GPU are needed.",
            "估算训练在 FP32、O1 与 O2 下占用的显存以及可容纳的最大批大小。"
            "只在 CPU 上运行配置中模型的几个小步，不需要数据与 GPU。",
        ),
    )(command)


def command(
    config: Annotated[
        Path, typer.Option("-c", "--config", metavar="FILE", help=tr("the config to train", "训练所用的配置文件"))
    ],
    batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--batch", help=tr("samples a backward pass; else the config's", "每次反向的样本数；默认取配置")),
    ] = None,
    memory: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--memory", metavar="SIZE", help=tr("what the GPU has, e.g. 16GiB", "GPU 的显存，例如 16GiB")),
    ] = None,
    reserve: Annotated[
        str,
        typer.Option(
            "--reserve",
            metavar="SIZE",
            help=tr(
                "for the CUDA context, cuDNN and the allocator's gaps", "留给 CUDA 上下文、cuDNN 与分配器空隙的显存"
            ),
        ),
    ] = "1GiB",
    as_json: Annotated[bool, typer.Option("--json", help=tr("as JSON, in bytes", "以 JSON 输出，单位为字节"))] = False,
    picture: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--picture", metavar="FILE.svg", help=tr("also as a picture", "同时生成图片")),
    ] = None,
    options: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="KEY=VALUE", help=tr("change a key of the config", "修改配置中的键")),
    ] = None,
    paddleocr: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--paddleocr", metavar="DIR", help=tr("PaddleOCR's folder", "PaddleOCR 目录")),
    ] = None,
) -> None:
    from paddle_amp_plugin.cli.estimate import estimate

    code = guarded(
        lambda: estimate(
            config,
            batch=batch,
            memory=memory,
            reserve=reserve,
            as_json=as_json,
            picture=picture,
            options=options or [],
            paddleocr_dir=paddleocr,
        )
    )
    raise typer.Exit(code)
