"""Options that several verbs share. No Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin.config import parse_override
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import language, tr

LANGUAGES = ("en", "zh")


def overrides(texts: Sequence[str]) -> dict[str, Any]:
    """``key=value`` texts as dotted key -> value, read as YAML. Raises ConfigError (AMP014)."""
    return dict(parse_override(text) for text in texts)


def page_language(asked: str | None) -> str:
    """The language a page opens in: the one asked for, else the user's. Raises AmpError (AMP086)."""
    if asked is not None and asked not in LANGUAGES:
        raise AmpError(
            "AMP086",
            tr("unknown language: {v}", "未知语言：{v}", v=asked),
            hint=tr("allowed: {a}", "允许的值：{a}", a=", ".join(LANGUAGES)),
        )
    return asked or language()


def out_folder(given: Path | None, default: Path) -> Path:
    """The folder a verb writes into, made if need be. Raises AmpError (AMP049) if it cannot be written."""
    import tempfile

    folder = given or default
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise AmpError(
            "AMP049",
            tr("cannot write into {f}: {e}", "无法写入 {f}：{e}", f=folder, e=error.strerror or error),
            hint=tr("choose another folder with --out", "请用 --out 指定其他目录"),
        ) from None
    return folder
