"""``paddle-amp export``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr


def register(app: typer.Typer) -> None:
    app.command(
        "export",
        help=tr(
            "Export FP32 masters as an inference model and compare it with the trained one; ONNX and INT8 on request.",
            "将 FP32 主权重导出为推理模型，并与训练的模型逐项比较；可选 ONNX 与 INT8。",
        ),
    )(command)


def command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CKPT",
            help=tr("weights (with -c), or a PaddleNLP model folder", "权重（配合 -c），或 PaddleNLP 模型文件夹"),
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help=tr("the output folder", "输出目录"))],
    config: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-c", "--config", metavar="FILE", help=tr("the PaddleOCR config", "PaddleOCR 配置文件")),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help=tr("also as ONNX", "同时导出 ONNX"))] = False,
    int8: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--int8", metavar="ptq|qat", help=tr("also in 8 bits", "同时导出 8 位模型")),
    ] = None,
    qat_steps: Annotated[int, typer.Option("--qat-steps", help=tr("fine-tuning steps of qat", "qat 的微调步数"))] = 50,
    convert_half: Annotated[
        bool,
        typer.Option("--convert-half", help=tr("accept half weights, rounded as they are", "接受已舍入的半精度权重")),
    ] = False,
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--data",
            metavar="TSV",
            help=tr("text<TAB>label lines for a PaddleNLP model", "PaddleNLP 模型所用的 文本<TAB>标签 数据"),
        ),
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
    from paddle_amp_plugin.cli.export import export

    code = guarded(
        lambda: export(
            checkpoint,
            config=config,
            out=out,
            onnx=onnx,
            int8=int8,
            qat_steps=qat_steps,
            convert_half=convert_half,
            data=data,
            options=options or [],
            paddleocr_dir=paddleocr,
        )
    )
    raise typer.Exit(code)
