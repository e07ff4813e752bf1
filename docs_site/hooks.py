"""mkdocs hooks: the navigation, the files that both languages share, and a look at what was rendered."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from docs_site import DOCS, LANGUAGES, nav

#: Folders of docs/ beside the languages, as their pages link them: ``../images/…``.
_SHARED = re.compile(r"\]\(\.\./([\w-]+)/")


def on_config(config: Any) -> Any:
    config.nav = nav.mkdocs_nav(config.theme["language"])
    return config


def on_files(files: Any, config: Any) -> Any:
    for folder in sorted(path for path in DOCS.iterdir() if path.is_dir() and path.name not in LANGUAGES):
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = path.relative_to(DOCS).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return _SHARED.sub(r"](\1/", markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """GitHub is more lenient than Python-Markdown: a list or table that did not become one is an error here."""
    plain = re.sub(r"<(pre|code)\b.*?</\1>", "", html, flags=re.DOTALL)
    left = re.search(r"<p>(?:[^<]|<(?!/p>))*?\n([*|] .*|\d+\. .*|\|.*\|)", plain)
    if left is not None:
        raise PluginError(f"{page.file.src_uri}: not rendered (an empty line before it is missing): {left.group(1)}")
    return html


def on_post_build(config: Any) -> None:
    """``build/site/index.html`` leads to the language that the browser asks for."""
    script = "location.replace((navigator.language.startsWith('zh') ? 'zh' : 'en') + '/index.html')"
    links = '<a href="en/index.html">English</a> · <a href="zh/index.html">中文</a>'
    text = f'<!doctype html><meta charset="utf-8"><title>paddle-amp-plugin</title><script>{script}</script>{links}\n'
    Path(config.site_dir).parent.joinpath("index.html").write_text(text, encoding="utf-8")
