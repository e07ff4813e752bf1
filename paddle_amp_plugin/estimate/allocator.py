"""What Paddle's CPU allocator counts: bytes in use now, and the highest count since a mark.

``paddle.base.core.host_memory_stat_*_value("Allocated", 0)`` is exact to the byte. Paddle
2.6 cannot set its peak back, so ``Mark`` raises the count to the old peak with a tensor that nobody writes to
(pages that are never touched take no memory) and reads how far the peak moves from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import paddle
from paddle.base import core


def in_use() -> int:
    """Bytes in use on the CPU, all tensors of the process."""
    return int(core.host_memory_stat_current_value("Allocated", 0))


def highest() -> int:
    """The highest ``in_use`` of the process so far."""
    return int(core.host_memory_stat_peak_value("Allocated", 0))


class Mark:
    """From here on: how far did memory rise above what was in use when it was made?"""

    def __init__(self) -> None:
        self._ballast: Any = None
        start, top = in_use(), highest()
        if top > start:
            if hasattr(core, "host_memory_stat_reset_peak_value"):
                core.host_memory_stat_reset_peak_value("Allocated", 0)
            else:
                self._ballast = paddle.empty([top - start], dtype="uint8")
        self._top = highest()

    def rise(self) -> int:
        """Bytes above the start at the highest point so far; ends the mark."""
        risen = highest() - self._top
        self._ballast = None
        return risen


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Paddle computes on the CPU inside it, as the counts are the CPU's."""
    before = paddle.get_device()
    paddle.set_device("cpu")
    try:
        yield
    finally:
        paddle.set_device(before)
