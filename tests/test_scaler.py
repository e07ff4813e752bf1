"""The loss scaler against Paddle's own rules, and against the faults of Paddle's own scaler."""

from __future__ import annotations

import inspect
import math

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.scaler import LossScaler, gradient, optimizer_parameters


def one_weight(value: float = 1.0, **optimizer):
    """A parameter of shape [1], and SGD with learning rate 1 on it."""
    weight = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(value))
    return weight, paddle.optimizer.SGD(learning_rate=1.0, parameters=[weight], **optimizer)


def set_gradient(weight, value: float, scaler: LossScaler) -> None:
    """Runs a backward pass whose true gradient is ``value``."""
    scaler.scale((weight * value).sum()).backward()


def test_step_divides_by_the_scale_and_moves_the_weight():
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=1024.0))
    set_gradient(weight, 0.25, scaler)
    assert float(weight.grad) == 256.0
    scaler.step(optimizer)
    scaler.update()
    assert float(weight) == 0.75
    assert not scaler.last_outcome.skipped


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_step_that_is_not_finite_is_skipped_and_the_scale_halved(bad):
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=1024.0))
    set_gradient(weight, bad, scaler)
    scaler.step(optimizer)
    scaler.update()
    assert float(weight) == 1.0
    assert float(scaler._scale) == 512.0
    assert scaler._cache_found_inf is True and scaler._cache_founf_inf is True
    assert bool(scaler._found_inf)


def test_minimize_is_step_and_update():
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=8.0))
    scaled = scaler.scale((weight * 0.5).sum())
    scaled.backward()
    scaler.minimize(optimizer, scaled)
    assert float(weight) == 0.5
    optimizer.clear_grad()
    set_gradient(weight, math.inf, scaler)
    assert scaler.minimize(optimizer, weight.sum()) == (None, None)
    assert float(weight) == 0.5 and scaler.current_scale == 4.0


def test_same_numbers_as_paddles_update_rule():
    """The sequence of scales equals the one that AmpScaler._update computes, on a scripted run."""
    found = [False, False, True, True, False, False, False, True, False, True, True, False] * 3
    policy = ScalingPolicy(init=1024.0, incr_every_n_steps=2, decr_every_n_nan_or_inf=2, minimum=1e-6)
    reference = paddle.amp.GradScaler(enable=False)
    reference._enable, reference._scale = True, paddle.to_tensor([1024.0])
    reference._incr_ratio, reference._decr_ratio = 2.0, 0.5
    reference._incr_every_n_steps, reference._decr_every_n_nan_or_inf = 2, 2
    reference._incr_count = reference._decr_count = 0
    weight, optimizer = one_weight()
    scaler = LossScaler(policy)
    for bad in found:
        reference._cache_found_inf = reference._cache_founf_inf = bad
        paddle.amp.AmpScaler._update(reference)
        set_gradient(weight, math.inf if bad else 0.0, scaler)
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        assert scaler.current_scale == float(reference._scale) == float(scaler._scale)
        assert (scaler._incr_count, scaler._decr_count) == (reference._incr_count, reference._decr_count)


def test_the_floor_holds_and_a_healthy_batch_after_it_is_harmless(capsys):
    """R7: Paddle's scale ends at exactly 0, and then a healthy batch writes NaN."""
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=1024.0, minimum=1.0))
    for _ in range(160):
        set_gradient(weight, math.inf, scaler)
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    assert scaler.current_scale == 1.0
    set_gradient(weight, 0.5, scaler)
    scaler.step(optimizer)
    scaler.update()
    assert float(weight) == 0.5
    assert capsys.readouterr().out == ""


def test_the_ceiling_holds():
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=1024.0, incr_every_n_steps=1, maximum=4096.0))
    for _ in range(6):
        set_gradient(weight, 0.0, scaler)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.current_scale == 4096.0


def test_it_is_found_where_unscaling_itself_overflows():
    """A scale below 1: the gradient is finite, the quotient is not. Paddle's CPU kernel looks before it divides."""
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=2.0**-20, minimum=2.0**-24))
    weight.sum().backward()
    weight.grad.set_value(paddle.to_tensor([3e38]))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.last_outcome.skipped and float(weight) == 1.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_never_switches_itself_off(dtype):
    """Fact 4: any auto_cast leaves its dtype behind, and Paddle's scaler then disables itself for good."""
    from paddle.amp.auto_cast import amp_global_state

    before = amp_global_state().amp_dtype
    amp_global_state().amp_dtype = dtype
    try:
        scaler = LossScaler(ScalingPolicy(init=64.0))
        assert float(scaler.scale(paddle.to_tensor([2.0]))) == 128.0
        assert scaler.is_enable() and scaler.is_use_dynamic_loss_scaling()
        assert scaler.state_dict()["scale"].tolist() == [64.0]
    finally:
        amp_global_state().amp_dtype = before


def test_static_scaling_counts_its_skips():
    """R6: Paddle's static scaler skips in silence."""
    outcomes = []
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=128.0, dynamic=False), on_outcome=outcomes.append)
    for bad in (True, False, True):
        set_gradient(weight, math.inf if bad else 0.0, scaler)
        scaler.step(optimizer)  # as in Paddle, no update() is needed with static scaling
        scaler.update()
        optimizer.clear_grad()
    assert [o.skipped for o in outcomes] == [True, False, True]
    assert scaler.current_scale == 128.0 and scaler.loss_scale.skips_total == 2


