"""One event a step, as one line of strict JSON: ``amp/events.jsonl``.

JSON (RFC 8259, section 6) has no infinity and no NaN, and a parser other than Python's stops at them, so they
are written as the strings "inf", "-inf" and "nan". What is not known (None) is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The file's name under a run's ``amp/`` folder.
EVENTS_FILE = "events.jsonl"

_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_FLOATS = ("loss", "loss_scale", "grad_norm", "lr", "seconds", "half_share", "zero_grad_share")
_INTEGERS = ("samples", "updates")


@dataclass(frozen=True)
class StepEvent:
    """What one ``optimizer.step`` did.

    ``step``: counted from 1. ``loss``: of this step, not scaled; ``losses``: its terms by name. ``loss_scale``: the
    factor this step's loss was multiplied by (1 without loss scaling). ``skipped``: the update was withheld.
    ``grad_norm``: L2 norm of all gradients, unscaled and before clipping. ``lr``: the learning rate of the step.
    ``seconds``: wall-clock time since the step before. ``samples``: images or sequences in the step's batches.
    ``half_share``: share of the forward pass's ops in half precision, 0 to 1. ``zero_grad_share``: share of gradient
    elements that are exactly 0, 0 to 1. ``updates``: updates made so far, this step included.
    """

    step: int
    loss: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    loss_scale: float = 1.0
    skipped: bool = False
    grad_norm: float | None = None
    lr: float | None = None
    seconds: float | None = None
    samples: int | None = None
    half_share: float | None = None
    zero_grad_share: float | None = None
    updates: int | None = None

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of this step; None where the samples or the time are not known."""
        return self.samples / self.seconds if self.samples is not None and self.seconds else None

    def to_json(self) -> str:
        """The event as one line, without the line break."""
        row: dict[str, Any] = {"step": int(self.step), "skipped": bool(self.skipped)}
        for name in _FLOATS:
            value = getattr(self, name)
            if value is not None:
                row[name] = number_to_json(value)
        for name in _INTEGERS:
            value = getattr(self, name)
            if value is not None:
                row[name] = int(value)
        if self.losses:
            row["losses"] = {str(name): number_to_json(value) for name, value in self.losses.items()}
        return json.dumps(row, separators=(",", ":"), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> StepEvent:
        """The event in ``line``; keys it does not know are passed over. Raises ``ValueError`` if it is none."""
        row = json.loads(line, parse_constant=_no_constant)
        if not isinstance(row, dict) or isinstance(row.get("step"), bool) or not isinstance(row.get("step"), int):
            raise ValueError(f"not an event: {line[:80]}")
        if row["step"] < 1 or not isinstance(row.get("skipped", False), bool):
            raise ValueError(f"not an event: {line[:80]}")
        losses = row.get("losses") or {}
        if not isinstance(losses, dict):
            raise ValueError(f"not an event: {line[:80]}")
        values: dict[str, Any] = {name: number_from_json(row[name]) for name in _FLOATS if name in row}
        for name in _INTEGERS:
            if name in row:
                value = number_from_json(row[name])
                if not math.isfinite(value):
                    raise ValueError(f"not an event: {line[:80]}")
                values[name] = int(value)
        terms = {name: number_from_json(value) for name, value in losses.items()}
        return cls(step=row["step"], skipped=row.get("skipped", False), losses=terms, **values)


@dataclass(frozen=True)
class EventLog:
    """What a file of events holds. ``broken``: lines that are no event (a crash leaves at most one)."""

    events: list[StepEvent]
    broken: int


def number_to_json(value: float) -> float | str:
    """A float as JSON can hold it: non-finite ones as "inf", "-inf", "nan"."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def number_from_json(value: object) -> float:
    """The float that ``number_to_json`` wrote. Raises ``ValueError`` for anything else."""
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number: {value!r}")
    return float(value)


def _no_constant(name: str) -> float:
    raise ValueError(f"not JSON: {name}")


def read_log(path: str | Path) -> EventLog:
    """All events of a file, in order of their steps. Raises ``OSError`` if it cannot be read.

    Lines that are no event are counted and passed over: a killed run leaves a truncated last line, a resumed one goes
    on below it. Where a step number goes back, a run was resumed from a checkpoint, and what had been written from
    that step on did not become part of it: the later lines win.
    """
    events: list[StepEvent] = []
    broken = 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                event = StepEvent.from_json(line)
            except (ValueError, RecursionError, OverflowError):
                broken += 1
                continue
            while events and events[-1].step >= event.step:
                events.pop()
            events.append(event)
    return EventLog(events, broken)


def read_events(path: str | Path) -> list[StepEvent]:
    """The events of ``read_log``."""
    return read_log(path).events
