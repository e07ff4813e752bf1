"""The ``paddle-amp`` command."""

from __future__ import annotations

import typer

from paddle_amp_plugin import activation
from paddle_amp_plugin.cli.commands import compare, doctor, estimate, export, lint, rehearse, report, run, version
from paddle_amp_plugin.messages import tr

app = typer.Typer(
    name="paddle-amp",
    help=tr(
        "Mixed precision for PaddleOCR and PaddleNLP: right, visible, recoverable.",
        "PaddleOCR 与 PaddleNLP 的混合精度训练：正确、可见、可恢复。",
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

#: In the order of ``--help``.
for verb in (run, doctor, rehearse, compare, lint, estimate, report, export, version):
    verb.register(app)


def main() -> None:
    """Entry point of ``paddle-amp`` and ``python -m paddle_amp_plugin``."""
    activation.stop()
    app(prog_name="paddle-amp")
