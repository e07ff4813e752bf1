"""Which layers cannot hold half precision, found before any training: the ranges of real batches in FP32."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.diagnosis.state import untouched
from paddle_amp_plugin.diagnosis.stats import LIMITS, Stat
from paddle_amp_plugin.diagnosis.watch import LayerWatch
from paddle_amp_plugin.messages import tr

__all__ = ["LayerRange", "LayerWatch", "RangeReport", "range_probe"]

#: A layer within this factor of the limit is warned of: training moves ranges.
NEAR = 8.0
#: Gradients of which more than this share is lost in float16 (below 2**-24, about 6e-8) are warned of.
LOST = 0.5


@dataclass(frozen=True)
class LayerRange:
    """One layer over all batches. ``out_absmax``: largest output in FP32 (``inf`` / ``nan`` if not finite there).

    ``grad_absmax``: largest gradient reaching its outputs, unscaled; ``grad_lost``: share of those gradients that are
    not 0 and below 6e-8, which float16 loses at loss scale 1. Both None where no gradient came.
    """

    name: str
    type: str
    out_absmax: float
    grad_absmax: float | None = None
    grad_lost: float | None = None

    @property
    def overflows(self) -> bool:
        return not self.out_absmax <= LIMITS["float16"]

    @property
    def near(self) -> bool:
        return not self.overflows and self.out_absmax * NEAR > LIMITS["float16"]

    @property
    def loses_gradients(self) -> bool:
        return (self.grad_lost or 0.0) > LOST


@dataclass(frozen=True)
class RangeReport:
    """What the probe saw: ``layers`` in execution order, over ``batches`` batches."""

    layers: tuple[LayerRange, ...] = ()
    batches: int = 0
    limit: float = field(default=LIMITS["float16"])

    @property
    def overflowing(self) -> tuple[LayerRange, ...]:
        """The layers whose outputs float16 cannot hold, the largest first."""
        return tuple(sorted((r for r in self.layers if r.overflows), key=_magnitude, reverse=True))

    @property
    def near(self) -> tuple[LayerRange, ...]:
        """The layers within a factor of 8 of the limit, the largest first."""
        return tuple(sorted((r for r in self.layers if r.near), key=_magnitude, reverse=True))

    @property
    def losing(self) -> tuple[LayerRange, ...]:
        """The layers of which most gradients are below float16's smallest value at loss scale 1."""
        return tuple(r for r in self.layers if r.loses_gradients)

    @property
    def holds_float16(self) -> bool:
        return not self.overflowing

    def lines(self) -> list[str]:
        """The result in the user's language, one line a finding."""
        lines = [
            tr(
                "layer {n} ({t}) reaches {v:.6g} in FP32, past float16's 65504: dtype: bfloat16, or fp32_layers",
                "层 {n}({t})在 FP32 下达到 {v:.6g}，超过 float16 的 65504：请用 dtype: bfloat16 或 fp32_layers",
                n=r.name or "-",
                t=r.type,
                v=r.out_absmax,
            )
            for r in self.overflowing
        ]
        lines += [
            tr(
                "layer {n} ({t}) reaches {v:.6g}, within a factor of 8 of float16's 65504",
                "层 {n}({t})达到 {v:.6g}，距 float16 的上限 65504 不足 8 倍",
                n=r.name or "-",
                t=r.type,
                v=r.out_absmax,
            )
            for r in self.near
        ]
        if self.losing:
            lines.append(
                tr(
                    "{k} layer(s) have most gradients below 6e-8: keep loss scaling on, start it high (first: {n})",
                    "有 {k} 层的多数梯度小于 6e-8：请保持 loss scaling 并从较大的值开始（例如 {n}）",
                    k=len(self.losing),
                    n=self.losing[0].name or "-",
                )
            )
        return lines or [
            tr(
                "every layer holds float16 on {b} batch(es)",
                "在 {b} 个批次上所有层均可使用 float16",
                b=self.batches,
            )
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        from paddle_amp_plugin.diagnosis.verdict import strict

        rows = [{**asdict(r), "overflows": r.overflows, "near": r.near} for r in self.layers]
        return dict(strict({"batches": self.batches, "limit": self.limit, "layers": rows}))

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False)


def _magnitude(row: LayerRange) -> float:
    return row.out_absmax if row.out_absmax == row.out_absmax else float("inf")


def range_probe(
    model: paddle.nn.Layer,
    batches: Iterable[Any],
    run: Callable[[paddle.nn.Layer, Any], paddle.Tensor | None],
    *,
    optimizer: Any = None,
) -> RangeReport:
    """Reads every layer's range over ``batches`` in FP32: no AMP, no update, nothing of the model changed.

    ``run(model, batch)`` makes the forward pass and returns the loss, which is differentiated, or None for outputs
    only. The model stays in the mode (train / eval) it is in. ``optimizer``: whose FP32 masters to use at O2.
    """
    model = autocast.inner(model)
    totals: dict[str, tuple[str, list[Stat], list[Stat]]] = {}
    count = 0
    for batch in batches:
        watch = LayerWatch(model, ops=False, tiny=True)
        with untouched(model), autocast.float32_weights(model, optimizer), autocast.no_auto_cast(), watch:
            loss = run(model, batch)
            if loss is not None and not loss.stop_gradient:
                paddle.autograd.backward([loss])
        _add(totals, watch)
        count += 1
    rows = []
    for name, (kind, outs, grads) in totals.items():
        grad = Stat.together(grads) if grads else None
        top, lost = (grad.top, grad.tiny_share) if grad is not None else (None, None)
        rows.append(LayerRange(name, kind, Stat.together(outs).top, top, lost))
    return RangeReport(tuple(rows), count)


def _add(totals: dict[str, tuple[str, list[Stat], list[Stat]]], watch: LayerWatch) -> None:
    for call in watch.calls:
        if call.own:
            _, outs, grads = totals.setdefault(call.name, (call.type, [], []))
            outs.append(watch.stat(call.own))
            grad = watch.grad_stat(call.own)
            if grad is not None:
                grads.append(grad)
