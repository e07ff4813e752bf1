"""How the documentation is made and checked: generated pages, one navigation for two languages, parity, transcripts.

``python -m docs_site`` writes the generated pages anew, ``python -m docs_site --check`` says which are not up to date.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LANGUAGES = ("en", "zh")


def template(name: str, language: str) -> str:
    """The text around what is generated; ``@NAMES@`` stand for it."""
    return (Path(__file__).parent / "templates" / f"{name}.{language}.md").read_text(encoding="utf-8")
