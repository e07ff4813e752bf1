"""The loss scale as a pure state machine: Paddle's counting rules, and what Paddle lacks: floor, ceiling, collapse.

The rules are those of ``paddle.amp.AmpScaler._update`` (Paddle 2.6 to 3.3). Scales are float32 there, so they
are rounded to float32 here: a run without a floor or ceiling in reach gives Paddle's numbers to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddle_amp_plugin.config_schema import LARGEST_SCALE, SMALLEST_SCALE, float32

#: So many skips in a row are a collapse wherever the scale stands. From the default ceiling (2**24) to the
#: default floor (1) takes 24 halvings, so a healthy run that merely started too high never gets there.
COLLAPSE_SKIPS_IN_A_ROW = 32


@dataclass(frozen=True)
class ScalingPolicy:
    """How the scale moves. Scales are plain factors, ``…_every_n…`` are counts of optimizer steps.

    Raises ``ValueError`` for values under which the scale could become 0, infinite or NaN, or could move
    the wrong way. (Users never see it: ``config.py`` has said it better before.)
    """

    init: float = 1024.0
    dynamic: bool = True
    incr_ratio: float = 2.0
    decr_ratio: float = 0.5
    incr_every_n_steps: int = 1000
    decr_every_n_nan_or_inf: int = 1
    minimum: float = 1.0
    maximum: float = 16777216.0

    def __post_init__(self) -> None:
        if not SMALLEST_SCALE <= self.minimum <= self.init <= self.maximum <= LARGEST_SCALE:
            raise ValueError(f"not {SMALLEST_SCALE} <= minimum <= init <= maximum <= {LARGEST_SCALE}: {self}")
        if not (1.0 < float32(self.incr_ratio) < math.inf and self.decr_ratio > 0.0 and float32(self.decr_ratio) < 1.0):
            raise ValueError(f"not 0 < decr_ratio < 1 < incr_ratio (as float32): {self}")
        if self.incr_every_n_steps < 1 or self.decr_every_n_nan_or_inf < 1:
            raise ValueError(f"step counts start at 1: {self}")


@dataclass(frozen=True)
class Outcome:
    """What one step did to the scale.

    ``skipped``: the step's update was withheld. ``at_floor`` / ``at_ceiling``: where ``new_scale`` stands.
    ``collapsed``: the scale cannot help any more (see ``LossScale.advance``).
    """

    skipped: bool
    old_scale: float
    new_scale: float
    at_floor: bool
    at_ceiling: bool
    collapsed: bool


class LossScale:
    """The scale of one run, and its counters.

    ``scale``: the factor for the next step's loss. ``good_steps`` / ``bad_steps``: Paddle's ``_incr_count``
    and ``_decr_count``, at 0 with a static policy. ``steps`` = ``updates`` + ``skips_total``.
    """

    def __init__(self, policy: ScalingPolicy) -> None:
        self.policy = policy
        self.scale = self._clamp(policy.init)
        self.good_steps = 0
        self.bad_steps = 0
        self.skips_total = 0
        self.skips_in_a_row = 0
        self.steps = 0
        self.updates = 0

    def _clamp(self, scale: float) -> float:
        return float32(min(max(scale, self.policy.minimum), self.policy.maximum))

    def advance(self, found_inf: bool) -> Outcome:
        """Count one optimizer step whose gradients were finite or not (``found_inf``), and move the scale.

        A collapse is: a decrease is due, the scale already is at its floor, and the step before was
        skipped too (one bad batch at the floor is no collapse); or ``COLLAPSE_SKIPS_IN_A_ROW`` skips in a
        row, which is the only collapse that a static policy can show.
        """
        old = self.scale
        self.steps += 1
        decrease_due = self._count_skip() if found_inf else self._count_update()
        stuck = decrease_due and old == self._clamp(self.policy.minimum) and self.skips_in_a_row >= 2
        return Outcome(
            skipped=found_inf,
            old_scale=old,
            new_scale=self.scale,
            at_floor=self.scale == self._clamp(self.policy.minimum),
            at_ceiling=self.scale == self._clamp(self.policy.maximum),
            collapsed=stuck or self.skips_in_a_row >= COLLAPSE_SKIPS_IN_A_ROW,
        )

    def _count_skip(self) -> bool:
        """Count a skipped step; True if a decrease was due (made or stopped by the floor)."""
        self.skips_total += 1
        self.skips_in_a_row += 1
        if not self.policy.dynamic:
            return False
        self.good_steps = 0
        self.bad_steps += 1
        # >= and not ==, as in Paddle: a resumed count may already be beyond a policy that has changed since
        if self.bad_steps < self.policy.decr_every_n_nan_or_inf:
            return False
        self.bad_steps = 0
        self._multiply(self.policy.decr_ratio)
        return True

    def _count_update(self) -> bool:
        """Count a step that was made. Always False: no decrease is due."""
        self.updates += 1
        self.skips_in_a_row = 0
        if self.policy.dynamic:
            self.bad_steps = 0
            self.good_steps += 1
            if self.good_steps >= self.policy.incr_every_n_steps:
                self.good_steps = 0
                self._multiply(self.policy.incr_ratio)
        return False

    def _multiply(self, ratio: float) -> None:
        # the product of two float32 is exact in a Python float, so this rounds once, as Paddle's kernel does
        self.scale = self._clamp(float32(self.scale * float32(ratio)))

    def restore(self, scale: float) -> None:
        """Go on at ``scale`` (moved into the bounds) as after an update: what counts skips in a row starts again.

        The totals stay. A static policy has this scale from now on.
        """
        self.scale = self._clamp(scale)
        if not self.policy.dynamic:
            self.policy = replace(self.policy, init=self.scale)
        self.good_steps = self.bad_steps = self.skips_in_a_row = 0

    def state_dict(self) -> dict[str, float | int]:
        """The scale and all counters as plain numbers. The policy is not in it: it belongs to the config."""
        return {"scale": self.scale, **{name: getattr(self, name) for name in _COUNTERS}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take scale and counters from ``state``; the policy stays this run's.

        Also reads what ``paddle.amp.GradScaler.state_dict`` writes (``scale`` as an array, ``incr_count``,
        ``decr_count``). ``{}``, the state of a scaler that was switched off, changes nothing. A scale outside
        this policy's bounds is moved to the nearest one, and one that is 0, negative or not finite (Paddle's
        own after a collapse) is replaced by ``policy.init``. A static policy keeps its own scale. Raises
        ``ValueError`` for a state that is none.
        """
        if not state:
            return
        try:
            scale = _plain_number(state["scale"])
            counters = {name: int(_plain_number(state.get(name, state.get(old, 0)))) for name, old in _COUNTERS.items()}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not the state of a loss scaler: {error!r}") from None
        if min(counters.values()) < 0:
            raise ValueError(f"not the state of a loss scaler: negative counter in {counters}")
        usable = self.policy.dynamic and math.isfinite(scale) and scale > 0.0
        self.scale = self._clamp(scale if usable else self.policy.init)
        for name, value in counters.items():
            setattr(self, name, value)


#: Our counters -> Paddle's names for them in a saved scaler, where it has them.
_COUNTERS = {
    "good_steps": "incr_count",
    "bad_steps": "decr_count",
    "skips_total": "",
    "skips_in_a_row": "",
    "steps": "",
    "updates": "",
}


def _plain_number(value: Any) -> float:
    """A number, or the one number in an array or tensor."""
    if isinstance(value, str | bytes):
        raise ValueError(f"text: {value!r}")
    return float(value.item() if hasattr(value, "item") else value)
