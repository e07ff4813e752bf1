"""The plan as a table on the console, readable at 80 columns."""

from __future__ import annotations

import textwrap

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.plan_model import Plan

#: Columns given to where a value came from; a longer path stands on a line of its own, whole.
SOURCE_WIDTH = 24


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """Print the plan: what, its value, where from; below it the reasons, then the remarks.

    Reasons are sentences; as a fourth column they would be four words wide on 80 columns.
    """
    console = console or Console()
    # Text and not str: a name such as "head[0]" is not markup
    table = Table(title=Text(tr("AMP plan of this run", "本次运行的 AMP 计划")), box=box.SIMPLE, title_justify="left")
    rows = plan.rows()
    table.add_column(Text(tr("setting", "设置")), no_wrap=True)
    table.add_column(Text(tr("value", "值")), overflow="fold")
    table.add_column(Text(tr("from", "来源")), no_wrap=True)
    for row in rows:
        # rich would cut a path in two to make room, and then it cannot be copied
        source = textwrap.fill(row.source_text, SOURCE_WIDTH, break_long_words=False, break_on_hyphens=False)
        table.add_row(Text(row.key), Text(row.value), Text(source))
    console.print(table)
    for row in rows:
        if row.why:
            console.print(Text(f"  {row.key}: {row.why}"))
    for note in plan.notes:
        console.print(Text(f"  {note}", style="yellow"))
