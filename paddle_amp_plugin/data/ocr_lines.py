"""The quick start's data set: rendered Chinese text lines in PaddleOCR's recognition format.

Layout of the folder made (paths in the label files are relative to it)::

    train.txt, val.txt     images/train/00000.jpg<TAB>text, UTF-8, one line an image
    dict.txt               one character a line, as ``Global.character_dict_path`` wants it
    images/{train,val}/    JPEG, RGB, about 35 to 70 pixels high
    samples.png            64 of the training lines side by side, for a human eye
    NOTICE.txt             where words and fonts come from, and their licences
    manifest.json          the settings and their digest; written last, so its presence means "whole"

The bytes of labels and images depend on the settings alone (and on Pillow's and NumPy's versions, which the
manifest records). The set is made in a temporary folder beside the target and renamed when it is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from paddle_amp_plugin.data.folders import MANIFEST, manifest_of, refuse_foreign, whole_or_nothing
from paddle_amp_plugin.data.lines import FACES, check_fonts, contact_sheet, encode_jpeg, render_line
from paddle_amp_plugin.data.settings import OcrLineSettings
from paddle_amp_plugin.data.words import SYMBOLS, Split, TextMaker, Vocabulary
from paddle_amp_plugin.messages import tr

#: Raised whenever the same settings would give other bytes, so that old sets are made again.
FORMAT = 1

NOTICE = """\
Text lines rendered by paddle-amp-plugin (paddle_amp_plugin.data.ocr_lines); no photograph is among them.

Words   jieba's dictionary, https://github.com/fxsjy/jieba, MIT licence.
Fonts   Noto Sans SC, Noto Serif SC, https://github.com/notofonts/noto-cjk, SIL Open Font License 1.1
        (package pylopdf-fonts-zh-cn);
        WenQuanYi Micro Hei and Micro Hei Mono, http://wenq.org, Apache License 2.0
        (package paperang-p2-fonts-cjk).
The fonts themselves are not in this folder; the SIL OFL puts no condition on images drawn with a font.
"""


@dataclass(frozen=True)
class Settings(OcrLineSettings):
    """What decides the bytes of the data set."""

    def digest(self) -> str:
        """SHA-256 of the settings and of everything fixed in the code that decides the bytes."""
        fixed = {"format": FORMAT, "symbols": SYMBOLS, "faces": [asdict(face) for face in FACES]}
        text = json.dumps({**asdict(self), **fixed}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def is_whole(out: Path, settings: Settings) -> bool:
    """Is a finished data set of exactly these settings at ``out``?"""
    return manifest_of(out).get("digest") == settings.digest()


def make_ocr_lines(
    out: Path,
    lines: int = Settings.lines,
    seed: int = Settings.seed,
    *,
    val_lines: int = Settings.val_lines,
    han: int = Settings.han,
    max_width: float = Settings.max_width,
    console: Console | None = None,
) -> bool:
    """Make the data set at ``out`` unless a whole one with the same settings is there.

    Returns whether it was made. Errors are ``AmpError``: AMP070-073 words and fonts, AMP074 the target is
    somebody else's folder, AMP075 settings, AMP076 the disk (permission, space).
    """
    settings = Settings(lines, val_lines, seed, han, max_width)
    settings.check()
    out = Path(out).absolute()
    console = console or Console(stderr=True)
    if is_whole(out, settings):
        console.print(tr("data: {p} is up to date", "数据：{p} 已是最新", p=out), soft_wrap=True)
        return False
    refuse_foreign(out)
    check_fonts()
    vocabulary = Vocabulary.quick_start(han)
    with whole_or_nothing(out) as folder:
        _write_all(folder, settings, vocabulary, console)
    console.print(
        tr(
            "data: {n} training lines, {v} held-out lines, {c} characters in {p}",
            "数据：{p} 中有训练行 {n} 条、留出行 {v} 条、字符 {c} 个",
            n=lines,
            v=val_lines,
            c=len(vocabulary.characters),
            p=out,
        ),
        soft_wrap=True,
    )
    return True


def _write_all(folder: Path, settings: Settings, vocabulary: Vocabulary, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task(
            tr("rendering text lines", "正在渲染文本行"), total=settings.lines + settings.val_lines
        )
        plan: tuple[tuple[Split, int], ...] = (("train", settings.lines), ("val", settings.val_lines))
        for split, count in plan:
            for _ in _write_split(folder, split, count, settings, vocabulary):
                progress.advance(task)
    (folder / "dict.txt").write_text("".join(f"{c}\n" for c in vocabulary.characters), encoding="utf-8")
    shown = [Image.open(path) for path in sorted((folder / "images" / "train").iterdir())[:64]]
    contact_sheet(shown).save(folder / "samples.png")
    (folder / "NOTICE.txt").write_text(NOTICE, encoding="utf-8")
    manifest = {"digest": settings.digest(), "settings": asdict(settings), "versions": _versions()}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _write_split(folder: Path, split: Split, count: int, settings: Settings, vocabulary: Vocabulary) -> Iterator[None]:
    """Render one split's images and its label file; yields after every image."""
    images = folder / "images" / split
    images.mkdir(parents=True)
    # Independent streams: the texts, and one for each image, so that no change to one moves another.
    stream = {"train": 0, "val": 1}[split]
    maker = TextMaker(vocabulary, np.random.default_rng([settings.seed, stream]), settings.max_width)
    texts = maker.of_split(split, settings.seed)
    labels: list[str] = []
    for index in range(count):
        text = next(texts)
        rng = np.random.default_rng([settings.seed, stream, index])
        name = f"{index:05d}.jpg"
        (images / name).write_bytes(encode_jpeg(render_line(text, rng), rng))
        labels.append(f"images/{split}/{name}\t{text}\n")
        yield
    (folder / f"{split}.txt").write_text("".join(labels), encoding="utf-8")


def _versions() -> dict[str, str]:
    """Versions of the packages that the bytes depend on."""
    names = ("pillow", "numpy", "jieba", *sorted({face.package.replace("_", "-") for face in FACES}))
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
