"""``init_loss_scaling: auto``: the first batches say where the loss scale starts.

Each of them is run again, forward and backward, at other scales; weights, statistics, random states and the order of
the data stay as they are. The scale chosen is the largest power of two at which every gradient was finite, divided by
``MARGIN``, because gradients of later batches are larger at times; at most ``HIGHEST``, which float16 itself cannot
hold any more. Below ``LOWEST`` small gradients are lost from the start: under it the margin is given up, and it is
where a run starts whose gradients are not finite at any scale (which the diagnosis then looks into).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddle_amp_plugin.diagnosis.search import find_scale
from paddle_amp_plugin.diagnosis.stats import LIMITS
from paddle_amp_plugin.messages import tr

if TYPE_CHECKING:
    from paddle_amp_plugin.diagnosis import Subject

_Look = tuple[float | None, str]

#: So many batches are looked at.
BATCHES = 3
MARGIN = 8.0
LOWEST, HIGHEST = 512.0, 65536.0


@dataclass
class Calibration:
    """``fits``: of each batch, the largest scale that fits (None: none does, not even the lowest)."""

    fits: list[float | None] = field(default_factory=list)
    failure: str = ""

    @property
    def done(self) -> bool:
        return bool(self.failure) or len(self.fits) >= BATCHES

    @property
    def scale(self) -> float | None:
        """What the batches so far allow; None if nothing is known."""
        if not self.fits:
            return None
        found = [fit for fit in self.fits if fit is not None]
        if len(found) < len(self.fits):
            return LOWEST
        fits = min(found)
        return min(max(fits / MARGIN, min(fits, LOWEST)), HIGHEST)

    def look(self, subject: Subject) -> None:
        """Runs one batch again at candidate scales; whatever the model's code raises ends the calibration."""
        top = dataclasses.replace(subject, scale=HIGHEST * MARGIN)
        try:
            self.fits.append(find_scale(top, [], 1.0, LIMITS["float16"]))
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}".splitlines()[0][:200]

    def agree(self, of_all: Callable[[_Look], list[_Look]]) -> None:
        """With several processes: what the last batch of the one with the largest gradients allows."""
        everybody = of_all((self.fits[-1] if self.fits else None, self.failure))
        self.failure = next((failure for _, failure in everybody if failure), "")
        if self.failure or not self.fits:
            return
        fits = [fit for fit, _ in everybody if fit is not None]
        self.fits[-1] = min(fits) if len(fits) == len(everybody) else None

    def words(self, scale: float) -> str:
        """Why the loss scale now is ``scale``, in the user's language."""
        if not self.fits:
            return tr(
                "amp: init_loss_scaling auto: {s:g}; the first batch could not be run again ({e})",
                "amp：init_loss_scaling auto：{s:g}；首个批次无法重跑（{e}）",
                s=scale,
                e=self.failure,
            )
        found = [fit for fit in self.fits if fit is not None]
        if len(found) < len(self.fits):
            return tr(
                "amp: init_loss_scaling auto: {s:g}; on the first {n} batches gradients are not finite at any scale",
                "amp：init_loss_scaling auto：{s:g}；最初 {n} 个批次的梯度在任何 scale 下都不是有限值",
                s=scale,
                n=len(self.fits),
            )
        ceiling = min(found) >= HIGHEST * MARGIN
        return tr(
            "amp: init_loss_scaling auto: {s:g}; the gradients of the first {n} batches are finite up to {f:g}{more}"
            "{margin}",
            "amp：init_loss_scaling auto：{s:g}；最初 {n} 个批次的梯度在 scale 不超过 {f:g}{more} 时有限{margin}",
            s=scale,
            n=len(self.fits),
            f=min(found),
            more=tr(" or more", "（或更高）") if ceiling else "",
            margin=""
            if min(found) / MARGIN < LOWEST
            else tr(", less a margin of {m:g}", "，再留 {m:g} 倍余量", m=MARGIN),
        )
