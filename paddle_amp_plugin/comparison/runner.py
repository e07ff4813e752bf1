"""All trainings of a comparison: a process each, one after another, the modes in turn for each seed. No Paddle here."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from paddle_amp_plugin.comparison.child import MARK
from paddle_amp_plugin.comparison.record import Comparison, Model, Run, run_of
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

#: What is shown of a child that ended without a word.
LAST_LINES = 6


@dataclass(frozen=True)
class Request:
    """What one child is told."""

    config: str
    options: Mapping[str, Any]
    mode: str
    steps: int
    synthetic: bool = False
    paddleocr: str | None = None
    metric: bool = True
    seed: int = 0


@dataclass
class _Facts:
    model: Model | None = None
    device: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)


def compare(
    config: Path,
    options: Mapping[str, Any],
    *,
    modes: tuple[str, ...],
    steps: int,
    seeds: tuple[int, ...],
    seed_key: str,
    synthetic: bool,
    metric: bool,
    paddleocr_dir: str | None,
    told: Callable[[str, int], None],
    call: Callable[[Request, Callable[[int], None]], dict[str, Any]] | None = None,
) -> Comparison:
    """The record. ``told(label, step)`` is called as the trainings go on. ``call`` runs one child (tests replace it).

    A mode that breaks is part of the record; what would stop every one of them (no data, a bad config) is raised as
    the AmpError it is.
    """
    begin = time.perf_counter()
    run_child = call or in_child
    runs: list[Run] = []
    facts = _Facts()
    for seed in seeds:
        for mode in modes:
            given = {**options, seed_key: seed}
            request = Request(str(config), given, mode, steps, synthetic, paddleocr_dir, metric, seed)
            label = f"{mode}, {tr('seed', '种子')} {seed}"
            result = run_child(request, partial(told, label))
            runs.append(_taken(result, request, facts, first=not runs))
    if facts.model is None:
        raise AmpError("AMP264", tr("no training gave numbers: {e}", "没有任何训练得出结果：{e}", e=runs[0].failed))
    return Comparison(
        name=str(facts.about["name"]),
        family=str(facts.about["family"]),
        device=str(facts.device["kind"]),
        device_name=str(facts.device["name"]),
        capability=tuple(facts.device["capability"]) if facts.device.get("capability") else None,
        software_half=bool(facts.device["software_half"]) or facts.device["kind"] == "cpu",
        synthetic=synthetic,
        steps=steps,
        seeds=seeds,
        modes=modes,
        batch_size=int(facts.about["batch_size"]),
        model=facts.model,
        runs=tuple(runs),
        paddle=str(facts.device["paddle"]),
        seconds=time.perf_counter() - begin,
    )


def _taken(result: dict[str, Any], request: Request, facts: _Facts, *, first: bool) -> Run:
    error = result.get("error")
    if error is not None:
        if first:
            raise AmpError(error["code"], error["message"], hint=error["hint"])
        return Run(request.mode, request.seed, failed=f"[{error['code']}] {error['message']}")
    if result["model"] is not None and facts.model is None:
        facts.model = Model(**{**result["model"], "odd": tuple(result["model"]["odd"])})
        facts.device, facts.about = result["device"], result["about"]
    return run_of(result["run"])


def in_child(request: Request, told: Callable[[int], None]) -> dict[str, Any]:
    """One training in a process of its own. Ctrl-C ends it with this one."""
    with tempfile.TemporaryDirectory(prefix="paddle-amp-") as folder:
        ask, answer, errors = (Path(folder) / name for name in ("request.json", "result.json", "errors.txt"))
        ask.write_text(json.dumps(asdict(request), ensure_ascii=False), encoding="utf-8")
        command = [sys.executable, "-m", "paddle_amp_plugin.comparison.child", str(ask), str(answer)]
        with errors.open("wb") as stderr:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
            try:
                _follow(child, told)
            except BaseException:
                child.kill()
                raise
            finally:
                child.wait()
        if answer.is_file():
            return dict(json.loads(answer.read_text(encoding="utf-8")))
        said = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
        text = tr("ended with code {c}", "以退出码 {c} 结束", c=child.returncode)
        return {"error": {"code": "AMP264", "message": f"{text}: {' | '.join(said)[-600:]}", "hint": ""}}


def _follow(child: subprocess.Popen[bytes], told: Callable[[int], None]) -> None:
    assert child.stdout is not None
    for raw in child.stdout:
        line = raw.decode("utf-8", errors="replace")
        if line.startswith(MARK):
            told(int(line[len(MARK) :]))
