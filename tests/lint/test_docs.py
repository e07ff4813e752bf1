"""The pages' transcript is what the verb prints, and their tables are the rules'."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from paddle_amp_plugin.cli.main import app
from paddle_amp_plugin.lint import RULES
from tests.hosts import tiny

SEVERITIES = {"en": {"warning": "warning", "note": "note"}, "zh": {"warning": "警告", "note": "提示"}}


def page(language):
    return (tiny.ROOT / "docs" / language / "lint.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_transcript(language, tmp_path, monkeypatch):
    text = page(language)
    code = re.search(r"```python\n(.*?)\n```", text, re.DOTALL)
    shown = re.search(r"\$ paddle-amp lint train\.py\n(.*?)\n```", text, re.DOTALL)
    (tmp_path / "train.py").write_text(code.group(1) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["lint", "train.py"], env={"PADDLE_AMP_LANG": language})
    assert result.output.rstrip("\n") == shown.group(1) and result.exit_code == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_table(language):
    rows = re.findall(r"^\| (AMP1\d\d) \| (\S+) \| (.+?) \| (.+) \| (.+) \|$", page(language), re.MULTILINE)
    rows = [row for row in rows if row[1] in SEVERITIES[language].values()]
    assert [row[:3] for row in rows] == [
        (code, SEVERITIES[language][rule.severity], getattr(rule.title, language)) for code, rule in RULES.items()
    ]


def test_precision_adds_up():
    for language in ("en", "zh"):
        rows = re.findall(r"^\| \S+ \| (\d+) \| (\d+) \| (\d+) \|", page(language), re.MULTILINE)
        numbers = [tuple(map(int, row)) for row in rows]
        assert len(numbers) > 5 and all(reviewed == true + false for reviewed, true, false in numbers)
        assert tuple(map(sum, zip(*numbers[:-1], strict=True))) == numbers[-1]
