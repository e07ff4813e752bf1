"""``paddle-amp run``: the user's own training script, with the patches active."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle_amp_plugin.messages import tr


def run(script: str, arguments: Sequence[str], *, show_patches: bool, paddleocr_dir: str | None) -> None:
    """Runs ``script`` as ``__main__``; ``arguments`` reach it untouched. Raises AmpError.

    A script outside of PaddleOCR's tree that imports PaddleNLP or PaddleFormers is one of theirs.
    """
    from paddle_amp_plugin.hosts import scripts
    from paddle_amp_plugin.hosts.paddleocr_run import run_script
    from paddle_amp_plugin.hosts.paddleocr_tree import tree_of_script

    path = scripts.check_script(script)
    show = _table if show_patches else None
    if paddleocr_dir is None and tree_of_script(path) is None and scripts.is_for_a_trainer(path):
        scripts.run_trainer_script(path, arguments, show=show)
    else:
        run_script(path, arguments, paddleocr_dir=paddleocr_dir, show=show)


def _table(controller: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=tr("patches on {h}", "对 {h} 的补丁", h=controller.patches.host))
    for column in (tr("function", "函数"), tr("state", "状态"), tr("why", "原因")):
        table.add_column(column, overflow="fold")
    for row in controller.patches.listing():
        table.add_row(*row)
    Console().print(table)
