"""What a rehearsal saw, as plain data, and ``rehearsal.json``. No Paddle."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

RECORD_FILE = "rehearsal.json"


@dataclass(frozen=True)
class Step:
    """One step of both trainings. ``fp32`` / ``amp``: the losses (may be inf or NaN), None where a side had stopped.

    ``scale``: what the loss was multiplied by (1 without loss scaling); ``skipped``: the mixed-precision side withheld
    its update, and the FP32 side then did so too. Seconds are wall-clock.
    """

    step: int
    fp32: float | None
    amp: float | None
    scale: float
    skipped: bool
    fp32_seconds: float = 0.0
    amp_seconds: float = 0.0


@dataclass(frozen=True)
class Layer:
    """One layer in FP32, over the batches looked at. ``out_absmax``: largest output; ``grad_absmax``: largest gradient
    at its output, not scaled; ``lost``: share of its gradients that are not 0 and that float16 loses at ``init_scale``.

    ``overflows``: its own output is not finite under the plan though it is in FP32.
    """

    name: str
    type: str
    out_absmax: float
    grad_absmax: float | None = None
    lost: float | None = None
    overflows: bool = False


@dataclass(frozen=True)
class Treatment:
    """What the run had to be healed of on the way: the step, the layer, the cause, the YAML against it."""

    step: int
    culprit: str
    cause_en: str
    cause_zh: str
    yaml: str


@dataclass(frozen=True)
class Remedy:
    """An ``amp`` mapping that should hold. ``tried``: the batches looked at are finite under it."""

    amp: Mapping[str, Any]
    tried: bool


@dataclass(frozen=True)
class Rehearsal:
    """Everything ``verdict.judge`` needs.

    ``asked`` / ``used``: "level dtype" as planned and as it was at the end (a healing or ``dtype: auto`` moves it).
    ``amp``: the user's ``amp`` mapping. ``scaling``: of the plan, ``None`` without loss scaling: init, minimum,
    dynamic, and the other fields of ``ScalingPolicy``. ``probed``: batches whose ranges were read. ``stopped``: why the
    mixed-precision side ended before its last step. ``remedies``: what could be written instead, best first.
    """

    name: str
    family: str
    device: str
    software_half: bool
    synthetic: bool
    seed: int
    batch_size: int
    asked: str
    used: str
    dtype_reason: str
    amp: Mapping[str, Any]
    scaling: Mapping[str, Any] | None
    planned_steps: int
    steps: tuple[Step, ...]
    probed: int
    layers: tuple[Layer, ...]
    half_share: float | None
    fp32_finite: bool
    treatments: tuple[Treatment, ...] = ()
    stopped: str = ""
    remedies: tuple[Remedy, ...] = ()
    seconds: float = 0.0
    paddle: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)


def to_json(record: Rehearsal, verdict: Mapping[str, Any]) -> str:
    """The record and its verdict as strict JSON: what is not finite is the text ``inf``, ``-inf`` or ``nan``."""
    data = {"version": 1, "verdict": dict(verdict), **dataclasses.asdict(record)}
    return json.dumps(_strict(data), ensure_ascii=False, allow_nan=False, indent=1)


def read(path: Path) -> Rehearsal:
    """The record in a ``rehearsal.json``. Raises AmpError (AMP265) if it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        known = {f.name for f in dataclasses.fields(Rehearsal)}
        values = {key: value for key, value in data.items() if key in known}
        values["steps"] = tuple(Step(**_numbers(row)) for row in values["steps"])
        values["layers"] = tuple(Layer(**_numbers(row)) for row in values["layers"])
        values["treatments"] = tuple(Treatment(**row) for row in values["treatments"])
        values["remedies"] = tuple(Remedy(**row) for row in values["remedies"])
        return Rehearsal(**values)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise AmpError("AMP265", tr("{p} is no rehearsal: {e}", "{p} 不是预演记录：{e}", p=path, e=error)) from None


_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_TEXTS = ("name", "type")


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _SPECIAL.get(v, v) if isinstance(v, str) and k not in _TEXTS else v for k, v in row.items()}


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
