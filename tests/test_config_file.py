"""Reading the YAML file: what PaddleOCR reads, and one clear message for everything else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paddle_amp_plugin.config import load_yaml
from paddle_amp_plugin.errors import AmpError
from tests.amp_key import problems


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


# -- files -------------------------------------------------------------------------------------------------


def test_load_yaml_reads_what_paddleocr_reads(tmp_path) -> None:
    path = tmp_path / "a.yml"
    path.write_bytes("\ufeffamp: true\nGlobal:\n  shape: !!python/tuple [3, 32]\n  名: 值\n".encode())
    assert load_yaml(path) == {"amp": True, "Global": {"shape": [3, 32], "名": "值"}}


FILES = [
    (b"", "AMP034", "is empty"),
    (b"# only a comment\n", "AMP034", "is empty"),
    (b"- a\n- b\n", "AMP034", "found: ['a', 'b']"),
    (b"just text", "AMP034", "'just text'"),
    (b"amp: true\nGlobal: [1, 2\nx: 3\n", "AMP032", "line 3, column 2"),
    (b"amp:\n\tlevel: O1\n", "AMP032", "line 2, column 1"),
    (b"a: b: c\n", "AMP032", "line 1, column 5"),
    (b"a: 2001-13-45\n", "AMP032", "unreadable value"),
    (b"a: !!int ''\n", "AMP032", "unreadable value"),
    (b"a: " + b"9" * 6000 + b"x: !foo 3\n", "AMP032", ""),
    (b"a: " + b"[" * 3000, "AMP032", ""),
    (b"a: !unknown 3\n", "AMP032", "line 1, column 4"),
    (b"a: 1\n---\nb: 2\n", "AMP032", "line 2"),
    (b"a: \x00\n", "AMP032", ""),
    (b"{[a]: 1}: 2\n", "AMP032", "line 1"),
    ("amp: 真".encode("gbk"), "AMP031", "byte 0xd5 at line 1"),
    (b"a: 1\nb: \xff\n", "AMP031", "line 2"),
    ("amp: true".encode("utf-16"), "AMP031", "not UTF-8"),
    (b"amp: true\nx: 1\namp: false\n", "AMP033", "key amp stands twice (lines 1 and 3)"),
    (b"amp:\n  level: O1\n  level: O2\n", "AMP033", "amp.level stands twice (lines 2 and 3)"),
    (b"amp: {monitor: {visualdl: on,\n visualdl: off}}", "AMP033", "amp.monitor.visualdl"),
    (b"Global:\n  use_amp: true\n  use_amp: false\n", "AMP033", "Global.use_amp stands twice (lines 2 and 3)"),
    (b"Global:\n  amp: {level: O1, level: O2}\n", "AMP033", "Global.amp.level"),
    (b"Global:\n  use_amp: true\nx: 1\nGlobal:\n  y: 1\n", "AMP033", "key Global stands twice (lines 1 and 4)"),
    (b"fp16: true\nfp16: false\n", "AMP033", "key fp16"),
]


@pytest.mark.parametrize(("content", "code", "text"), FILES)
def test_load_yaml_says_what_is_wrong(tmp_path, content, code, text) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(content)
    with pytest.raises(AmpError) as caught:
        load_yaml(path)
    assert caught.value.code == code and text in str(caught.value) and "c.yml" in str(caught.value)


def test_load_yaml_leaves_other_duplicates_to_the_host(tmp_path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("Global:\n  a: 1\n  a: 2\nGlobal:\n  b: 1\n", encoding="utf-8")
    assert load_yaml(path) == {"Global": {"b": 1}}


def test_load_yaml_without_a_file(tmp_path, monkeypatch) -> None:
    for path, code in [(tmp_path / "no.yml", "AMP030"), (tmp_path, "AMP030"), ("a\0b", "AMP031")]:
        with pytest.raises(AmpError) as caught:
            load_yaml(path)
        assert caught.value.code == code

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(AmpError) as caught:
        load_yaml(tmp_path / "c.yml")
    assert caught.value.code == "AMP031" and "Permission denied" in str(caught.value)


def test_a_recursive_yaml_is_an_error_and_no_crash(tmp_path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("amp: &a\n  monitor: *a\n", encoding="utf-8")
    assert problems(load_yaml(path)) == [("AMP001", "amp.monitor.monitor")]


def test_the_pure_floor_does_not_import_paddle() -> None:
    names = ["config", "plan", "plan_table", "plan_file", "loss_scaling", "op_rules", "errors", "messages"]
    code = f"import sys\nfor n in {names}: __import__('paddle_amp_plugin.' + n)\nsys.exit('paddle' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 0
