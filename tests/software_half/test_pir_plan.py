"""Software half against Paddle's own cast plan, op by op (docs, "How we know it is faithful", 1).

For each test model the forward is built in static mode, where Paddle 3's C++ AMP code inserts its casts on a CPU
too, and run under software half; see tests/reference/pir_casts.py for what is compared and why it is a GPU's plan.
The models are whole networks (tests/reference/models.py) and single ops (tests/reference/op_zoo.py).
"""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import sys
from functools import cache
from pathlib import Path

import paddle
import pytest
import yaml

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))

import dygraph_trace  # noqa: E402
import models  # noqa: E402
import op_zoo  # noqa: E402
import pir_casts  # noqa: E402
import plan_diff  # noqa: E402
from plan_ops import PlanOp  # noqa: E402

CASES = ("O1,bfloat16,default", "O1,bfloat16,safe", "O1,float16,default", "OD,bfloat16,default")
OPS = tuple(f"op:{name}" for name in op_zoo.ENTRIES)
EXPLAINED = yaml.safe_load((REFERENCE / "pir_differences.yml").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(
    paddle.__version__.startswith("2."), reason="Paddle 2 has no AMP in static PIR mode: nothing to compare with"
)


@cache
def all_plans() -> tuple[dict, dict]:
    """(static, dygraph): model -> case -> plan, for everything that can be built here."""
    names = [m for m in (*models.NAMES, *OPS) if models.why_not(m) is None]
    try:
        return pir_casts.run_static_plans(names, CASES), dygraph_trace.dygraph_plans(names, CASES)
    except Exception as error:  # remembered, so that 700 tests do not each start the process that fails
        return {"failed": error}, {}


def plans_of(model: str, case: str) -> tuple[list[PlanOp], list[PlanOp]]:
    reason = models.why_not(model)
    if reason:
        pytest.skip(reason)
    static, dygraph = all_plans()
    if "failed" in static:
        raise static["failed"]
    assert not isinstance(static[model][case], str), f"static mode: {static[model][case]}"
    assert not isinstance(dygraph[model][case], str), f"software half: {dygraph[model][case]}"
    return static[model][case], dygraph[model][case]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", (*models.NAMES, *OPS))
def test_every_op_computes_in_the_dtype_paddle_plans(model: str, case: str) -> None:
    differences = plan_diff.compare(*plans_of(model, case))
    unexplained = [d for d in differences if not any(plan_diff.explains(e, d, model, case) for e in EXPLAINED)]
    assert not unexplained, f"{len(unexplained)} differences:\n" + "\n".join(map(str, unexplained[:20]))


@pytest.mark.parametrize("model", models.NAMES)
def test_the_comparison_compares_something(model: str) -> None:
    static, dygraph = plans_of(model, "O1,bfloat16,default")
    assert plan_diff.aligned_share(static, dygraph) > 0.85
    for plan in (static, dygraph):
        assert {o.compute for o in plan} == {"float32", "bfloat16"}


@pytest.mark.parametrize("entry", EXPLAINED, ids=lambda e: f"{e['kind']}-{'-'.join(e['op'])}")
def test_no_explanation_is_stale(entry: dict) -> None:
    for model in entry["models"]:
        differences = [d for case in entry.get("cases", CASES) for d in plan_diff.compare(*plans_of(model, case))]
        explained = [d for d in differences if plan_diff.explains(entry, d, model, entry.get("cases", CASES)[0])]
        assert explained, f"nothing left to explain in {model}: remove it from the entry"


def test_a_wrong_dtype_is_found() -> None:
    """The comparison itself: one op in the wrong dtype, or missing, gives exactly one difference."""
    plan = [
        PlanOp("conv2d", "float16", ("float16",), ("float16",)),
        PlanOp("softmax", "float32", ("float32",), ("float32",)),
    ]
    wrong = [plan[0], PlanOp("softmax", "float16", ("float16",), ("float16",))]
    leaky = [plan[0], PlanOp("softmax", "float32", ("float32",), ("float16",))]
    assert [(d.kind, d.op) for d in plan_diff.compare(plan, wrong)] == [("compute", "softmax")]
    assert [(d.kind, d.op) for d in plan_diff.compare(plan, leaky)] == [("outputs", "softmax")]
    assert [(d.kind, d.op) for d in plan_diff.compare(plan, plan[:1])] == [("static", "softmax")]
