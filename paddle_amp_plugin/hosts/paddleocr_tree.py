"""Where PaddleOCR's training tree is. Pure: nothing of the tree or of Paddle is imported."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

#: Files that only a tree that can train has (the official ``paddleocr`` wheel has none of them).
MARKERS = (
    "ppocr/modeling/architectures/__init__.py",
    "ppocr/utils/save_load.py",
    "tools/program.py",
    "tools/train.py",
)
PACKAGE = "unstructured_paddleocr"
INSTALL = "pip install --no-deps unstructured-paddleocr==2.10.0"


@dataclass(frozen=True)
class Tree:
    """A PaddleOCR training tree: its folder and where it was found (in words for the user)."""

    path: Path
    source: str

    def script(self, name: str) -> Path:
        """The host's own ``tools/<name>.py``. Raises AmpError (AMP041) if the tree has none."""
        script = self.path / "tools" / f"{name}.py"
        if not script.is_file():
            raise _wrong(self.path, [f"tools/{name}.py"], self.source)
        return script


def missing_markers(folder: Path) -> list[str]:
    """What a folder lacks to be a PaddleOCR training tree; empty for one that is."""
    return [marker for marker in MARKERS if not (folder / marker).is_file()]


def find_tree(explicit: str | None = None) -> Tree:
    """The tree to use: ``--paddleocr DIR``, else ``PADDLEOCR_HOME``, else the current folder, else the package.

    A folder that was named but is not a tree is an error, never skipped. Raises AmpError (AMP041).
    """
    named = [
        ("--paddleocr", explicit),
        ("PADDLEOCR_HOME", os.environ.get("PADDLEOCR_HOME")),
    ]
    for source, value in named:
        if value:
            folder = Path(value).expanduser().resolve()
            missing = missing_markers(folder)
            if missing:
                raise _wrong(folder, missing, source)
            return Tree(folder, source)
    here = Path.cwd()
    if not missing_markers(here):
        return Tree(here.resolve(), tr("the current folder", "当前目录"))
    package = _package()
    if package is not None and not missing_markers(package):
        return Tree(package, tr("the installed package {p}", "已安装的包 {p}", p=PACKAGE))
    raise AmpError(
        "AMP041",
        tr(
            "no PaddleOCR training tree was found (--paddleocr and PADDLEOCR_HOME are not given, {d} is none, "
            "the package {p} is not installed)",
            "未找到 PaddleOCR 训练代码（未指定 --paddleocr 与 PADDLEOCR_HOME,{d} 不是，也未安装 {p}）",
            d=here,
            p=PACKAGE,
        ),
        hint=tr(
            "give your checkout with --paddleocr DIR, or: {i}",
            "请用 --paddleocr DIR 指定您的 PaddleOCR 目录，或执行：{i}",
            i=INSTALL,
        ),
    )


def tree_of_script(script: Path) -> Tree | None:
    """The tree a script belongs to: the nearest folder above it that is one."""
    for folder in script.resolve().parents:
        if not missing_markers(folder):
            return Tree(folder, tr("the script's own tree", "脚本所在的代码目录"))
    return None


def _package() -> Path | None:
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    # Once the tree itself is on sys.path (importing ppocr puts it there), a module of the package's name inside
    # the tree hides the package; its folder is the tree.
    return Path(spec.origin).parent if spec.origin else None


def _wrong(folder: Path, missing: list[str], source: str) -> AmpError:
    if not folder.is_dir():
        what = tr("there is no such folder", "该目录不存在")
    else:
        what = tr("it has no {m}", "缺少 {m}", m=", ".join(missing))
    return AmpError(
        "AMP041",
        tr(
            "{f} ({s}) is not a PaddleOCR training tree: {w}",
            "{f}({s})不是 PaddleOCR 训练代码目录：{w}",
            f=folder,
            s=source,
            w=what,
        ),
        hint=tr(
            "the official paddleocr wheel cannot train; use a git checkout, or: {i}",
            "官方 paddleocr 安装包不能训练；请使用 git 检出的代码，或执行：{i}",
            i=INSTALL,
        ),
    )


def put_first(tree: Tree, *, instead_of: Path | None = None) -> None:
    """Makes ``import tools`` and ``import ppocr`` find this tree.

    ``instead_of`` is a scripts folder that Python put first on ``sys.path`` (this project's own ``tools/``,
    whose files have the names of the host's); it goes away.
    """
    unwanted = {str(tree.path)} | ({str(instead_of.resolve())} if instead_of else set())
    sys.path[:] = [p for p in sys.path if not p or str(Path(p).resolve()) not in unwanted]
    sys.path.insert(0, str(tree.path))
    # First all places, then the removals: a namespace package looks its parent up when it is asked for its path.
    places = {n: _place(m) for n, m in sys.modules.items() if n.split(".")[0] in ("tools", "ppocr")}
    for name, place in places.items():
        if not place.startswith(str(tree.path)):
            del sys.modules[name]


def _place(module: object) -> str:
    """Where a module was loaded from, its file or its folder."""
    return str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), ""))
