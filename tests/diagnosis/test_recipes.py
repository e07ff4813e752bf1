"""The fault recipes R1 to R3 and what else goes wrong in one step: who is named, why, and that the YAML cures it."""

from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from paddle_amp_plugin import software_half
from paddle_amp_plugin.diagnosis import cause, yaml_of
from tests.diagnosis.helpers import Case
from tests.diagnosis.small_models import R1, half_target, rand, seeded_linear

Constant = nn.initializer.Constant
EACH_LEVEL = pytest.mark.parametrize("level", ["O1", "O2"])


@pytest.fixture(autouse=True)
def _emulated():
    with software_half.emulate():
        yield


@EACH_LEVEL
@pytest.mark.parametrize("ops", [True, False])
def test_r1_collapse_with_a_finite_loss(level, ops):
    case = Case(R1, [paddle.full([2, 4], 2000.0)], half_target, {"level": level})
    found, loss = case.diagnose(ops=ops)
    assert math.isfinite(loss)
    assert found.culprit == "first" and found.where == "forward" and found.kind == "forward_overflow"
    assert found.value == 240000.0 and found.limit == 65504.0 and not found.not_amp
    assert found.pin.kind == "layer" and found.pin.name == "first"
    assert case.finite_with(found)
    en, zh = cause(found)
    assert "240000" in en and "65504" in en and "first" in en and "240000" in zh


class LongDot(nn.Layer):
    """R2: 4096 products of 4 and 4.1, made by the model's own forward."""

    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([4096, 2], default_initializer=Constant(4.1))
        self.out = nn.Linear(2, 1, weight_attr=Constant(1e-5))

    def forward(self, x):
        return self.out(F.layer_norm(paddle.matmul(x, self.weight), 2))


def test_r2_long_matmul_in_the_models_own_forward():
    case = Case(LongDot, [paddle.full([2, 4096], 4.0)], half_target)
    found, _ = case.diagnose()
    assert (found.culprit, found.culprit_op, found.kind) == (None, "matmul_v2", "forward_overflow")
    assert 66000 < found.value < 68000
    assert (found.pin.kind, found.pin.name) == ("op", "matmul_v2")
    assert case.finite_with(found)


