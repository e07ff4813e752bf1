"""Gradient accumulation: several batches, one unscale, one clip, one update (``accumulate_steps``).

A host that knows nothing of it calls ``backward``, ``step`` and ``clear_grad`` once a batch. Within a window the last
two do nothing; the loss of each batch enters with its share, so that the gradient is that of the mean over all samples
of the window, as a batch of that size would give it. (BatchNorm still sees one batch at a time, and so do losses that
are no mean over samples, such as Dice.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from paddle_amp_plugin.autocast import no_auto_cast
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.scaler import gradient

#: Beside a checkpoint that was written within a window: the gradients so far, as they are (scaled).
SUFFIX = ".pdgrad"
_COUNTERS = ("count", "planned", "samples", "first")


@dataclass
class Window:
    """Where one session is between two updates.

    ``size``: batches in a full window. ``planned``: in this one (the last of an epoch may be shorter); ``count``:
    batches gone; ``samples`` in them, ``first``: in the first. ``begun``: what was observed of it before a resume.
    """

    size: int = 1
    planned: int = 1
    count: int = 0
    samples: int = 0
    first: int = 0
    begun: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.planned = max(self.planned, self.size)

    def open(self, remaining: int) -> None:
        """The host is about to take a batch; with it ``remaining`` are left in the epoch."""
        if self.count == 0:
            self.planned = max(1, min(self.size, remaining))

    @property
    def inside(self) -> bool:
        """Have batches gone whose update is still to come?"""
        return self.count > 0

    @property
    def closing(self) -> bool:
        """Does the present batch complete the window?"""
        return self.count + 1 >= self.planned

    def weight(self, samples: int | None) -> float:
        """What the loss of the present batch, of so many samples, is multiplied by."""
        if self.planned == 1:
            return 1.0
        count = samples or 1
        return count / ((self.first or count) * self.planned)

    def batch_done(self, samples: int | None) -> bool:
        """``backward`` of the present batch has run; is the window complete?"""
        count = samples or 1
        self.first = self.first or count
        self.samples += count
        self.count += 1
        return self.count >= self.planned

    @property
    def correction(self) -> float:
        """What the gradients are to be multiplied by: 1 unless batches had different numbers of samples."""
        expected = self.first * self.planned
        return expected / self.samples if self.samples and self.samples != expected else 1.0

    def close(self) -> None:
        """The update was made or skipped."""
        self.count = self.samples = self.first = 0
        self.planned, self.begun = self.size, None

    # -- checkpoints -------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """As JSON values; empty between two windows."""
        return {name: getattr(self, name) for name in _COUNTERS} if self.inside else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError for a state that is none."""
        values = {name: int(state[name]) for name in _COUNTERS if name in state}
        if len(values) != len(_COUNTERS) or not 0 < values["count"] < values["planned"] or min(values.values()) < 0:
            raise ValueError(f"not the state of a window: {dict(state)}")
        for name, value in values.items():
            setattr(self, name, value)
        self.begun = state.get("begun")


def share_of(loss: paddle.Tensor, share: float) -> paddle.Tensor:
    """What one batch's loss contributes to its window's, in FP32."""
    with no_auto_cast():
        return loss.astype("float32") * share


def scale_gradients(parameters: Iterable[paddle.Tensor], factor: float) -> None:
    """Multiplies every gradient, in place."""
    with paddle.no_grad():
        for parameter in parameters:
            grad = gradient(parameter)
            if grad is not None and grad._is_initialized():
                grad.scale_(factor)


def save_gradients(path: Path, parameters: Iterable[paddle.Tensor]) -> None:
    """The gradients as float32, which holds every half exactly, with their own dtypes: a NumPy ``.npz``, no pickle."""
    arrays, names, dtypes = {}, [], []
    for parameter in parameters:
        grad = gradient(parameter)
        if grad is not None and grad._is_initialized():
            arrays[f"g{len(names)}"] = grad.astype("float32").numpy()
            names.append(parameter.name)
            dtypes.append(str(grad.dtype).rpartition(".")[2])
    with open(path, "wb") as file:
        np.savez(file, names=np.array(names, dtype=np.str_), dtypes=np.array(dtypes, dtype=np.str_), **arrays)


def load_gradients(path: Path, parameters: Iterable[paddle.Tensor]) -> None:
    """Gives parameters the gradients of ``path``. Raises AmpError: AMP098 it cannot be read, or does not fit."""
    try:
        with np.load(path, allow_pickle=False) as file:
            saved = {
                str(name): (file[f"g{index}"], str(dtype))
                for index, (name, dtype) in enumerate(zip(file["names"], file["dtypes"], strict=True))
            }
        known = {parameter.name: parameter for parameter in parameters}
        for name, (value, dtype) in saved.items():
            if name not in known or list(known[name].shape) != list(value.shape):
                raise ValueError(tr("no parameter {n} of this shape", "没有此形状的参数 {n}", n=name))
            known[name].grad = paddle.to_tensor(value).astype(dtype)
    except Exception as error:  # whatever a damaged or foreign file makes NumPy raise
        raise AmpError(
            "AMP098",
            tr(
                "{f}: the gradients of the interrupted window cannot be used: {e}",
                "{f}：无法使用被中断的累积窗口的梯度：{e}",
                f=path,
                e=str(error).splitlines()[0] if str(error) else type(error).__name__,
            ),
        ) from None
