"""What is to be known of a tensor's range: the largest finite magnitude, the share of zeros, what is not finite.

On a CPU the numbers are read from the bits (sign off, the integers of IEEE 754 numbers order as their magnitudes
do, NaN last), which works alike for float16, bfloat16 and float32 and runs no op of Paddle's. On a device they are
four reductions whose results stay there until ``Meter.read`` fetches them all in one go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin.autocast import no_auto_cast

#: The largest finite value of each half type (IEEE 754 binary16; bfloat16 is the upper half of a binary32).
LIMITS = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}
#: The smallest positive float16, 2**-24: what is nearer to 0 than half of it becomes 0.
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}

_FLOATS = (paddle.float32, paddle.float16, paddle.bfloat16, paddle.float64)


@dataclass(frozen=True)
class Stat:
    """The range of one tensor or of several together.

    ``size``: elements. ``absmax``: largest *finite* magnitude. ``zeros``, ``nans``, ``infs``: counts. ``tiny``:
    non-zero values below float16's smallest (counted for FP32 gradients only).
    """

    size: int = 0
    absmax: float = 0.0
    zeros: float = 0.0
    nans: float = 0.0
    infs: float = 0.0
    tiny: float = 0.0

    @property
    def finite(self) -> bool:
        return not (self.nans or self.infs)

    @property
    def top(self) -> float:
        """The magnitude with what is not finite counted in: NaN, else infinity, else ``absmax``."""
        return math.nan if self.nans else math.inf if self.infs else self.absmax

    @property
    def zero_share(self) -> float:
        return self.zeros / self.size if self.size else 0.0

    @property
    def tiny_share(self) -> float:
        return self.tiny / self.size if self.size else 0.0

    @staticmethod
    def together(stats: Iterable[Stat]) -> Stat:
        """The stat of several tensors as one."""
        several = list(stats)
        return Stat(
            sum(s.size for s in several),
            max((s.absmax for s in several), default=0.0),
            sum(s.zeros for s in several),
            sum(s.nans for s in several),
            sum(s.infs for s in several),
            sum(s.tiny for s in several),
        )


def is_float_tensor(value: Any) -> bool:
    """A dygraph tensor with a floating type and memory behind it."""
    return isinstance(value, paddle.Tensor) and value.dtype in _FLOATS and value._is_initialized()


def float_tensors(tree: Any) -> Iterable[paddle.Tensor]:
    """The floating tensors in dicts, lists and tuples of any depth, in order."""
    if isinstance(tree, paddle.Tensor):
        if is_float_tensor(tree):
            yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from float_tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from float_tensors(value)


def named_values(tree: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """The tensors and arrays in a tree, each with its dotted place (``image``, ``1``, ``labels.0``)."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from named_values(value, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from named_values(value, f"{name}.{index}" if name else str(index))
    elif isinstance(tree, paddle.Tensor | np.ndarray | float):
        yield name, tree


def array_stat(array: np.ndarray, *, bfloat16: bool = False, tiny: bool = False) -> Stat:
    """The stat of a float16, float32 or float64 array; with ``bfloat16`` of the uint16 bits of one."""
    kinds = {2: (np.uint16, 0x7C00), 4: (np.uint32, 0x7F800000), 8: (np.uint64, 0x7FF0000000000000)}
    unsigned, infinity = kinds[array.itemsize]
    if bfloat16:
        infinity = 0x7F80
    flat = np.ascontiguousarray(array).reshape(-1).view(unsigned)
    if not flat.size:
        return Stat()
    bits = flat & unsigned(infinity | (infinity & -infinity) - 1)  # all but the sign
    top = int(bits.max())
    nans = infs = 0
    if top >= infinity:
        nans, infs = int((bits > infinity).sum()), int((bits == infinity).sum())
        finite = bits[bits < infinity]
        top = int(finite.max()) if finite.size else 0
    if bfloat16:
        absmax = float(np.array([top << 16], np.uint32).view(np.float32)[0])
    else:
        absmax = float(np.array([top], unsigned).view(array.dtype)[0])
    zeros = flat.size - int(np.count_nonzero(bits))
    small = 0
    if tiny and array.dtype == np.float32:
        small = int((bits < np.float32(SMALLEST["float16"]).view(np.uint32)).sum()) - zeros
    return Stat(int(flat.size), absmax, zeros, nans, infs, small)


def value_stat(value: Any) -> Stat | None:
    """The stat of a floating tensor, array or number, at once; None for anything else."""
    if isinstance(value, float):
        value = np.array([value], np.float32)
    if isinstance(value, np.ndarray):
        return array_stat(value) if value.dtype in (np.float16, np.float32, np.float64) else None
    if not is_float_tensor(value):
        return None
    meter = Meter()
    index = meter.measure(value)
    meter.read()
    return meter[index]


class Meter:
    """Collects the stats of many tensors; ``read`` makes those measured on a device known (one transfer)."""

    def __init__(self, *, by_ops: bool = False) -> None:
        self._stats: list[Stat | None] = []
        self._waiting: list[tuple[int, int, paddle.Tensor]] = []
        self._by_ops = by_ops

    def measure(self, tensor: paddle.Tensor, *, tiny: bool = False) -> int:
        """Measures ``tensor`` as it is now; returns the index under which the stat will be found."""
        index = len(self._stats)
        if tensor.place.is_cpu_place() and not self._by_ops:
            bfloat16 = tensor.dtype == paddle.bfloat16
            self._stats.append(array_stat(tensor.detach().numpy(), bfloat16=bfloat16, tiny=tiny))
            return index
        self._stats.append(None)
        size = math.prod(tensor.shape)
        if not size:
            self._stats[index] = Stat()
            return index
        with paddle.no_grad(), no_auto_cast():
            self._waiting.append((index, size, _reductions(tensor.detach())))
        return index

    def read(self) -> None:
        """Fetches what was measured on a device."""
        if not self._waiting:
            return
        with paddle.no_grad(), no_auto_cast():
            rows = paddle.stack([row for _, _, row in self._waiting]).numpy()
        for (index, size, _), (absmax, zeros, nans, infs, tiny) in zip(self._waiting, rows.tolist(), strict=True):
            self._stats[index] = Stat(size, absmax, zeros * size, nans * size, infs * size, tiny * size)
        self._waiting.clear()

    def __getitem__(self, index: int) -> Stat:
        if self._stats[index] is None:
            self.read()
        found = self._stats[index]
        assert found is not None
        return found


def _reductions(tensor: paddle.Tensor) -> paddle.Tensor:
    """[largest finite magnitude, shares of zeros, NaN, infinities and tiny values], float32, on the device."""
    x = tensor.astype("float32").abs().reshape([-1])
    nan, inf = paddle.isnan(x), paddle.isinf(x)
    finite = paddle.where(paddle.logical_or(nan, inf), paddle.zeros_like(x), x)
    # not x == 0: on a CPU, Paddle 2.6 calls two floats equal that are less than 1e-8 apart
    zero = paddle.logical_not(paddle.logical_or(x > 0, nan))
    tiny = paddle.logical_and(x < SMALLEST["float16"], x > 0)
    shares = [flag.astype("float32").mean() for flag in (zero, nan, inf, tiny)]
    return paddle.stack([finite.max(), *shares])
