"""The other side of the comparison: what software half did, reduced to the form of ``plan_ops.py``."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

from plan_ops import PlanOp, plan_op


def from_records(records: Iterable[Any]) -> list[PlanOp]:
    """A plan from the ``OpRecord`` list of ``software_half.record_ops()``."""
    plan = []
    for record in records:
        op = plan_op(record.op, list(record.input_dtypes), list(record.output_dtypes), record.compute_dtype)
        if op is not None:
            plan.append(op)
    return plan


def dygraph_records(model_name: str, level: str, dtype: str, black: set[str]) -> list[Any]:
    """Run the forward of one test model under software half and ``auto_cast``; return its ``OpRecord`` list."""
    import models
    import paddle

    from paddle_amp_plugin import software_half

    model, arrays = models.build(model_name)
    inputs = [paddle.to_tensor(a) for a in arrays]
    auto_cast = paddle.amp.auto_cast(level=level, dtype=dtype, custom_black_list=black or None)
    with software_half.emulate(), software_half.record_ops() as records, auto_cast:
        model(*inputs)
    return records


def dygraph_plan(model_name: str, level: str, dtype: str, black: set[str]) -> list[PlanOp]:
    return from_records(dygraph_records(model_name, level, dtype, black))


def dygraph_plans(models: Iterable[str], cases: Iterable[str]) -> dict[str, dict[str, list[PlanOp] | str]]:
    """model -> case (``"O1,bfloat16,default"``) -> plan, or the traceback of a failure."""
    from pir_casts import black_list

    from paddle_amp_plugin import software_half

    def plan(model: str, case: str) -> list[PlanOp] | str:
        level, dtype, lists = case.split(",")
        try:
            return dygraph_plan(model, level, dtype, black_list(lists))
        except Exception:
            return traceback.format_exc()

    with software_half.emulate():
        return {model: {case: plan(model, case) for case in cases} for model in models}
