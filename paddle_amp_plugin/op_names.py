"""Op names as the AMP lists know them, and which ops lack half-precision GPU kernels: data, no Paddle needed.

``op_support.json`` was read from the kernel registries of Paddle's own wheels; see its ``about`` field and
``tests/reference/make_op_support.py``, which makes it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Ops that got their half GPU kernels in Paddle 3, after the table was read (phi/kernels/gpu/*.cu).
_SINCE_3 = frozenset({"repeat_interleave"})


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    text = Path(__file__).with_name("op_support.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@lru_cache(maxsize=4)
def unsupported_ops(dtype: str, paddle_major: str) -> frozenset[str]:
    """AMP names of the ops without a GPU kernel for ``dtype`` (``float16`` or ``bfloat16``) in Paddle 2 or 3."""
    table = _table()
    without = frozenset(table[f"no_{dtype}"]) | frozenset(table["no_gpu_float"])
    return without if paddle_major == "2" else without - _SINCE_3


def amp_name(function: str, paddle_major: str = "3") -> str:
    """The AMP lists' name of ``paddle._C_ops.<function>`` (``matmul`` -> ``matmul_v2``)."""
    table = _table()
    of_version = table.get(f"amp_names_{paddle_major}", {})
    return str(of_version.get(function) or table["amp_names"].get(function, function))


@lru_cache(maxsize=1)
def known_ops() -> frozenset[str]:
    """Every name under which Paddle 2.6 or 3.3 asks its AMP lists about an op."""
    return frozenset(_table()["ops"])
