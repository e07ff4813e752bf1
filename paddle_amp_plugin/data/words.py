"""The texts of the quick start: real Chinese words and the numbers printed on receipts and labels.

Words and their frequencies are those of jieba's dictionary (``jieba/dict.txt``, MIT licence, one
``word frequency part-of-speech`` a line). A CPU cannot learn the 6,623 characters of PaddleOCR's dictionary
in minutes, so the words are restricted to a small set of characters: the most frequent ones of those words.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

Split = Literal["train", "val"]

#: Characters that receipts and labels need, whatever their frequency in words.
LABEL_HAN = "元年月日"
#: Digits, punctuation, and the letters of kg, g, ml, L: the units of receipts and labels.
SYMBOLS = "0123456789.:/-%¥kgmlL"

#: Most characters in a text. CTC over the quick start's 24 columns needs about four columns a character.
MAX_LENGTH = 6

#: Narrowest line, in em: two digits alone, stretched to the model's width, look like nothing on a receipt.
MIN_WIDTH = 1.5

#: A held-out text is rendered at most so often.
MOST_REPEATS = 3

#: Of 100 texts, so many are held out for evaluation (by text, so none is in both splits).
VAL_PERCENT = 12


def package_file(package: str, relative: str) -> Path:
    """The path of a file inside an installed package, found without importing the package.

    Raises AMP070 when the package or the file is missing.
    """
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / relative
        if path.is_file():
            return path
    distribution = package.replace("_", "-")
    raise AmpError(
        "AMP070",
        tr(
            "{f} of the package {p} is needed to make the data and was not found",
            "制作数据需要软件包 {p} 中的 {f},但没有找到",
            f=relative,
            p=distribution,
        ),
        hint=tr("install it: pip install {p}", "请安装:pip install {p}", p=distribution),
    )


def is_han(character: str) -> bool:
    """Is it a Chinese character (CJK Unified Ideographs, U+4E00 to U+9FFF)?"""
    return "\u4e00" <= character <= "\u9fff"


@lru_cache(maxsize=1)
def jieba_words() -> tuple[tuple[str, int], ...]:
    """(word, frequency) for the words of 2 to 4 Chinese characters in jieba's dictionary, in its order."""
    words: list[tuple[str, int]] = []
    path = package_file("jieba", "dict.txt")
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                word, _, rest = line.partition(" ")
                if 2 <= len(word) <= 4 and all(map(is_han, word)):
                    words.append((word, int(rest.split(" ", 1)[0])))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise AmpError(
            "AMP071",
            tr("jieba's dictionary {p} cannot be read: {e}", "无法读取 jieba 词典 {p}:{e}", p=path, e=error),
            hint=tr("reinstall it: pip install --force-reinstall jieba", "请重装:pip install --force-reinstall jieba"),
        ) from error
    return tuple(words)


@lru_cache(maxsize=8)
def frequent_characters(count: int) -> str:
    """The ``count`` Chinese characters of the quick start, most frequent first.

    A character's frequency is the sum of the frequencies of the words it stands in; ``LABEL_HAN`` is
    always among them.
    """
    frequency: Counter[str] = Counter()
    for word, times in jieba_words():
        for character in word:
            frequency[character] += times
    # Ties are broken by code point, so that the order does not hang on how the dictionary is sorted.
    ranked = sorted(frequency, key=lambda c: (-frequency[c], c))
    chosen = [c for c in ranked if c not in LABEL_HAN][: max(count - len(LABEL_HAN), 0)]
    return "".join(c for c in ranked if c in chosen or c in LABEL_HAN)


def split_of(text: str, seed: int) -> Split:
    """Which split a text belongs to: a function of text and seed alone, so no text can be in both."""
    digest = hashlib.sha256(f"{seed}\t{text}".encode()).digest()
    return "val" if int.from_bytes(digest[:4], "big") % 100 < VAL_PERCENT else "train"


@dataclass(frozen=True)
class Vocabulary:
    """The characters of a data set and the real words that can be written with them."""

    han: str
    symbols: str
    words: tuple[str, ...]
    #: Weight of each word, same length as ``words``: the square root of its frequency, since with the bare
    #: frequency 一个 and 中国 alone would fill a tenth of the lines.
    weights: tuple[float, ...]

    @property
    def characters(self) -> str:
        """Every character a label may hold, in the order of the dictionary file."""
        return self.symbols + self.han

    @classmethod
    def of_characters(cls, han: str, symbols: str = SYMBOLS) -> Vocabulary:
        """The vocabulary of the given Chinese characters; raises AMP072 when no word can be written."""
        allowed = set(han)
        found = [(w, f) for w, f in jieba_words() if f >= 3 and allowed.issuperset(w)]
        if not found:
            raise AmpError(
                "AMP072",
                tr("no word can be written with the {n} characters chosen", "所选的 {n} 个字无法组成词", n=len(han)),
                hint=tr("choose more characters", "请增加字数"),
            )
        return cls(han, symbols, tuple(w for w, _ in found), tuple(math.sqrt(f) for _, f in found))

    @classmethod
    def quick_start(cls, count: int) -> Vocabulary:
        """The vocabulary of the ``count`` most frequent Chinese characters."""
        return cls.of_characters(frequent_characters(count))


