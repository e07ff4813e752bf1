"""Routing what a host calls (its model, ``backward``, ``optimizer.step``) through a function, and back again."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import paddle

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


@contextlib.contextmanager
def routed_call(owner: Any, route: Callable[..., Any]) -> Iterator[None]:
    """Calls of this one object (``model(...)``) go through ``route(call, args, kwargs)``, by a subclass as
    for pins.

    Does nothing for an object whose class cannot be replaced (None, a plain function).
    """
    base = type(owner)
    if not hasattr(owner, "__dict__") or not base.__flags__ & _HEAP_TYPE or base in (FunctionType, MethodType):
        yield
        return

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return route(lambda: base.__call__(self, *args, **kwargs), args, kwargs)

    routed = type(base.__name__, (base,), {"__call__": call, "_amp_base": base, "__module__": base.__module__})
    routed.__qualname__ = base.__qualname__
    owner.__class__ = routed
    try:
        yield
    finally:
        owner.__class__ = base


@contextlib.contextmanager
def plain_call(model: paddle.nn.Layer) -> Iterator[None]:
    """The model with the class it had before ``routed_call``."""
    routed = type(model)
    model.__class__ = getattr(routed, "_amp_base", routed)
    try:
        yield
    finally:
        model.__class__ = routed


@contextlib.contextmanager
def routed_method(owner: Any, name: str, route: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """Calls of one method of one object (``optimizer.step``) go through ``route``."""
    original = getattr(owner, name)
    had_own = name in vars(owner)

    def routed(*args: Any, **kwargs: Any) -> Any:
        return route(lambda: original(*args, **kwargs))

    setattr(owner, name, routed)
    try:
        yield
    finally:
        if had_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


@contextlib.contextmanager
def routed_backward(route: Callable[..., Any]) -> Iterator[None]:
    """Every ``.backward()`` the host calls, on whichever tensor, goes through ``route``."""
    original = paddle.Tensor.backward

    def backward(self: paddle.Tensor, *args: Any, **kwargs: Any) -> Any:
        return route(self, lambda loss: original(loss, *args, **kwargs))

    paddle.Tensor.backward = backward
    try:
        yield
    finally:
        paddle.Tensor.backward = original


@contextlib.contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Ctrl-C during the block takes effect after it, so that a file is never left half-written by it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if arrived:
        raise KeyboardInterrupt


@contextlib.contextmanager
def op_counter(report: Callable[[dict[str, int]], None] | None) -> Iterator[None]:
    """Counts the ops of one forward pass by the type they computed in (Paddle's operator statistics)."""
    core = paddle.base.core
    if report is None or not hasattr(core, "get_low_precision_op_list"):
        yield
        return
    paddle.set_flags({"FLAGS_low_precision_op_list": 1})
    try:
        core.clear_low_precision_op_list()
        yield
        # "op: fp16 calls, bf16 calls, fp32 calls, other calls", as paddle.amp.debugging reads it
        rows = [
            row.split(",") if isinstance(row, str) else list(row) for row in core.get_low_precision_op_list().values()
        ]
        numbers = [[int(n) for n in row[:3]] for row in rows if len(row) >= 3]
        report({"half": sum(r[0] + r[1] for r in numbers), "float32": sum(r[2] for r in numbers)})
    finally:
        paddle.set_flags({"FLAGS_low_precision_op_list": 0})
        core.get_low_precision_op_list()  # reading ends the counting of software half, also after an exception
