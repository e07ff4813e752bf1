"""The ops software half casts are the ops Paddle's eager mode asks its AMP code about, name by name, in order.

The reference is the log of Paddle's own eager C++ code, on a CPU, for the installed version (see
tests/reference/eager_names.py). A wrong name would be looked up in the wrong list.
"""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import sys
import traceback
from difflib import unified_diff
from functools import cache
from pathlib import Path

import paddle
import pytest

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))

import dygraph_trace  # noqa: E402
import eager_names  # noqa: E402
import models  # noqa: E402
import op_zoo  # noqa: E402
from plan_ops import CASTS, FLOATING  # noqa: E402

from paddle_amp_plugin import software_half  # noqa: E402

MODELS = (*models.NAMES, *(f"op:{name}" for name in (*op_zoo.ENTRIES, *op_zoo.EAGER_ENTRIES)))
#: What a CPU wheel runs instead of an op of a CUDA build; software half follows the CUDA build.
ON_CPU = {"linear_v2": ["matmul_v2", "elementwise_add"]}
#: Ops that read a shape or test bits: no cast changes their answer, and software half leaves them alone.
NO_ARITHMETIC = {"size", "shape", "isnan_v2", "isinf_v2", "isfinite_v2"}


@cache
def eager() -> dict[str, list[str]]:
    return eager_names.run_eager_names([m for m in MODELS if models.why_not(m) is None])


def recorded(model: str) -> list[str]:
    names: list[str] = []
    for record in dygraph_trace.dygraph_records(model, "O1", "bfloat16", set()):
        if record.op not in CASTS and any(d in FLOATING for d in record.input_dtypes):
            names += ON_CPU.get(record.op, [record.op])
    return names


@cache
def ours() -> dict[str, list[str] | str]:
    """Names for each model, or a traceback."""
    found: dict[str, list[str] | str] = {}
    with software_half.emulate():
        for model in eager():
            try:
                found[model] = recorded(model)
            except Exception:
                found[model] = traceback.format_exc()
    return found


@pytest.mark.parametrize("model", MODELS)
def test_same_ops_under_the_same_names(model: str) -> None:
    reason = models.why_not(model)
    if reason:
        pytest.skip(reason)
    theirs, mine = [n for n in eager()[model] if n not in NO_ARITHMETIC], ours()[model]
    assert not isinstance(mine, str), mine
    difference = list(unified_diff(theirs, mine, f"Paddle {paddle.__version__}", "software half", lineterm="", n=1))
    assert not difference, "\n".join(difference)


def test_log_parser() -> None:
    log = b"""eager_names: m
I1 1 amp_utils.h:186] AMP GetAmpDestDtype: op(matmul_v2) amp_dtype(float32) amp_level(1).
Input: [
 Dtype: float32,
Output: [
 Dtype: float32,
I1 1 amp_utils.h:186] AMP GetAmpDestDtype: op(elementwise_mul) amp_dtype(float32) amp_level(1).
Input: [
 Dtype: int64,
Output: [
I1 1 amp_utils.h:186] AMP GetAmpDestDtype: op(relu) amp_dtype(float32) amp_level(1).
eager_names: end"""
    assert eager_names.parse_log(log.splitlines()) == {"m": ["matmul_v2", "relu"]}
