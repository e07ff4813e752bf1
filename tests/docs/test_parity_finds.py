"""The checks of ``docs_site`` find what they are for, on pages with one fault each."""

from __future__ import annotations

import pytest

from docs_site import ROOT, codes, parity, transcripts

GOOD = "# A `b`\n\n```\npip install x  # why\n```\n\n[b](#b-c)\n\n## B, c\n"
GOOD_ZH = "# 甲\n\n```\npip install x  # 为何\n```\n\n[乙](#乙丙)\n\n## 乙，丙\n"


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "ROOT", tmp_path)

    def write(english, chinese):
        paths = tmp_path / "en.md", tmp_path / "zh.md"
        for path, text in zip(paths, (english, chinese), strict=True):
            path.write_text(text, encoding="utf-8")
        return paths

    return write


def test_nothing_to_find(two):
    english, chinese = two(GOOD, GOOD_ZH)
    assert parity.differences(english, chinese) == []
    assert parity.broken_links(english) == parity.broken_links(chinese) == []


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("## 乙，丙", "### 乙，丙", "headings differ"),
        ("## 乙，丙", "", "headings differ"),
        ("```\npip install x  # 为何\n```\n", "", "1 code blocks and 0"),
        ("pip install x", "pip install y", "other commands"),
        ("```\npip", "```bash\npip", "is plain and bash"),
    ],
)
def test_structure(two, old, new, said):
    found = parity.differences(*two(GOOD, GOOD_ZH.replace(old, new)))
    assert len(found) == 1 and said in found[0]


@pytest.mark.parametrize("link", ["none.md", "#b", "en.md#none", "../docs/none.png"])
def test_links(two, link):
    english, _ = two(GOOD.replace("#b-c", link), "")
    assert len(parity.broken_links(english)) == 1


@pytest.mark.parametrize("text", ["一,二", "一, 二", "一:", "一(二)", "一;二", "一?", "`a`,一", "**一**:二"])
def test_half_width(text):
    assert parity.half_width(text)


@pytest.mark.parametrize(
    "text", ["一，二", "`a, b`", "a, b", "jieba (MIT)", "见[一](a(b).md)", "3:2", "```\n一,二\n```", "一（二）"]
)
def test_full_width(text):
    assert parity.half_width(text) == []


def test_codes(tmp_path):
    package = tmp_path / "p"
    package.mkdir()
    text = '"""AMP001 in a docstring."""\n# AMP002\nx = "see AMP003"\nraise E("AMP004")\ny = f"[AMP005] {x}"\n'
    (package / "m.py").write_text(text, encoding="utf-8")
    assert codes.in_source(package) == {"AMP004": ["p/m.py"], "AMP005": ["p/m.py"]}


@pytest.mark.parametrize(
    "shown, now, equal",
    [
        ("took 3.2 s", "took 11 s", True),
        ("in /a/b.py: 1", "in /tmp/x/y.py: 1", True),
        ("in /a/b.py: 1", "in /tmp/x/y.py: 2", False),
        ("first\n…\nlast", "first\n1\n2\nlast", True),
        ("first\n…", "first\n1\n2", True),
        ("first\n…\nlast", "first\n1\n2", False),
        ("Python 3.11.1", "Python 3.12.9", True),
        ("a", "a\nb", False),
    ],
)
def test_transcripts_compare(shown, now, equal):
    assert transcripts.same(shown, now) is equal


def test_transcript_steps():
    transcript = transcripts.Transcript(ROOT / "docs/zh/x.md", "x", "$ cat f\none\ntwo\n$ python f\nout")
    assert transcript.steps() == [("cat f", "one\ntwo"), ("python f", "out")] and transcript.language == "zh"
