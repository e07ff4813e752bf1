"""From a trace to bytes over time: what is alive at each op, and where the highest point is (pure).

The rules are those of Paddle's eager engine:

* a tensor lives while Python holds it, while the op that reads it last runs, and while a gradient node that kept it has
  not run; a view lives as its storage;
* the gradient of a tensor lives from the first node (in backward order) that adds to it until the node that made
  the tensor has run; gradients of views are views;
* gradients of parameters stay (``clear_grad`` sets them to zero), as do weights and optimizer states.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from paddle_amp_plugin.estimate.trace_model import Trace


@dataclass(frozen=True)
class Usage:
    """Bytes of one step beside weights, states and gradients.

    ``activations``: the tensors of the forward pass that are alive at the highest point; ``temporary``: gradients of
    activations and what the op that runs there needs for itself. ``where``: the call (its number) at the highest point,
    ``backward``: whether in its gradient. ``timeline``: bytes in use at each tick, before what the op itself takes.
    """

    activations: int
    temporary: int
    where: int
    backward: bool
    timeline: tuple[int, ...]

    @property
    def total(self) -> int:
        return self.activations + self.temporary


def usage(trace: Trace) -> Usage:
    """The highest point of one forward and backward pass (batch and persistent tensors are not counted)."""
    calls, count = trace.calls, len(trace.calls)
    ticks = count + len(trace.backward) + 1
    step_of: dict[int, int] = {}
    for number, step in enumerate(trace.backward):
        step_of.setdefault(step.call, count + number)
    kept = _changes(_stored(trace, step_of), ticks)
    pending = _changes(_gradients(trace, step_of), ticks)
    best, timeline = Usage(0, 0, 0, False, ()), []
    held = waiting = 0
    for tick in range(ticks - 1):
        held += kept[tick]
        waiting += pending[tick]
        timeline.append(held + waiting)
        own = calls[tick].workspace if tick < count else trace.backward[tick - count].transient
        if held + waiting + own > best.total:
            where = tick if tick < count else trace.backward[tick - count].call
            best = Usage(held, waiting + own, where, tick >= count, ())
    return Usage(best.activations, best.temporary, best.where, best.backward, tuple(timeline))


def _changes(spans: list[tuple[int, int, int]], ticks: int) -> list[int]:
    """(first tick, last tick, bytes) -> what is added before each tick."""
    changes = [0] * (ticks + 1)
    for first, last, nbytes in spans:
        if last >= first:
            changes[first] += nbytes
            changes[min(last + 1, ticks)] -= nbytes
    return changes


def _stored(trace: Trace, step_of: dict[int, int]) -> list[tuple[int, int, int]]:
    """Spans of the storages that the forward pass made, and of what the nodes keep besides."""
    persistent = {v.storage for v in trace.values if v.kind != "activation"}
    born: dict[int, int] = {}
    size: dict[int, int] = defaultdict(int)
    last: dict[int, int] = defaultdict(int)
    for value in trace.values:
        # released during tick t by Python: the memory is there while t - 1 ran
        last[value.storage] = max(last[value.storage], value.released - 1)
        size[value.storage] = max(size[value.storage], value.nbytes)
    spans = []
    for tick, call in enumerate(trace.calls):
        for position in (*call.inputs, *call.outputs):
            storage = trace.values[position].storage
            born.setdefault(storage, tick)
            last[storage] = max(last[storage], tick)
        end = step_of.get(tick)
        if end is None:  # its node never runs; it goes when nobody holds the results any more
            end = max((trace.values[v].released - 1 for v in call.outputs), default=tick)
        for position in call.saved:
            storage = trace.values[position].storage
            last[storage] = max(last[storage], end)
        if call.kept_bytes:
            spans.append((tick, end, call.kept_bytes))
    spans += [(first, last[s], size[s]) for s, first in born.items() if s not in persistent]
    return spans


def _gradients(trace: Trace, step_of: dict[int, int]) -> list[tuple[int, int, int]]:
    """Spans of the gradients that wait for the node of the tensor they belong to."""
    values = trace.values
    maker = {v: i for i, call in enumerate(trace.calls) for v in call.outputs}
    readers: dict[int, list[int]] = defaultdict(list)
    for number, call in enumerate(trace.calls):
        if number in step_of:
            for v in set(call.inputs):
                if values[v].requires_grad:
                    readers[v].append(number)
    spans = []
    for v, numbers in readers.items():
        made_by = maker.get(v)
        if made_by is None or made_by not in step_of:
            continue
        first, end = min(step_of[n] for n in numbers) + 1, step_of[made_by]
        only = trace.calls[numbers[0]] if len(numbers) == 1 else None
        if only is not None and any(values[o].storage == values[v].storage for o in only.outputs):
            first = min(first, end + 1)
        spans.append((first, end, values[v].nbytes))
    return spans
