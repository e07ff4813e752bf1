"""Arrows go down only: pure policy / session / hosts and command line (docs/en/design.md)."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs_site import DOCS, ROOT

PACKAGE = ROOT / "paddle_amp_plugin"
#: Of the session's floor: these rooms, and all files of the package's own folder but those that start things.
SESSION_ROOMS = ("diagnosis", "monitor", "software_half", "export", "report")
STARTERS = ("__init__.py", "__main__.py", "activation.py")
HOSTS = ("paddlenlp", "paddleformers", "ppocr", "unstructured_paddleocr")


def pure_files() -> list[Path]:
    """``PURE``, as the Makefile has it: what it is for mypy, it is here."""
    make = shutil.which("make")
    if make is None:
        return []
    command = [make, "-s", "--no-print-directory", "--eval", "print-pure: ; @echo $(PURE)", "print-pure"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split()]


def session_files() -> list[Path]:
    own = [path for path in PACKAGE.glob("*.py") if path.name not in STARTERS]
    return sorted([*own, *(path for room in SESSION_ROOMS for path in (PACKAGE / room).rglob("*.py"))])


def imports(text: str) -> set[str]:
    """Every module that the text imports, inside functions too, but not under ``if TYPE_CHECKING``."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                found.update({child.module, *(f"{child.module}.{alias.name}" for alias in child.names)})
            visit(child)

    visit(ast.parse(text))
    return found


def upward(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    names = imports(path.read_text(encoding="utf-8"))
    return sorted(n for n in names if any(n == f or n.startswith(f + ".") for f in forbidden))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_a_pure_floor():
    if shutil.which("make") is None:
        pytest.skip("no make here: the pure files are listed in the Makefile")
    assert len(pure_files()) > 40 and all(path.is_file() for path in pure_files())


@pytest.mark.parametrize("path", pure_files(), ids=shown)
def test_the_pure_floor_imports_no_paddle(path):
    assert upward(path, ("paddle", *HOSTS)) == []


def test_the_pure_floor_imports_no_file_that_needs_paddle():
    """At import: the files that it imports, and theirs, have no Paddle at their top either."""
    waiting, seen = [(path, shown(path)) for path in pure_files()], set()
    while waiting:
        path, way = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = set().union(*(imports(ast.unparse(node)) for node in top))
        assert not any(name.split(".")[0] in ("paddle", *HOSTS) for name in names), way
        for name in sorted(n for n in names if n.startswith("paddle_amp_plugin")):
            place = ROOT.joinpath(*name.split("."))
            waiting += [
                (f, f"{way} > {shown(f)}") for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()
            ]


@pytest.mark.parametrize("path", session_files(), ids=shown)
def test_the_session_s_floor_knows_no_host(path):
    assert upward(path, ("paddle_amp_plugin.hosts", "paddle_amp_plugin.cli", *HOSTS)) == []


def test_nobody_imports_the_command_line():
    """But itself, and what starts things."""
    wrong = {
        shown(path): found
        for path in PACKAGE.rglob("*.py")
        if "cli" not in path.parts and path.name not in STARTERS
        if (found := upward(path, ("paddle_amp_plugin.cli",)))
    }
    assert wrong == {}


def test_an_arrow_that_goes_up_is_found():
    text = (
        "import os\ndef f():\n    from paddle_amp_plugin.hosts import paddleocr\nif TYPE_CHECKING:\n    import paddle\n"
    )
    assert imports(text) == {"os", "paddle_amp_plugin.hosts", "paddle_amp_plugin.hosts.paddleocr"}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_design_page_names_what_is_there(language):
    text = (DOCS / language / "design.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)?\w+\.py|\w+/)`", text))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (PACKAGE / name).exists()] == []
