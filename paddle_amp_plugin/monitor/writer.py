"""Where events go: a file of JSON lines, and VisualDL's records. Both append; both raise ``OSError`` when they cannot.

VisualDL's own ``LogWriter`` is not used for writing: it hands records to a thread that swallows a full disk with a
``print`` for every record, and once that thread has died its bounded queue blocks the training for ever (VisualDL
2.5.3, ``visualdl/writer/record_writer.py``). Its record format and its protobuf are used, so its reader and its web
page read what is written here.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from paddle_amp_plugin.monitor.events import StepEvent

#: Seconds between flushes of VisualDL's file: its web page reloads every 15 s.
FLUSH_SECONDS = 2.0
#: VisualDL takes every file with "vdlrecords" in its name, and of several in one folder only the last by name: so a
#: resumed run has to go on in the same one.
VDL_FILE = "vdlrecords.amp.log"
VDL_FOLDER = "vdl"


class JsonlWriter:
    """Appends one line an event, handed to the system line by line: a killed run loses nothing."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = _ends_torn(path)
        self._file: IO[str] = open(path, "a", encoding="utf-8", buffering=1, newline="\n")  # noqa: SIM115  (closed by close)
        if torn:  # a killed run's last line must not swallow our first
            self._file.write("\n")

    def write(self, event: StepEvent) -> None:
        _refuse_deleted(self._file)
        self._file.write(event.to_json() + "\n")

    def close(self) -> None:
        self._file.close()


def _ends_torn(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def _refuse_deleted(file: IO[str] | IO[bytes]) -> None:
    """Raises ``FileNotFoundError`` if the file's name is gone: the system would go on writing to nowhere."""
    if os.fstat(file.fileno()).st_nlink == 0:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file.name)


class VisualDLWriter:
    """Appends an event's numbers as VisualDL scalars. Raises ``ImportError`` where VisualDL is missing."""

    def __init__(self, folder: Path) -> None:
        # imported only now: VisualDL is optional, and takes 0.4 s
        from visualdl.component.base_component import meta_data, scalar  # type: ignore[import-untyped, import-not-found, unused-ignore]

        self._scalar = scalar
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / VDL_FILE
        whole = _whole_records(path)
        self._file: IO[bytes] = open(path, "ab", buffering=0)  # noqa: SIM115  (closed by close)
        if whole < os.fstat(self._file.fileno()).st_size:
            self._file.truncate(whole)  # a torn record would shift every one after it
        self._size = whole
        self._pending = bytearray()
        if not whole:
            self._put(meta_data(display_name="", step=0, walltime=_milliseconds()))
        self._flush()

    def write(self, event: StepEvent, *, skip_rate: float) -> None:
        """``skip_rate``: share of skipped steps in the monitor's window, 0 to 1."""
        now = _milliseconds()
        for tag, value in _scalars(event, skip_rate):
            self._put(self._scalar(tag, value, event.step, now))
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            _refuse_deleted(self._file)
            self._flush()

    def _put(self, record: object) -> None:
        data: bytes = record.SerializeToString()  # type: ignore[attr-defined]
        self._pending += struct.pack("<Q", len(data)) + data

    def _flush(self) -> None:
        """Only whole records reach the file: VisualDL's reader stops at a torn one, also while it is being written."""
        written = 0
        try:
            while written < len(self._pending):
                written += self._file.write(self._pending[written:])
        except OSError:
            self._pending.clear()
            self._file.truncate(self._size)
            raise
        self._size += written
        self._pending.clear()
        self._flushed = time.monotonic()

    def close(self) -> None:
        try:
            if self._pending:
                self._flush()
        finally:
            self._file.close()


def _scalars(event: StepEvent, skip_rate: float) -> Iterator[tuple[str, float]]:
    """The tags and their values; what is not known at this step has no point in its curve."""
    values = {
        "loss": event.loss,
        "loss_scale": event.loss_scale,
        "skipped": float(event.skipped),
        "skip_rate": skip_rate,
        "grad_norm": event.grad_norm,
        "lr": event.lr,
        "samples_per_second": event.samples_per_second,
        "half_share": event.half_share,
        "zero_grad_share": event.zero_grad_share,
    }
    yield from ((tag, value) for tag, value in values.items() if value is not None)
    if len(event.losses) > 1:
        yield from ((f"loss_terms/{name.replace('%', '_')}", value) for name, value in event.losses.items())


def _milliseconds() -> int:
    return round(time.time() * 1000)


def _whole_records(path: Path) -> int:
    """Bytes of ``path`` that are whole records (a length of 8 bytes, little-endian, then as many bytes)."""
    try:
        size = path.stat().st_size
        end = 0
        with open(path, "rb") as file:
            while len(head := file.read(8)) == 8:
                after = end + 8 + struct.unpack("<Q", head)[0]
                if after > size:
                    break
                end = after
                file.seek(end)
        return end
    except FileNotFoundError:
        return 0
