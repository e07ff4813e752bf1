"""Several processes that train replicas of one model: what one of them finds out, all act upon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import paddle

from paddle_amp_plugin.autocast import no_auto_cast

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan

_T = TypeVar("_T")


def several_processes() -> bool:
    """Whether this process is one of several (``paddle.distributed.launch`` says so in the environment)."""
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1


def of_all_processes(mine: _T) -> list[_T]:
    """Every process's object (each has its own batch, so each may have found another thing), by rank.

    All processes must call it, at the same point of the same step.
    """
    if not several_processes():
        return [mine]
    everybody: list[_T] = []
    paddle.distributed.all_gather_object(everybody, mine)
    return everybody


class Exchange:
    """The exchange of gradients between replicas, in one run under a plan that may change (a healing).

    It is ``paddle.DataParallel``'s, but for float16 gradients on CPUs: Paddle 3.3.1 adds those up to infinity there
    (gloo; ``all_reduce`` of two tensors 1.5 and 2.5 gives inf), so they are added in FP32 and rounded to float16.
    """

    def __init__(self, parallel: paddle.DataParallel, plan: Plan, *, accumulates: bool = False) -> None:
        self._accumulates = accumulates
        self._parallel = parallel
        self._plan = plan
        self._synced = parallel.grad_need_sync
        parallel.grad_need_sync = self._synced and not self._by_ourselves

    @property
    def _by_ourselves(self) -> bool:
        """``DataParallel`` cannot: it adds up to infinity (see above); or it would see only the last of several
        batches, since FP32 gradients of earlier ones are put aside during a backward pass (``master_grads``)."""
        plan = self._plan
        emulated = plan.software_half and plan.level == "O2" and plan.dtype == "float16"
        return bool(emulated or (plan.master_grad and self._accumulates))

    def close(self) -> None:
        """Gives ``DataParallel`` its exchange back."""
        self._parallel.grad_need_sync = self._synced

    def hold(self, held: bool) -> None:
        """Before a call of the model: are the gradients of this batch to wait for those of the next?"""
        self._parallel.grad_need_sync = self._synced and not self._by_ourselves and not held

    def follow(self, plan: Plan) -> None:
        """The plan has changed, and with it the dtype of parameters: buckets sorted by dtype are made anew.

        A reducer's hooks sit on the parameters' gradient nodes, and no call takes them off. ``detach_`` gives a
        parameter a new node (and drops its gradient); the old hooks go with the old one. Tried with two gloo
        processes on Paddle 2.6.2 and 3.3.1.
        """
        if self._plan.level == "O2":
            for parameter in self._parallel.parameters():
                if not parameter.stop_gradient:
                    parameter.clear_gradient(False)
                    parameter.detach_()
                    parameter.stop_gradient = False
            self._parallel.init_reducer()
        self._plan = plan
        self._parallel.grad_need_sync = self._synced and not self._by_ourselves

    def gradients(self) -> None:
        """Before they are unscaled: the mean over all processes, where ``DataParallel`` did not see to it."""
        if not self._by_ourselves or not self._synced:
            return
        trained = [p for p in self._parallel.parameters() if not p.stop_gradient]
        present = paddle.to_tensor([p._grad_ivar() is not None for p in trained]).astype("int32")
        paddle.distributed.all_reduce(present)
        for parameter, count in zip(trained, present.tolist(), strict=True):
            if count:
                _exchange_in_float32(parameter)


def _exchange_in_float32(parameter: paddle.Tensor) -> None:
    from paddle_amp_plugin.scaler import gradient

    grad = gradient(parameter)
    with paddle.no_grad(), no_auto_cast():
        total = grad.astype("float32") if grad is not None else paddle.zeros_like(parameter, dtype="float32")
        paddle.distributed.all_reduce(total)
        mean = total / float(paddle.distributed.get_world_size())
        if grad is None:
            parameter.grad = mean.astype(parameter.dtype)
        else:
            grad.copy_(mean.astype(grad.dtype), True)
