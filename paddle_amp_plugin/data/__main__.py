"""``python -m paddle_amp_plugin.data ocr_lines --out DIR``: make the recipes' data from the command line."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from paddle_amp_plugin.data.nlp_encoder import make_nlp_encoder
from paddle_amp_plugin.data.nlp_msra import NerSettings, make_nlp_msra
from paddle_amp_plugin.data.nlp_reviews import ReviewSettings, make_nlp_reviews
from paddle_amp_plugin.data.settings import OcrLineSettings as Settings
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Make the recipes' data sets. 制作各配方的数据集。"""


@app.command("ocr_lines")
def ocr_lines(
    out: Annotated[Path, typer.Option(help="Folder to make. 输出目录。")] = Path("train_data/ocr_amp"),
    lines: Annotated[int, typer.Option(help="Training lines. 训练行数。")] = Settings.lines,
    val_lines: Annotated[int, typer.Option(help="Held-out lines. 留出行数。")] = Settings.val_lines,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes. 随机种子。")] = Settings.seed,
    han: Annotated[int, typer.Option(help="Chinese characters. 汉字个数。")] = Settings.han,
    max_width: Annotated[float, typer.Option(help="Widest line in em. 最大行宽（字）。")] = Settings.max_width,
) -> None:
    """Rendered Chinese text lines for the quick start. 快速上手用的渲染文本行。"""
    from paddle_amp_plugin.data.ocr_lines import make_ocr_lines  # needs the packages of [ocr]

    make_ocr_lines(out, lines, seed, val_lines=val_lines, han=han, max_width=max_width)


@app.command("real_lines")
def real_lines(
    label: Annotated[Path, typer.Option(help="PaddleOCR label file, path<TAB>text. PaddleOCR 标签文件。")],
    out: Annotated[Path, typer.Option(help="Folder to make. 输出目录。")] = Path("train_data/ocr_amp_real"),
    base_dictionary: Annotated[Path, typer.Option(help="The quick start's dict.txt. 快速上手的字典。")] = Path(
        "train_data/ocr_amp/dict.txt"
    ),
    rendered: Annotated[int, typer.Option(help="Rendered lines added. 附加的渲染行数。")] = 5000,
    repeat: Annotated[int, typer.Option(help="Times each real line is taken. 每条真实行重复次数。")] = 10,
    seed: Annotated[int, typer.Option(help="Decides which photos are held out. 决定留出哪些照片。")] = 0,
) -> None:
    """Real photographed lines for fine-tuning, split by photo. 用于微调的真实拍摄文本行,按照片划分。"""
    from paddle_amp_plugin.data.real_lines import make_real_lines, read_label_file

    err = Console(stderr=True)
    for number, what in read_label_file(label).problems:
        err.print(f"{label}:{number}: {what}", style="yellow", markup=False, soft_wrap=True)
    made = make_real_lines(label, out, base_dictionary=base_dictionary, rendered=rendered, repeat=repeat, seed=seed)
    err.print(
        tr(
            "data: {t} real training lines, {r} rendered lines, {v} held-out real lines, {c} characters in {p}",
            "数据：{p} 中有真实训练行 {t} 条、渲染行 {r} 条、留出真实行 {v} 条、字符 {c} 个",
            t=made.train,
            r=made.rendered,
            v=made.val,
            c=len(made.characters),
            p=out,
        ),
        soft_wrap=True,
    )


@app.command("nlp_reviews")
def nlp_reviews(
    out: Annotated[Path, typer.Option(help="Folder to make. 输出目录。")] = Path("train_data/nlp_reviews"),
    dev: Annotated[int, typer.Option(help="Reviews for choosing. 验证评论数。")] = ReviewSettings.dev,
    test: Annotated[int, typer.Option(help="Held-out reviews. 测试评论数。")] = ReviewSettings.test,
    seed: Annotated[int, typer.Option(help="Decides the split. 决定划分。")] = ReviewSettings.seed,
) -> None:
    """Real Chinese reviews, positive and negative. 真实中文评论（正面与负面）。"""
    make_nlp_reviews(out, ReviewSettings(dev, test, seed))


@app.command("nlp_msra")
def nlp_msra(
    out: Annotated[Path, typer.Option(help="Folder to make. 输出目录。")] = Path("train_data/nlp_msra"),
    dev: Annotated[int, typer.Option(help="Sentences for choosing. 验证句数。")] = NerSettings.dev,
    seed: Annotated[int, typer.Option(help="Decides the split. 决定划分。")] = NerSettings.seed,
) -> None:
    """MSRA: names of people, places, organisations. MSRA 命名实体。"""
    make_nlp_msra(out, NerSettings(dev, seed))


@app.command("nlp_encoder")
def nlp_encoder(
    out: Annotated[Path, typer.Option(help="Folder to make. 输出目录。")] = Path("train_data/nlp_encoder"),
) -> None:
    """multilingual-e5-small as a PaddleNLP model folder. 转换为 PaddleNLP 格式的 multilingual-e5-small。"""
    make_nlp_encoder(out)


def _stop(number: int, frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C, so that the temporary folder is removed then too."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; an ``AmpError`` is one message and its exit code, Ctrl-C is 130."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        # Not standalone: errors of ours and Ctrl-C come through to us instead of being printed as tracebacks.
        code = app(standalone_mode=False)
        if code == 130:
            # Typer turns Ctrl-C into this exit code without a word.
            raise KeyboardInterrupt
    except AmpError as error:
        Console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except (KeyboardInterrupt, typer.Abort):
        typer.echo(tr("stopped; nothing half-made was left", "已中断；没有留下半成品"), err=True)
        raise SystemExit(130) from None
    except Exception as error:
        show = getattr(error, "show", None)
        if show is None:
            raise
        # Click's usage errors print themselves.
        show()
        raise SystemExit(getattr(error, "exit_code", 2)) from None
    raise SystemExit(code or 0)


if __name__ == "__main__":
    main()
