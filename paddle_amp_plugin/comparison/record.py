"""What a comparison measured, as plain data, and ``compare.json``. No Paddle."""

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
from paddle_amp_plugin.spelling import nearest

RECORD_FILE = "compare.json"
FP32 = "fp32"
#: The modes there are: FP32, and a level with a half type ("O1" is "O1-fp16").
MODES: Mapping[str, Mapping[str, str]] = {
    "O1": {"level": "O1", "dtype": "float16"},
    "O2": {"level": "O2", "dtype": "float16"},
    "OD": {"level": "OD", "dtype": "float16"},
    "O1-bf16": {"level": "O1", "dtype": "bfloat16"},
    "O2-bf16": {"level": "O2", "dtype": "bfloat16"},
    "OD-bf16": {"level": "OD", "dtype": "bfloat16"},
}
MOST_MODES = 4


@dataclass(frozen=True)
class Run:
    """One training. ``losses``: of every step. ``skipped``: steps without an update.

    ``reader`` / ``forward`` / ``backward`` / ``update``: wall-clock seconds over the ``timed`` steps (the first ones
    are not among them), in which ``samples`` samples were trained. ``memory``: bytes at the peak; ``memory_start``:
    before there was a model (0 on a GPU). ``failed``: why there are no numbers, or fewer.
    """

    mode: str
    seed: int
    losses: tuple[float, ...] = ()
    skipped: int = 0
    timed: int = 0
    samples: int = 0
    reader: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    update: float = 0.0
    memory: int = 0
    memory_start: int = 0
    metric: Mapping[str, float] = field(default_factory=dict)
    half_share: float | None = None
    used: str = ""
    failed: str = ""

    @property
    def seconds(self) -> float:
        return self.reader + self.forward + self.backward + self.update

    @property
    def speed(self) -> float | None:
        """Samples a second; None where nothing was timed."""
        return self.samples / self.seconds if self.timed and self.seconds > 0 else None

    @property
    def memory_used(self) -> int:
        """Bytes at the peak over those before there was a model."""
        return max(0, self.memory - self.memory_start)

    def share(self, part: str) -> float:
        """Share of the time in ``reader``, ``forward``, ``backward`` or ``update``, 0 to 1."""
        return float(getattr(self, part)) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Model:
    """What its size says about speed. ``macs``: multiply-accumulates of one batch's forward pass in ``products``
    convolutions and Linear layers; ``odd_share``: share of them in layers of which an input or output width is no
    multiple of 8; ``odd``: the largest such layers, "name (in x out)".
    """

    parameters: int
    macs: int
    products: int
    odd_share: float
    odd: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Everything ``verdict.judge`` needs. ``capability``: (major, minor) of a CUDA device, else None."""

    name: str
    family: str
    device: str
    device_name: str
    capability: tuple[int, int] | None
    software_half: bool
    synthetic: bool
    steps: int
    seeds: tuple[int, ...]
    modes: tuple[str, ...]
    batch_size: int
    model: Model
    runs: tuple[Run, ...]
    paddle: str = ""
    seconds: float = 0.0

    def of(self, mode: str) -> tuple[Run, ...]:
        """The runs of a mode that have numbers, in the order of the seeds."""
        return tuple(run for run in self.runs if run.mode == mode and not run.failed)


def parse_modes(text: str) -> tuple[str, ...]:
    """``"fp32,O1,O2,O1-bf16"`` -> the modes; FP32 comes first and is always there. Raises AmpError (AMP260)."""
    found = [FP32]
    known = {mode.lower(): mode for mode in (*MODES, FP32)}
    known |= {f"{mode.lower()}-fp16": mode for mode in ("O1", "O2", "OD")}
    for word in (part.strip() for part in text.split(",") if part.strip()):
        mode = known.get(word.lower())
        if mode is None:
            near = nearest(word, [FP32, *MODES])
            raise AmpError(
                "AMP260",
                tr("--modes: {v}: allowed: {a}", "--modes：{v}：允许的值：{a}", v=word, a=", ".join([FP32, *MODES])),
                hint=tr("did you mean: {n}", "您是不是想写：{n}", n=near) if near else "",
            )
        if mode not in found:
            found.append(mode)
    if not 2 <= len(found) <= MOST_MODES:
        raise AmpError(
            "AMP260",
            tr(
                "--modes {v}: FP32 and one to {m} others",
                "--modes {v}：FP32 与 1 至 {m} 个其他模式",
                v=text,
                m=MOST_MODES - 1,
            ),
        )
    return tuple(found)


def to_json(record: Comparison, verdict: Mapping[str, Any]) -> str:
    """The record and its verdict as strict JSON; losses that are not finite are the texts ``inf`` and ``nan``."""
    data = {"version": 1, "verdict": dict(verdict), **dataclasses.asdict(record)}
    return json.dumps(strict(data), ensure_ascii=False, allow_nan=False, indent=1)


def read(path: Path) -> Comparison:
    """The record in a ``compare.json``. Raises AmpError (AMP265) if it is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        values = {f.name: data[f.name] for f in dataclasses.fields(Comparison)}
        values["runs"] = tuple(run_of(row) for row in values["runs"])
        values["model"] = Model(**{**values["model"], "odd": tuple(values["model"]["odd"])})
        values["capability"] = tuple(values["capability"]) if values["capability"] else None
        values["seeds"], values["modes"] = tuple(values["seeds"]), tuple(values["modes"])
        return Comparison(**values)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise AmpError("AMP265", tr("{p} is no comparison: {e}", "{p} 不是对比记录：{e}", p=path, e=error)) from None


def run_of(row: Mapping[str, Any]) -> Run:
    """A run out of its JSON."""
    return Run(**{**row, "losses": tuple(float(value) for value in row["losses"])})


def strict(value: Any) -> Any:
    """``value`` for strict JSON."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
