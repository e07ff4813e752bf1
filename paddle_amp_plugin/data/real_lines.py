"""Reads real photographed lines in PaddleOCR's recognition format and prepares a fine-tuning run on them.

A label file holds ``path<TAB>text`` a line; paths are relative to the folder it lies in. Lines cut from the same
photo share its light, paper and print, so they are split by photo (*group*): a photo in the training split tells
nothing about the held-out ones. The group of a picture stands in ``sources.tsv`` (columns ``file`` and
``group``) beside the label file; without it, it is the file's name up to its trailing number.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from paddle_amp_plugin.data.folders import MANIFEST, refuse_foreign, whole_or_nothing
from paddle_amp_plugin.data.lines import check_fonts, encode_jpeg, render_line
from paddle_amp_plugin.data.words import TextMaker, Vocabulary, display_width, is_han
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

#: Names the folder of the real lines; without it they are looked for beside the project.
ENVIRONMENT = "PADDLE_AMP_REAL_OCR"

#: Full-width forms that narrow print does not tell from the ASCII ones, and the two forms of the yuan sign.
SAME_LOOK = str.maketrans("：，；（）￥", ":,;()¥")


@dataclass(frozen=True)
class RealLine:
    """One picture of one line: its path, the text as printed, and the photo it was cut from."""

    path: Path
    text: str
    group: str


@dataclass(frozen=True)
class LabelFile:
    """A label file as read: the good lines, and what is wrong with the others, by line number from 1."""

    lines: tuple[RealLine, ...]
    problems: tuple[tuple[int, str], ...]


def find_real_ocr(project: Path) -> Path | None:
    """The folder of real lines: ``PADDLE_AMP_REAL_OCR``, else ``../shared/data/real_ocr`` beside the project."""
    named = os.environ.get(ENVIRONMENT)
    folder = Path(named) if named else project.parent / "shared" / "data" / "real_ocr"
    return folder if (folder / "rec_label.txt").is_file() else None


def normalise(text: str) -> str:
    """The text without spaces and with ``SAME_LOOK`` forms made one: what a line recognizer can be asked for."""
    return "".join(text.translate(SAME_LOOK).split())


def read_label_file(path: Path) -> LabelFile:
    """Read a PaddleOCR recognition label file (UTF-8).

    Lines without a tab, without text, or with a picture that is not there become ``problems``; a file that
    cannot be read, or without one good line, raises AMP077.
    """
    path = Path(path)
    try:
        raw = path.read_bytes().splitlines()
    except OSError as error:
        raise AmpError(
            "AMP077", tr("cannot read {p}: {e}", "无法读取 {p}:{e}", p=path, e=error.strerror or error)
        ) from error
    groups = _read_groups(path.parent / "sources.tsv")
    lines: list[RealLine] = []
    problems: list[tuple[int, str]] = []
    for number, data in enumerate(raw, start=1):
        if not data.strip():
            continue
        result = _parse(data, path.parent, groups)
        if isinstance(result, str):
            problems.append((number, result))
        else:
            lines.append(result)
    if not lines:
        listed = "\n".join(f"    {path}:{n}: {what}" for n, what in problems[:10])
        raise AmpError("AMP077", tr("no usable line in {p}", "{p} 中没有可用的行", p=path), hint=listed.strip())
    return LabelFile(tuple(lines), tuple(problems))


def _parse(data: bytes, folder: Path, groups: dict[str, str]) -> RealLine | str:
    """One line of a label file, or in words what is wrong with it."""
    try:
        name, tab, text = data.decode("utf-8-sig").partition("\t")
    except UnicodeDecodeError:
        return tr("not UTF-8", "不是 UTF-8 编码")
    if not tab:
        return tr("no tab between path and text", "路径与文本之间没有制表符")
    if not text.strip():
        return tr("no text", "没有文本")
    if not (folder / name).is_file():
        return tr("picture {n} does not exist", "图片 {n} 不存在", n=name)
    return RealLine(folder / name, text, groups.get(name) or re.sub(r"_?x?\d+$", "", Path(name).stem))


def _read_groups(path: Path) -> dict[str, str]:
    """{picture: photo} from ``sources.tsv``; empty when there is none."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {row["file"]: row["group"] for row in rows if row.get("file") and row.get("group")}


def split_by_group(
    lines: Sequence[RealLine], *, val_share: float = 0.3, seed: int = 0
) -> tuple[list[RealLine], list[RealLine]]:
    """(train, val) with every photo wholly in one of them; a function of lines and seed alone.

    Photos go to ``val`` in an order given by a hash of their name until it holds ``val_share`` of the lines
    or would hold more than 1.25 times that; both sides get at least one photo when there are two.
    """
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.group] = counts.get(line.group, 0) + 1
    order = sorted(counts, key=lambda g: hashlib.sha256(f"{seed}\t{g}".encode()).digest())
    wanted, held, taken = val_share * len(lines), set[str](), 0
    for group in order:
        if taken < wanted and taken + counts[group] <= 1.25 * wanted and len(held) < len(counts) - 1:
            held.add(group)
            taken += counts[group]
    if not held and len(counts) > 1:
        held.add(min(counts, key=lambda g: (counts[g], g)))
    return [x for x in lines if x.group not in held], [x for x in lines if x.group in held]


def within(lines: Iterable[RealLine], characters: Collection[str], max_width: float = 1e9) -> list[RealLine]:
    """The lines that can be read with ``characters`` alone and are at most ``max_width`` em wide."""
    allowed = set(characters)
    return [x for x in lines if allowed.issuperset(normalise(x.text)) and display_width(normalise(x.text)) <= max_width]


