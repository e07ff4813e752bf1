"""Which error codes the source has, by reading it: nothing is imported."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs_site import ROOT

_CODE = re.compile(r"\bAMP\d{3}\b")


def in_source(package: Path = ROOT / "paddle_amp_plugin") -> dict[str, list[str]]:
    """Code -> the files that can raise or report it, as paths under the project's folder.

    A code counts where a text that is no docstring begins with it, as in ``AmpError("AMP041", …)``, with or without
    a bracket before it. A code that is only mentioned (in help texts, docstrings, comments) does not.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
                continue
            code = _CODE.match(node.value.removeprefix("["))
            if code is not None:
                files = found.setdefault(code.group(), [])
                name = path.relative_to(package.parent).as_posix()
                if name not in files:
                    files.append(name)
    return found
