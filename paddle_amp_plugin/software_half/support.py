"""What of an op is to be had on this machine: its AMP name, and Paddle's own CPU kernels for half values."""

from __future__ import annotations

from functools import lru_cache

import paddle
from paddle.base import core

from paddle_amp_plugin import op_names

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


_MAJOR = paddle.__version__.split(".", 1)[0]


def unsupported_ops(dtype: str) -> frozenset[str]:
    """``op_names.unsupported_ops`` for the Paddle that is running."""
    return op_names.unsupported_ops(dtype, _MAJOR)


def amp_name(function: str) -> str:
    """``op_names.amp_name`` for the Paddle that is running."""
    return op_names.amp_name(function, _MAJOR)


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
