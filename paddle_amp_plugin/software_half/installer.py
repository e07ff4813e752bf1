"""Puts the software-half wrappers in the place of Paddle's functions, and the originals back.

Paddle's Python code reaches an op as ``_C_ops.name`` or by a name imported from it, so every module that
holds an original function gets the wrapper, found by identity; the same walk, the other way round, removes them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import paddle
from paddle import _C_ops, _legacy_C_ops
from paddle.base import core, framework

from paddle_amp_plugin.software_half import records
from paddle_amp_plugin.software_half.dtypes import FLOAT32, canonical, dtype_of, is_half
from paddle_amp_plugin.software_half.nan_rows import nan_aware_cross_entropy, nan_aware_softmax
from paddle_amp_plugin.software_half.ops import wrap_inplace, wrap_linear, wrap_op
from paddle_amp_plugin.software_half.optimizers import OPTIMIZER_OPS, wrap_check_finite, wrap_optimizer
from paddle_amp_plugin.software_half.rounding import NATIVE, convert
from paddle_amp_plugin.software_half.state import STATE, EmulatedTracer
from paddle_amp_plugin.software_half.support import amp_name, moves_in_half
from paddle_amp_plugin.software_half.tensor_methods import (
    OPERATORS,
    wrap_clone,
    wrap_getitem,
    wrap_operator,
    wrap_setitem,
)

#: Functions of ``_C_ops`` that are no floating-point ops, or that Paddle's CPU kernels do in half as a GPU does.
_LEFT_ALONE = frozenset(
    """
    cast cast_ assign_out_ assign_value_ assign_value share_data share_data_ print memcpy memcpy_d2h memcpy_h2d
    array_length array_read array_write array_write_ array_to_tensor coalesce_tensor coalesce_tensor_ data feed
    fetch full_ run_program pylayer isfinite isinf isnan shape numel is_empty nop nop_ depend sync_calc_stream
    """.split()
)
#: Of these, the ones that ask only about a tensor's shape, and yet have no half kernel on a CPU.
_ABOUT_SHAPES = ("shape", "shape64", "is_empty")

#: Modules whose functions bring float16 weights to FP32 where the device is the CPU (``F.conv1d`` of Paddle 3.3), so
#: that results stay FP32 that are half on a GPU.
_SPARE_THE_CPU = ("paddle.nn.functional.conv", "paddle.vision.ops")


def _wrappers() -> dict[int, tuple[Any, Callable[..., Any]]]:
    """id of an original -> (the original, its wrapper), for every op function of this Paddle."""
    assign = _C_ops.assign_out_
    found: dict[int, tuple[Any, Callable[..., Any]]] = {}
    by_name: dict[str, Callable[..., Any]] = {}
    for name in dir(_C_ops):
        function = getattr(_C_ops, name)
        if name.startswith("_") or name in _LEFT_ALONE or type(function).__name__ != "builtin_function_or_method":
            continue
        wrapper = _wrapper_for(name, function, assign)
        if wrapper is not None:
            found[id(function)] = (function, wrapper)
            by_name[name] = wrapper
    linear = getattr(_C_ops, "linear", None)
    if linear is not None:
        fused = wrap_op("linear_v2", linear, False) if linear_is_one_op() else None
        found[id(linear)] = (linear, wrap_linear(by_name["matmul"], by_name["add"], fused))
    if len(NATIVE) < 2:
        found[id(_C_ops.cast)] = (_C_ops.cast, _rounding_cast(_C_ops.cast))
    for function in (getattr(_C_ops, name, None) for name in _ABOUT_SHAPES):
        if function is not None:
            found[id(function)] = (function, _about_shape(function))
    found.update(_legacy_wrappers(assign))
    return found


def _about_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_any_dtype(x: Any, *args: Any) -> Any:
        half = isinstance(x, paddle.Tensor) and is_half(dtype_of(x))
        return function(paddle.empty(x.shape, "float32") if half else x, *args)

    return of_any_dtype


def _legacy_wrappers(assign: Any) -> dict[int, tuple[Any, Callable[..., Any]]]:
    """The same for ``_legacy_C_ops``, whose functions carry the AMP names; some layers still call them."""
    found = {}
    updates = {name.rstrip("_") for name in OPTIMIZER_OPS}
    for name in dir(_legacy_C_ops):
        function = getattr(_legacy_C_ops, name)
        if name.startswith(("_", "c_", "partial_")) or name in _LEFT_ALONE or name in updates:
            continue
        if type(function).__name__ != "builtin_function_or_method" or name.endswith(("_grad", "_")):
            continue
        found[id(function)] = (function, wrap_op(name, function, moves_in_half(name)))
    check = _legacy_C_ops.check_finite_and_unscale
    found[id(check)] = (check, wrap_check_finite(check, assign, legacy=True))
    return found


#: CPU kernels that hide what a GPU shows, and what is put around them.
_CORRECTED = {"softmax": nan_aware_softmax, "cross_entropy_with_softmax": nan_aware_cross_entropy}


def _corrected(name: str) -> Callable[..., Any] | None:
    function = getattr(_C_ops, name, None)
    return _CORRECTED[name](function) if name in _CORRECTED else function


def _wrapper_for(name: str, function: Any, assign: Any) -> Callable[..., Any] | None:
    if name in OPTIMIZER_OPS:
        return wrap_optimizer(name, function, assign)
    if name == "check_finite_and_unscale_":
        return wrap_check_finite(function, assign, legacy=False)
    if name.endswith("_grad") or name.endswith("_grad_"):
        return None
    twin = _corrected(name[:-1]) if name.endswith("_") else None
    if twin is not None:
        # A moving in-place op (reshape_, squeeze_) keeps its storage; its half kernels do just that.
        return None if moves_in_half(name[:-1]) else wrap_inplace(amp_name(name[:-1]), function, twin, assign)
    return wrap_op(amp_name(name), _corrected(name), moves_in_half(name))


def linear_is_one_op() -> bool:
    """Whether ``F.linear`` runs as ``linear_v2`` on a CUDA build of this Paddle (nn/functional/common.py)."""
    if not hasattr(_C_ops, "linear_v2"):
        return False
    return not paddle.get_flags("FLAGS_use_legacy_linear")["FLAGS_use_legacy_linear"]


def _rounding_cast(function: Callable[..., Any]) -> Callable[..., Any]:
    def software_half_cast(x: Any, dtype: Any) -> Any:
        wanted = canonical(dtype)
        if isinstance(x, paddle.Tensor) and not x._is_initialized():
            return function(x, dtype)
        if is_half(wanted) and isinstance(x, paddle.Tensor):
            if dtype_of(x) is not wanted:
                return convert(x, wanted)
        elif wanted is FLOAT32 and isinstance(x, paddle.Tensor) and is_half(dtype_of(x)):
            return convert(x, wanted)
        return function(x, dtype)

    return software_half_cast


def swap(replacements: dict[int, tuple[Any, Any]]) -> None:
    """Replace, in the namespaces of all loaded modules and of Tensor, each key object by its partner."""
    for name, module in list(sys.modules.items()):
        if name.startswith("paddle.base.libpaddle") or name.startswith(__name__.rpartition(".")[0]):
            continue
        namespace = getattr(module, "__dict__", None)
        if isinstance(namespace, dict):
            for key, value in list(namespace.items()):
                pair = replacements.get(id(value))
                if pair is not None:
                    namespace[key] = pair[1]
    for key, value in list(vars(paddle.Tensor).items()):
        pair = replacements.get(id(value))
        if pair is not None:
            setattr(paddle.Tensor, key, pair[1])


class Installation:
    """One installed set of wrappers; ``remove`` leaves Paddle as it was found."""

    def __init__(self) -> None:
        self._pairs = _wrappers()
        tracer = framework._dygraph_tracer
        self._pairs[id(tracer)] = (tracer, _emulated(tracer))
        auto_cast = sys.modules["paddle.amp.auto_cast"]
        for owner, names in (
            (auto_cast, ("_is_gpu_float16_supported", "_is_gpu_bfloat16_supported")),
            (paddle.amp, ("is_float16_supported", "is_bfloat16_supported")),
        ):
            for name in names:
                function = getattr(owner, name)
                self._pairs[id(function)] = (function, _supporting())
        self._attributes = self._attribute_wrappers()
        self._saved: list[tuple[Any, str, Any]] = []

    @staticmethod
    def _attribute_wrappers() -> list[tuple[Any, str, Any]]:
        tensor = paddle.Tensor
        wrappers: list[tuple[Any, str, Any]] = [
            (tensor, name, wrap_operator(name, getattr(tensor, name))) for name in OPERATORS if hasattr(tensor, name)
        ]
        wrappers.append((tensor, "_getitem_dygraph", wrap_getitem(tensor._getitem_dygraph)))
        wrappers.append((tensor, "_setitem_dygraph", wrap_setitem(tensor._setitem_dygraph, _C_ops.assign_out_)))
        wrappers.append((tensor, "clone", wrap_clone(tensor.clone)))
        wrappers += [
            (module, "paddle", _OnGpu(paddle, device=_OnGpu(paddle.device, get_device=lambda: "gpu:0")))
            for module in map(sys.modules.get, _SPARE_THE_CPU)
            if getattr(module, "paddle", None) is paddle
        ]
        wrappers.append((core, "clear_low_precision_op_list", records.start_counting))
        wrappers.append((core, "get_low_precision_op_list", records.stop_counting))
        return wrappers

    def put(self) -> None:
        """Install: from here on ``paddle.amp`` works on the CPU."""
        swap(self._pairs)
        for owner, name, wrapper in self._attributes:
            self._saved.append((owner, name, getattr(owner, name)))
            setattr(owner, name, wrapper)

    def remove(self) -> None:
        """Uninstall, also from modules that were imported in between."""
        for owner, name, original in reversed(self._saved):
            setattr(owner, name, original)
        self._saved.clear()
        swap({id(wrapper): (wrapper, original) for original, wrapper in self._pairs.values()})


class _OnGpu:
    """A module of Paddle, some of whose names answer as they would on a GPU."""

    def __init__(self, real: Any, **names: Any) -> None:
        self._real = real
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _supporting() -> Callable[..., bool]:
    # A new function each time: the way back finds an original by its wrapper's identity.
    def supported(device: Any = None) -> bool:
        return True

    return supported


def _emulated(tracer: Callable[[], Any]) -> Callable[[], Any]:
    cache: dict[int, EmulatedTracer] = {}

    def _dygraph_tracer() -> Any:
        real = tracer()
        if real is None:
            return None
        emulated = cache.get(id(real))
        if emulated is None or emulated._real is not real:
            emulated = cache[id(real)] = EmulatedTracer(real, STATE)
        return emulated

    return _dygraph_tracer
