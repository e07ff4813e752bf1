"""``paddle-amp lint``: what it prints and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from paddle_amp_plugin.cli import lint as verb
from paddle_amp_plugin.cli.main import app
from paddle_amp_plugin.lint import RULES
from paddle_amp_plugin.lint.findings import Finding
from paddle_amp_plugin.lint.output import as_github, as_text
from tests.hosts import tiny

CODE = """import paddle

class Head(paddle.nn.Layer):
    def forward(self, x, mask):
        汉, x = '漢', x.masked_fill(mask, -1e9)
        return x.masked_fill(mask, -1e4)
"""


def paddle_amp(*arguments, cwd, **environment):
    """In a process of its own: the help is put together when the verbs are registered."""
    return tiny.call(["-m", "paddle_amp_plugin", "lint", *arguments], cwd, COLUMNS="100", **environment)


def lint(*arguments, cwd, **environment):
    """In this process: what it prints, and its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        result = CliRunner().invoke(app, ["lint", *map(str, arguments)], env=environment)
    return SimpleNamespace(returncode=result.exit_code, stdout=result.output)


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "good.py").write_text("import paddle\n")
    return tmp_path


def test_text(model):
    result = lint(".", cwd=model)
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("model.py:5:41: AMP110 warning: -1e9 is -inf in float16")
    assert lines[1] == "    汉, x = '漢', x.masked_fill(mask, -1e9)"
    width = sum(2 if unicodedata.east_asian_width(c) == "W" else 1 for c in lines[1].partition("-1e9")[0])
    assert lines[2] == " " * width + "^^^^"
    assert lines[3].startswith("    instead: `scores.masked_fill")
    assert lines[4].startswith("model.py:6:36: AMP111 note: -1e4 fits float16 but is not -inf")
    assert lines[8] == "2 finding(s) in 1 of 2 file(s): AMP110 1, AMP111 1"
    assert lines[9] == "why: paddle-amp lint --explain AMP110" and len(lines) == 10


def test_chinese(model):
    result = lint(".", cwd=model, PADDLE_AMP_LANG="zh")
    assert "model.py:5:41: AMP110 警告: -1e9 在 float16 中是 -inf" in result.stdout and "建议：" in result.stdout


def test_nothing_found(model):
    result = lint("good.py", cwd=model)
    assert result.returncode == 0 and result.stdout == "no findings in 1 file(s)\n"


def test_select_and_ignore(model):
    assert "AMP110" not in lint(".", "--ignore", "AMP110", cwd=model).stdout
    assert lint(".", "--select", "AMP13", "--select", "AMP101", cwd=model).returncode == 0


def test_json(model):
    (model / "broken.py").write_text("def f(:\n")
    result = lint(".", "--format", "json", cwd=model)
    document = json.loads(result.stdout)
    assert result.returncode == 1 and document["version"] == 1 and document["files"] == 3
    assert document["counts"] == {"AMP110": 1, "AMP111": 1, "AMP283": 1}
    broken, first, _ = document["findings"]
    assert broken["severity"] == "error" and broken["path"] == "broken.py"
    assert first == {
        "path": "model.py",
        "line": 5,
        "column": 41,
        "end_line": 5,
        "end_column": 45,
        "code": "AMP110",
        "severity": "warning",
        "title": "a mask value beyond float16",
        "message": "-1e9 is -inf in float16; a row that is masked in full becomes NaN",
        "fix": "`scores.masked_fill(hidden, paddle.finfo(scores.dtype).min)`",
    }
    assert json.loads(lint("good.py", "--format", "json", cwd=model).stdout)["findings"] == []


def test_github(model):
    result = lint("model.py", "--format", "github", cwd=model)
    first, second = result.stdout.splitlines()
    assert result.returncode == 1
    assert first.startswith("::warning file=model.py,line=5,endLine=5,col=41,endColumn=45,title=AMP110::-1e9 is -inf")
    assert second.startswith("::notice file=model.py,line=6,")
    assert lint("good.py", "--format", "github", cwd=model).stdout == ""


