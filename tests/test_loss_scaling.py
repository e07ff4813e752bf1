"""The loss scale's state machine: exact values, Paddle's own sequence, bounds, collapse, state."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_amp_plugin.config_schema import LARGEST_SCALE, SMALLEST_SCALE, float32
from paddle_amp_plugin.loss_scaling import COLLAPSE_SKIPS_IN_A_ROW, LossScale, Outcome, ScalingPolicy


def test_defaults_are_those_of_the_amp_key() -> None:
    assert ScalingPolicy() == ScalingPolicy(1024.0, True, 2.0, 0.5, 1000, 1, 1.0, 16777216.0)


def test_a_skip_halves_and_says_so() -> None:
    scale = LossScale(ScalingPolicy())
    assert scale.advance(True) == Outcome(True, 1024.0, 512.0, at_floor=False, at_ceiling=False, collapsed=False)
    assert scale.advance(False) == Outcome(False, 512.0, 512.0, at_floor=False, at_ceiling=False, collapsed=False)
    assert (scale.steps, scale.updates, scale.skips_total, scale.skips_in_a_row) == (2, 1, 1, 0)


def test_growth_after_n_good_steps_in_a_row_only() -> None:
    scale = LossScale(ScalingPolicy(incr_every_n_steps=3))
    found = [False, False, True, False, False, False, False, False, False]
    assert [scale.advance(f).new_scale for f in found] == [1024, 1024, 512, 512, 512, 1024, 1024, 1024, 2048]


def test_decrease_counts_bad_steps_that_a_good_one_clears() -> None:
    scale = LossScale(ScalingPolicy(decr_every_n_nan_or_inf=2))
    assert [scale.advance(f).new_scale for f in (True, False, True, True)] == [1024, 1024, 1024, 512]


def test_ceiling() -> None:
    scale = LossScale(ScalingPolicy(incr_every_n_steps=1, maximum=3000.0))
    outcomes = [scale.advance(False) for _ in range(3)]
    assert [o.new_scale for o in outcomes] == [2048.0, 3000.0, 3000.0]
    assert [o.at_ceiling for o in outcomes] == [False, True, True]


def test_160_overflows_end_at_the_floor_and_a_good_batch_still_trains() -> None:
    scale = LossScale(ScalingPolicy(incr_every_n_steps=1))
    outcomes = [scale.advance(True) for _ in range(160)]
    assert scale.scale == 1.0
    assert [o.collapsed for o in outcomes].index(True) == 10  # ten halvings reach 1, the eleventh cannot help
    assert outcomes[9].at_floor and not outcomes[9].collapsed
    assert scale.advance(False).new_scale == 2.0


def test_one_bad_batch_at_the_floor_is_no_collapse_but_two_in_a_row_are() -> None:
    scale = LossScale(ScalingPolicy(init=1.0))
    assert [scale.advance(f).collapsed for f in (True, False, True, True)] == [False, False, False, True]


def test_the_floor_collapse_waits_for_a_decrease_to_be_due() -> None:
    scale = LossScale(ScalingPolicy(init=1.0, decr_every_n_nan_or_inf=3))
    assert [scale.advance(True).collapsed for _ in range(3)] == [False, False, True]


def test_a_static_scale_never_moves_but_counts_and_collapses_by_count() -> None:
    scale = LossScale(ScalingPolicy(init=1.0, dynamic=False))
    outcomes = [scale.advance(True) for _ in range(COLLAPSE_SKIPS_IN_A_ROW)]
    assert [o.collapsed for o in outcomes] == [False] * (COLLAPSE_SKIPS_IN_A_ROW - 1) + [True]
    assert {o.new_scale for o in outcomes} == {1.0}
    assert (scale.skips_total, scale.good_steps, scale.bad_steps) == (COLLAPSE_SKIPS_IN_A_ROW, 0, 0)
    for _ in range(2000):
        scale.advance(False)
    assert (scale.scale, scale.updates, scale.skips_in_a_row) == (1.0, 2000, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"init": 0.5},
        {"init": 2.0**25},
        {"init": math.nan},
        {"minimum": 0.0},
        {"minimum": 2.0**-30},
        {"maximum": math.inf},
        {"incr_ratio": 1.0},
        {"incr_ratio": 1.0 + 1e-12},
        {"incr_ratio": math.inf},
        {"decr_ratio": 1.0},
        {"decr_ratio": 0.0},
        {"decr_ratio": math.nan},
        {"incr_every_n_steps": 0},
        {"decr_every_n_nan_or_inf": 0},
    ],
)
def test_a_policy_that_could_break_the_scale_is_refused(wrong) -> None:
    with pytest.raises(ValueError):
        ScalingPolicy(**wrong)


policies = st.builds(
    lambda bounds, dynamic, up, down, n_up, n_down: ScalingPolicy(
        sorted(bounds)[1], dynamic, up, down, n_up, n_down, sorted(bounds)[0], sorted(bounds)[2]
    ),
    st.tuples(*[st.floats(SMALLEST_SCALE, LARGEST_SCALE)] * 3),
    st.booleans(),
    st.floats(1.001, 1e30),
    st.floats(1e-30, 0.999),
    st.integers(1, 5),
    st.integers(1, 5),
)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(policies, st.lists(st.booleans(), max_size=80))
def test_the_scale_stays_finite_and_within_bounds_and_counts_add_up(policy, found) -> None:
    scale = LossScale(policy)
    for f in found:
        outcome = scale.advance(f)
        assert float32(policy.minimum) <= outcome.new_scale <= float32(policy.maximum)
        assert outcome.new_scale == float32(outcome.new_scale) > 0.0
        assert outcome.skipped == f
        assert policy.dynamic or outcome.new_scale == outcome.old_scale
    assert scale.steps == len(found) == scale.updates + scale.skips_total


@settings(max_examples=100, derandomize=True, deadline=None)
@given(policies, st.lists(st.booleans(), max_size=30), st.lists(st.booleans(), max_size=30))
def test_a_run_stopped_and_resumed_goes_on_as_the_unbroken_one(policy, before, after) -> None:
    unbroken, first = LossScale(policy), LossScale(policy)
    for f in before:
        unbroken.advance(f)
        first.advance(f)
    second = LossScale(policy)
    second.load_state_dict(first.state_dict())
    assert [second.advance(f) for f in after] == [unbroken.advance(f) for f in after]
    assert second.state_dict() == unbroken.state_dict()


def test_state_restores_value_and_counters_but_not_the_policy() -> None:
    old = LossScale(ScalingPolicy(init=64.0, incr_every_n_steps=500))
    for _ in range(300):
        old.advance(False)
    new = LossScale(ScalingPolicy(incr_every_n_steps=100))
    new.load_state_dict(old.state_dict())
    assert (new.scale, new.good_steps, new.steps, new.policy.incr_every_n_steps) == (64.0, 300, 300, 100)
    assert new.advance(False).new_scale == 128.0  # Paddle's == would wait for ever at 301 of 100


@pytest.mark.parametrize("stored", [0.0, -1.0, math.nan, math.inf])
def test_a_dead_scale_in_a_file_starts_again_from_init(stored) -> None:
    scale = LossScale(ScalingPolicy())
    scale.load_state_dict({"scale": stored})
    assert scale.scale == 1024.0


def test_state_of_another_policy() -> None:
    scale = LossScale(ScalingPolicy(maximum=2048.0))
    scale.load_state_dict({"scale": 65536.0})
    assert scale.scale == 2048.0
    static = LossScale(ScalingPolicy(init=128.0, dynamic=False))
    static.load_state_dict({"scale": 4.0, "skips_total": 3})
    assert (static.scale, static.skips_total) == (128.0, 3)


def test_an_empty_state_changes_nothing() -> None:
    scale = LossScale(ScalingPolicy())
    scale.advance(True)
    before = scale.state_dict()
    scale.load_state_dict({})
    assert scale.state_dict() == before


@pytest.mark.parametrize(
    "state",
    [{"steps": 1}, {"scale": "64"}, {"scale": None}, {"scale": 64.0, "steps": -1}, {"scale": 64.0, "steps": "3"}],
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(state) -> None:
    scale = LossScale(ScalingPolicy())
    before = scale.state_dict()
    with pytest.raises(ValueError):
        scale.load_state_dict(state)
    assert scale.state_dict() == before


@pytest.mark.parametrize("ratios", [(2.0, 0.5), (1.7, 0.3), (3.1, 0.9)])
def test_paddles_own_scaler_goes_the_same_way(ratios) -> None:
    paddle = pytest.importorskip("paddle")
    import numpy as np

    rng = random.Random(7)
    policy = ScalingPolicy(1000.0, True, *ratios, 3, 2, SMALLEST_SCALE, LARGEST_SCALE)
    ours = LossScale(policy)
    theirs = paddle.amp.AmpScaler(enable=False)  # on a CPU it enables itself under no circumstances
    theirs._enable = theirs._use_dynamic_loss_scaling = True
    theirs._scale = paddle.to_tensor(np.array([policy.init], dtype=np.float32))
    theirs._incr_ratio, theirs._decr_ratio = ratios
    theirs._incr_every_n_steps, theirs._decr_every_n_nan_or_inf = 3, 2
    theirs._incr_count = theirs._decr_count = 0
    for _ in range(120):
        found = rng.random() < 0.45
        # Paddle 2.6 spells the attribute with an f too many
        theirs._cache_found_inf = theirs._cache_founf_inf = found
        theirs._update()
        ours.advance(found)
        assert ours.scale == float(theirs._scale)
        assert (ours.good_steps, ours.bad_steps) == (theirs._incr_count, theirs._decr_count)


def test_reads_what_paddles_scaler_saved() -> None:
    np = pytest.importorskip("numpy")
    scale = LossScale(ScalingPolicy())
    scale.load_state_dict(
        {"scale": np.array([256.0], dtype=np.float32), "incr_ratio": 9.0, "incr_count": 12, "decr_count": 1}
    )
    assert (scale.scale, scale.good_steps, scale.bad_steps, scale.policy.incr_ratio) == (256.0, 12, 1, 2.0)
