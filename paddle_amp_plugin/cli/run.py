"""``paddle-amp run``: the user's own training script, with the patches active."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle_amp_plugin.messages import tr


def run(script: str, arguments: Sequence[str], *, show_patches: bool, paddleocr_dir: str | None) -> None:
    """Runs ``script`` as ``__main__``; ``arguments`` reach it untouched. Raises AmpError."""
    from paddle_amp_plugin.hosts.paddleocr_run import run_script

    run_script(script, arguments, paddleocr_dir=paddleocr_dir, show=_table if show_patches else None)


def _table(controller: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=tr("patches on {h}", "对 {h} 的补丁", h=controller.patches.host))
    for column in (tr("function", "函数"), tr("state", "状态"), tr("why", "原因")):
        table.add_column(column, overflow="fold")
    for row in controller.patches.listing():
        table.add_row(*row)
    Console().print(table)
