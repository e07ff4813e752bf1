"""The examination as text for a terminal, and as JSON for an issue. No home folder and no user name in either."""

from __future__ import annotations

import dataclasses
import getpass
import math
import os
import re
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from paddle_amp_plugin.doctor.examine import Examination
from paddle_amp_plugin.doctor.model import Card, Facts, SelfTest
from paddle_amp_plugin.doctor.verdict import architecture
from paddle_amp_plugin.doctor.words import headline, say
from paddle_amp_plugin.messages import tr

SCHEMA = "paddle-amp-doctor"
#: Grows when a key goes away or changes its meaning; new keys do not count.
SCHEMA_VERSION = 1
_SIGN = {"wrong": ("✗", "red"), "off": ("✗", "yellow"), "good": ("✓", "green"), "note": ("·", "cyan")}
_COLOUR = {"works": "green", "emulated": "green", "off": "yellow", "broken": "red"}


# -- JSON ------------------------------------------------------------------------------------------------------------


def to_json(found: Examination) -> dict[str, Any]:
    """The whole examination as JSON values."""
    from paddle_amp_plugin.plan_file import plan_to_mapping

    verdict, wanted = found.verdict, found.wanted
    plan = wanted.plan if wanted is not None else None
    document = {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "verdict": {
            "state": verdict.state,
            "exit_code": verdict.exit_code,
            "headline": headline(verdict, config=wanted is not None),
            "place": verdict.place,
            "level": verdict.level,
            "dtype": verdict.dtype,
            "detection_dtype": verdict.detection_dtype,
            "reasons": [
                {"key": r.key, "code": r.code, "weight": r.weight, "values": dict(r.values), "text": say(r)}
                for r in verdict.reasons
            ],
        },
        "facts": dataclasses.asdict(found.facts),
        "config": None
        if wanted is None
        else {
            "file": wanted.source,
            "host": wanted.host,
            "place": wanted.place,
            "amp_key": wanted.key,
            "amp_on": wanted.asked,
            "fault": list(wanted.fault) if wanted.fault else None,
            "plan": plan_to_mapping(plan) if plan is not None else None,
        },
        "self_test": dataclasses.asdict(found.test) if found.test is not None else None,
    }
    cleaned: dict[str, Any] = plain(document)
    return cleaned


def plain(value: Any) -> Any:
    """JSON values of it: tuples as lists, NaN as null, and every text without home folders and user name."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return without_names(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def without_names(text: str) -> str:
    """``text`` with home folders as ``~`` and the user's name as ``<user>`` where it is part of a path."""
    home = os.path.expanduser("~")
    if len(home) > 1:
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    text = re.sub(r"(?:/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\\s:'\"]+", "~", text)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return text
    return re.sub(rf"(?<=[/\\]){re.escape(user)}(?=[/\\]|$)", "<user>", text)


# -- text ------------------------------------------------------------------------------------------------------------


def show(found: Examination, console: Console) -> None:
    """Facts, plan, self-test; the verdict last, where the cursor is."""
    _rows(console, tr("This machine", "本机"), fact_rows(found.facts))
    if found.wanted is not None and found.wanted.plan is not None:
        from paddle_amp_plugin.plan_table import print_plan

        print_plan(found.wanted.plan, console)
    if found.test is not None:
        _rows(console, tr("Self-test", "自检"), test_rows(found.test))
    verdict = found.verdict
    said = 1 if verdict.exit_code else 0  # the first reason is then the headline itself
    for reason in verdict.reasons[said:]:
        sign, colour = _SIGN[reason.weight]
        console.print(Text.assemble((f"{sign} ", colour), without_names(say(reason))))
    line = without_names(headline(verdict, config=found.wanted is not None))
    console.print(Text(line, style=f"bold {_COLOUR[verdict.state]}"))


def _rows(console: Console, title: str, rows: list[tuple[str, str]]) -> None:
    table = Table(title=Text(title), box=None, show_header=False, title_justify="left", padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(without_names(value)))
    console.print(table)


def fact_rows(facts: Facts) -> list[tuple[str, str]]:
    """(what, value), as they are shown."""
    none = tr("none", "无")
    rows = [("paddle-amp-plugin", f"{facts.plugin}, Python {facts.python}, {facts.system}")]
    rows.append(("CPU", f"{facts.processor} × {facts.cores}"))
    rows.append(("PaddlePaddle", _paddle(facts) or tr("not installed", "未安装")))
    if facts.driver is None:
        rows.append((tr("NVIDIA driver", "NVIDIA 驱动"), none))
    else:
        runs = tr(", runs CUDA up to {c}", "，最高支持 CUDA {c}", c=facts.driver.cuda) if facts.driver.cuda else ""
        rows.append((tr("NVIDIA driver", "NVIDIA 驱动"), facts.driver.error or f"{facts.driver.version}{runs}"))
    cards = facts.paddle.cards if facts.paddle is not None else ()
    rows += [(f"{card.kind}:{card.index}", _card(card)) for card in cards]
    if not cards and facts.driver is not None:
        rows += [("GPU", name) for name, _, _ in facts.driver.gpus]
    elif not cards:
        rows.append((tr("devices", "设备"), tr("none besides the CPU", "仅 CPU")))
    hosts = ", ".join(f"{name} {version}" for name, version in facts.hosts.items())
    rows.append((tr("hosts", "宿主"), hosts or none))
    rows.append((tr("PaddleOCR's tree", "PaddleOCR 训练代码"), facts.paddleocr or none))
    if facts.paddle is not None:
        for name in ("auto_cast", "decorate", "GradScaler"):
            if name in facts.paddle.amp:
                rows.append((f"paddle.amp.{name}", ", ".join(facts.paddle.amp[name])))
    failures = [*facts.failures, *(facts.paddle.failures if facts.paddle is not None else ())]
    rows += [(tr("not to be had", "未能获取"), failure) for failure in failures]
    return rows


def _paddle(facts: Facts) -> str:
    wheels = ", ".join(f"{name} {version}" for name, version in facts.wheels.items())
    paddle = facts.paddle
    if paddle is None or not paddle.imports:
        return wheels
    built = {"cpu": tr("for CPUs", "CPU 版"), "cuda": f"CUDA {paddle.cuda}, cuDNN {paddle.cudnn}"}
    how = built.get(paddle.built, paddle.built.upper())
    return f"{paddle.version} ({how}) [{wheels}]" if wheels else f"{paddle.version} ({how})"


def _card(card: Card) -> str:
    if card.error:
        return f"{card.name}: {card.error}"
    parts = [card.name]
    if card.capability is not None:
        parts.append(f"{'.'.join(map(str, card.capability))} {architecture(card.capability)}")
    if card.memory is not None:
        parts.append(f"{card.memory} MiB")
    parts.append(" ".join(n for n in ("float16", "bfloat16") if getattr(card, n)) or "float32")
    return ", ".join(parts)


def test_rows(test: SelfTest) -> list[tuple[str, str]]:
    if test.state == "skipped":
        why = {"paddle": tr("Paddle cannot be used", "Paddle 不可用")}
        why["device"] = tr("no half precision on this device", "此设备不支持半精度")
        return [(tr("not made", "未进行"), why.get(test.error, test.error))]
    rows = [(tr("where", "位置"), f"{test.place}, {test.level}, {test.dtype}")]
    rows += [(check.name, f"{'✓' if check.ok else '✗'} {check.seen}") for check in test.checks]
    if test.state in ("crashed", "timeout"):
        rows.append((test.stage, f"✗ {test.error}"))
    return rows