class ConvBehindNorm(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2D(4, weight_attr=Constant(20000.0))
        self.conv2 = nn.Conv2D(4, 4, 3, padding=1, weight_attr=Constant(0.5))
        self.norm = nn.BatchNorm2D(4)

    def forward(self, x):
        return self.norm(self.conv2(self.bn(self.conv1(x))))


@EACH_LEVEL
def test_r2_conv_behind_a_large_norm_scale(level):
    case = Case(ConvBehindNorm, [rand(2, 3, 8, 8)], half_target, {"level": level})
    found, _ = case.diagnose()
    assert (found.culprit, found.culprit_op, found.kind) == ("conv2", "conv2d", "norm_scale")
    assert found.value > 65504 and "bn" in cause(found)[0] and "20000" in cause(found)[0]
    assert [(p.kind, p.name) for p in found.pins] == [("layer", "conv2")]
    assert case.finite_with(found)


class Masked(nn.Layer):
    """Scores of one row masked throughout by -1e9, added in the type of the scores."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(4, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x, keep):
        scores = self.scores(x)
        mask = (1.0 - keep.astype(scores.dtype)) * -1e9
        return self.out(F.softmax(scores + mask))


def test_r3_mask_constant():
    keep = np.ones((3, 6), "float32")
    keep[1] = 0
    case = Case(Masked, [rand(3, 4), paddle.to_tensor(keep)], half_target, {"level": "O2", "preset": "fast"})
    found, _ = case.diagnose()
    assert found.kind == "mask_constant" and found.value == pytest.approx(1e9) and not found.not_amp
    assert found.culprit_op == "scale" and found.pins
    assert case.finite_with(found)


def test_a_harmless_mask_is_not_accused():
    """-inf in a row that is not masked throughout does no harm; a Linear elsewhere does."""
    keep = np.ones((3, 6), "float32")
    keep[1, 2:] = 0

    class Both(Masked):
        def __init__(self):
            super().__init__()
            self.big = nn.Linear(2, 2, weight_attr=Constant(30.0))
            self.last = nn.LayerNorm(2)

        def forward(self, x, keep):
            return self.last(self.big(super().forward(x, keep) * 0.0 + 2000.0))

    case = Case(Both, [rand(3, 4), paddle.to_tensor(keep)], half_target, {"level": "O2"})
    found, _ = case.diagnose()
    assert found.culprit == "big" and found.kind == "forward_overflow"
    assert [p.name for p in found.pins] == ["big"]
    assert case.finite_with(found)


def share(x):
    return x / x.sum()


#: What the model does with its Linear's output; the op named; the op to keep in FP32.
UNSAFE = {
    "exp": (lambda y: share(paddle.exp(y + 12.0)), "exp", "exp"),
    "square": (lambda y: share(paddle.square(y + 400.0)), "square", "square"),
    "log": (lambda y: paddle.log(F.sigmoid(y - 20.0)), "log", "sigmoid"),
    "bce": (lambda y: F.binary_cross_entropy(F.sigmoid(y + 9.5), paddle.zeros_like(y)), "bce_loss", "sigmoid"),
}


@pytest.mark.parametrize("name", ["exp", "square", "log", "bce"])
def test_r3_unsafe_op_with_preset_fast(name):
    function, op, kept = UNSAFE[name]

    class Unsafe(nn.Layer):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4, weight_attr=Constant(0.01))

        def forward(self, x):
            return function(self.body(x))

    case = Case(Unsafe, [rand(2, 4)], lambda out: out.mean(), {"level": "O2", "preset": "fast"})
    found, _ = case.diagnose()
    assert found.culprit_op == op and not found.not_amp
    if name != "bce":  # Paddle bounds its logarithm: there the gradient is what leaves the range
        assert found.kind in ("unsafe_op", "underflow") and found.where == "forward", found.kind
    assert [(p.kind, p.name) for p in found.pins] == [("op", kept)]
    assert case.finite_with(found)


def test_the_loss_scale_alone():
    """A forward pass that is fine, gradients that leave the range at 2**24 only."""
    case = Case(seeded_linear, [rand(2, 4)], lambda out: out.square().sum(), scale=2.0**24)
    found, _ = case.diagnose()
    assert found.kind == "loss_scale" and found.where == "backward" and not found.not_amp
    assert found.value > 65504 and found.pin.kind == "scale" and found.pin.scale < 2.0**24
    assert "max_loss_scaling" in yaml_of(found)
    assert case.finite_with(found)


class SteepRoot(nn.Layer):
    """The gradient of a division by a tiny value leaves the range at any loss scale; in FP32 it does not."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4, weight_attr=Constant(0.0), bias_attr=Constant(1e-6))
        self.tail = nn.Linear(4, 1, weight_attr=Constant(100.0))

    def forward(self, x):
        return self.tail(paddle.sqrt(self.body(x))) * 10.0


def test_backward_overflow_at_any_scale():
    case = Case(SteepRoot, [rand(2, 4)], lambda out: out.sum() * 10.0, {"level": "O2"}, scale=1.0)
    case.rate = 1e-15  # at 1e-9 the square root is given negative numbers after one update, in FP32 too
    found, _ = case.diagnose()
    assert found.kind == "backward" and found.where == "backward", (found.kind, found.culprit)
    assert found.pins and case.finite_with(found)


def poisoned(value, *shape):
    x = rand(*shape).numpy()
    x.reshape(-1)[1] = value
    return paddle.to_tensor(x)


def test_nan_in_the_image():
    case = Case(ConvBehindNorm, [poisoned(math.nan, 2, 3, 8, 8)], half_target)
    found, _ = case.diagnose()
    assert found.kind == "data" and found.not_amp and found.culprit is None and not found.pins
    assert "inputs.0" in cause(found)[0] and yaml_of(found) == ""


def test_inf_in_a_label():
    label = poisoned(math.inf, 2, 1)
    case = Case(R1, [rand(2, 4)], lambda out: F.mse_loss(out, label), labels={"target": label})
    found, _ = case.diagnose()
    assert found.kind == "data" and found.not_amp and "labels.target" in cause(found)[0]


@EACH_LEVEL
def test_a_weight_is_nan_already(level):
    def build():
        model = R1()
        model.second.weight.set_value(paddle.full([4, 1], math.nan))
        return model

    found, _ = Case(build, [rand(2, 4)], half_target, {"level": level}).diagnose()
    assert found.kind == "weights" and found.not_amp and found.culprit == "second"
    assert "second.weight" in cause(found)[0]


def test_fp32_overflows_as_well():
    class Exploding(nn.Layer):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4, weight_attr=Constant(1e30))

        def forward(self, x):
            return self.body(x) * self.body(x)

    found, _ = Case(Exploding, [paddle.full([2, 4], 1.0)], lambda out: out.mean()).diagnose()
    assert found.kind == "fp32_forward" and found.not_amp and not found.pins
    assert "Not an AMP problem" in cause(found)[0] and "不是 AMP 的问题" in cause(found)[1]


