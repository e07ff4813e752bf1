"""What this project's ``tools/*.py`` share: a PaddleOCR config or an NLP recipe, seen from the file itself.

For PaddleOCR: its own arguments, plus ``--paddleocr DIR``. For a recipe: ``-c FILE -o key=value …``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paddle_amp_plugin import activation
from paddle_amp_plugin.cli.errors import guarded
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

#: Tools that only NLP recipes have.
NLP_ONLY = ("predict",)


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


def config_of(argv: Sequence[str]) -> str | None:
    """The file behind ``-c`` / ``--config``, or None."""
    for place, argument in enumerate(argv):
        if argument in ("-c", "--config"):
            return argv[place + 1] if place + 1 < len(argv) else None
        if argument.startswith("--config="):
            return argument.partition("=")[2]
    return None


def main(name: str, argv: Sequence[str], file: str) -> int:
    """Runs a tool on what ``-c`` names; returns the exit code. ``file`` is our own script."""

    activation.stop()

    def action() -> None:
        from paddle_amp_plugin.nlp.recipe import looks_nlp
        from paddle_amp_plugin.nlp.run import TOOLS, run_tool

        config = config_of(argv)
        if name in NLP_ONLY or (name in TOOLS and config is not None and looks_nlp(config)):
            folder = min(os.path.relpath(Path(file).parent), str(Path(file).parent), key=len)
            run_tool(name, argv, tools=f"python {folder}/")
            return
        from paddle_amp_plugin.hosts import paddleocr_run

        tree, rest = take_tree(argv)
        paddleocr_run.run_tool(name, rest, paddleocr_dir=tree, instead_of=Path(file).resolve().parent)

    return guarded(action)
