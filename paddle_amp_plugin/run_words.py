"""What a session says of its run, and the metric that no best-model rule takes (no Paddle import)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddle_amp_plugin.messages import tr

if TYPE_CHECKING:
    from paddle_amp_plugin.session import Session


def summary(session: Session) -> str:
    """One line for the end of a run."""
    share, scale = session.half_share(), session.numbers().get("loss_scale")
    return tr(
        "amp: {steps} steps, {updates} updates, {skips} skipped{scale}{share}",
        "amp：共 {steps} 步，更新 {updates} 次，跳过 {skips} 次{scale}{share}",
        steps=session.steps,
        updates=session.updates,
        skips=session.skips,
        scale="" if scale is None else tr(", final loss scale {s:g}", "，最终 loss scale {s:g}", s=scale),
        share=""
        if share is None
        else tr(
            ", {p:.0%} of the forward ops in {d}",
            "，前向算子中 {p:.0%} 以 {d} 计算",
            p=share,
            d=session.plan.dtype,
        ),
    )


def no_update(skips_in_a_row: int) -> str:
    """Why an evaluation's metric is not compared."""
    return tr(
        "amp: no update since the last evaluation (the last {n} steps were skipped): not a best model",
        "amp：自上次评估以来没有任何更新（最近 {n} 步均被跳过）：不作为最佳模型",
        n=skips_in_a_row,
    )


def never_best(metric: dict[str, Any], indicator: str) -> dict[str, Any]:
    """The metrics with an indicator that compares as never greater or equal; it prints as it is."""
    return {**metric, indicator: _NeverBest(metric[indicator])}


class _NeverBest(float):
    """A metric that no comparison finds better than, or as good as, another."""

    def __ge__(self, other: object) -> bool:
        return False

    __gt__ = __ge__
