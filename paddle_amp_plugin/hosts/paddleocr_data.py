"""PaddleOCR's data sets: missing data said before training, and an end to endless retries.

The host's ``__getitem__`` swallows every exception and calls itself with another index, for ever if no sample
is good (a RecursionError at best). Here the files are looked at first, and the retries are counted.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

LOOK_AT = 200  # lines of a label file whose images are looked for, spread over the file
RETRIES = 32  # samples in a row that may fail; at 50 % bad samples this happens once in 4e9
_SIMPLE = (None, "SimpleDataSet", "TextDetDataset", "TextRecDataset")
SHOWN = 3  # of the host's "When parsing line" messages


class BadData(AmpError):
    """One text only, so that Paddle's DataLoader can carry it out of a worker process."""

    def __init__(self, text: str) -> None:
        # from a worker the text arrives wrapped into "DataLoader worker(0) caught BadData with message: …"
        found = re.search(r"\[AMP048\] (.*)", text, re.DOTALL)
        super().__init__("AMP048", (found.group(1) if found else text).strip())


def check_dataset(config: Mapping[str, Any], mode: str, logger: logging.Logger) -> None:
    """Looks at the label files and at some of the images of ``config[mode]``.

    Raises AmpError (AMP047) for a missing label file or data folder, for an empty label file, or if none of
    the images looked at is there; warns if some are missing. Data sets of another kind are left alone.
    """
    dataset = (config.get(mode) or {}).get("dataset") or {}
    files = dataset.get("label_file_list")
    if isinstance(files, str):
        files = [files]
    if not isinstance(files, list) or not all(isinstance(f, str) for f in files):
        return
    folder = dataset.get("data_dir")
    where = f"{mode}.dataset"
    if isinstance(folder, str) and not os.path.isdir(folder):
        raise _missing(f"{where}.data_dir", folder, tr("there is no such folder", "该目录不存在"))
    delimiter = dataset.get("delimiter", "\t")
    for file in files:
        if not os.path.isfile(file):
            raise _missing(f"{where}.label_file_list", file, tr("there is no such file", "该文件不存在"))
        if isinstance(folder, str) and dataset.get("name") in _SIMPLE:
            _check_label_file(file, folder, delimiter, where, logger)


def _check_label_file(file: str, folder: str, delimiter: str, where: str, logger: logging.Logger) -> None:
    lines = [line for line in Path(file).read_bytes().split(b"\n") if line.strip()]
    if not lines:
        raise _missing(f"{where}.label_file_list", file, tr("it is empty", "文件为空"))
    step = max(1, len(lines) // LOOK_AT)
    looked = bad = 0
    first = ""
    for number in range(0, len(lines), step):
        looked += 1
        reason = _fault(lines[number], folder, delimiter)
        if reason:
            bad += 1
            first = first or tr("line {n}: {r}", "第 {n} 行：{r}", n=number + 1, r=reason)
    if bad == looked:
        raise _missing(f"{where}.label_file_list", file, tr("no line is usable; {f}", "没有可用的行；{f}", f=first))
    if bad:
        logger.warning(
            tr(
                "amp: {f}: {b} of {n} lines looked at are not usable ({first}); PaddleOCR replaces them by others",
                "amp:{f}：抽查的 {n} 行中有 {b} 行不可用（{first}）；PaddleOCR 会用其他样本代替",
                f=file,
                b=bad,
                n=looked,
                first=first,
            )
        )


def _fault(line: bytes, folder: str, delimiter: str) -> str:
    try:
        fields = line.decode("utf-8").strip("\r\n").split(delimiter)
    except UnicodeDecodeError:
        return tr("not UTF-8", "不是 UTF-8 编码")
    if len(fields) < 2:
        return tr("no {d!r} between image and label", "图像与标签之间没有 {d!r}", d=delimiter)
    if fields[0].startswith("["):
        return ""  # several images for one label
    image = os.path.join(folder, fields[0])
    return "" if os.path.isfile(image) else tr("there is no image {i}", "找不到图像 {i}", i=image)


def _missing(path: str, value: str, what: str) -> AmpError:
    return AmpError(
        "AMP047",
        tr("{p}: {v}: {w}", "{p}:{v}:{w}", p=path, v=value, w=what),
        hint=tr("relative paths start at {d}", "相对路径以 {d} 为起点", d=os.getcwd()),
    )


class RetryGuard:
    """Counts how deep ``__getitem__`` has called itself, and brings errors of a reader thread to the main one.

    Without workers Paddle reads in a thread. An exception there ends the thread without a word to the main
    one, which then waits for a batch for ever. So the thread is ended with StopIteration, which Paddle does
    pass on, and the loader (``watch``) raises the error where the host iterates.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self.fatal: BaseException | None = None
        self.last = ""
        self._shown = 0
        self._local = threading.local()

    def getitem(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """The wrapper for a data set's ``__getitem__``."""
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        try:
            self._stop_if_hopeless(depth, instance, args)
            return wrapped(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            if depth or threading.current_thread() is threading.main_thread():
                raise
            self.fatal = self.fatal or error
            raise StopIteration from None
        finally:
            self._local.depth = depth

    def _stop_if_hopeless(self, depth: int, instance: Any, args: Any) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        if isinstance(self.fatal, AmpError):
            raise self.fatal
        if depth >= RETRIES:
            message = tr(
                "{n} samples in a row could not be read; the last one: {last}",
                "连续 {n} 个样本无法读取；最后一个：{last}",
                n=depth,
                last=self.last or _sample(instance, args),
            )
            raise BadData(message)

    def watch(self, loader: Any) -> Any:
        """The same loader; iterating it raises what went wrong in its thread or its workers."""
        base, guard = type(loader), self

        def __iter__(self: Any) -> Iterator[Any]:
            try:
                yield from base.__iter__(self)
            except SystemError as error:  # "Blocking queue is killed": a worker's error went to a thread
                raise guard.fatal or error from None
            if guard.fatal is not None:
                raise guard.fatal

        loader.__class__ = type(base.__name__, (base,), {"__iter__": __iter__, "__module__": base.__module__})
        return loader

    def thread_failed(self, arguments: Any) -> None:
        """For ``threading.excepthook``: what a worker's exception becomes in the reader thread."""
        self.fatal = self.fatal or arguments.exc_value

    def filter(self, record: logging.LogRecord) -> bool:
        """For the host's logger: its messages about bad samples, without the traceback, and the first few only."""
        text = record.getMessage()
        if not text.startswith("When parsing line"):
            return True
        lines = [line for line in text.splitlines() if line.strip()]
        short = f"{lines[0].split(', error happened')[0]}: {lines[-1]}"
        self.last = short.removeprefix("When parsing line ")
        self._shown += 1
        record.msg, record.args = short, ()
        return self._shown <= SHOWN


def _sample(instance: Any, args: Any) -> str:
    """What a data set's index stands for, as far as that can be told."""
    try:
        line = instance.data_lines[instance.data_idx_order_list[args[0]]]
        return line.decode("utf-8", "replace").strip() if isinstance(line, bytes) else str(line)
    except (AttributeError, IndexError, TypeError, KeyError):
        return str(args[0]) if args else "?"
