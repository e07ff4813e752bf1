"""Which op it was: the ops of a step, in order, with the range of what went in and what came out.

Software half reports every op it runs. On a GPU Paddle's own checker names the first op that was not finite.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paddle

if TYPE_CHECKING:
    from paddle_amp_plugin.diagnosis.watch import LayerCall, Seen

#: Ops whose output holds the values of their one tensor input: measured once.
MOVING = frozenset(
    """
    assign clone flatten flatten_contiguous_range reshape reshape2 squeeze squeeze2 transpose transpose2 unsqueeze
    unsqueeze2 t share_data
    """.split()
)


@dataclass(eq=False)
class OpCall:
    """One op: its AMP name, the dtype it computed in, the layer call around it (None: outside the model)."""

    op: str
    dtype: str
    layer: LayerCall | None
    order: int
    nth: int  # how many ops of this name the layer call ran before
    after: int = 0  # how many layer calls were over by then
    inputs: list[Seen] = field(default_factory=list)
    outputs: list[Seen] = field(default_factory=list)

    @property
    def key(self) -> tuple[Any, ...]:
        """What this op is called in another run of the same batch."""
        return (*(self.layer.key if self.layer else ("", -1)), self.op, self.nth)


@contextlib.contextmanager
def listen(report: Callable[[str, str, Any, Any], None]) -> Iterator[bool]:
    """``report(op, dtype, inputs, outputs)`` after each op that software half runs; yields whether it does.

    Software half looks its ``records.note`` up at each call, and calls it while somebody records.
    """
    from paddle_amp_plugin import software_half
    from paddle_amp_plugin.software_half import records

    if not software_half.installed():
        yield False
        return
    original = records.note

    def note(op: str, compute_dtype: Any, inputs: Any, outputs: Any) -> None:
        original(op, compute_dtype, inputs, outputs)
        report(op, records.dtype_name(compute_dtype), inputs, outputs)

    with software_half.record_ops():
        records.note = note
        try:
            yield True
        finally:
            records.note = original


_CHECKER_LINE = re.compile(r"op=(?P<op>\w+),.*?num_nan=(?P<nan>\d+),\s*num_inf=(?P<inf>\d+)")


def first_checked_op(run: Callable[[], Any]) -> str | None:
    """The first op, in the order of execution, that Paddle's own checker finds not finite while ``run`` runs.

    Slow on a GPU (each op waits for the device), so it is asked once, in a replay. The name is Paddle's
    (``matmul``); see ``op_names.amp_name``. None if nothing was found or this Paddle has no such checker. The flags
    are those of ``paddle.amp.debugging.enable_tensor_checker``, whose config object also reseeds every generator.
    """
    core = paddle.base.core
    if not hasattr(core, "set_nan_inf_debug_path"):
        return None
    flags = {"FLAGS_check_nan_inf": True, "FLAGS_check_nan_inf_level": 1}  # 1: look, do not abort
    before = paddle.get_flags(list(flags))
    with tempfile.TemporaryDirectory() as folder:
        core.set_nan_inf_debug_path(folder)
        paddle.set_flags(flags)
        try:
            run()
        finally:
            paddle.set_flags(before)
            core.set_nan_inf_debug_path("")
        files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        return first_op_in("\n".join(path.read_text("utf-8", "replace") for path in files))


def first_op_in(text: str) -> str | None:
    """The first op in the checker's output that had a NaN or an infinity."""
    for match in _CHECKER_LINE.finditer(text):
        if int(match["nan"]) or int(match["inf"]):
            return match["op"]
    return None
