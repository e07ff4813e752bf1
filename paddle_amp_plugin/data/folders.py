"""Folders that are whole or not there, and never somebody else's: what all the data makers write into."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

#: Written last, so its presence means "whole"; its ``digest`` says which settings made the folder.
MANIFEST = "manifest.json"


def manifest_of(out: Path) -> dict[str, object]:
    """The manifest of the folder ``out``; empty if it has none."""
    try:
        found = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def refuse_foreign(out: Path) -> None:
    """A folder that a data maker did not make is never replaced."""
    try:
        foreign = out.exists() and not (out.is_dir() and ("digest" in manifest_of(out) or not any(out.iterdir())))
    except OSError as error:
        raise disk_error(out, error) from error
    if foreign:
        raise AmpError(
            "AMP074",
            tr("{p} exists and was not made by this command", "{p} 已存在，且不是由本命令生成", p=out),
            hint=tr("choose another folder, or move it away", "请换一个目录，或先把它移走"),
        )


def disk_error(out: Path, error: OSError, needed: str = "60 MB") -> AmpError:
    """What to say (AMP076) when ``out`` cannot be written. ``needed``: the space it takes, in words."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    hint = ""
    if full:
        hint = tr(
            "free about {n}, or choose another folder with --out", "请腾出约 {n}，或用 --out 换一个目录", n=needed
        )
    elif denied:
        hint = tr("choose a folder you may write to, with --out", "请用 --out 指定一个有写权限的目录")
    reason = error.strerror or str(error)
    return AmpError("AMP076", tr("cannot write {p}: {e}", "无法写入 {p}:{e}", p=out, e=reason), hint=hint)


@contextmanager
def whole_or_nothing(out: Path, needed: str = "60 MB") -> Iterator[Path]:
    """A temporary folder beside ``out`` that takes its place when the block ends, and vanishes when it fails."""
    folder: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
        folder.chmod(0o755)
        yield folder
        _swap(folder, out)
    except OSError as error:
        raise disk_error(out, error, needed) from error
    finally:
        # Also on Ctrl-C (KeyboardInterrupt is no OSError); after the rename there is nothing left to remove.
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _swap(folder: Path, out: Path) -> None:
    """Put ``folder`` in the place of ``out``; the old set is kept until the new one stands."""
    if not out.exists():
        folder.rename(out)
        return
    old = folder.with_suffix(".old")
    out.rename(old)
    try:
        folder.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
