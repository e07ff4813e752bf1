"""Two models side by side: their parameters to the bit, their outputs within what FP32 kernels differ by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

Array = np.ndarray[Any, Any]

#: How far outputs may differ, as a share of the largest output. FP32 keeps 24 bits (6e-8); other kernels sum in
#: another order, and a last layer with large weights enlarges that (measured: 1e-7 to 1e-4). That no weight is half is
#: known from the comparison of parameters; this finds a graph that computes something else.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Difference:
    """``max_abs``: largest |a - b|; ``max_rel``: largest |a - b| / max(|b|, 1e-3); ``scale``: largest |b|."""

    max_abs: float
    max_rel: float
    scale: float

    @property
    def small(self) -> bool:
        return self.max_abs <= TOLERANCE * max(self.scale, 1.0)


def difference(found: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> Difference:
    """Over batches of outputs. Raises AmpError (AMP234) if number, shape or finiteness of the outputs differs."""
    largest = relative = scale = 0.0
    for ours, theirs in zip(found, expected, strict=True):
        if [a.shape for a in ours] != [b.shape for b in theirs]:
            raise AmpError(
                "AMP234",
                tr(
                    "the exported model returns {a}, the trained one {b}",
                    "导出的模型返回 {a}，训练的模型返回 {b}",
                    a=[a.shape for a in ours],
                    b=[b.shape for b in theirs],
                ),
            )
        for a, b in zip(ours, theirs, strict=True):
            gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
            if not bool(np.isfinite(gap).all()):
                raise AmpError("AMP244", tr("an output is not finite", "输出含有非有限值"))
            magnitude = np.abs(b.astype(np.float64))
            largest = max(largest, float(gap.max(initial=0.0)))
            relative = max(relative, float((gap / np.maximum(magnitude, 1e-3)).max(initial=0.0)))
            scale = max(scale, float(magnitude.max(initial=0.0)))
    return Difference(largest, relative, scale)


def require_small(gap: Difference, what: str) -> None:
    """Raises AmpError (AMP234) if ``what`` computes something else than the trained model."""
    if not gap.small:
        raise AmpError(
            "AMP234",
            tr(
                "{w} does not compute what the trained model computes: outputs differ by up to {d:.3g} "
                "(largest output {s:.3g}). Nothing was written",
                "{w} 的计算结果与训练模型不同：输出最大相差 {d:.3g}（最大输出 {s:.3g}）。未写入任何文件",
                w=what,
                d=gap.max_abs,
                s=gap.scale,
            ),
        )


@dataclass(frozen=True)
class Parameters:
    """What a comparison of parameters saw. ``derived``: made from masters by the host (re-parameterisation)."""

    equal: int
    unused: tuple[str, ...]
    derived: tuple[str, ...]
    bytes: int


def compare_parameters(
    exported: Mapping[str, Array],
    masters: Mapping[str, Array],
    name_of: Callable[[str], str | None],
    *,
    derived: Callable[[str], bool] = lambda name: False,
) -> Parameters:
    """Every exported parameter is float32 (or an integer) and equal to its master, bit for bit.

    ``name_of``: from a name in the program to the structured name of the checkpoint, None if it has none: then some
    master must have just these bits. ``derived(name)``: the exported parameter was computed from masters by the host,
    so there is nothing to compare it with. ``unused``: masters that inference does not need. Raises AmpError (AMP233).
    """
    by_bits = {_bits(value): name for name, value in masters.items()}
    used: set[str] = set()
    made: list[str] = []
    for name, value in exported.items():
        if (value.dtype.kind == "f" and value.dtype != np.float32) or value.dtype.kind not in "fiub":
            raise _unequal(name, tr("it is {t}, not float32", "它是 {t}，不是 float32", t=value.dtype))
        structured = name_of(name)
        if structured is not None and structured in masters:
            master = masters[structured]
            if _bits(value) != _bits(master):
                raise _unequal(structured, _how(value, master))
            used.add(structured)
        elif _bits(value) in by_bits:
            used.add(by_bits[_bits(value)])
        elif derived(name):
            made.append(name)
        else:
            raise _unequal(structured or name, tr("no master has these values", "没有主权重与之相等"))
    size = sum(value.nbytes for value in exported.values())
    return Parameters(len(exported) - len(made), tuple(sorted(set(masters) - used)), tuple(made), size)


def _bits(value: Array) -> tuple[Any, ...]:
    return value.shape, value.dtype.str, np.ascontiguousarray(value).tobytes()


def _how(value: Array, master: Array) -> str:
    if value.shape != master.shape or value.dtype != master.dtype:
        return f"{value.dtype} {value.shape} / {master.dtype} {master.shape}"
    wrong = int((value != master).sum())
    return tr(
        "{n} of {c} values differ, by up to {d:.3g}",
        "{c} 个值中有 {n} 个不同，最大相差 {d:.3g}",
        n=wrong,
        c=value.size,
        d=float(np.abs(value.astype(np.float64) - master.astype(np.float64)).max(initial=0.0)),
    )


def _unequal(name: str, how: str) -> AmpError:
    return AmpError(
        "AMP233",
        tr(
            "the exported parameter {n} is not its FP32 master: {h}. Nothing was written",
            "导出的参数 {n} 与其 FP32 主权重不一致：{h}。未写入任何文件",
            n=name,
            h=how,
        ),
    )


def flat(outputs: Any) -> list[Any]:
    """The tensors of nested outputs (dicts, lists, tuples), in the order in which Paddle exports them."""
    if isinstance(outputs, Mapping):
        return [t for value in outputs.values() for t in flat(value)]
    if isinstance(outputs, list | tuple):
        return [t for value in outputs for t in flat(value)]
    return [] if outputs is None else [outputs]


def packed(template: Any, tensors: Sequence[Any]) -> Any:
    """``tensors`` in the structure of ``template``: the inverse of ``flat``."""
    queue = list(tensors)

    def fill(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: fill(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(fill(value) for value in node)
        return None if node is None else queue.pop(0)

    return fill(template)
