"""What this project's ``tools/*.py`` share: PaddleOCR's own arguments, plus ``--paddleocr DIR``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr


def take_tree(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """Takes ``--paddleocr DIR`` (or ``--paddleocr=DIR``) out of the arguments; the rest is the host's."""
    rest: list[str] = []
    folder: str | None = None
    arguments = iter(argv)
    for argument in arguments:
        if argument == "--paddleocr":
            folder = next(arguments, None)
            if folder is None:
                raise AmpError("AMP050", tr("--paddleocr needs a folder", "--paddleocr 需要一个目录"))
        elif argument.startswith("--paddleocr="):
            folder = argument.partition("=")[2]
        else:
            rest.append(argument)
    return folder, rest


def main(name: str, argv: Sequence[str], file: str) -> int:
    """Runs the host's ``tools/<name>.py``; returns the exit code. ``file`` is our own script."""

    def action() -> None:
        from paddle_amp_plugin.hosts.paddleocr_run import run_tool

        folder, rest = take_tree(argv)
        run_tool(name, rest, paddleocr_dir=folder, instead_of=Path(file).resolve().parent)

    return guarded(action)
