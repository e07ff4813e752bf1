"""An exponential moving average of the FP32 weights (``ema: {decay: …}``): what is evaluated, saved beside them.

After each update ``average += (1 - d) * (weight - average)`` on the FP32 masters, whatever the level; a skipped step
leaves it alone. ``d = min(decay, (1 + n) / (10 + n))`` after ``n`` updates, so that the random start is forgotten
soon: the rule of TensorFlow's ``ExponentialMovingAverage(num_updates=…)``. Running statistics of norm layers are
averaged with the weights they belong to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import paddle

from paddle_amp_plugin import autocast
from paddle_amp_plugin.checkpoint_words import first_of
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr


class WeightAverage:
    """Belongs to one prepared model (no ``DataParallel``) and its optimizer."""

    def __init__(self, model: paddle.nn.Layer, optimizer: Any, decay: float) -> None:
        from paddle_amp_plugin.norm_buffers import norm_buffers

        self.decay = decay
        self._model, self._optimizer = model, optimizer
        trained = [p for p in model.parameters() if not p.stop_gradient and paddle.is_floating_point(p)]
        followed = {id(t): t for t in (*trained, *norm_buffers(model))}
        with paddle.no_grad():
            self._pairs = [(tensor, self._now(tensor).clone()) for tensor in followed.values()]

    def _now(self, tensor: paddle.Tensor) -> paddle.Tensor:
        """Its FP32 value: the master where the tensor is half."""
        if tensor.dtype == paddle.float32:
            return tensor.detach()
        return autocast.master_of(tensor, self._model, self._optimizer).detach()

    def update(self, updates: int) -> None:
        """An update was made, the ``updates``-th."""
        decay = min(self.decay, (1.0 + updates) / (10.0 + updates))
        with paddle.no_grad(), autocast.no_auto_cast():
            for tensor, average in self._pairs:
                average.lerp_(self._now(tensor), 1.0 - decay)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """For a while the model has the averages as its weights; afterwards its own, to the bit."""
        swapped: list[tuple[paddle.Tensor, paddle.Tensor]] = []
        try:
            for tensor, average in self._pairs:
                swapped.append((tensor, autocast._alias(tensor)))
                autocast._share(tensor, average if tensor.dtype == paddle.float32 else average.astype(tensor.dtype))
            yield
        finally:
            for tensor, own in swapped:
                autocast._share(tensor, own)

    # -- checkpoints -------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, paddle.Tensor]:
        """A whole state dict of the model, FP32, averages where there are any. Inside ``Session.saving`` only."""
        averages = {tensor.name: average for tensor, average in self._pairs}
        return {key: averages.get(value.name, value) for key, value in self._model.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Takes the averages of ``state``; returns the keys that are missing or of another shape."""
        keys = {value.name: key for key, value in self._model.state_dict().items()}
        lost = []
        with paddle.no_grad():
            for tensor, average in self._pairs:
                key = keys.get(tensor.name, "")
                value = state.get(key)
                if value is None or list(value.shape) != list(average.shape):
                    lost.append(key or tensor.name)
                else:
                    average.set_value(paddle.to_tensor(value).astype("float32"))
        return lost


def read(average: WeightAverage, path: Path, *, there: bool) -> str:
    """Takes the averages of a file of a checkpoint, if it is ``there``; what there is to be said, or "".

    Raises AmpError (AMP096) if the file cannot be read.
    """
    if not there:
        return tr(
            "amp: the checkpoint has no moving average ({f}): it starts from its weights",
            "amp：检查点中没有滑动平均（{f}）：从其权重开始",
            f=path.name,
        )
    try:
        lost = average.load_state_dict(paddle.load(str(path)))
    except Exception as error:  # whatever Paddle's reader raises on a foreign file
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise AmpError("AMP096", tr("cannot read {f}: {e}", "无法读取 {f}：{e}", f=path, e=reason)) from None
    if not lost:
        return ""
    return tr(
        "amp: {f} has no average for {n} of the weights ({w}): theirs starts anew",
        "amp：{f} 中缺少 {n} 个权重的滑动平均（{w}）：这些从当前权重开始",
        f=path.name,
        n=len(lost),
        w=first_of(lost),
    )
