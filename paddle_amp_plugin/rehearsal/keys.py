"""An ``amp`` mapping with another level or dtype, without what contradicts it there. Pure: no Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Mean nothing without a loss scale.
SCALING = (
    "init_loss_scaling",
    "use_dynamic_loss_scaling",
    "incr_ratio",
    "decr_ratio",
    "incr_every_n_steps",
    "decr_every_n_nan_or_inf",
    "min_loss_scaling",
    "max_loss_scaling",
)


def amp_with(own: Mapping[str, Any], *, level: str, dtype: str) -> dict[str, Any]:
    """``own`` at this level and in this type: no scaling keys in bfloat16, no ``master_grad`` below O2, no
    ``eval_dtype`` of another half type (AMP008, AMP015 refuse them).
    """
    changed = {**own, "level": level, "dtype": dtype}
    if dtype == "bfloat16":
        changed = {key: value for key, value in changed.items() if key not in SCALING}
    if level != "O2":
        changed.pop("master_grad", None)
    if changed.get("eval_dtype") not in (None, "float32", dtype):
        changed.pop("eval_dtype")
    return changed
