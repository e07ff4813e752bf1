"""``paddle-amp report``: the run's records as one page (and a picture)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paddle_amp_plugin.atomic import write_whole
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import language, tr

LANGUAGES = ("en", "zh")


def report(run_dir: Path, *, out: Path | None, png: bool, lang: str | None) -> Path:
    """Writes the report of the run in ``run_dir`` to ``out`` (default: ``report.html`` in its ``amp`` folder).

    ``png``: also a picture beside it, with the suffix ``.png``. ``lang``: the language the page opens in (it has both),
    the user's if None. Returns the page's path. Raises ``AmpError``: AMP080 to AMP083 for what is wrong with the run,
    AMP084 cannot write, AMP085 matplotlib is missing, AMP086 unknown language.
    """
    from paddle_amp_plugin.report import load_run, render

    if lang is not None and lang not in LANGUAGES:
        raise AmpError(
            "AMP086",
            tr("unknown language: {v}", "未知语言：{v}", v=lang),
            hint=tr("allowed: {a}", "允许的值：{a}", a=", ".join(LANGUAGES)),
        )
    chosen = lang or language()
    data = load_run(Path(run_dir))
    page = Path(out) if out is not None else data.folder / "report.html"
    if page.is_dir():
        page = page / "report.html"
    text = render(data, chosen)
    _written(page, lambda path: path.write_text(text, encoding="utf-8"))
    if png:
        from paddle_amp_plugin.report.png import write_png

        _written(page.with_suffix(".png"), lambda path: write_png(data, path, chosen))
    return page


def _written(target: Path, write: Callable[[Path], object]) -> None:
    write_whole(target, write, code="AMP084", hint=tr("choose another place with --out", "请用 --out 指定其他位置"))
