"""Reading the ``.pdamp`` beside a checkpoint: is every file what was saved, and if not, which checkpoints are whole.

Nothing here imports Paddle, so a damaged checkpoint is known before anything heavy is loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paddle_amp_plugin import pdamp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.file_set import recover
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.pdamp import Pdamp

#: A file that differs may be one that another process is replacing just now: so often it is looked at again.
LOOKS, BETWEEN_LOOKS = 3, 0.3  # seconds


def read(prefix: Path, *, say: Callable[[str], None], weights_only: bool = False) -> Pdamp | None:
    """The state beside the checkpoint ``prefix`` (a path without extension); None if the host alone wrote it.

    Finishes an interrupted replacement first. ``weights_only``: only the ``.pdparams`` has to be whole (that of a
    moving average, ``<prefix>_ema``, belongs to the checkpoint ``<prefix>``). Raises
    AmpError: AMP090 a file is damaged or missing (other whole checkpoints of the folder are named), AMP092 / AMP093
    the ``.pdamp`` itself, AMP091 a replacement cannot be finished.
    """
    owner = prefix.with_name(prefix.name.removesuffix(pdamp.AVERAGE)) if weights_only else prefix
    path = Path(f"{owner}{pdamp.SUFFIX}")
    for look in range(LOOKS):
        recover(owner.parent, owner.name)
        if not path.is_file():
            return None
        saved = pdamp.read(path)
        entries = [e for e in saved.files if not weights_only or e.name == f"{prefix.name}.pdparams"]
        if weights_only and not entries:
            return None
        wrong = pdamp.differing(path.parent, entries)
        if not wrong:
            return saved
        if look + 1 < LOOKS:
            time.sleep(BETWEEN_LOOKS)
    if _written_over(path, [e.name for e in entries], wrong):
        say(
            tr(
                "amp: {f} belongs to an earlier checkpoint of this name, which a run without this plugin has "
                "written over: not used",
                "amp：{f} 属于同名的早先检查点，该检查点已被未使用本插件的运行覆盖：不予采用",
                f=path.name,
            )
        )
        return None
    raise _damaged(prefix, wrong)


def _written_over(path: Path, names: Sequence[str], wrong: Mapping[str, str]) -> bool:
    """Was everything that is looked for written anew, later than the ``.pdamp``?"""
    written = path.stat().st_mtime
    # the host does not know of the moving average
    names = [
        name
        for name in names
        if name.endswith((".pdparams", ".pdopt")) and not name.endswith(f"{pdamp.AVERAGE}.pdparams")
    ]
    files = [path.parent / name for name in names]
    changed = {path.parent / name for name in wrong}
    return bool(files) and all(f in changed and f.is_file() and f.stat().st_mtime >= written for f in files)


def whole_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, prefix) of every checkpoint of the folder that has a ``.pdamp`` and is whole, the latest first.

    A checkpoint that is a folder (``checkpoint-100/amp.pdamp``) has its like beside that folder.
    """
    found = []
    beside = folder.parent.glob(f"checkpoint-*/*{pdamp.SUFFIX}") if folder.name.startswith("checkpoint-") else ()
    for path in dict.fromkeys([*folder.glob(f"*{pdamp.SUFFIX}"), *beside]):
        try:
            saved = pdamp.read(path)
        except AmpError:
            continue
        if not pdamp.differing(path.parent, saved.files):
            found.append((saved.step, path.with_suffix("")))
    return sorted(found, reverse=True)


def offered(prefix: Path) -> str:
    """A hint that names the other whole checkpoints beside ``prefix``."""
    others = [(step, other) for step, other in whole_checkpoints(prefix.parent) if other != prefix]
    if not others:
        return tr("there is no other whole checkpoint in {d}", "{d} 中没有其他完整的检查点", d=prefix.parent)
    return tr(
        "whole checkpoints beside it: {n}",
        "同一目录中完整的检查点：{n}",
        n=", ".join(tr("{p} (step {s})", "{p}（第 {s} 步）", p=other, s=step) for step, other in others[:3]),
    )


def _damaged(prefix: Path, wrong: Mapping[str, str]) -> AmpError:
    return AmpError(
        "AMP090",
        tr(
            "the checkpoint {p} is damaged: {w}",
            "检查点 {p} 已损坏：{w}",
            p=prefix,
            w=", ".join(f"{name}: {what}" for name, what in wrong.items()),
        ),
        hint=offered(prefix),
    )
