"""Imports Paddle and writes down what it is: run as a child, ``python -m paddle_amp_plugin.doctor.probe FILE``.

Every part may fail without ending the others; an import that fails is itself a finding.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from paddle_amp_plugin.doctor.child import Findings

#: What the plugin calls of ``paddle.amp``, and the parameters it cannot do without.
NEEDED = {
    "auto_cast": ("enable", "custom_white_list", "custom_black_list", "level", "dtype"),
    "decorate": ("models", "optimizers", "level", "dtype", "master_weight", "excluded_layers"),
    "GradScaler": ("enable", "init_loss_scaling", "use_dynamic_loss_scaling"),
}
#: Names without which the scaler or the session cannot work: module -> names.
INTERNALS = {
    "paddle.amp.auto_cast": ("amp_global_state",),
    "paddle.amp.grad_scaler": ("OptimizerState",),
    "paddle._C_ops": ("check_finite_and_unscale_",),
}


def main(path: str) -> None:
    found = Findings(path)
    found.put(stage="import")
    try:
        paddle = importlib.import_module("paddle")
    except BaseException as error:  # whatever a broken installation raises
        found.put(error=f"{type(error).__name__}: {error}".strip().splitlines()[0][:500])
        return
    found.put(version=str(getattr(paddle, "__version__", "?")), stage="build")
    failures: list[str] = []

    def attempt(name: str, look: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return look()
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}".splitlines()[0][:300])
            return otherwise

    version = getattr(paddle, "version", None)
    found.put(
        commit=str(getattr(version, "commit", "")),
        built=attempt("build", lambda: built(paddle), "cpu"),
        cuda=attempt("cuda", lambda: _version(version.cuda()), ""),
        cudnn=attempt("cudnn", lambda: _version(version.cudnn()), ""),
        stage="amp",
    )
    found.put(amp=attempt("paddle.amp", lambda: signatures(paddle), {}), stage="devices")
    found.put(missing=attempt("paddle.amp", lambda: missing(paddle), []))
    found.put(cards=attempt("devices", lambda: cards(paddle, attempt), []))
    found.put(failures=failures, stage="done")


def _version(said: Any) -> str:
    """Paddle writes "False" for "built without"."""
    return "" if str(said) in ("False", "None", "0.0.0") else str(said)


def built(paddle: Any) -> str:
    """What this Paddle was compiled for."""
    if paddle.is_compiled_with_rocm():
        return "rocm"
    if paddle.is_compiled_with_cuda():
        return "cuda"
    if paddle.is_compiled_with_xpu():
        return "xpu"
    return "custom" if paddle.device.get_all_custom_device_type() else "cpu"


def signatures(paddle: Any) -> dict[str, list[str]]:
    """What ``paddle.amp`` and ``paddle.amp.debugging`` publish, with the parameters it has in this install."""
    found = {}
    for prefix, module in (("", paddle.amp), ("debugging.", getattr(paddle.amp, "debugging", None))):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            if callable(value):
                try:
                    found[prefix + name] = [p for p in inspect.signature(value).parameters if p != "self"]
                except (TypeError, ValueError):
                    found[prefix + name] = []
    return found


def missing(paddle: Any) -> list[str]:
    """What the plugin needs and this Paddle has not: ``decorate(excluded_layers)``, ``paddle._C_ops.…``."""
    have = signatures(paddle)
    lacking = []
    for name, parameters in NEEDED.items():
        if name not in have:
            lacking.append(f"paddle.amp.{name}")
        lacking += [f"paddle.amp.{name}({p})" for p in parameters if name in have and p not in have[name]]
    for module, names in INTERNALS.items():
        try:
            owner = sys.modules.get(module) or importlib.import_module(module)
        except ImportError:
            owner = None
        lacking += [f"{module}.{name}" for name in names if not hasattr(owner, name)]
    return lacking


def places(paddle: Any) -> list[str]:
    """Every device besides the CPU, as ``paddle.device.set_device`` takes it."""
    found = []
    if paddle.is_compiled_with_cuda() or paddle.is_compiled_with_rocm():
        found += [f"gpu:{index}" for index in range(paddle.device.cuda.device_count())]
    if paddle.is_compiled_with_xpu():
        found += [f"xpu:{index}" for index in range(paddle.base.core.get_xpu_device_count())]
    for place in paddle.device.get_available_custom_device() or []:
        found.append(place if ":" in place else f"{place}:0")
    return found


def cards(paddle: Any, attempt: Callable[[str, Callable[[], Any], Any], Any]) -> list[dict[str, Any]]:
    """What Paddle says of each device; one that does not answer is listed with its error."""
    from paddle_amp_plugin.device import current_device

    found = []
    for place in attempt("device list", lambda: places(paddle), []):
        kind, _, number = place.partition(":")
        row: dict[str, Any] = {"index": int(number or 0), "kind": kind, "name": kind.upper()}
        try:
            paddle.device.set_device(place)
            device = current_device()
            row |= {"name": device.name, "capability": device.capability}
            row |= {"float16": device.float16, "bfloat16": device.bfloat16}
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        if kind == "gpu" and "error" not in row:
            size = attempt("memory", lambda p=place: _memory(paddle, p), None)  # type: ignore[misc]
            row["memory"] = size
        found.append(row)
    return found


def _memory(paddle: Any, place: str) -> int:
    """MiB of a GPU (``total_memory`` is in bytes)."""
    return int(paddle.device.cuda.get_device_properties(place).total_memory) // 2**20


if __name__ == "__main__":
    main(sys.argv[1])
