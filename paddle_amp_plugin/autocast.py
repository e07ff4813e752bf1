"""``auto_cast`` and ``decorate`` as a plan wants them, pins, and FP32 weights for evaluating and saving."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import fnmatch
import inspect
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import paddle
from paddle.amp.auto_cast import amp_global_state

from paddle_amp_plugin import attention_masks
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.norms import is_builtin_norm, is_norm_layer

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan

HALF = (paddle.float16, paddle.bfloat16)

# FP32 values of the half tensors that no optimizer has a master for: frozen parameters (a distillation's
# teacher) and floating buffers. model -> {tensor name: FP32 tensor}
_KEPT: weakref.WeakKeyDictionary[paddle.nn.Layer, dict[str, paddle.Tensor]] = weakref.WeakKeyDictionary()


def _accepted(function: Any, **arguments: Any) -> dict[str, Any]:
    """Those arguments that ``function`` has parameters for (Paddle's signatures grew over the versions)."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


def inner(model: paddle.nn.Layer) -> paddle.nn.Layer:
    """The model itself, out of its ``DataParallel``."""
    return model._layers if isinstance(model, paddle.DataParallel) else model


@contextlib.contextmanager
def auto_cast(plan: Plan, *, enable: bool = True) -> Iterator[None]:
    """``paddle.amp.auto_cast`` with the plan's level, dtype and lists.

    Paddle leaves its global amp dtype behind on exit, which is what switches Paddle's scalers off; here the
    former value comes back.
    """
    state = amp_global_state()
    before = state.amp_dtype
    arguments = _accepted(
        paddle.amp.auto_cast,
        enable=enable and plan.enabled,
        custom_white_list=set(plan.custom_white_list) or None,
        custom_black_list=set(plan.custom_black_list) or None,
        level=plan.level,
        dtype=plan.dtype,
    )
    try:
        with paddle.amp.auto_cast(**arguments):
            yield
    finally:
        state.amp_dtype = before


@contextlib.contextmanager
def no_auto_cast() -> Iterator[None]:
    """Inside it, every op computes in the dtype of its inputs."""
    state = amp_global_state()
    before = state.amp_dtype
    try:
        with paddle.amp.auto_cast(enable=False):
            yield
    finally:
        state.amp_dtype = before


def to_float32(tree: Any) -> Any:
    """The same structure with every half tensor as FP32 (gradients flow through the cast).

    Dicts, lists, tuples and namedtuples of any depth keep their types; every other value, integer and bool
    tensors among them, is returned as it was. The containers are new, the input is not changed.
    """
    if isinstance(tree, paddle.Tensor):
        return tree.astype("float32") if tree.dtype in HALF else tree
    if dataclasses.is_dataclass(tree) and isinstance(tree, dict):  # PaddleNLP's ModelOutput, which refuses update()
        return type(tree)(**{f.name: to_float32(getattr(tree, f.name)) for f in dataclasses.fields(tree)})
    if isinstance(tree, dict):
        items = {key: to_float32(value) for key, value in tree.items()}
        if type(tree) is dict:
            return items
        copied = tree.copy()
        copied.update(items)
        return copied
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(to_float32, tree))
    if type(tree) in (list, tuple):
        return type(tree)(map(to_float32, tree))
    return tree


