"""The common form of both cast plans: one ``PlanOp`` for each op that has a floating input, in program order.

The static side (``pir_casts.py``) and the dygraph side (``dygraph_trace.py``) both reduce what they see to this, so
that the comparison (``plan_diff.py``) knows nothing of Paddle.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

FLOATING = ("float16", "bfloat16", "float32")
#: Casts are what AMP inserts; a cast the model asked for shows in the inputs of the ops behind it.
CASTS = {"cast", "transfer_dtype"}
#: Names that differ between the two modes for the same mathematics: AMP name -> name used for the alignment.
SAME_OP = {
    "sync_batch_norm_": "sync_batch_norm",
    "batch_norm_": "batch_norm",
    "split_with_num": "split",
    "reshape2": "reshape",
}


@dataclass(frozen=True)
class PlanOp:
    """One op: AMP name, dtype it computes in (its first floating input, after the casts), floating dtypes around it."""

    op: str
    compute: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    where: str = ""

    def to_dict(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict) -> PlanOp:
        return PlanOp(data["op"], data["compute"], tuple(data["inputs"]), tuple(data["outputs"]), data["where"])


def plan_op(op: str, inputs: list[str | None], outputs: list[str | None], compute: str = "", where: str = ""):
    """A ``PlanOp``, or None for an op AMP has no say in: a cast, or no input of a dtype AMP casts."""
    floating = tuple(d for d in inputs if d in FLOATING)
    if op in CASTS or not floating:
        return None
    out = tuple(d for d in outputs if d in FLOATING)
    return PlanOp(SAME_OP.get(op, op), compute or floating[0], floating, out, where)
