"""``python -m docs_site [--check]``: writes the generated pages and pictures, or says which are not up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from docs_site import DOCS, LANGUAGES, ROOT, errors_page, step_picture, support_page


def generated() -> dict[Path, str]:
    """Every generated file and what it must hold."""
    from docs_site import transcripts

    pages = {}
    for language in LANGUAGES:
        # the transcript in the page is what the test compares with the command, so it is kept
        pages[errors_page.path(language)] = transcripts.kept(errors_page.render(language), errors_page.path(language))
        pages[DOCS / language / "support.md"] = support_page.render(language)
        pages[step_picture.path(language)] = step_picture.render(language)
    return pages


def stale() -> list[str]:
    """Generated pages that are not what would be generated now."""
    return [
        path.relative_to(ROOT).as_posix()
        for path, text in generated().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main() -> int:
    if "--check" in sys.argv[1:]:
        wrong = stale()
        print("\n".join(f"{name}: not up to date; run python -m docs_site" for name in wrong))
        return 1 if wrong else 0
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
