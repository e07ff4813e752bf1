"""``errors.md``: every code on one page, out of ``errors.yml`` and the rules of lint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from docs_site import DOCS, template

FILE = Path(__file__).with_name("errors.yml")

_COLUMNS = {"en": "| code | meaning | what to do |", "zh": "| 代码 | 含义 | 如何处理 |"}
_MORE = {"en": "More: [{title}]({page}.md).", "zh": "详见[{title}]({page}.md)。"}
_FINDINGS = {"en": "What lint finds in code", "zh": "lint 在代码中的发现"}
_FINDINGS_TEXT = {
    "en": "Not errors of a run: [lint](lint.md) reports them; `paddle-amp lint --explain CODE` says why.",
    "zh": "并非训练中的错误：由 [lint](lint.md) 报告；`paddle-amp lint --explain CODE` 说明原因。",
}
_FINDINGS_COLUMNS = {"en": "| code | | what |", "zh": "| 代码 | | 内容 |"}
_SEVERITY = {"en": {"warning": "warning", "note": "note"}, "zh": {"warning": "警告", "note": "提示"}}


def sections() -> list[dict[str, Any]]:
    """``[{"en": title, "zh": title, "page": more, "codes": {code: {"en": [meaning, what to do], "zh": […]}}}, …]``."""
    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def render(language: str) -> str:
    """The whole page."""
    from docs_site.nav import title

    parts = []
    for section in sections():
        rows = [f"| {_anchored(code)} | {' | '.join(texts[language])} |" for code, texts in section["codes"].items()]
        more = _MORE[language].format(title=title(section["page"], language), page=section["page"])
        head = [f"## {section[language]}", "", _COLUMNS[language], "|---|---|---|"]
        parts.append("\n".join([*head, *rows, "", more, ""]))
    return template("errors", language).replace("@TABLES@\n", "\n".join([*parts, _findings(language)]))


def _findings(language: str) -> str:
    from paddle_amp_plugin.lint import RULES

    rows = [
        f"| {_anchored(code)} | {_SEVERITY[language][rule.severity]} | {getattr(rule.title, language)} |"
        for code, rule in RULES.items()
    ]
    head = [f"## {_FINDINGS[language]}", "", _FINDINGS_TEXT[language], "", _FINDINGS_COLUMNS[language], "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _anchored(code: str) -> str:
    return f'<a id="{code.lower()}"></a>{code}'


def path(language: str) -> Path:
    return DOCS / language / "errors.md"
