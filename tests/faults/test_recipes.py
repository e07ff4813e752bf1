"""Recipes R1 to R7 and R20 through a session: first what the host alone makes of them, where it has the fault."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from paddle_amp_plugin.config_schema import SMALLEST_SCALE
from paddle_amp_plugin.monitor import read_events
from tests.faults.helpers import Fault, near, rand

Constant = nn.initializer.Constant
EACH_LEVEL = pytest.mark.parametrize("level", ["O1", "O2"])


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def healed(result, *pins, culprit):
    """What every healing must be."""
    assert result.error is None, str(result.error)
    assert result.culprits == [culprit], (result.culprits, result.lines)
    assert [p.name for p in result.treated[0].pins] == list(pins)
    assert result.lost <= 20 and result.finite
    assert not any(result.skipped[-10:])
    words = next(line for line in result.lines if "healed at step" in line)
    assert f"{result.lost} steps were lost" in words and "amp:\n" in words


class R1(nn.Layer):
    """Linear of weight 30 on input 2000: 240000; LayerNorm, Linear, sigmoid. The loss stays finite."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, weight_attr=Constant(30.0))
        self.second = nn.Linear(4, 1, weight_attr=Constant(0.5))

    def forward(self, x):
        return F.sigmoid(self.second(F.relu(self.first(x)) * 1e-5))


def r1_loss(out, target):
    return F.mse_loss(out, target)


R1_FAULT = Fault(R1, lambda step: (paddle.full([2, 4], 2000.0), paddle.full([2, 1], 0.2)), r1_loss, rate=0.02)


def test_r1_the_host_alone_halves_its_scale_to_nothing():
    losses, scales, skips, _ = R1_FAULT.host_alone(170)
    assert skips == 170 and scales[-1] < 1e-38 and np.isfinite(losses).all() and len(set(losses)) == 1


@EACH_LEVEL
def test_r1_collapse_with_a_finite_loss(level, tmp_path):
    result = R1_FAULT.run(120, folder=tmp_path, level=level)
    healed(result, "first", culprit="first")
    assert result.lost == 4 and result.session.scaler.current_scale == 1024.0
    assert near(result.losses, R1_FAULT.float32(120 - result.lost))
    assert result.losses[-1] < 0.5 * result.losses[0]
    assert (tmp_path / "overflow-4.json").is_file()
    assert "first" in (tmp_path / "plan.yml").read_text(encoding="utf-8")


def test_r1_stop_says_which_layer():
    result = R1_FAULT.run(50, on_collapse="stop")
    assert result.error.code == "AMP045" and result.error.exit_code == 3
    assert "first" in result.error.message and 'fp32_layers: ["first"]' in result.error.hint
    assert result.session.steps == 4 and result.session.updates == 0 and result.finite


@EACH_LEVEL
def test_r1_fp32_goes_on_without_amp(level):
    result = R1_FAULT.run(60, on_collapse="fp32", level=level)
    assert result.error is None and result.lost == 4 and result.finite
    assert not result.session.plan.enabled and "loss_scale" not in result.session.numbers()
    assert all(p.dtype == paddle.float32 for p in result.model.parameters())
    assert near(result.losses, R1_FAULT.float32(56), 0.001)


def test_r6_a_static_scale_is_not_silent(capfd):
    _, scales, skips, _ = R1_FAULT.host_alone(10, scale=1.0, dynamic=False, level="O2")
    assert skips == 10 and set(scales) == {1.0} and not capfd.readouterr().out
    result = R1_FAULT.run(60, use_dynamic_loss_scaling=False, init_loss_scaling=128, level="O2")
    healed(result, "first", culprit="first")
    assert result.lost == 4 and result.session.scaler.current_scale == 128.0


