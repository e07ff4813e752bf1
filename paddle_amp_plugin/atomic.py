"""Files that are never seen half-written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr


def write_whole(target: Path, write: Callable[[Path], object], *, code: str, hint: str) -> Path:
    """Have ``write`` fill a temporary file beside ``target``, then move it there; returns ``target``.

    Makes the folder. Whoever reads the file at any moment finds the old content or the new one, whole. Raises
    ``AmpError`` (``code``, ``hint``) if it cannot be written; nothing is left behind then, nor after a Ctrl-C.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        message = tr("cannot write {f}: {e}", "无法写入 {f}：{e}", f=target, e=error.strerror or error)
        raise AmpError(code, message, hint=hint) from None
    return target