def display_width(text: str) -> float:
    """The printed width in em: 1 a Chinese character, about one half anything else."""
    return sum(1.0 if is_han(c) else 0.55 for c in text)


class TextMaker:
    """Draws texts as on receipts and labels: words, prices, measures, dates, times, ratios."""

    def __init__(self, vocabulary: Vocabulary, rng: np.random.Generator, max_width: float) -> None:
        self.vocabulary = vocabulary
        self.rng = rng
        self.max_width = max_width
        #: For each Chinese character that has words: those words, and their weights summed up.
        self._by_character: list[tuple[list[str], NDArray[np.float64]]] = []
        for character in vocabulary.han:
            pairs = [(w, x) for w, x in zip(vocabulary.words, vocabulary.weights, strict=True) if character in w]
            if pairs:
                self._by_character.append(([w for w, _ in pairs], np.cumsum([x for _, x in pairs])))
        #: (share of lines, maker): half are words, half hold a number.
        makers: tuple[tuple[float, Callable[[], str]], ...] = (
            (0.40, self.word),
            (0.16, self.compound),
            (0.12, self.price),
            (0.10, self.measure),
            (0.08, self.date),
            (0.05, self.clock),
            (0.05, self.ratio),
            (0.04, self.percent),
        )
        self._makers = [m for _, m in makers]
        self._maker_steps = np.cumsum([share for share, _ in makers])

    def word(self) -> str:
        """One word: a character first, all alike, then a word that holds it, by weight.

        Drawn by weight alone, the rarer characters stood in so few training words that the model learned
        the words and not the characters (民 was read as 国 or 自 in every held-out word).
        """
        words, cumulative = self._by_character[int(self.rng.integers(len(self._by_character)))]
        index = int(np.searchsorted(cumulative, self.rng.random() * cumulative[-1]))
        return words[min(index, len(words) - 1)]

    def compound(self) -> str:
        """Two words, or a word and a number: 大学学生, 工业:25."""
        if self.rng.random() < 0.5:
            return self.word() + self.word()
        return f"{self.word()}{self._pick(('', ':'))}{self._integer(2)}"

    def price(self) -> str:
        """¥12.50, 7.5元, 128元."""
        cents = f".{self._digits(2)}" if self.rng.random() < 0.6 else self._pick(("", f".{self._digits(1)}"))
        amount = f"{self._integer(3)}{cents}"
        return f"¥{amount}" if self.rng.random() < 0.5 else f"{amount}元"

    def measure(self) -> str:
        """500g, 1.5kg, 250ml, 20L."""
        decimals = f".{self._digits(1)}" if self.rng.random() < 0.4 else ""
        return f"{self._integer(3)}{decimals}{self._pick(('g', 'kg', 'ml', 'L'))}"

    def date(self) -> str:
        """2024年, 8月15日, 08-07, 12/31, 2024.5."""
        month, day = int(self.rng.integers(1, 13)), int(self.rng.integers(1, 29))
        year = int(self.rng.integers(2000, 2030))
        forms = (
            f"{year}年",
            f"{month}月{day}日",
            f"{month:02d}-{day:02d}",
            f"{month:02d}/{day:02d}",
            f"{year}.{month}",
        )
        return self._pick(forms)

    def clock(self) -> str:
        """13:39, 08:05."""
        return f"{int(self.rng.integers(24)):02d}:{int(self.rng.integers(60)):02d}"

    def ratio(self) -> str:
        """66/48, 2.6-6.4: sizes and reference ranges."""
        if self.rng.random() < 0.5:
            return f"{self._integer(3)}/{self._integer(3)}"
        return f"{self._integer(1)}.{self._digits(1)}-{self._integer(2)}.{self._digits(1)}"

    def percent(self) -> str:
        """35%, 12.5%."""
        return f"{self._integer(2)}{self._pick(('', f'.{self._digits(1)}'))}%"

    def any(self) -> str:
        """One text that fits ``max_width`` em; the kinds as often as their shares say."""
        while True:
            kind = int(np.searchsorted(self._maker_steps, self.rng.random() * self._maker_steps[-1]))
            text = self._makers[min(kind, len(self._makers) - 1)]()
            if 2 <= len(text) <= MAX_LENGTH and MIN_WIDTH <= display_width(text) <= self.max_width:
                return text

    def of_split(self, split: Split, seed: int) -> Iterator[str]:
        """Texts of one split without end; the other split's texts are passed over.

        A held-out text comes at most ``MOST_REPEATS`` times: else the few held-out words of a rare character
        would decide the accuracy.
        """
        seen: Counter[str] = Counter()
        while True:
            text = self.any()
            if split_of(text, seed) != split:
                continue
            seen[text] += 1
            if split == "train" or seen[text] <= MOST_REPEATS:
                yield text

    def _digits(self, count: int) -> str:
        return "".join(map(str, self.rng.integers(0, 10, size=count)))

    def _integer(self, most: int) -> str:
        """A whole number of 1 to ``most`` digits without leading zeros."""
        size = int(self.rng.integers(1, most + 1))
        return str(int(self.rng.integers(10 ** (size - 1), 10**size)))

    def _pick(self, choices: tuple[str, ...]) -> str:
        return choices[int(self.rng.integers(len(choices)))]