@pytest.mark.parametrize("optimizer", [paddle.optimizer.SGD, paddle.optimizer.Momentum])
def test_learning_rate_too_high_in_fp32(optimizer):
    """Half is the first to overflow, and skipping keeps the weights where they are; FP32 would run away."""

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.b(F.relu(self.a(x)))

    def build():
        paddle.seed(1)
        model = Net()
        for parameter in model.parameters():  # where a few updates of this rate have left them
            parameter.set_value(parameter * 300.0)
        return model

    case = Case(build, [rand(8, 4)], lambda out: (out - 1.0).square().mean(), rate=5.0, optimizer=optimizer)
    found, _ = case.diagnose()
    assert found.kind == "learning_rate" and found.not_amp and not found.pins, (found.kind, found.culprit)
    assert "Not an AMP problem" in cause(found)[0]


def test_a_sane_learning_rate_is_not_accused():
    case = Case(R1, [paddle.full([2, 4], 2000.0)], half_target, rate=1e-3, optimizer=paddle.optimizer.Adam)
    found, _ = case.diagnose()
    assert found.culprit == "first" and not found.not_amp


def test_a_loss_term_is_named():
    def loss(out):
        terms = {"loss_a": out.mean(), "loss_b": paddle.log(1.0 - F.relu(out)).mean()}
        return {"loss": terms["loss_a"] + terms["loss_b"], **terms}

    class Saturating(nn.Layer):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 2, weight_attr=Constant(0.0), bias_attr=Constant(8.5))

        def forward(self, x):
            return F.sigmoid(self.body(x))

    case = Case(Saturating, [rand(2, 4)], loss, {"level": "O2"})
    found, _ = case.diagnose()
    assert found.kind == "loss_term" and found.terms == ("loss_b",) and not found.not_amp
    assert "loss_b" in cause(found)[0] and found.pins and case.finite_with(found)


class Distilled(nn.Layer):
    """Three sub-networks, one entry of the output for each, as PaddleOCR's DistillationModel."""

    def __init__(self, sick):
        super().__init__()
        for name in ("Teacher", "Student", "Student2"):
            self.add_sublayer(name, ConvBehindNorm())
            net = getattr(self, name)
            net.bn.weight.set_value(paddle.full([4], 20000.0 if name == sick else 1.0))

    def forward(self, x):
        return {name: net(x) for name, net in self.named_children()}


def test_one_of_three_sub_networks():
    def loss(out):
        terms = {f"loss_{name}": half_target(value) for name, value in out.items()}
        return {"loss": sum(terms.values()), **terms}

    case = Case(lambda: Distilled("Student"), [rand(2, 3, 8, 8)], loss)
    found, _ = case.diagnose()
    assert found.culprit == "Student.conv2" and found.network == "Student"
    assert set(found.other_networks) == {"Teacher", "Student2"}
    assert "Student" in cause(found)[0] and "Teacher" in cause(found)[0]
    assert case.finite_with(found)


def test_a_finite_step_has_no_culprit():
    """Between two skips of a normal search the step is finite: nothing to treat."""
    case = Case(seeded_linear, [rand(2, 4)], lambda out: out.square().sum(), scale=2.0**24)
    assert case.diagnose()[0].pin.kind == "scale"
    case.scale = 1024.0
    found, _ = case.diagnose()
    assert found.kind == "finite" and found.culprit is None and not found.pins and found.replays == 0


def test_bfloat16_holds_what_float16_does_not():
    found, _ = Case(R1, [paddle.full([2, 4], 2000.0)], half_target, {"dtype": "bfloat16"}).diagnose()
    assert found.kind == "finite"


def test_existing_pins_stay_in_the_yaml():
    case = Case(R1, [paddle.full([2, 4], 2000.0)], half_target, {"fp32_layers": ["second"]})
    found, _ = case.diagnose()
    assert found.culprit == "first" and [p.name for p in found.pins] == ["first"]
    assert '["second", "first"]' in yaml_of(found) and case.finite_with(found)
