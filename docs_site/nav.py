"""One navigation for both languages: ``nav.yml`` names the pages, their first headings are their titles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from docs_site import DOCS

FILE = Path(__file__).with_name("nav.yml")


def sections() -> list[dict[str, Any]]:
    """``[{"en": title, "zh": title, "pages": [name without .md, …]}, …]``."""
    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def pages() -> list[str]:
    """Every page of the navigation, in its order."""
    return [page for section in sections() for page in section["pages"]]


def title(page: str, language: str) -> str:
    """The page's first heading, without its markup."""
    text = (DOCS / language / f"{page}.md").read_text(encoding="utf-8")
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    if heading is None:
        raise ValueError(f"docs/{language}/{page}.md has no heading")
    return heading.group(1).replace("`", "")


def mkdocs_nav(language: str) -> list[Any]:
    """As mkdocs wants it."""
    return [
        {section[language]: [{title(page, language): f"{page}.md"} for page in section["pages"]]}
        for section in sections()
    ]
