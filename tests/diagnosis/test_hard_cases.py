"""Several culprits, losses and batches that resist, static scales, master_grad: what a diagnosis says then."""

from __future__ import annotations

import paddle
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


class TwoSick(nn.Layer):
    """Two branches that overflow each by itself, and a healthy one between them."""

    def __init__(self):
        super().__init__()
        for name, weight in (("one", 30.0), ("fine", 0.5), ("two", 40.0)):
            self.add_sublayer(name, nn.Sequential(nn.Linear(4, 4, weight_attr=Constant(weight)), nn.LayerNorm(4)))

    def forward(self, x):
        return self.one(x) + self.fine(x) + self.two(x)


@EACH_LEVEL
def test_two_culprits_are_found_in_turn(level):
    case = Case(TwoSick, [paddle.full([2, 4], 2000.0)], half_target, {"level": level})
    found, _ = case.diagnose()
    assert [(p.kind, p.name) for p in found.pins] == [("layer", "one.0"), ("layer", "two.0")]
    assert found.culprit == "one.0" and case.finite_with(found)


def test_a_loss_that_fp32_cannot_hold_either():
    def loss(out):
        terms = {"loss_a": out.mean(), "loss_b": paddle.log(out * 0.0).mean()}
        return {"loss": terms["loss_a"] + terms["loss_b"], **terms}

    found, _ = Case(R1, [rand(2, 4)], loss).diagnose()
    assert found.kind == "fp32_loss" and found.terms == ("loss_b",) and found.not_amp
    assert "loss_b" in cause(found)[0] and yaml_of(found) == ""


def test_a_batch_that_cannot_be_run_again_does_not_end_the_training():
    case = Case(R1, [paddle.full([2, 4], 2000.0)], half_target)
    calls = []

    def once(out):
        calls.append(out)
        if len(calls) > 1:
            raise RuntimeError("the batch is gone")
        return half_target(out)

    case.loss = once
    found, _ = case.diagnose()
    assert found.kind == "replay_failed" and found.culprit == "first" and found.pin.name == "first"
    assert "the batch is gone" in cause(found)[0] and "the batch is gone" in cause(found)[1]


def test_a_static_scale_that_is_too_high():
    amp = {"use_dynamic_loss_scaling": False, "init_loss_scaling": 2.0**24}
    case = Case(seeded_linear, [rand(2, 4)], lambda out: out.square().sum(), amp)
    found, _ = case.diagnose()
    assert found.kind == "loss_scale" and "init_loss_scaling: 32768" in yaml_of(found)
    case.amp = {"use_dynamic_loss_scaling": False}
    assert case.finite_with(found)


def test_gradients_of_master_grad_come_back():
    case = Case(R1, [paddle.full([2, 4], 2000.0)], half_target, {"level": "O2", "master_grad": True})
    found, _ = case.diagnose()
    assert found.culprit == "first" and case.finite_with(found)
