"""Software half: mixed precision on a CPU, with the numerics of a GPU and without its speed.

Inside ``emulate()`` plain ``paddle.amp`` code written for a GPU runs unchanged: ``auto_cast`` casts, ``decorate``
makes half parameters, ``GradScaler`` scales, and tensors really are float16 or bfloat16. An op that runs in
half computes in FP32 on half inputs and rounds its result to nearest even, as a Tensor Core does.

    >>> from paddle_amp_plugin import software_half
    >>> with software_half.emulate(), paddle.amp.auto_cast(level="O1", dtype="float16"):
    ...     y = paddle.matmul(x, w)      # y.dtype is paddle.float16
"""

import zlib  # noqa: F401  (before paddle: Paddle 2.6.2's library exports an old zlib's symbols)
from collections.abc import Iterator
from contextlib import contextmanager

from paddle_amp_plugin.software_half.installer import Installation
from paddle_amp_plugin.software_half.records import OpRecord, record_ops

__all__ = ["OpRecord", "emulate", "install", "installed", "record_ops", "uninstall"]

_installation: Installation | None = None
_depth = 0


def install() -> None:
    """Switch software half on for the process. A second call only counts; see ``uninstall``."""
    global _installation, _depth
    if _installation is None:
        _installation = Installation()
        _installation.put()
    _depth += 1


def uninstall() -> None:
    """Undo one ``install``; with the last one Paddle is as it was. Does nothing when not installed."""
    global _installation, _depth
    if _depth > 1:
        _depth -= 1
    elif _installation is not None:
        _installation.remove()
        _installation, _depth = None, 0


def installed() -> bool:
    """Whether software half is on."""
    return _installation is not None


@contextmanager
def emulate() -> Iterator[None]:
    """Software half for the length of a ``with`` block, or of a function it decorates. May be nested."""
    install()
    try:
        yield
    finally:
        uninstall()
