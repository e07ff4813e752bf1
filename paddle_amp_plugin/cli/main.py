"""The ``paddle-amp`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.messages import tr

app = typer.Typer(
    name="paddle-amp",
    help=tr(
        "Mixed precision for PaddleOCR and PaddleNLP: right, visible, recoverable.",
        "PaddleOCR 与 PaddleNLP 的混合精度训练：正确、可见、可恢复。",
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command(
    "run",
    help=tr(
        "Run your own script (for example your checkout's tools/train.py, or a script of PaddleNLP's Trainer) with "
        "AMP from the config's `amp` key.",
        "运行您自己的脚本（例如 PaddleOCR 目录中的 tools/train.py，或使用 PaddleNLP Trainer 的脚本），"
        "按配置中的 `amp` 启用混合精度。",
    ),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run_command(
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


@app.command(
    "report",
    help=tr(
        "Make the report of a run: one page with its curves, its skips, its verdict and the YAML to paste.",
        "生成一次运行的报告：曲线、跳过的步、结论以及可粘贴的 YAML，集中在一个页面。",
    ),
)
def report_command(
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


@app.command(
    "export",
    help=tr(
        "Export FP32 masters as an inference model and compare it with the trained one; ONNX and INT8 on request.",
        "将 FP32 主权重导出为推理模型，并与训练的模型逐项比较；可选 ONNX 与 INT8。",
    ),
)
def export_command(
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


@app.command("version", help=tr("Show versions.", "显示版本。"))
def version_command() -> None:
    from paddle_amp_plugin.cli.version import version_lines

    print("\n".join(version_lines()))


def main() -> None:
    """Entry point of ``paddle-amp`` and ``python -m paddle_amp_plugin``."""
    app(prog_name="paddle-amp")
