"""The export of a PaddleNLP text classifier from its folder."""

from __future__ import annotations

import json
import shutil

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.export.exported import PaddleRunner
from paddle_amp_plugin.hosts.paddlenlp_export import read_config, read_rows
from tests.export.conftest import paddle_amp_export
from tests.hosts import tiny

pytest.importorskip("paddlenlp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nlp")
    done = tiny.call(["-m", "tests.export.tiny_nlp", str(folder)], folder)
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


def test_export_and_int8(folder):
    out = folder / "out"
    arguments = (str(folder / "model"), "--data", str(folder / "rows.tsv"), "-o", str(out), "--int8", "ptq")
    done = paddle_amp_export(*arguments, cwd=folder)
    assert done.returncode == 0, done.stdout[-3000:]
    record = json.loads((out / "export.json").read_text(encoding="utf-8"))
    assert record["outputs"]["max_abs"] <= 1e-4 and record["outputs"]["largest_output"] > 0.01
    assert record["parameters"]["unused_in_inference"] == []
    assert record["metric"]["trained"] == record["metric"]["exported"] == {"accuracy": 0.5}
    assert 0 <= record["int8"]["metric"]["int8"]["accuracy"] <= 1
    names = {f.name for f in out.iterdir()}
    assert {"config.json", "vocab.txt", "tokenizer_config.json", "inference.pdiparams", "int8"} <= names
    assert PaddleRunner(out).inputs == ("input_ids", "token_type_ids", "attention_mask")


def test_qat_needs_data(folder):
    done = paddle_amp_export(str(folder / "model"), "-o", str(folder / "none"), "--int8", "qat", cwd=folder)
    assert done.returncode == 2 and "AMP230" in done.stdout and "--data" in done.stdout


def test_rows(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("好\t1\n\n很 好\tbad\n", encoding="utf-8")
    assert read_rows(path, ["good", "bad"]) == [("好", 1), ("很 好", 1)]
    path.write_text("好\t1\n坏\tworse\n", encoding="utf-8")
    with pytest.raises(AmpError, match="2") as caught:
        read_rows(path, ["good", "bad"])
    assert caught.value.code == "AMP245" and "good, bad" in caught.value.hint


def test_folders_that_are_no_classifier(folder, tmp_path):
    with pytest.raises(AmpError) as caught:
        read_config(tmp_path)
    assert caught.value.code == "AMP243" and "model_state.pdparams" in caught.value.message
    copy = tmp_path / "copy"
    shutil.copytree(folder / "model", copy)
    facts = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps({**facts, "architectures": ["BertForMaskedLM"]}), encoding="utf-8")
    with pytest.raises(AmpError) as caught:
        read_config(copy)
    assert caught.value.code == "AMP238"