def pinned_layers(model: paddle.nn.Layer, patterns: Iterable[str]) -> dict[str, paddle.nn.Layer]:
    """The sublayers that the ``fp32_layers`` patterns name, by qualified name.

    A pattern is matched (``fnmatch``; ``*`` crosses dots) against names as ``named_sublayers`` gives them.
    Everything inside a matched layer is pinned with it, so ``head`` and ``head.*`` both pin the whole head.
    Raises AmpError (AMP036) for a pattern that names no layer.
    """
    layers = dict(model.named_sublayers())
    found: dict[str, paddle.nn.Layer] = {}
    for pattern in patterns:
        hits = {name: layer for name, layer in layers.items() if fnmatch.fnmatchcase(name, pattern)}
        if not hits:
            near = difflib.get_close_matches(pattern.replace("*", ""), layers, n=3, cutoff=0.5)
            raise AmpError(
                "AMP036",
                tr(
                    "amp.fp32_layers: no layer of this model is named like '{p}'",
                    "amp.fp32_layers：模型中没有名称匹配 '{p}' 的层",
                    p=pattern,
                ),
                hint=tr("did you mean: {n}", "您是不是想写：{n}", n=", ".join(near))
                if near
                else tr(
                    "top-level parts are: {n}",
                    "顶层模块有：{n}",
                    n=", ".join(name for name, _ in model.named_children()),
                ),
            )
        found.update(hits)
    return found


def _pin_class(layer: paddle.nn.Layer) -> None:
    """Makes this one layer compute in FP32: no auto_cast inside, half inputs cast up.

    The class of the instance is replaced by a subclass of the same name. Unlike a replaced ``forward``
    attribute this survives ``copy.deepcopy``, and unlike hooks it is left properly on an exception.
    """
    base = type(layer)
    if getattr(base, "_amp_unpinned", None) is not None:
        return

    def forward(self: paddle.nn.Layer, *args: Any, **kwargs: Any) -> Any:
        with no_auto_cast():
            return base.forward(self, *to_float32(args), **to_float32(kwargs))

    names = {"forward": forward, "_amp_unpinned": base, "__module__": base.__module__, "__doc__": base.__doc__}
    pinned = type(base.__name__, (base,), names)
    pinned.__qualname__ = base.__qualname__
    layer.__class__ = pinned


def unpin(model: paddle.nn.Layer) -> None:
    """Gives every pinned layer its own class back."""
    for layer in model.sublayers(include_self=True):
        base = getattr(type(layer), "_amp_unpinned", None)
        if base is not None:
            layer.__class__ = base


@contextlib.contextmanager
def unpinned(model: paddle.nn.Layer) -> Iterator[None]:
    """The model with its own classes for a while (tracing and exporting read the source of ``forward``)."""
    layers = [layer for layer in model.sublayers(include_self=True) if hasattr(type(layer), "_amp_unpinned")]
    classes = [type(layer) for layer in layers]
    unpin(model)
    try:
        yield
    finally:
        for layer, cls in zip(layers, classes, strict=True):
            layer.__class__ = cls


def stays_fp32(model: paddle.nn.Layer, pins: Iterable[paddle.nn.Layer]) -> list[paddle.nn.Layer]:
    """Layers whose own parameters and buffers are not cast at O2: norms, pins, and who shares with them."""
    kept = {id(sub): sub for pin in pins for sub in pin.sublayers(include_self=True)}
    for name, layer in model.named_sublayers(include_self=True):
        if is_norm_layer(layer, name):
            kept[id(layer)] = layer
    shared = {id(p) for layer in kept.values() for p in layer._parameters.values() if p is not None}
    for layer in model.sublayers(include_self=True):
        if any(id(p) in shared for p in layer._parameters.values()):
            kept[id(layer)] = layer
    return list(kept.values())


def _share(target: paddle.Tensor, source: paddle.Tensor) -> None:
    """``target`` gets the storage and the dtype of ``source`` (as ``Layer._to_impl`` does it)."""
    target.value().get_tensor()._share_data_with(source.value().get_tensor())


def _alias(tensor: paddle.Tensor) -> paddle.Tensor:
    """A second tensor on the same storage."""
    other = paddle.empty([1], dtype="float32")
    _share(other, tensor)
    return other


