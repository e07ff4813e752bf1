"""Reads a run's ``amp/`` folder: events, plan, diagnoses and ranges. No Paddle in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.monitor.events import EVENTS_FILE, EventLog, StepEvent, number_from_json, read_log

AMP_FOLDER = "amp"
PLAN_FILE = "plan.yml"
RANGES_FILE = "ranges.json"


@dataclass(frozen=True)
class LayerRange:
    """What one layer's output and gradient held. ``order``: place in the forward pass, from 0.

    ``…_absmax``: largest magnitude (may be inf or NaN); ``…_zero_share``: share of exact zeros, 0 to 1; gradients as
    they were during the step, so multiplied by the loss scale. None: not recorded.
    """

    name: str
    type: str
    order: int
    out_absmax: float | None
    out_zero_share: float | None
    out_nonfinite: bool
    grad_absmax: float | None
    grad_zero_share: float | None
    grad_nonfinite: bool | None


@dataclass(frozen=True)
class Finding:
    """One diagnosis (``overflow-<step>.json``) or range probe (``ranges.json``, without a culprit as a rule).

    ``culprit``: the layer's name; ``where``: ``forward`` or ``backward``; ``cause_en`` / ``cause_zh``: one sentence;
    ``yaml``: what to paste; ``not_amp``: FP32 is not finite either.
    """

    file: str
    step: int
    loss_scale: float | None
    culprit: str
    where: str
    cause_en: str
    cause_zh: str
    yaml: str
    not_amp: bool
    layers: tuple[LayerRange, ...]


@dataclass(frozen=True)
class RunData:
    """All that is known about a run. ``plan``: the plan file as a mapping ({} without one). ``unreadable``: names of
    files that were there and could not be used. ``broken_lines``: lines of the events file that are none.
    """

    folder: Path
    events: tuple[StepEvent, ...]
    broken_lines: int
    plan: Mapping[str, Any]
    findings: tuple[Finding, ...]
    ranges: Finding | None
    unreadable: tuple[str, ...]

    @property
    def layers(self) -> tuple[LayerRange, ...]:
        """The newest ranges there are: of the last diagnosis that has some, else of the probe."""
        with_layers = [f for f in self.findings if f.layers]
        if with_layers:
            return with_layers[-1].layers
        return self.ranges.layers if self.ranges else ()

    @property
    def layers_step(self) -> int:
        """The step ``layers`` were recorded at; 0: before the first one."""
        with_layers = [f for f in self.findings if f.layers]
        return with_layers[-1].step if with_layers else 0


def load_run(run_dir: Path) -> RunData:
    """Reads the run in ``run_dir`` (the output folder, or its ``amp`` folder).

    Raises ``AmpError``: AMP080 no such folder, AMP081 no AMP records in it, AMP082 no event yet, AMP083 the events
    cannot be read. A broken plan or diagnosis is named in ``unreadable``; the rest is still worth a report.
    """
    folder = _amp_folder(Path(run_dir))
    log = _events(folder / EVENTS_FILE)
    unreadable: list[str] = []
    findings = [_finding(path, unreadable) for path in sorted(folder.glob("overflow-*.json"), key=_step_of)]
    probe = folder / RANGES_FILE
    return RunData(
        folder=folder,
        events=tuple(log.events),
        broken_lines=log.broken,
        plan=_plan(folder / PLAN_FILE, unreadable),
        findings=tuple(sorted((f for f in findings if f is not None), key=lambda f: f.step)),
        ranges=_finding(probe, unreadable) if probe.is_file() else None,
        unreadable=tuple(unreadable),
    )


def _amp_folder(run_dir: Path) -> Path:
    if not run_dir.is_dir():
        raise AmpError(
            "AMP080",
            tr("there is no folder {f}", "文件夹 {f} 不存在", f=run_dir),
            hint=tr("give the run's output folder (Global.save_model_dir, --output_dir)", "请给出该次运行的输出文件夹"),
        )
    inner = run_dir / AMP_FOLDER
    if inner.is_dir():
        return inner
    if (run_dir / EVENTS_FILE).is_file():
        return run_dir
    raise AmpError(
        "AMP081",
        tr(
            "{f} holds no amp/ folder: no run with `amp` wrote there",
            "{f} 中没有 amp/ 文件夹：没有启用 `amp` 的运行写入过",
            f=run_dir,
        ),
        hint=tr("a run with `amp: true` makes it in its output folder", "以 `amp: true` 运行时会在输出文件夹中生成"),
    )


def _events(path: Path) -> EventLog:
    try:
        log = read_log(path)
    except FileNotFoundError:
        log = EventLog([], 0)
    except OSError as error:
        raise AmpError(
            "AMP083", tr("cannot read {f}: {e}", "无法读取 {f}:{e}", f=path, e=error.strerror or error)
        ) from None
    if log.events:
        return log
    if log.broken:
        raise AmpError(
            "AMP083",
            tr(
                "{f} holds no readable event ({n} broken lines)",
                "{f} 中没有可读的记录（{n} 行损坏）",
                f=path,
                n=log.broken,
            ),
            hint=tr("each line is one step, as JSON", "每行应为一个步骤的 JSON"),
        )
    raise AmpError(
        "AMP082",
        tr("{f} is missing or empty: no step was recorded yet", "{f} 不存在或为空：尚未记录任何一步", f=path),
        hint=tr("the first line is written after the first optimizer step", "第一次优化器更新后才会写入第一行"),
    )


def _plan(path: Path, unreadable: list[str]) -> Mapping[str, Any]:
    import yaml  # type: ignore[import-untyped, unused-ignore]

    if not path.is_file():
        return {}
    try:
        plan = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(plan, dict):
            raise ValueError("not a mapping")
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        unreadable.append(path.name)
        return {}
    return plan


def _step_of(path: Path) -> tuple[int, str]:
    number = re.search(r"(\d+)\.json$", path.name)
    return (int(number.group(1)) if number else 0, path.name)


def _finding(path: Path, unreadable: list[str]) -> Finding | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        verdict = data.get("verdict") or {}
        layers = tuple(sorted(map(_layer, data.get("layers") or []), key=lambda layer: layer.order))
        return Finding(
            file=path.name,
            step=int(data.get("step") or 0),
            loss_scale=_number(data.get("loss_scale")),
            culprit=_text(verdict.get("culprit")),
            where=_text(verdict.get("where")),
            cause_en=_text(verdict.get("cause_en")),
            cause_zh=_text(verdict.get("cause_zh")) or _text(verdict.get("cause_en")),
            yaml=_text(verdict.get("yaml")).strip("\n"),
            not_amp=verdict.get("not_amp") is True,
            layers=layers,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        unreadable.append(path.name)
        return None


def _layer(row: Mapping[str, Any]) -> LayerRange:
    grad_nonfinite = row.get("grad_nonfinite")
    return LayerRange(
        name=str(row["name"]),
        type=_text(row.get("type")),
        order=int(row.get("order") or 0),
        out_absmax=_number(row.get("out_absmax")),
        out_zero_share=_number(row.get("out_zero_share")),
        out_nonfinite=bool(row.get("out_nonfinite")),
        grad_absmax=_number(row.get("grad_absmax")),
        grad_zero_share=_number(row.get("grad_zero_share")),
        grad_nonfinite=None if grad_nonfinite is None else bool(grad_nonfinite),
    )


def _number(value: object) -> float | None:
    return None if value is None else number_from_json(value)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def finite(values: list[float | None]) -> list[float]:
    """The values that are numbers."""
    return [v for v in values if v is not None and math.isfinite(v)]