def read_dictionary(path: Path) -> str:
    """The characters of a dictionary file, one a line."""
    try:
        return "".join(line.rstrip("\r\n")[:1] for line in path.read_text(encoding="utf-8").splitlines())
    except OSError as error:
        raise AmpError(
            "AMP077", tr("cannot read {p}: {e}", "无法读取 {p}:{e}", p=path, e=error.strerror or error)
        ) from error


class RealTextMaker(TextMaker):
    """Texts over a fine-tuning dictionary: words and numbers, and codes that show every character alike."""

    def any(self) -> str:
        """Half of the texts are codes of random characters, since most of a label's characters are in few words."""
        if self.rng.random() < 0.5:
            return super().any()
        return self.code()

    def code(self) -> str:
        """2 to 5 random characters of one kind (Chinese, or letters, digits and signs)."""
        han = bool(self.vocabulary.han) and self.rng.random() < 0.7
        source = self.vocabulary.han if han else self.vocabulary.symbols
        picks = self.rng.integers(len(source), size=int(self.rng.integers(2, 6)))
        return "".join(source[int(i)] for i in picks)


@dataclass(frozen=True)
class RealSet:
    """A fine-tuning set as written: the dictionary, and how many lines of each kind."""

    characters: str
    train: int
    rendered: int
    val: int


def make_real_lines(
    label_file: Path,
    out: Path,
    *,
    base_dictionary: Path | None = None,
    rendered: int = 5000,
    repeat: int = 10,
    max_width: float = 6.0,
    seed: int = 0,
) -> RealSet:
    """Write a fine-tuning set: ``train.txt`` (real and rendered lines), ``val.txt`` (real lines only), ``dict.txt``.

    The dictionary is the quick start's (``base_dictionary``) with the characters of all labels appended. Some
    dozen photographs cannot teach the new characters by themselves, so ``rendered`` lines over the dictionary
    go beside the real training lines, each taken ``repeat`` times. Rendered texts are drawn at random from words
    and characters, never from the held-out labels, and one that equals a held-out label is passed over.
    Lines wider than ``max_width`` em are left out: at 32 x 96 pixels they are not legible.
    """
    found = read_label_file(label_file)
    train, val = split_by_group(found.lines, seed=seed)
    base = read_dictionary(base_dictionary) if base_dictionary else ""
    extra = sorted({c for line in found.lines for c in normalise(line.text)} - set(base))
    characters = base + "".join(extra)
    train, val = within(train, characters, max_width), within(val, characters, max_width)
    if not train or not val:
        raise AmpError(
            "AMP078",
            tr(
                "{p}: {t} training and {v} held-out lines are left; both are needed",
                "{p}：剩下训练行 {t} 条、留出行 {v} 条；两者都不能为空",
                p=label_file,
                t=len(train),
                v=len(val),
            ),
            hint=tr("add photos, or raise max_width", "请增加照片，或调大 max_width"),
        )
    out = Path(out).absolute()
    refuse_foreign(out)
    check_fonts()
    with whole_or_nothing(out) as folder:
        (folder / "dict.txt").write_text("".join(f"{c}\n" for c in characters), encoding="utf-8")
        held_out = {normalise(line.text) for line in val}
        labels = _copy(train, folder, "real_train") * repeat + _render(characters, held_out, folder, rendered, seed)
        (folder / "train.txt").write_text("".join(labels), encoding="utf-8")
        (folder / "val.txt").write_text("".join(_copy(val, folder, "real_val")), encoding="utf-8")
        (folder / MANIFEST).write_text('{"digest": "real_lines"}\n', encoding="utf-8")
    return RealSet(characters, len(train), rendered, len(val))


def _copy(lines: Sequence[RealLine], folder: Path, name: str) -> list[str]:
    """Copy pictures into the set; returns their label lines."""
    (folder / name).mkdir()
    for line in lines:
        shutil.copyfile(line.path, folder / name / line.path.name)
    return [f"{name}/{line.path.name}\t{normalise(line.text)}\n" for line in lines]


def _render(characters: str, held_out: Collection[str], folder: Path, count: int, seed: int) -> list[str]:
    """Render ``count`` lines over the dictionary; returns their label lines."""
    (folder / "rendered").mkdir()
    han = "".join(c for c in characters if is_han(c))
    vocabulary = Vocabulary.of_characters(han, "".join(c for c in characters if not is_han(c)))
    maker = RealTextMaker(vocabulary, np.random.default_rng([seed, 7]), max_width=5.0)
    labels: list[str] = []
    while len(labels) < count:
        text = maker.any()
        if text in held_out or not set(characters).issuperset(text):
            continue
        name = f"rendered/{len(labels):05d}.jpg"
        rng = np.random.default_rng([seed, 7, len(labels)])
        (folder / name).write_bytes(encode_jpeg(render_line(text, rng), rng))
        labels.append(f"{name}\t{text}\n")
    return labels


def score(predictions: Mapping[str, str], truth: Mapping[str, str]) -> tuple[float, float]:
    """(accuracy, normalised edit similarity) of ``{picture name: text}`` against the truth, both in [0, 1].

    The formulas are those of PaddleOCR's RecMetric (``acc``, ``norm_edit_dis``), but over the whole truth: a
    character outside the model's dictionary counts as wrong, while the host's evaluation drops it from the label.
    A picture without a prediction counts as read empty.
    """
    pairs = [(normalise(predictions.get(name, "")), normalise(text)) for name, text in truth.items()]
    accuracy = sum(read == text for read, text in pairs) / len(pairs)
    similarity = sum(Levenshtein.normalized_similarity(read, text) for read, text in pairs) / len(pairs)
    return accuracy, similarity