def _tensors(model: paddle.nn.Layer) -> Iterator[paddle.Tensor]:
    """Parameters and buffers that hold values (a recurrent layer has a dropout state that does not, yet)."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor is not None and tensor._is_initialized():
            yield tensor


def _half_tensors(model: paddle.nn.Layer) -> Iterator[paddle.Tensor]:
    """Parameters and buffers whose dtype is a half, each once."""
    seen: set[int] = set()
    for tensor in _tensors(model):
        if id(tensor) not in seen and tensor.dtype in HALF:
            seen.add(id(tensor))
            yield tensor


def _same_half(fp32: paddle.Tensor, half: paddle.Tensor) -> bool:
    """Does ``fp32`` round to ``half``, but for one unit in the last place?

    One unit, because Paddle 2.6.2 truncates on a CPU where other versions and devices round to nearest.
    """
    if list(fp32.shape) != list(half.shape):
        return False
    unit = 2.0**-10 if half.dtype == paddle.float16 else 2.0**-7
    value = half.astype("float32")
    smallest = 2.0**-24 if half.dtype == paddle.float16 else 0.0
    return bool(((fp32 - value).abs() <= value.abs() * unit + smallest).all())


def decorate(plan: Plan, model: paddle.nn.Layer, optimizer: Any = None) -> tuple[paddle.nn.Layer, Any]:
    """Prepares model and optimizer, in place, for training under ``auto_cast(plan)``; returns both.

    At every level the pinned layers compute in FP32; with the preset ``safe`` norm classes that are not
    Paddle's own do too (they are made of ordinary ops, so no op list protects them). At O2 all other
    parameters and buffers become half, except those of norm layers and pins, and the optimizer's masters are
    the FP32 values the parameters had *before*: Paddle would make them from the half copies, at the first
    step, and lose what a pretrained weight holds beyond half. Masters that came with a resumed optimizer
    state are kept where they agree with the weights.

    Raises AmpError AMP036 (a pattern that names nothing), AMP037 (Paddle without ``excluded_layers``),
    AMP038 (an optimizer without master weights).
    """
    own = inner(model)
    pins = pinned_layers(own, plan.fp32_layers)
    if not plan.enabled:
        return model, optimizer
    excluded = stays_fp32(own, pins.values())
    if plan.dtype == "bfloat16":
        attention_masks.correct()
    if plan.level == "O2":
        _decorate_o2(plan, own, optimizer, excluded)
    for layer in float32_layers(plan, own).values():
        _pin_class(layer)
    return model, optimizer


def float32_layers(plan: Plan, model: paddle.nn.Layer) -> dict[str, paddle.nn.Layer]:
    """The layers that compute in FP32 as a whole, by qualified name: the pinned ones and, with ``safe``, custom norms.

    Raises AmpError (AMP036) for a pattern of ``fp32_layers`` that names no layer.
    """
    found = pinned_layers(model, plan.fp32_layers)
    if plan.preset == "safe":
        found |= {n: s for n, s in model.named_sublayers() if is_norm_layer(s, n) and not is_builtin_norm(s)}
    return found


def _decorate_o2(plan: Plan, model: paddle.nn.Layer, optimizer: Any, excluded: list[paddle.nn.Layer]) -> None:
    if "excluded_layers" not in inspect.signature(paddle.amp.decorate).parameters:
        raise AmpError(
            "AMP037",
            tr(
                "Paddle {v} cannot keep single layers in FP32 at O2 (paddle.amp.decorate has no excluded_layers)",
                "Paddle {v} 无法在 O2 下将个别层保持为 FP32（paddle.amp.decorate 没有 excluded_layers）",
                v=paddle.__version__,
            ),
            hint=tr("use level: O1, or Paddle 2.6 or newer", "请使用 level: O1，或升级到 Paddle 2.6 及以上"),
        )
    if optimizer is not None and plan.master_weight and not hasattr(optimizer, "_master_weights"):
        raise AmpError(
            "AMP038",
            tr(
                "the optimizer {o} of this Paddle keeps no FP32 master weights, so O2 would lose small updates",
                "当前 Paddle 的优化器 {o} 不支持 FP32 主权重，O2 会丢失微小更新",
                o=type(optimizer).__name__,
            ),
            hint=tr("use level: O1, or Adam / AdamW / Momentum / SGD", "请用 level: O1，或 Adam / AdamW / SGD 等"),
        )
    originals = {t.name: (t, _alias(t)) for t in _tensors(model)}
    arguments = _accepted(
        paddle.amp.decorate,
        level="O2",
        dtype=plan.dtype,
        master_weight=plan.master_weight,
        master_grad=bool(plan.master_grad),
        excluded_layers=excluded,
    )
    if optimizer is None:
        paddle.amp.decorate(models=model, **{**arguments, "master_weight": None})
    else:
        paddle.amp.decorate(models=model, optimizers=optimizer, **arguments)
    _set_masters(model, optimizer, originals, plan.master_weight)
    _round_again(model, optimizer)


def _set_masters(model: Any, optimizer: Any, originals: dict[str, Any], master_weight: bool) -> None:
    """FP32 masters from the values before the cast; the others are remembered in ``_KEPT``."""
    from paddle_amp_plugin.scaler import optimizer_parameters

    trained = {p.name for p in optimizer_parameters(optimizer) if not p.stop_gradient} if optimizer else set()
    kept: dict[str, paddle.Tensor] = {}
    for tensor in _half_tensors(model):
        fp32 = originals[tensor.name][1].detach()
        if tensor.name not in trained or not master_weight:
            kept[tensor.name] = fp32
            continue
        loaded = optimizer._master_weights.get(tensor.name)
        if loaded is not None and _same_half(_as_tensor(loaded), tensor):
            continue
        fp32.name = loaded.name if loaded is not None else optimizer._gen_master_weight_var_name(tensor)
        optimizer._master_weights[tensor.name] = fp32
    _KEPT[model] = kept


def _as_tensor(value: Any) -> paddle.Tensor:
    return value if isinstance(value, paddle.Tensor) else paddle.to_tensor(value)


def _round_again(model: paddle.nn.Layer, optimizer: Any) -> None:
    """Half values as an update rounds them: Paddle 2.6 truncates in a cast on a CPU, and a resumed run would differ."""
    from paddle_amp_plugin import software_half
    from paddle_amp_plugin.software_half.dtypes import dtype_of
    from paddle_amp_plugin.software_half.rounding import down

    if not software_half.installed():
        return
    with paddle.no_grad():
        for tensor in list(_half_tensors(model)):
            _share(tensor, down(master_of(tensor, model, optimizer), dtype_of(tensor)))


def master_of(tensor: paddle.Tensor, model: paddle.nn.Layer, optimizer: Any = None) -> paddle.Tensor:
    """The FP32 value behind a half tensor: the optimizer's master, else the kept copy if it still agrees."""
    masters = getattr(optimizer, "_master_weights", None) or {}
    if tensor.name in masters:
        return masters[tensor.name]
    kept = _KEPT.get(model, {}).get(tensor.name)
    if kept is not None and _same_half(kept, tensor):
        return kept
    return tensor.astype("float32")


def forget_master(tensor: paddle.Tensor, model: paddle.nn.Layer) -> None:
    """The kept FP32 copy of a tensor that is FP32 itself now."""
    _KEPT.get(model, {}).pop(tensor.name, None)


@contextlib.contextmanager
def float32_weights(model: paddle.nn.Layer, optimizer: Any = None) -> Iterator[None]:
    """For a while every half parameter and buffer of ``model`` is its FP32 master (the same storage).

    Used for evaluating in FP32 and around the host's saving. On exit, also by an exception, every tensor has
    its half storage back, to the bit.
    """
    own = inner(model)
    swapped: list[tuple[paddle.Tensor, paddle.Tensor]] = []
    try:
        for tensor in list(_half_tensors(own)):
            master = master_of(tensor, own, optimizer)
            swapped.append((tensor, _alias(tensor)))
            _share(tensor, master)
        yield
    finally:
        for tensor, half in swapped:
            _share(tensor, half)
