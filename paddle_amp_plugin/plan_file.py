"""The plan as a YAML file: ``amp/plan.yml`` in a run's output folder."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped, unused-ignore]
from pydantic import TypeAdapter, ValidationError

from paddle_amp_plugin.atomic import write_whole
from paddle_amp_plugin.config_overrides import VALUE_FAULTS
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.plan_model import Plan

_HEADER = "# The precision settings of one run, resolved by paddle-amp-plugin.\n"
_ADAPTER = TypeAdapter(Plan)


def plan_to_mapping(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values."""
    data: dict[str, Any] = _ADAPTER.dump_python(plan, mode="json")
    return data


def plan_to_yaml(plan: Plan) -> str:
    """The plan as YAML; ``plan_from_yaml`` gives an equal plan back."""
    body: str = yaml.safe_dump(
        plan_to_mapping(plan), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
    return _HEADER + body


def plan_from_yaml(text: str) -> Plan:
    """The plan in ``text``. Raises ``AmpError`` (AMP029) if it is none."""
    try:
        data = yaml.safe_load(text)
        if not isinstance(data, dict):
            raise ValueError("not a mapping")
        unknown = sorted(map(str, set(data) - {f.name for f in dataclasses.fields(Plan)}))
        if unknown:
            raise ValueError(", ".join(unknown))
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        what = ", ".join(dict.fromkeys(".".join(map(str, item["loc"])) or "?" for item in error.errors()))
    except (yaml.YAMLError, *VALUE_FAULTS) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise AmpError(
        "AMP029",
        tr("this is not a plan file (at: {w})", "这不是计划文件（位置：{w}）", w=what),
        hint=tr("a run writes its own at start: amp/plan.yml", "每次运行开始时会写出 amp/plan.yml"),
    )


def write_plan(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write the plan to ``path`` (usually ``<output>/amp/plan.yml``), making its folder; returns the path.

    Whoever reads the file at any moment finds the old plan or the new one, whole. Raises ``AmpError``
    (AMP028) if it cannot be written; nothing half-written is left.
    """
    text = plan_to_yaml(plan)
    return write_whole(
        Path(path),
        lambda file: file.write_text(text, encoding="utf-8"),
        code="AMP028",
        hint=tr("check the output folder and its permissions", "请检查输出文件夹及其权限"),
    )
