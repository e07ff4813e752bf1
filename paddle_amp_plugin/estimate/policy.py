"""The same step at another precision: a FP32 trace rewritten as ``auto_cast`` and ``decorate`` would run it (pure).

Dtypes follow ``op_rules`` (Paddle's own rules of eager AMP). A cast becomes a call of its own: it makes a tensor
that the op's gradient node keeps in the place of the original, and it sends back a gradient in the original's
dtype. Weights are cast at every use at O1, as Paddle has no cache of half weights.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddle_amp_plugin.estimate.trace_model import ITEM_SIZES, NEVER, BackwardStep, Call, Trace, Value
from paddle_amp_plugin.op_rules import (
    FIRST_OUTPUT_ONLY,
    HALF_DTYPES,
    CastSettings,
    castable,
    compute_dtype,
    is_cast_input,
)

#: What AMP never brings to another dtype of its own: ``cast`` has its target written in the call, and the others look
#: at no value.
_OWN_DTYPE = frozenset({"cast", "cast_", "shape", "shape64", "numel", "is_empty"})


FLOATS = ("float32", *HALF_DTYPES)


@dataclass(frozen=True)
class Seen:
    """One op call as it was seen under this policy: its AMP name and dtypes (``software_half.OpRecord``)."""

    op: str
    inputs: tuple[str, ...]
    compute: str
    outputs: tuple[str, ...]

    def floats(self) -> tuple[str, ...]:
        """Dtypes of the floating results, in order."""
        return tuple(d for d in self.outputs if d in FLOATS)


@dataclass(frozen=True)
class Policy:
    """How a step runs. ``settings``: of ``auto_cast`` around the model's forward; ``half_tensors``: names of the
    parameters and buffers that ``decorate`` makes half (O2); ``pinned``: dotted names of the layers that compute in
    FP32; ``seen``: the calls (by number) whose dtypes need no rule, because they were seen (``match``).
    """

    settings: CastSettings = field(default_factory=CastSettings)
    half_tensors: Collection[str] = frozenset()
    pinned: tuple[str, ...] = ()
    seen: Mapping[int, Seen] = field(default_factory=dict)

    def is_pinned(self, layer: str) -> bool:
        """Whether a layer is one of the pinned ones, or inside one."""
        return any(layer == name or layer.startswith(f"{name}.") for name in self.pinned)


def cast_by_amp(trace: Trace) -> list[int]:
    """The calls that software half has something to say about: in the model, with a floating input, no ``cast``."""
    return [
        number
        for number, call in enumerate(trace.calls)
        if call.in_model
        and not call.inplace
        and call.op not in _OWN_DTYPE
        and any(trace.values[v].dtype in FLOATS for v in call.inputs)
    ]


def match(trace: Trace, seen: Sequence[Seen]) -> dict[int, Seen]:
    """Call number in ``trace`` -> what was seen of it; calls that only one side has are left out."""
    numbers = cast_by_amp(trace)
    ours = [trace.calls[n].op for n in numbers]
    theirs = [s for s in seen if s.op not in _OWN_DTYPE and any(d in FLOATS for d in s.inputs)]
    names = [s.op for s in theirs]
    if ours == names:
        return dict(zip(numbers, theirs, strict=True))
    blocks = difflib.SequenceMatcher(None, ours, names, autojunk=False).get_matching_blocks()
    return {numbers[a + i]: theirs[b + i] for a, b, size in blocks for i in range(size)}


def apply(trace: Trace, policy: Policy) -> Trace:
    """``trace`` (FP32) under ``policy``. Level O0 gives it back as it is."""
    return trace if policy.settings.level == "O0" else _Rewriting(trace, policy).run()


class _Rewriting:
    def __init__(self, trace: Trace, policy: Policy) -> None:
        self._trace, self._policy = trace, policy
        self._half = policy.settings.dtype
        self._values: list[Value] = []
        self._calls: list[Call] = []
        self._new: dict[int, int] = {}  # position in the old trace -> in the new one
        self._number: dict[int, int] = {}  # the same for calls
        self._casts: dict[int, list[int]] = {}  # old call -> casts made for it
        self._now: dict[int, tuple[int, str]] = {}  # old storage -> the one in its place, and its dtype
        self._outside: dict[int, int] = {}  # half value -> its FP32 form for the loss
        self._storages = max((v.storage for v in trace.values), default=-1) + 1

    def run(self) -> Trace:
        half_storages = {v.storage for v in self._trace.values if v.name and v.name in self._policy.half_tensors}
        for position, value in enumerate(self._trace.values):
            if value.kind in ("parameter", "buffer", "input"):
                half = value.kind != "input" and value.storage in half_storages and castable(value.dtype)
                self._new[position] = self._add(_as(value, self._half) if half else value)
        for number, call in enumerate(self._trace.calls):
            self._rewrite(number, call)
        backward = self._backward()
        return replace(
            self._trace,
            values=self._on_new_clock(backward),
            calls=tuple(self._calls),
            backward=backward,
        )

    def _add(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    # -- one call ------------------------------------------------------------------------------------------

    def _rewrite(self, number: int, call: Call) -> None:
        inputs = [self._input(position) for position in call.inputs]
        seen = self._policy.seen.get(number)
        target = seen.compute if seen else self._target_of(call, [self._values[v].dtype for v in inputs])
        casts: list[int] = []
        if target is not None:
            for place, v in enumerate(inputs):
                dtype = self._values[v].dtype
                if castable(dtype) and dtype != target and is_cast_input(call.op, place, target):
                    inputs[place] = self._cast(v, target, call, casts)
        by_old = dict(zip(call.inputs, inputs, strict=True))
        half = self._results_in_half(call, target, inputs)
        moved = {self._trace.values[o].storage: self._values[n].storage for o, n in by_old.items()}
        outputs = []
        dtypes = self._result_dtypes(call, half, seen)
        for old, dtype in zip(call.outputs, dtypes, strict=True):
            value = _as(self._trace.values[old], dtype)
            value = replace(value, storage=moved.get(value.storage, value.storage))
            self._now[self._trace.values[old].storage] = (value.storage, value.dtype)
            self._new[old] = self._add(value)
            outputs.append(self._new[old])
        ratio = 0.5 if half else 1.0
        saved = [new for old, new in zip(call.inputs, inputs, strict=True) if old in call.saved]
        saved += [self._new[v] for v in call.saved if v not in by_old]
        self._number[number], self._casts[number] = len(self._calls), casts
        self._calls.append(
            replace(
                call,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                saved=tuple(saved),
                workspace=int(call.workspace * ratio),
            )
        )

    def _input(self, position: int) -> int:
        if position not in self._new:  # a tensor that no traced op made; it may be a view of one that was
            value = self._trace.values[position]
            storage, dtype = self._now.get(value.storage, (value.storage, value.dtype))
            value = replace(_as(value, dtype) if castable(value.dtype) and castable(dtype) else value, storage=storage)
            self._new[position] = self._add(value)
        return self._new[position]

    def _target_of(self, call: Call, dtypes: list[str]) -> str | None:
        """The dtype this call's inputs are brought to, or None."""
        if call.inplace or call.op in _OWN_DTYPE:
            return None
        if not call.in_model or self._policy.is_pinned(call.layer):
            return "float32" if any(d in HALF_DTYPES for d in dtypes) else None
        return compute_dtype(call.op, self._policy.settings, dtypes)

    def _result_dtypes(self, call: Call, half: bool, seen: Seen | None) -> list[str]:
        dtypes = [self._trace.values[v].dtype for v in call.outputs]
        floats = [place for place, dtype in enumerate(dtypes) if dtype in FLOATS]
        if seen is not None and len(seen.floats()) == len(floats):
            found = dict(zip(floats, seen.floats(), strict=True))
        else:
            only_first = call.op in FIRST_OUTPUT_ONLY
            found = {p: self._half for p in floats if half and dtypes[p] == "float32" and not (only_first and p)}
        return [found.get(place, dtype) for place, dtype in enumerate(dtypes)]

    def _results_in_half(self, call: Call, target: str | None, inputs: list[int]) -> bool:
        if call.inplace and inputs:
            return self._values[inputs[0]].dtype in HALF_DTYPES
        return target in HALF_DTYPES

    def _cast(self, v: int, target: str, call: Call, casts: list[int]) -> int:
        if not call.in_model and v in self._outside:
            return self._outside[v]
        source = self._values[v]
        made = replace(_as(source, target), storage=self._storages, kind="activation", name="", released=0)
        self._storages += 1
        position = self._add(made)
        if not call.in_model:
            self._outside[v] = position
        casts.append(len(self._calls))
        self._calls.append(Call("cast", (v,), (position,), (), in_model=call.in_model, layer=call.layer))
        return position

    # -- the backward pass ---------------------------------------------------------------------------------

    def _backward(self) -> tuple[BackwardStep, ...]:
        steps = []
        done: set[int] = set()
        for step in self._trace.backward:
            old, number = self._trace.calls[step.call], self._number[step.call]
            call = self._calls[number]
            before, after = _gradients_of(self._trace.values, old), _gradients_of(self._values, call)
            half = any(self._values[o].dtype in HALF_DTYPES for o in call.outputs)
            rest = (step.transient - before) * (0.5 if half else 1.0)
            steps.append(BackwardStep(number, max(0, int(after + rest))))
            for cast in self._casts[step.call]:
                source = self._values[self._calls[cast].inputs[0]]
                if source.requires_grad and cast not in done:
                    done.add(cast)
                    steps.append(BackwardStep(cast, source.nbytes))
        return tuple(steps)

    def _on_new_clock(self, backward: tuple[BackwardStep, ...]) -> tuple[Value, ...]:
        """The values with their ``released`` ticks counted in the new calls and steps."""
        old_count, count = len(self._trace.calls), len(self._calls)
        steps = {step.call: count + place for place, step in reversed(list(enumerate(backward)))}

        def tick(old: int) -> int:
            if old < old_count:  # before the casts of the call that came next
                return self._casts[old][0] if self._casts[old] else self._number[old]
            begun = old - old_count
            if begun == 0:
                return count
            if begun <= len(self._trace.backward):
                return steps[self._number[self._trace.backward[begun - 1].call]] + 1
            return NEVER

        return tuple(v if v.kind != "activation" else replace(v, released=tick(v.released)) for v in self._values)


def _as(value: Value, dtype: str) -> Value:
    return replace(value, dtype=dtype, nbytes=value.nbytes * ITEM_SIZES[dtype] // ITEM_SIZES[value.dtype])


def _gradients_of(values: Sequence[Value], call: Call) -> int:
    """Bytes of the gradients that the call's node makes (those of views are views)."""
    made_here = {values[o].storage for o in call.outputs}
    wanted = {v for v in call.inputs if values[v].requires_grad and values[v].storage not in made_here}
    return sum(values[v].nbytes for v in wanted)
