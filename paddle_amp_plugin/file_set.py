"""Replacing several files so that a kill at any moment leaves the old set or the new one, whole.

One rename is atomic, several are not. So the new files are written into ``.<name>.saving`` beside their targets and
synced; renaming that folder to ``.<name>.ready`` is the moment at which the new set counts; then its files are moved
to their places one by one. Whoever finds a ``.ready`` folder finishes the moving (``recover``): the folder exists
only when it is complete, and a move can be made by anybody, in any order, any number of times.

Nothing here imports Paddle.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr


def staging_folder(folder: Path, name: str) -> Path:
    """Where the set ``name`` of ``folder`` is written before it counts."""
    return folder / f".{name}.saving"


def ready_folder(folder: Path, name: str) -> Path:
    """A whole set that waits for being moved to its place."""
    return folder / f".{name}.ready"


@contextlib.contextmanager
def replacing(folder: Path, name: str) -> Iterator[Path]:
    """Gives a folder to write the new files into; on leaving, they replace those of the same relative path.

    ``folder`` is made if it is missing; a symbolic link to a folder is followed. Files of the old set that the new
    one lacks stay. After an exception nothing has changed. Raises AmpError AMP091 if the system refuses to write
    (full disk, no permission, a file where the folder should be).
    """
    staging = staging_folder(folder, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        recover(folder, name)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        yield staging
        _sync_tree(staging)
        os.replace(staging, ready_folder(folder, name))
        _sync(folder)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    recover(folder, name)


def recover(folder: Path, name: str) -> bool:
    """Finishes a replacement that was interrupted; True if there was one. Raises AmpError AMP091 if it cannot.

    Two processes may do it at once (an evaluation that starts while a training saves).
    """
    ready = ready_folder(folder, name)
    if not ready.is_dir():
        return False
    try:
        moves = {path: folder / path.relative_to(ready) for path in sorted(ready.rglob("*")) if path.is_file()}
        if not _written_since(moves):
            for path, target in moves.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):  # another process moved it
                    os.replace(path, target)
                _sync(target.parent)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    shutil.rmtree(ready, ignore_errors=True)
    return True


def _written_since(moves: dict[Path, Path]) -> bool:
    """Has somebody who knows nothing of this module written all of these targets again, later?"""
    try:
        return bool(moves) and all(t.stat().st_mtime > path.stat().st_mtime for path, t in moves.items())
    except FileNotFoundError:
        return False


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    """To the disk, not only to the system. Some network file systems refuse it for folders."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such thing
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _cannot_write(folder: Path, error: OSError) -> AmpError:
    return AmpError(
        "AMP091",
        tr(
            "cannot write a checkpoint into {f}: {e}; the checkpoint that was there is whole",
            "无法将检查点写入 {f}：{e}；原有检查点保持完整",
            f=folder,
            e=error.strerror or error,
        ),
        hint=tr(
            "while a checkpoint is saved, the old and the new one are on the disk together; check the free space "
            "and the permissions, then resume with -o Global.checkpoints=…",
            "保存期间新旧检查点同时占用磁盘；请检查剩余空间和权限，然后用 -o Global.checkpoints=… 恢复训练",
        ),
    )
