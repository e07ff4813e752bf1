"""Align two cast plans and name every difference; look each one up in the table of explanations.

The table (``pir_differences.yml``) is a list of entries with the keys ``kind``, ``op``, ``reason`` and, to narrow an
entry, ``models`` and ``cases`` (lists). Kinds:

``compute``  both plans have the op, computed in different dtypes
``outputs``  computed in the same dtype, results of different dtypes
``static``   an op only the static program has (``op`` may list several)
``dygraph``  an op only the dygraph run has
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from plan_ops import PlanOp


@dataclass(frozen=True)
class Difference:
    kind: str
    op: str
    index: int
    static: PlanOp | None
    dygraph: PlanOp | None

    def __str__(self) -> str:
        def side(op: PlanOp | None) -> str:
            return "-" if op is None else f"{op.compute} {op.inputs} -> {op.outputs}"

        return f"{self.kind:8} {self.op} (#{self.index}): static {side(self.static)}; dygraph {side(self.dygraph)}"


def compare(static: Sequence[PlanOp], dygraph: Sequence[PlanOp]) -> list[Difference]:
    """Every difference between the two plans, in the order of the static one."""
    matcher = SequenceMatcher(None, [o.op for o in static], [o.op for o in dygraph], autojunk=False)
    found: list[Difference] = []
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(static[a:a_end], dygraph[b:b_end], strict=True)
            found.extend(d for i, (s, e) in enumerate(pairs, a) if (d := _compare_op(i, s, e)))
        else:
            found.extend(Difference("static", o.op, i, o, None) for i, o in enumerate(static[a:a_end], a))
            found.extend(Difference("dygraph", o.op, i, None, o) for i, o in enumerate(dygraph[b:b_end], b))
    return found


def _compare_op(index: int, static: PlanOp, dygraph: PlanOp) -> Difference | None:
    if static.compute != dygraph.compute:
        return Difference("compute", static.op, index, static, dygraph)
    shared = min(len(static.outputs), len(dygraph.outputs))
    if static.outputs[:shared] != dygraph.outputs[:shared]:
        return Difference("outputs", static.op, index, static, dygraph)
    return None


def aligned_share(static: Sequence[PlanOp], dygraph: Sequence[PlanOp]) -> float:
    """How much of the longer plan has a partner in the other: a guard against a comparison of nothing."""
    matcher = SequenceMatcher(None, [o.op for o in static], [o.op for o in dygraph], autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks()) / max(len(static), len(dygraph), 1)


def explains(entry: dict[str, Any], difference: Difference, model: str, case: str) -> bool:
    """Whether one entry of the table covers this difference."""
    ops = entry["op"] if isinstance(entry["op"], list) else [entry["op"]]
    return (
        entry["kind"] == difference.kind
        and difference.op in ops
        and model in entry.get("models", [model])
        and case in entry.get("cases", [case])
    )
