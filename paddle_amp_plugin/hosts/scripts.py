"""Which host a user's script is for, and running a script of PaddleNLP's or PaddleFormers' Trainer as ``__main__``.

Finding out executes nothing: the script and the modules of its own folder are read for their imports.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts import paddleformers, paddlenlp
from paddle_amp_plugin.messages import tr

#: Package that a script imports -> the host's module here. Both are patched: a script may use either.
TRAINERS = {"paddlenlp": paddlenlp, "paddleformers": paddleformers}
_PADDLEOCR = frozenset({"ppocr", "unstructured_paddleocr"})


def imports_of(script: Path) -> set[str]:
    """Top-level packages that ``script`` imports, itself or by modules beside it (none if it is unreadable)."""
    found: set[str] = set()
    waiting, seen = [script.resolve()], set()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _imported(file):
            own = _beside(script.resolve().parent, name)
            if own is None:
                found.add(name.split(".")[0])
            else:
                waiting.append(own)
    return found


def _imported(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            names += [".".join(filter(None, (node.module, alias.name))) for alias in node.names]
    return names


def _beside(folder: Path, name: str) -> Path | None:
    """The file of a module in the script's own folder."""
    place = folder.joinpath(*name.split("."))
    return next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)


def is_for_a_trainer(script: Path) -> bool:
    """Does the script use PaddleNLP or PaddleFormers, and nothing of PaddleOCR?"""
    found = imports_of(script)
    return bool(found & TRAINERS.keys()) and not found & _PADDLEOCR


def run_trainer_script(script: Path, argv: Sequence[str], *, show: Callable[[Any], None] | None = None) -> None:
    """Runs ``script`` as ``__main__`` with its own arguments, the Trainers patched when they are imported.

    ``show`` is called with each installed host's controller instead, and the script is not run. Raises AmpError:
    AMP043 (no Paddle), AMP201 (the script's host is not installed).
    """
    wanted = [name for name in TRAINERS if name in imports_of(script)]
    _require(["paddle", *wanted])
    if show is not None:
        _show(wanted, show)
        return
    before = (sys.argv, list(sys.path))
    sys.argv = [str(script), *argv]
    sys.path.insert(0, str(script.resolve().parent))
    for name in wanted:
        TRAINERS[name].patch()
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        for name in wanted:
            TRAINERS[name].unpatch()
        sys.argv, sys.path[:] = before[0], before[1]


def _show(wanted: Sequence[str], show: Callable[[Any], None]) -> None:
    for name in wanted:
        controller = TRAINERS[name].patch()
        try:
            for module in dict.fromkeys(patch.module for patch in controller.patches.patches):
                importlib.import_module(module)
            show(controller)
        finally:
            TRAINERS[name].unpatch()


def _require(packages: Sequence[str]) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is not None:
            continue
        if package == "paddle":
            raise AmpError(
                "AMP043",
                tr("PaddlePaddle is not installed in {p}", "{p} 中未安装 PaddlePaddle", p=sys.executable),
                hint='pip install "paddle-amp-plugin[cpu,nlp]"',
            )
        raise AmpError(
            "AMP201",
            tr(
                "the script imports {p}, which is not installed in {e}",
                "脚本导入了 {p}，但 {e} 中未安装",
                p=package,
                e=sys.executable,
            ),
            hint=f"pip install {package}",
        )


def check_script(script: str) -> Path:
    """The script's path. Raises AmpError (AMP052) if there is none."""
    path = Path(script)
    if not path.is_file():
        raise AmpError(
            "AMP052",
            tr("no such script: {s}", "脚本不存在：{s}", s=script),
            hint=tr("relative paths start at {d}", "相对路径以 {d} 为起点", d=os.getcwd()),
        )
    return path