def test_github_escapes():
    """As ``@actions/core`` escapes properties and data."""
    finding = Finding("a,b:c%.py", 1, 2, 3, 4, "AMP283", "error", "t", "50%: first\r\nsecond, third")
    assert as_github([finding]) == (
        "::error file=a%2Cb%3Ac%25.py,line=1,endLine=3,col=2,title=AMP283::50%25: first%0D%0Asecond, third"
    )


def test_explain_and_list(tmp_path):
    text = lint("--list", cwd=tmp_path).stdout
    assert [line.split()[0] for line in text.splitlines()] == list(RULES)
    text = lint("--explain", "amp131", cwd=tmp_path).stdout
    assert "1.5e-5" in text and "    scaler.unscale_(optimizer)" in text.replace("        ", "    ")
    chinese = lint("--explain", "AMP131", cwd=tmp_path, PADDLE_AMP_LANG="zh").stdout
    assert "在取消缩放之前裁剪梯度" in chinese and "不会报告" in chinese


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.py",), "no such file or folder: none.py"),
        ((), "what is to be linted"),
        (("good.py", "--format", "jsn"), "did you mean: json"),
        (("good.py", "--select", "AMP999"), "unknown code: AMP999"),
        (("--explain", "AMP010"), "unknown code: AMP010"),
        (("empty",), "no Python file in empty"),
    ],
)
def test_bad_use(model, arguments, words):
    (model / "empty").mkdir(exist_ok=True)
    result = lint(*arguments, cwd=model)
    assert result.returncode == 2 and "[AMP280]" in result.stdout and words in result.stdout
    assert "Traceback" not in result.stdout


def test_nothing_heavy_is_imported(model):
    code = (
        "import sys\nsys.argv = ['paddle-amp', 'lint', 'model.py']\n"
        "from paddle_amp_plugin.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print('code', end.code)\n"
        "print([m for m in ('paddle', 'numpy', 'yaml', 'cv2') if m in sys.modules])"
    )
    result = tiny.call(["-c", code], model)
    assert result.stdout.splitlines()[-2:] == ["code 1", "[]"], result.stdout


def test_help_teaches(tmp_path):
    text = re.sub(r"\s+", " ", paddle_amp("--help", cwd=tmp_path).stdout)
    for words in ("--select", "--ignore", "text|json|github", "# noqa: AMP110", "--explain AMP110", "wrong arguments"):
        assert words in text
    assert "退出码" in paddle_amp("--help", cwd=tmp_path, PADDLE_AMP_LANG="zh").stdout


def test_progress_on_a_terminal(tmp_path, monkeypatch, capsys):
    for number in range(25):
        (tmp_path / f"m{number}.py").write_text("import paddle\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    verb.lint([tmp_path], select=[], ignore=[], format="text", explain=None, list_=False)
    shown = capsys.readouterr()
    assert shown.out == "no findings in 25 file(s)\n" and "linting" in shown.err
    verb.lint([tmp_path / "m1.py"], select=[], ignore=[], format="text", explain=None, list_=False)
    assert capsys.readouterr().err == ""


def test_a_reader_that_has_seen_enough(tmp_path):
    """`paddle-amp lint . | head` ends without a word."""
    (tmp_path / "m.py").write_text("import paddle\n" + "x = y.astype('float16')\n" * 2000)
    command = f"{sys.executable} -m paddle_amp_plugin lint m.py | head -1"
    environment = {**os.environ, "PYTHONPATH": str(tiny.ROOT), "PADDLE_AMP_LANG": "en"}
    result = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.stdout.startswith("m.py:2:7: AMP101") and result.stderr == ""


def test_text_of_a_file_that_has_gone():
    """Between linting and printing a file may change; the finding is shown without its line."""
    finding = Finding(__file__, 10**6, 1, 10**6, 2, "AMP101", "warning", "t", "m", "f")
    assert as_text([finding], 1).splitlines()[1] == "    instead: f"
