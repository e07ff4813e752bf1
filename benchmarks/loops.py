"""The training steps that are compared: written by hand, in FP32, and by the plugin. Same network, same batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle

from benchmarks.models import CASES, Case
from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.device import current_device
from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST
from paddle_amp_plugin.plan import Plan, make_plan
from paddle_amp_plugin.session import Session

#: As it was before any session routes it.
_backward = paddle.Tensor.backward


def case_of(name: str) -> tuple[Case, Any]:
    """The model with its batch, and an optimizer; the same numbers every time."""
    paddle.seed(0)
    case = CASES[name]()
    case.model.train()
    return case, paddle.optimizer.AdamW(1e-4, parameters=case.model.parameters())


def plan_of(level: str, dtype: str) -> Plan:
    settings = read_amp({"amp": {"level": level, "dtype": dtype}})
    assert settings is not None
    return make_plan(settings, current_device())


def by_hand(name: str, level: str = "O1", dtype: str = "float16") -> Callable[[], None]:
    """What Paddle's guide shows: ``auto_cast``, ``GradScaler``, ``decorate`` at O2; with the plugin's op lists."""
    case, optimizer = case_of(name)
    if level == "O2":
        case.model, optimizer = paddle.amp.decorate(case.model, optimizer, level="O2", dtype=dtype)
    scaler = paddle.amp.GradScaler(enable=dtype == "float16", init_loss_scaling=1024.0)
    black = set(SAFE_BLACK_LIST)

    def step() -> None:
        with paddle.amp.auto_cast(level=level, dtype=dtype, custom_black_list=black):
            out = case.model(*case.inputs)
        _backward(scaler.scale(case.loss(out)))
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()

    return step


def in_float32(name: str) -> Callable[[], None]:
    case, optimizer = case_of(name)

    def step() -> None:
        _backward(case.loss(case.model(*case.inputs)))
        optimizer.step()
        optimizer.clear_grad()

    return step


@contextmanager
def by_plugin(name: str, level: str = "O1", dtype: str = "float16") -> Iterator[tuple[Callable[[], None], Session]]:
    """A plain FP32 loop inside a session, as a host's is; (one step of it, the session)."""
    case, optimizer = case_of(name)
    session = Session(plan_of(level, dtype))

    def step() -> None:
        case.loss(case.model(*case.inputs)).backward()
        optimizer.step()
        optimizer.clear_grad()

    with session.attach(case.model, None, optimizer):
        yield step, session
