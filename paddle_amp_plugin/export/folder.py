"""The output folder: filled beside its place and moved there when everything in it was verified. Pure."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

RECORD = "export.json"


def check_folder(folder: Path) -> None:
    """Raises AmpError: AMP236 if ``folder`` holds something that is not an export; AMP237 if it cannot be written."""
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / RECORD).is_file():
            raise AmpError(
                "AMP236",
                tr("{d} is not empty and not an export", "{d} 非空，且不是导出目录", d=folder),
                hint=tr("choose another folder with -o", "请用 -o 指定其他目录"),
            )
    elif folder.exists():
        raise AmpError("AMP236", tr("{d} is a file", "{d} 是一个文件", d=folder))
    parent = folder
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise _unwritable(folder, os.strerror(20 if not parent.is_dir() else 13))


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A temporary folder beside ``folder``, which it replaces if the block ends well; removed if not."""
    folder = folder.absolute()
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from None
    try:
        yield temporary
        try:
            if folder.exists():
                os.replace(folder, old)
            os.replace(temporary, folder)
        except OSError as error:
            if old.exists() and not folder.exists():
                os.replace(old, folder)
            raise _unwritable(folder, error.strerror or str(error)) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _unwritable(folder: Path, reason: str) -> AmpError:
    return AmpError(
        "AMP237",
        tr("cannot write {d}: {e}", "无法写入 {d}：{e}", d=folder, e=reason),
        hint=tr("choose another folder with -o", "请用 -o 指定其他目录"),
    )
