"""Files: which ones, in what encodings, broken ones, and what ``# noqa`` silences."""

from __future__ import annotations

import os

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.lint import RULES, codes, files_of, lint_file, lint_files
from tests.lint.helpers import in_forward, names, places

BAD = "import paddle\nx = y.astype('float16')\n"


def test_walk(tmp_path):
    for name in (
        "a.py",
        "b.txt",
        "sub/c.py",
        ".git/d.py",
        "__pycache__/e.py",
        "sub/.hidden/f.py",
        "node_modules/g.py",
        "env/lib/h.py",
        "build/i.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(BAD)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    found = files_of([tmp_path, tmp_path / "a.py"])
    assert [p.relative_to(tmp_path).as_posix() for p in found] == ["a.py", "sub/c.py"]
    # what is named is linted, whatever it is called
    assert files_of([tmp_path / "build"]) == [tmp_path / "build" / "i.py"]
    assert files_of([tmp_path / "b.txt"]) == [tmp_path / "b.txt"]
    with pytest.raises(AmpError, match="no such file") as caught:
        files_of([tmp_path / "none.py"])
    assert caught.value.code == "AMP280" and caught.value.exit_code == 2


def test_a_link_to_its_own_folder_ends(tmp_path):
    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert len(files_of([tmp_path])) == 1


@pytest.mark.parametrize(
    ("data", "code", "line"),
    [
        (b"x = 1\ndef f(:\n    pass\n", "AMP283", 2),
        (b"print 'hello'\n", "AMP283", 1),
        (b"x = 1\x00\n", "AMP283", 1),
        ("x = 1\ny = '漢'\n".encode("gbk"), "AMP282", 2),
        (b"# coding: martian\nx = 1\n", "AMP282", 1),
        (b"x = " + b"(" * 5000 + b")" * 5000, None, 1),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "AMP282", 1),
    ],
    ids=["syntax", "python2", "null", "gbk", "coding", "deep", "png"],
)
def test_broken_files_are_findings_and_the_others_are_linted(tmp_path, data, code, line):
    """Too many parentheses are a SyntaxError or a MemoryError, as Python's version has it."""
    (tmp_path / "broken.py").write_bytes(data)
    (tmp_path / "good.py").write_text(BAD)
    first, second = lint_files(files_of([tmp_path]), frozenset(RULES))
    assert first.severity == "error" and first.line == line and first.path.endswith("broken.py")
    assert first.code == code or (code is None and first.code in ("AMP283", "AMP284"))
    assert second.code == "AMP101"


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    (finding,) = lint_files([tmp_path / "gone.py"], frozenset(RULES))
    assert finding.code == "AMP281" and finding.severity == "error"


def test_deep_but_valid_code_is_linted(tmp_path):
    """A sum of thousands, as generated code has it: Python parses it, so we read it."""
    path = tmp_path / "deep.py"
    path.write_text(BAD + "z = " + " + ".join(["x"] * 900) + "\n")
    assert [f.code for f in lint_file(path, frozenset(RULES))] == ["AMP101"]


@pytest.mark.parametrize(
    "data",
    [
        "import paddle\n汉 = '漢字'; x = y.astype('float16')\n".encode(),
        "\ufeffimport paddle\n汉 = '漢字'; x = y.astype('float16')\n".encode(),
        "# coding: gbk\n汉 = '漢字'; x = y.astype('float16'); import paddle\n".encode("gbk"),
        "import paddle\r\n汉 = '漢字'; x = y.astype('float16')\r\n".encode(),
        "import paddle; '\x0c\u2028'\n汉 = '漢字'; x = y.astype('float16')\n".encode(),
    ],
    ids=["utf-8", "bom", "gbk", "crlf", "other line ends"],
)
def test_encodings_and_columns(tmp_path, data):
    """Columns count characters, not bytes."""
    path = tmp_path / "m.py"
    path.write_bytes(data)
    (finding,) = lint_file(path, frozenset(RULES))
    assert (finding.code, finding.line, finding.column, finding.end_column) == ("AMP101", 2, 17, 34)


@pytest.mark.parametrize(
    ("comment", "silenced"),
    [
        ("# noqa", True),
        ("#NOQA", True),
        ("# noqa: AMP101", True),
        ("# noqa: AMP104,AMP101", True),
        ("# noqa: E501 AMP101", True),
        ("# noqa:amp101  because of a kernel", True),
        ("# why: see #3  # noqa: AMP101", True),
        ("# noqa: AMP104", False),
        ("# noqa: E501", False),
        ("# no qa", False),
    ],
)
def test_noqa(comment, silenced):
    assert names(f"import paddle\nx = y.astype('float16')  {comment}\n") == ([] if silenced else ["AMP101"])


def test_noqa_in_a_string_is_none():
    assert names("import paddle\nx = y.astype('float16'), '# noqa'\n") == ["AMP101"]


def test_noqa_for_a_statement_of_several_lines():
    code = in_forward("y = self.f(", "    x.astype('float16'),", "    y,", ")  # noqa: AMP101", "return y.half()")
    assert places(code) == [("AMP103", 11, 18)]
    inside = in_forward("y = self.f(", "    x.astype('float16'),  # noqa", "    y.half(),", ")", "return y")
    assert names(inside) == []


def test_noqa_at_the_head_of_a_block_is_for_the_head():
    code = in_forward("if x.astype('float16').sum() > 0:  # noqa", "    return x.half()", "return x")
    assert places(code) == [("AMP103", 8, 22)]


def test_codes():
    assert codes([], []) == frozenset(RULES)
    assert codes(["AMP10"], ["AMP106,amp107"]) == {"AMP101", "AMP102", "AMP103", "AMP104", "AMP105"}
    assert codes(["AMP110 AMP111"], []) == {"AMP110", "AMP111"}
    for wrong in ("AMP199", "E501", "101", "X"):
        with pytest.raises(AmpError) as caught:
            codes([wrong], [])
        assert caught.value.code == "AMP280" and wrong in str(caught.value)
    with pytest.raises(AmpError, match="unknown code") as caught:
        codes(["AMP1O1"], [])
    assert "AMP101" in str(caught.value)


def test_order_and_progress(tmp_path):
    for name in ("b.py", "a.py"):
        (tmp_path / name).write_text(BAD + BAD)
    seen: list[tuple[int, int]] = []
    found = lint_files(files_of([tmp_path]), frozenset(RULES), lambda done, total: seen.append((done, total)))
    assert [(os.path.basename(f.path), f.line) for f in found] == [("a.py", 2), ("a.py", 4), ("b.py", 2), ("b.py", 4)]
    assert seen == [(1, 2), (2, 2)]
