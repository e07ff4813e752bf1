"""Which dtypes the model's ops really run in, asked of software half: one forward pass of the small batch.

The rules alone do not know what a model does about dtypes itself (``mask.astype(scores.dtype)``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from paddle_amp_plugin import autocast, software_half
from paddle_amp_plugin.estimate.policy import Seen
from paddle_amp_plugin.routing import routed_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddle_amp_plugin.plan_model import Plan


def observe(plan: Plan, model: paddle.nn.Layer, loss_of: Callable[[], Any]) -> list[Seen]:
    """The ops of the model under ``plan``, in order; the loss is computed outside, as in a run.

    At O2 the model stays half afterwards. Whatever ``loss_of`` raises passes through.
    """
    seen: list[Seen] = []

    def route(call: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        with software_half.record_ops() as records, autocast.auto_cast(plan):
            result = call()
        seen.extend(Seen(r.op, r.input_dtypes, r.compute_dtype, r.output_dtypes) for r in records)
        return autocast.to_float32(result)

    with software_half.emulate(), paddle.no_grad():
        try:
            autocast.decorate(plan, model)
            with routed_call(model, route):
                loss_of()
        finally:
            autocast.unpin(model)
    return seen
