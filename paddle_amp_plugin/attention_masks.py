"""A bfloat16 attention mask is no integer: a fault of Paddle's transformer layers that FP32 norms bring to light.

``paddle.nn.layer.transformer._convert_attention_mask`` brings a mask to the dtype of the query. A mask of 0 and 1 it
turns into 0 and -1e9, and it knows one by "int" in its dtype's name: but ``convert_dtype`` calls bfloat16 ``uint16``
(Paddle 2.6.2 and 3.3.1). A bfloat16 mask (PaddleNLP makes it in the dtype of the weights at O2) beside FP32 queries
(of a LayerNorm that stays FP32) so becomes -1e9 where attention is allowed, in which every score is lost: all
positions get the same attention, without a word.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import paddle

_CONVERTER, _NAMES = "_convert_attention_mask", "convert_dtype"


def correct() -> None:
    """From here on masks of bfloat16 are floating ones, in Paddle's layers and in PaddleNLP's copies of them.

    It stays: recompute runs layers once more in the backward pass. Modules loaded later need another call.
    """
    for module in _modules():
        if not hasattr(module.__dict__[_NAMES], "_amp_original"):
            module.__dict__[_NAMES] = _with_bfloat16(module.__dict__[_NAMES])


def restore() -> None:
    """Puts Paddle's own functions back."""
    for module in _modules():
        function = module.__dict__[_NAMES]
        module.__dict__[_NAMES] = getattr(function, "_amp_original", function)


def _modules() -> list[Any]:
    """Those that define the converter and ask for dtypes by name in it."""
    found = []
    for name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", {})
        converter = names.get(_CONVERTER)
        if _NAMES in names and getattr(converter, "__module__", None) == name:
            found.append(module)
    return found


def _with_bfloat16(function: Callable[..., str]) -> Callable[..., str]:
    def convert_dtype(dtype: Any) -> str:
        return "bfloat16" if dtype == paddle.bfloat16 else function(dtype)

    convert_dtype._amp_original = function  # type: ignore[attr-defined]
    return convert_dtype
