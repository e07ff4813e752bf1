"""One step of a user's own training, in the form that is traced."""

from __future__ import annotations

from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.software_half.ops import is_tensor

#: Raised by a workload whose data cannot be made up.
NO_SYNTHETIC = "AMP261"


class WorkloadStep:
    """A ``Workload`` (``hosts.workloads``) as a ``measure.Step``.

    Batches are made up where the host can do that, else they are parts of a real one.
    """

    def __init__(self, work: Any) -> None:
        self._work = work
        self.model = work.build_model()
        self.optimizer, _ = work.build_optimizer(self.model)
        self._criterion = work.build_criterion()
        self._real: Any = None
        self.made_up = True

    def batch(self, size: int) -> Any:
        """Raises AmpError: AMP287 if a real batch is smaller than ``size``; the workload's own without data."""
        try:
            return self._work.synthetic_batch(size)
        except AmpError as error:
            if error.code != NO_SYNTHETIC:
                raise
        self.made_up = False
        if self._real is None:
            self._real = next(self._work.train_batches())
        samples = self._work.samples(self._real)
        if samples < size:
            raise AmpError(
                "AMP287",
                tr(
                    "a batch of {n} is needed to measure with, and the config's loader gives {s}",
                    "测量需要 {n} 个样本的批次，而配置的加载器只给出 {s} 个",
                    n=size,
                    s=samples,
                ),
                hint=tr("raise the batch size of the config", "请增大配置中的批大小"),
            )
        return _part(self._real, size, samples)

    def loss(self, batch: Any) -> Any:
        return self._work.loss(self.model, batch, self._criterion)


def accumulate_steps(work: Any) -> int:
    """Backward passes an update: ``amp.accumulate_steps``, or what the recipe's Trainer is told."""
    recipe = getattr(work, "recipe", None)
    host = recipe.trainer.get("gradient_accumulation_steps", 1) if recipe is not None else 1
    return max(int(host), work.settings.accumulate_steps if work.settings is not None else 1)


def _part(value: Any, size: int, samples: int) -> Any:
    """The first ``size`` samples of a batch."""
    if isinstance(value, dict):
        return {key: _part(item, size, samples) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if len(value) == samples and not any(map(is_tensor, value)):
            return value[:size]
        return type(value)(_part(item, size, samples) for item in value)
    if is_tensor(value) and value.shape and value.shape[0] == samples:
        return value[:size].clone()
    return value
