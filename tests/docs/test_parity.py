"""English and Chinese say the same, links lead somewhere, every page is in the navigation, every code is explained."""

from __future__ import annotations

import re

import pytest

from docs_site import DOCS, ROOT, codes, errors_page, nav, parity
from docs_site.__main__ import stale

PAGES = sorted([*DOCS.glob("*/*.md"), *ROOT.glob("*.md")])


def test_same_tree():
    assert parity.unpaired() == []


@pytest.mark.parametrize("english, chinese", parity.pairs(), ids=lambda p: p.stem)
def test_same_structure(english, chinese):
    assert parity.differences(english, chinese) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links(page):
    assert parity.broken_links(page) == []


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent.name == "zh" or p.stem.endswith("_zh")], ids=lambda p: p.stem
)
def test_chinese_punctuation(page):
    assert parity.half_width(page.read_text(encoding="utf-8")) == []


def test_every_page_is_in_the_navigation():
    there, listed = {p.stem for p in (DOCS / "en").glob("*.md")}, nav.pages()
    missing = [
        f"docs/en/{name}.md is not in docs_site/nav.yml: add '{name}' to a section"
        for name in sorted(there - {*listed})
    ]
    gone = [
        f"docs_site/nav.yml names '{name}', but there is no docs/en/{name}.md" for name in listed if name not in there
    ]
    twice = [f"docs_site/nav.yml names '{name}' twice" for name in listed if listed.count(name) > 1]
    assert missing + gone + twice == []


def test_every_page_is_linked_from_the_readmes():
    for readme, language in (("README.md", "en"), ("README_zh.md", "zh")):
        text = (ROOT / readme).read_text(encoding="utf-8")
        missing = [page for page in nav.pages() if f"docs/{language}/{page}.md" not in text]
        assert missing == [], f"{readme} has no link to these pages of docs/{language}"


def test_every_code_is_explained_and_none_that_does_not_exist():
    """Of codes of errors ``docs_site/errors.yml`` is the list, of lint's findings the rules."""
    raised = codes.in_source()
    explained = [code for section in errors_page.sections() for code in section["codes"]]
    findings = {code for code in raised if "AMP100" <= code <= "AMP199"}
    missing = {code: files for code, files in raised.items() if code not in explained and code not in findings}
    assert missing == {}, "add these to docs_site/errors.yml, then run python -m docs_site"
    gone = [code for code in explained if code not in raised]
    assert gone == [], "docs_site/errors.yml explains these, and nothing in paddle_amp_plugin raises them"
    assert explained == sorted(set(explained)), "sorted, each once"
    for language in ("en", "zh"):
        page = (DOCS / language / "errors.md").read_text(encoding="utf-8")
        assert re.findall(r'<a id="amp\d{3}"></a>(AMP\d{3})', page) == explained + sorted(findings)


def test_no_page_names_a_code_that_does_not_exist():
    known = codes.in_source()
    for page in PAGES:
        named = set(re.findall(r"\bAMP\d{3}\b", page.read_text(encoding="utf-8")))
        # the ends of a range ("AMP100-AMP199") need not be codes
        ranges = set(
            re.findall(r"AMP\d{3}", " ".join(re.findall(r"AMP\d{3}-AMP\d{3}", page.read_text(encoding="utf-8"))))
        )
        assert named - ranges - known.keys() == set(), page


def test_generated_pages_are_up_to_date():
    assert stale() == []