class ConvBehindNorm(nn.Layer):
    """R2: a convolution behind a BatchNorm of large scale, and a norm behind it, so that the loss stays finite."""

    def __init__(self, weight=20000.0):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2D(4, weight_attr=Constant(weight))
        self.conv2 = nn.Conv2D(4, 4, 3, padding=1, weight_attr=Constant(0.5))
        self.norm = nn.BatchNorm2D(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(F.relu(self.norm(self.conv2(self.bn(self.conv1(x))))).mean([2, 3]))


def images(step):
    return rand(4, 3, 8, 8, seed=step % 4), rand(4, 2, seed=100 + step % 4)


@EACH_LEVEL
def test_r2_convolution(level):
    fault = Fault(ConvBehindNorm, images, r1_loss, rate=3e-3)
    assert fault.host_alone(15)[2] == 15
    result = fault.run(120, level=level)
    healed(result, "conv2", culprit="conv2")
    assert result.treated[0].kind == "norm_scale" and result.lost == 4
    assert near(result.losses, fault.float32(120 - result.lost)) and np.mean(result.losses[-4:]) < np.mean(
        result.losses[:4]
    )


class LongDot(nn.Layer):
    """R2: 4096 products of 4 and 4.1, made by the model's own forward."""

    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([4096, 4], default_initializer=Constant(4.1))
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(paddle.matmul(x, self.weight) * 1e-5)


def test_r2_matmul():
    fault = Fault(LongDot, lambda step: (paddle.full([2, 4096], 4.0), paddle.full([2, 1], 0.3)), r1_loss)
    assert fault.host_alone(15)[2] == 15
    result = fault.run(60)
    assert [(p.kind, p.name) for p in result.treated[0].pins] == [("op", "matmul_v2")] and result.error is None
    assert "matmul_v2" in result.session.plan.custom_black_list and result.lost == 4 and result.finite
    assert near(result.losses, fault.float32(60 - result.lost))


#: R3: what the model does with its Linear's output, and the op that has to stay in FP32.
UNSAFE = {
    "exp": (lambda y: paddle.exp(y + 12.0) / paddle.exp(y + 12.0).sum(), "exp"),
    "square": (lambda y: paddle.square(y + 400.0) * 1e-5, "square"),
    "log": (lambda y: paddle.log(F.sigmoid(y - 20.0)) * 0.01, "sigmoid"),
}


@pytest.mark.parametrize("name", sorted(UNSAFE))
def test_r3_unsafe_op_at_o2_with_preset_fast(name):
    function, op = UNSAFE[name]

    class Unsafe(nn.Layer):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4, weight_attr=Constant(0.01))

        def forward(self, x):
            return function(self.body(x))

    fault = Fault(Unsafe, lambda step: (rand(4, 4, seed=step % 3), paddle.full([4, 4], 0.1)), r1_loss)
    assert fault.host_alone(15, level="O2")[2] == 15
    result = fault.run(40, level="O2", preset="fast")
    assert result.error is None and result.finite and result.lost <= 5, result.lines
    assert op in [p.name for p in result.treated[0].pins]
    assert near(result.losses, fault.float32(40 - result.lost))
    safe = fault.run(10, level="O2", custom_black_list=[op])
    assert safe.lost == 0 and not safe.treated


def test_r4_underflow_shows_in_the_share_of_zero_gradients(tmp_path):
    """Gradients near 3e-9: all lost at scale 1, there at 1024 and at 65536."""
    fault = Fault(lambda: nn.Linear(4, 4), lambda step: (rand(4, 4), None), lambda out, _: out.mean() * 4e-8)
    shares = []
    for scale in (1.0, 1024.0, 65536.0):
        folder = tmp_path / f"{scale:g}"
        fault.run(1, folder=folder, init_loss_scaling=scale)
        shares.append(read_events(folder / "events.jsonl")[0].zero_grad_share)
    assert shares[0] > 0.7 and max(shares[1:]) < 0.1, shares


def test_r5_small_updates_reach_the_masters():
    """1000 updates of 1e-4 leave a float16 weight of 1.0 at 1.0; the FP32 master moves by 0.1."""

    class One(nn.Layer):
        def __init__(self):
            super().__init__()
            self.w = nn.Linear(1, 1, weight_attr=Constant(1.0), bias_attr=False)

        def forward(self, x):
            return self.w(x)

    fault = Fault(One, lambda step: (paddle.ones([1, 1]), None), lambda out, _: out.sum(), 1e-4, paddle.optimizer.SGD)
    result = fault.run(1000, level="O2")
    master = float(result.optimizer._master_weights[result.model.w.weight.name])
    assert master == pytest.approx(0.9, abs=1e-3) and result.lost == 0 and not result.treated
    half = np.float16(1.0)
    for _ in range(1000):
        half = np.float16(np.float32(half) - np.float32(1e-4))
    assert half == 1.0


def healthy():
    return ConvBehindNorm(1.0)


def test_r7_a_healthy_batch_at_the_smallest_scale():
    """Paddle's scale reaches 0 after 160 halvings, and then a healthy batch writes NaN into the weights."""
    fault = Fault(healthy, images, r1_loss)
    _, _, _, model = fault.host_alone(1, scale=0.0)
    assert not all(np.isfinite(p.numpy()).all() for p in model.parameters())
    lowest = fault.run(5, min_loss_scaling=SMALLEST_SCALE, init_loss_scaling=SMALLEST_SCALE)
    assert lowest.finite and lowest.error is None
    assert fault.run(20).session.scaler.current_scale == 1024.0


def test_r15_one_bad_batch_does_not_reach_the_next():
    """Its gradients are cleared by the host; the loss of the 29 good ones falls, and nothing is diagnosed."""

    def loss(out, target):
        return r1_loss(out, target) * (1e30 if float(target[0, 0]) > 1e5 else 1.0)

    def batch(step):
        x, y = images(step)
        return x, y + (1e6 if step == 5 else 0.0)

    result = Fault(healthy, batch, loss).run(30)
    assert result.lost == 1 and result.skipped[5] and not result.treated and result.finite and result.error is None
    assert np.mean(result.losses[-4:]) < np.mean(result.losses[:4])


def test_r20_amp_without_effect_is_said():
    fault = Fault(healthy, images, r1_loss)
    black = ["conv2d", "depthwise_conv2d", "matmul_v2", "linear_v2"]
    result = fault.run(4, custom_black_list=black)
    assert sum("no effect" in line for line in result.lines) == 1 and not result.treated