def test_without_loss_scaling_a_step_that_is_not_finite_is_still_skipped():
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(dynamic=False), use_loss_scaling=False)
    loss = (weight * math.inf).sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    assert float(weight) == 1.0 and scaler.last_outcome.skipped
    optimizer.clear_grad()
    set_gradient(weight, 0.5, scaler)
    scaler.step(optimizer)
    scaler.update()
    assert float(weight) == 0.5


def test_main_grad_is_what_is_tested_and_unscaled():
    """MixPrecisionLayer moves gradients to main_grad, where Paddle's scaler does not look."""
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=4.0))
    weight.main_grad = paddle.to_tensor([2.0])
    assert gradient(weight) is weight.main_grad
    scaler.unscale_(optimizer)
    assert float(weight.main_grad) == 0.5 and not bool(scaler._found_inf)
    scaler.step(optimizer)
    scaler.update()
    updated = float(weight)
    if "main_grad" in inspect.getsource(paddle.optimizer.Optimizer.step):  # 2.6 leaves that to fleet's wrapper
        assert updated == 0.5
    weight.main_grad = paddle.to_tensor([math.inf])
    scaler.step(optimizer)
    scaler.update()
    assert scaler.last_outcome.skipped and float(weight) == updated


def test_unscale_once():
    weight, optimizer = one_weight()
    scaler = LossScaler(ScalingPolicy(init=4.0))
    set_gradient(weight, 0.5, scaler)
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update()
    assert float(weight) == 0.5


def test_a_clip_sees_true_gradients():
    """R12: gradient 0.01 under a scale of 65536 is not clipped by ClipGradByNorm(1)."""
    weight, optimizer = one_weight(grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    scaler = LossScaler(ScalingPolicy(init=65536.0))
    set_gradient(weight, 0.01, scaler)
    scaler.step(optimizer)
    assert float(weight) == pytest.approx(0.99, abs=1e-7)


def test_two_optimizers_one_scaler():
    """A skip in one is an update in the other; the scale moves once, down."""
    first, optimizer_a = one_weight()
    second, optimizer_b = one_weight()
    scaler = LossScaler(ScalingPolicy(init=16.0))
    scaler.scale((first * math.inf).sum() + (second * 0.5).sum()).backward()
    scaler.step(optimizer_a)
    scaler.step(optimizer_b)
    scaler.update()
    assert (float(first), float(second), scaler.current_scale) == (1.0, 0.5, 8.0)


def test_parameter_groups():
    a, b = (paddle.create_parameter([1], "float32") for _ in range(2))
    optimizer = paddle.optimizer.AdamW(
        learning_rate=0.1, parameters=[{"params": [a]}, {"params": [b], "weight_decay": 0.0}]
    )
    assert [p.name for p in optimizer_parameters(optimizer)] == [a.name, b.name]
    scaler = LossScaler(ScalingPolicy(init=4.0))
    scaler.scale(a.sum() + (b * math.inf).sum()).backward()
    before = a.numpy().copy()
    scaler.step(optimizer)
    assert np.array_equal(a.numpy(), before)


def test_state_takes_value_and_counters_and_keeps_the_policy():
    """Fact 5; R8: saved at 64, resumed at 64."""
    old = LossScaler(ScalingPolicy(init=64.0, incr_every_n_steps=5))
    weight, optimizer = one_weight()
    set_gradient(weight, 0.0, old)
    old.step(optimizer)
    old.update()
    new = LossScaler(ScalingPolicy(init=1024.0, incr_every_n_steps=7))
    new.load_state_dict(old.state_dict())
    assert (new.current_scale, new._incr_count, new._incr_every_n_steps) == (64.0, 1, 7)


def test_states_of_paddles_own_scaler_load_and_an_empty_one_starts_fresh():
    scaler = LossScaler(ScalingPolicy(init=1024.0))
    paddles = {"scale": np.array([256.0], dtype=np.float32), "incr_count": 3, "decr_count": 0, "incr_ratio": 9.0}
    scaler.load_state_dict(paddles)
    assert (scaler.current_scale, scaler._incr_count, scaler.get_incr_ratio()) == (256.0, 3, 2.0)
    scaler.load_state_dict({})
    assert scaler.current_scale == 256.0


def test_setters():
    scaler = LossScaler(ScalingPolicy(init=64.0))
    scaler.set_incr_every_n_steps(3)
    scaler.set_incr_ratio(4.0)
    scaler.set_decr_ratio(0.25)
    scaler.set_decr_every_n_nan_or_inf(2)
    assert scaler.policy.incr_every_n_steps == scaler.get_incr_every_n_steps() == 3
    assert (scaler.get_incr_ratio(), scaler.get_decr_ratio(), scaler.get_decr_every_n_nan_or_inf()) == (4.0, 0.25, 2)
    scaler.set_init_loss_scaling(0.5)
    assert scaler.current_scale == 0.5


def test_a_half_loss_is_scaled_in_float32():
    scaler = LossScaler(ScalingPolicy(init=1024.0))
    loss = paddle.to_tensor([100.0]).astype("float16")
    assert scaler.scale(loss).dtype == paddle.float32 and float(scaler.scale(loss)) == 102400.0
