"""What ran in which dtype: a list of op calls, and the counts ``paddle.amp.debugging`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import paddle

_NAMES = {
    paddle.float32: "float32",
    paddle.float16: "float16",
    paddle.bfloat16: "bfloat16",
    paddle.float64: "float64",
    paddle.int64: "int64",
    paddle.int32: "int32",
    paddle.bool: "bool",
}
#: The order of the columns in Paddle's operator statistics (fp16, bf16, fp32, other).
_COLUMNS = ("float16", "bfloat16", "float32", "other")


@dataclass(frozen=True)
class OpRecord:
    """One op call: its AMP name, the dtype it computed in, the dtypes of its tensors before any cast.

    Results without a value are left out (the reserve space of Paddle 2.6's ``batch_norm``).
    """

    op: str
    compute_dtype: str
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]


#: True while somebody listens; the op wrappers look at nothing else.
ACTIVE = False
_lists: list[list[OpRecord]] = []
_counts: dict[str, list[int]] | None = None
_last_counts: dict[str, str] = {}


def dtype_name(dtype: Any) -> str:
    """``paddle.float16`` -> ``float16``."""
    return _NAMES.get(dtype) or str(dtype).rsplit(".", 1)[-1].lower()


def _tensors(values: Any) -> Iterator[Any]:
    for value in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, paddle.Tensor):
            yield value


def _refresh() -> None:
    global ACTIVE
    ACTIVE = bool(_lists) or _counts is not None


def note(op: str, compute_dtype: Any, inputs: Any, outputs: Any) -> None:
    """Report one op call to whoever listens."""
    name = dtype_name(compute_dtype)
    record = None
    if _lists:
        record = OpRecord(
            op,
            name,
            tuple(dtype_name(t.dtype) for t in _tensors(inputs)),
            tuple(dtype_name(t.dtype) for t in _tensors(outputs) if t._is_initialized()),
        )
        for records in _lists:
            records.append(record)
    if _counts is not None:
        _count(op, name)
        _count_backward(op, name, outputs)


def _count(op: str, dtype: str) -> None:
    if _counts is not None:
        column = _COLUMNS.index(dtype) if dtype in _COLUMNS else 3
        _counts.setdefault(op, [0, 0, 0, 0])[column] += 1


def _count_backward(op: str, dtype: str, outputs: Any) -> None:
    out = next(_tensors(outputs), None)
    if out is None or out.stop_gradient:
        return
    fired = []

    def hook(grad: Any) -> None:
        if not fired:
            fired.append(True)
            _count(f"{op}_grad", dtype)

    out.register_hook(hook)


@contextmanager
def record_ops() -> Iterator[list[OpRecord]]:
    """A context manager that yields a list; each op called inside appends one ``OpRecord``, in order.

    Ops without a floating tensor input (index arithmetic, creation) are not recorded.
    """
    records: list[OpRecord] = []
    _lists.append(records)
    _refresh()
    try:
        yield records
    finally:
        _lists[:] = [r for r in _lists if r is not records]
        _refresh()


def note_update(op: str, dtype: Any) -> None:
    """Report one optimizer op, by the dtype of its parameter: counted, but not in the list of op calls."""
    _count(op, dtype_name(dtype))


def start_counting() -> None:
    """Begin the operator statistics anew (``core.clear_low_precision_op_list``). Casts are not counted."""
    global _counts
    _counts = {}
    _refresh()


def stop_counting() -> dict[str, str]:
    """End the statistics; op -> ``"fp16,bf16,fp32,other"`` calls, as ``core.get_low_precision_op_list``.

    Called again before the next start it gives the same counts, as Paddle's does.
    """
    global _counts, _last_counts
    if _counts is not None:
        _last_counts = {op: ",".join(map(str, n)) for op, n in sorted(_counts.items())}
        _counts = None
        _refresh()
    return dict(_last_counts)
