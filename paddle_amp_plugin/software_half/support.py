"""Facts about ops that cannot be read off a CPU wheel: AMP names, missing half-precision GPU kernels.

``op_support.json`` was read from the kernel registry of the GPU wheel; see its ``source`` field and
``tests/reference/make_op_support.py``, which makes it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import paddle
from paddle.base import core

#: Ops that only move values: with half inputs they run on Paddle's own CPU half kernels, forward and backward, where
#: those exist. Ops whose gradient sums (expand, gather, tile) are not here: a CPU kernel would sum in half,
#: a GPU sums in FP32.
MOVING_OPS = frozenset(
    """
    assign clone concat flatten flip reshape reshape2 roll slice split split_with_num squeeze squeeze2 stack
    transpose transpose2 unbind unsqueeze unsqueeze2 unstack strided_slice t as_strided view_shape tensor_unfold
    share_data full full_like zeros ones empty empty_like full_batch_size_like fill_constant reverse
    """.split()
)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return json.loads((Path(__file__).with_name("op_support.json")).read_text(encoding="utf-8"))


_MAJOR = paddle.__version__.split(".", 1)[0]
#: Ops that got their half GPU kernels in Paddle 3, after the table was read (phi/kernels/gpu/*.cu).
_SINCE_3 = frozenset({"repeat_interleave"})


@lru_cache(maxsize=2)
def unsupported_ops(dtype: str) -> frozenset[str]:
    """AMP names of the ops without a GPU kernel for ``dtype`` (``float16`` or ``bfloat16``)."""
    table = _table()
    without = frozenset(table[f"no_{dtype}"]) | frozenset(table["no_gpu_float"])
    return without if _MAJOR == "2" else without - _SINCE_3


def amp_name(function: str) -> str:
    """The AMP lists' name of ``paddle._C_ops.<function>`` (``matmul`` -> ``matmul_v2``)."""
    table = _table()
    of_version = table.get(f"amp_names_{_MAJOR}", {})
    return of_version.get(function) or table["amp_names"].get(function, function)


@lru_cache(maxsize=1)
def _cpu_half_kernels() -> dict[str, frozenset[str]]:
    kernels: dict[str, frozenset[str]] = {}
    for name, keys in core._get_registered_phi_kernels("all").items():
        found = {d for d in ("float16", "bfloat16") for k in keys if k.startswith("(CPU,") and f", {d})" in k}
        kernels[name] = frozenset(found)
    return kernels


def moves_in_half(function: str) -> bool:
    """Whether ``paddle._C_ops.<function>`` can be left to Paddle's CPU half kernels, with its gradient."""
    if function not in MOVING_OPS:
        return False
    kernels = _cpu_half_kernels()
    both = {"float16", "bfloat16"}
    forward = kernels.get(function)
    backward = kernels.get(f"{function}_grad", frozenset(both))
    return (forward is None or both <= forward) and both <= backward
