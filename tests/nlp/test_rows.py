"""Data files: what is read, and what is said of a row that is none. No Paddle."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.nlp.rows import read_file, read_rows
from tests.nlp import tiny


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def load(tmp_path: Path, task: str, text: str, name: str = "d.jsonl", labelled: bool = True):
    recipe = tiny.read(tmp_path, task)
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_file(recipe, str(tmp_path / name), key="data.train", labelled=labelled)


@pytest.mark.parametrize(
    "task", ["sequence_classification", "sentence_pair", "token_classification", "question_answering", "masked_lm"]
)
def test_jsonl_of_every_task(tmp_path: Path, task: str) -> None:
    rows = read_rows(tiny.read(tmp_path, task), "train")
    assert len(rows) == 64
    if task == "token_classification":
        assert rows[0]["labels"][-3:] == [1, 2, 0]
    if task == "question_answering":
        text, start = rows[0]["answers"][0]
        assert rows[0]["context"][start : start + len(text)] == text == "北京"
    if task == "sequence_classification":
        assert [row["label"] for row in rows[:3]] == [1, 0, 1]


def test_limit(tmp_path: Path) -> None:
    assert len(read_rows(tiny.read(tmp_path, "masked_lm"), "train", limit=5)) == 5


def test_tsv_with_a_header(tmp_path: Path) -> None:
    rows = load(tmp_path, "sequence_classification", "text\tlabel\n好书\tyes\n坏书\tno\n", "d.tsv")
    assert rows == [{"text": "好书", "label": 1}, {"text": "坏书", "label": 0}]


def test_conll(tmp_path: Path) -> None:
    rows = load(tmp_path, "token_classification", "在 O\n北 B-LOC\n京 I-LOC\n\n好\tO\n", "d.conll")
    assert rows == [{"tokens": ["在", "北", "京"], "labels": [0, 1, 2]}, {"tokens": ["好"], "labels": [0]}]


def test_labels_may_be_left_out_where_they_are_not_needed(tmp_path: Path) -> None:
    assert load(tmp_path, "sequence_classification", '{"text": "好"}\n', labelled=False) == [{"text": "好"}]


def test_dureader_answers(tmp_path: Path) -> None:
    line = '{"context": "人在北京", "question": "在", "answers": [{"text": "北京", "answer_start": 2}]}\n'
    assert load(tmp_path, "question_answering", line)[0]["answers"] == [("北京", 2)]


@pytest.mark.parametrize(
    ("task", "text", "code", "said"),
    [
        ("sequence_classification", "", "AMP219", "has no rows"),
        ("sequence_classification", "\n\n", "AMP219", "has no rows"),
        ("sequence_classification", "{", "AMP220", ":1: not JSON"),
        ("sequence_classification", "[1]", "AMP220", "not a JSON object"),
        ("sequence_classification", '{"text": "好"}', "AMP220", "label is missing"),
        ("sequence_classification", '{"text": " ", "label": "yes"}', "AMP220", "text is no text or empty"),
        ("sequence_classification", '{"text": "好", "label": "yess"}', "AMP221", "did you mean: yes"),
        ("sequence_classification", '{"text": "好", "label": 7}', "AMP221", "label 7 is not one of"),
        ("sequence_classification", '{"text": "好", "label": true}', "AMP221", "label True is not one of"),
        ("token_classification", '{"tokens": ["好"], "labels": []}', "AMP220", "1 tokens and 0 labels"),
        ("token_classification", '{"tokens": "好", "labels": ["O"]}', "AMP220", "no list of texts"),
        ("token_classification", '{"tokens": ["好"], "labels": ["B-ORG"]}', "AMP221", "'B-ORG'"),
        (
            "question_answering",
            '{"context": "好", "question": "好", "answers": {"text": ["坏"], "answer_start": [0]}}',
            "AMP220",
            "does not stand at 0",
        ),
        ("question_answering", '{"context": "好", "question": "好", "answers": "好"}', "AMP220", "neither text nor"),
    ],
)
def test_faulty_rows(tmp_path: Path, task: str, text: str, code: str, said: str) -> None:
    with pytest.raises(AmpError, match=said) as caught:
        load(tmp_path, task, text)
    assert caught.value.code == code


def test_several_faults_are_listed_with_their_lines(tmp_path: Path) -> None:
    text = '{"text": "好", "label": "yes"}\n' + '{"text": "好", "label": "x"}\n' * 9
    with pytest.raises(AmpError) as caught:
        load(tmp_path, "sequence_classification", text)
    lines = str(caught.value).splitlines()
    assert len(lines) == 5 and [line.split("d.jsonl:")[1].split(":")[0] for line in lines] == ["2", "3", "4", "5", "6"]


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    recipe = tiny.read(
        tmp_path, "masked_lm", data_command="python -m make it", data={"train": str(tmp_path / "no.jsonl")}
    )
    with pytest.raises(AmpError, match=r"data\.train: no such file") as caught:
        read_rows(recipe, "train")
    assert caught.value.code == "AMP219" and "python -m make it" in caught.value.hint


def test_another_suffix_and_another_encoding(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match="not one of"):
        load(tmp_path, "masked_lm", "好\n", "d.csv")
    recipe = tiny.read(tmp_path, "masked_lm")
    (tmp_path / "g.txt").write_bytes("好".encode("gbk") + b"\n")
    with pytest.raises(AmpError, match="not UTF-8"):
        read_file(recipe, str(tmp_path / "g.txt"), key="data.train", labelled=True)
