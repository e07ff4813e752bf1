"""Faults that take time: slow drift, several culprits, alternation, a learning rate that is too high, calibration."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from paddle_amp_plugin.diagnosis import Diagnosis, Pin
from paddle_amp_plugin.plan import plan_from_yaml
from paddle_amp_plugin.treatment import MOST_TREATMENTS, together
from tests.faults.helpers import Fault, near, rand
from tests.faults.test_recipes import ConvBehindNorm, healthy, images, r1_loss

Constant = nn.initializer.Constant


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


class Drifting(nn.Layer):
    """``grow`` gains one percent a step; the norm behind it hides that from the loss."""

    def __init__(self):
        super().__init__()
        self.grow = nn.Linear(4, 8, weight_attr=nn.initializer.Uniform(-1.0, 1.0), bias_attr=False)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.norm(self.grow(x)))


def batches(step):
    return rand(8, 4, seed=step % 5) * 1000.0, rand(8, 2, seed=50 + step % 5)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_slow_drift_into_overflow_after_200_healthy_steps(level):
    def drift(step, model):
        for tensor in (model.grow.weight, masters.get(model.grow.weight.name)):
            if tensor is not None and step < 300:
                tensor.copy_((tensor.astype("float32") * 1.014).astype(tensor.dtype), True)

    masters: dict = {}
    fault = Fault(Drifting, batches, r1_loss, rate=1e-3, spoil=drift)
    run, made = fault.run, fault._made

    def remember():
        model, optimizer, loss = made()
        masters.clear()
        optimizer._master_weights = masters
        return model, optimizer, loss

    fault._made = remember
    result = run(320, level=level)
    assert result.culprits == ["grow"] and [p.name for p in result.treated[0].pins] == ["grow"], result.lines
    assert result.treated[0].step > 200 and not any(result.skipped[:200])
    assert result.lost <= 20 and result.finite and not any(result.skipped[-10:])
    assert near(result.losses, fault.float32(320), 0.05)


class TwoSick(nn.Layer):
    """One branch is sick from the start, the other after a while."""

    def __init__(self):
        super().__init__()
        for name, weight in (("one", 60.0), ("fine", 0.5), ("two", 1.0)):
            spread = nn.initializer.Uniform(-weight, weight)
            self.add_sublayer(name, nn.Sequential(nn.Linear(4, 4, weight_attr=spread), nn.LayerNorm(4)))
        self.fc = nn.Linear(4, 1)

    def forward(self, x):
        return self.fc(self.one(x) + self.fine(x) + self.two(x))


def test_several_culprits_in_turn(tmp_path):
    def spoil(step, model):
        if step == 30:
            model.two[0].weight.copy_(model.two[0].weight * 80.0, True)

    fault = Fault(TwoSick, lambda step: (rand(4, 4, seed=1) + 2000.0, paddle.full([4, 1], 0.4)), r1_loss, spoil=spoil)
    assert fault.host_alone(40)[2] == 40
    result = fault.run(60, folder=tmp_path)
    assert result.culprits == ["one.0", "two.0"] and result.error is None, result.lines
    assert result.lost == 8 and result.finite
    assert sorted(p.name for p in tmp_path.glob("overflow-*.json")) == ["overflow-34.json", "overflow-4.json"]
    plan = plan_from_yaml((tmp_path / "plan.yml").read_text(encoding="utf-8"))
    assert plan.fp32_layers == ("one.0", "two.0") and plan.enabled
    assert any('fp32_layers: ["one.0", "two.0"]' in line for line in result.lines)
    again = fault.run(60, fp32_layers=["one.0", "two.0"])
    assert again.lost == 0 and not again.treated


def test_after_the_limit_amp_goes_off():
    class Many(nn.Layer):
        def __init__(self):
            super().__init__()
            self.parts = nn.LayerList(
                [nn.Sequential(nn.Linear(4, 4, weight_attr=Constant(1.0)), nn.LayerNorm(4)) for _ in range(9)]
            )

        def forward(self, x):
            return sum(part(x) for part in self.parts).mean(1, keepdim=True)

    def spoil(step, model):
        if step % 8 == 0 and step < 64:
            weight = model.parts[step // 8][0].weight
            weight.copy_(weight * 40.0, True)

    result = Fault(Many, lambda step: (rand(4, 4, seed=1) + 2000.0, paddle.zeros([4, 1])), r1_loss, spoil=spoil).run(64)
    assert len(result.treated) == MOST_TREATMENTS + 1 and not result.session.plan.enabled
    assert result.error is None and result.finite and not any(result.skipped[-16:])


def test_alternating_overflow_is_a_search_and_not_treated(tmp_path):
    """The scale grows after every update and comes back: half the steps are skipped, and that is how it was asked."""
    fault = Fault(healthy, images, lambda out, y: r1_loss(out, y) * 1000.0, rate=1e-3)
    result = fault.run(120, folder=tmp_path, incr_every_n_steps=1, init_loss_scaling=65536)
    assert 30 < result.lost < 70 and not result.treated and result.error is None and result.finite
    assert result.session.plan.enabled and not any("healed" in line or "not normal" in line for line in result.lines)


def test_a_scale_that_starts_too_high_is_not_treated():
    fault = Fault(healthy, images, lambda out, y: r1_loss(out, y) * 1000.0, rate=1e-3)
    result = fault.run(40, init_loss_scaling=2.0**24)
    assert 5 < result.lost <= 20 and not result.treated and result.error is None
    assert not any(result.skipped[-20:]) and sum("loss scale" in line for line in result.lines) >= 1


def test_a_static_scale_that_is_too_high_is_lowered():
    fault = Fault(healthy, images, lambda out, y: r1_loss(out, y) * 1000.0, rate=1e-3)
    result = fault.run(30, init_loss_scaling=2.0**24, use_dynamic_loss_scaling=False)
    assert result.lost <= 8 and {d.kind for d in result.treated} == {"loss_scale"} and result.error is None
    assert result.session.scaler.current_scale < 2.0**24 and result.session.plan.scaling.init < 2.0**24


def test_a_learning_rate_too_high_in_fp32_is_not_amps_fault():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.b(F.relu(self.a(x)))

    fault = Fault(
        Net, lambda step: (rand(8, 4), rand(8, 4, seed=1)), r1_loss, rate=30.0, optimizer=paddle.optimizer.SGD
    )
    assert not np.isfinite(fault.float32(40)[-1])
    result = fault.run(60)
    assert result.error is not None and result.error.code == "AMP054" and result.error.exit_code == 3, result.lines
    assert "Not an AMP problem" in result.error.message and not result.treated and result.finite


def test_an_infinite_label_is_not_an_amp_problem():
    fault = Fault(healthy, lambda step: (images(step)[0], images(step)[1] * (np.inf if step > 3 else 1.0)), r1_loss)
    result = fault.run(20)
    assert result.error.code == "AMP054" and "label.0" in result.error.message and result.session.updates == 4
    assert result.finite


class Distilled(nn.Layer):
    """Three sub-networks, one entry of the output for each, as PaddleOCR's DistillationModel."""

    def __init__(self):
        super().__init__()
        for name in ("Teacher", "Student", "Student2"):
            self.add_sublayer(name, ConvBehindNorm(20000.0 if name == "Student" else 1.0))

    def forward(self, x):
        return {name: net(x) for name, net in self.named_children()}


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_one_of_three_sub_networks(level):
    def loss(out, target):
        terms = {f"loss_{name}": r1_loss(value, target) for name, value in out.items()}
        return {"loss": sum(terms.values()), **terms}

    fault = Fault(Distilled, images, loss, rate=3e-3)
    assert fault.host_alone(15, level=level)[2] == 15
    result = fault.run(60, level=level)
    assert result.culprits == ["Student.conv2"] and result.treated[0].network == "Student" and result.lost == 4
    assert result.finite and near(result.losses, fault.float32(56))
    assert np.mean(result.losses[-4:]) < np.mean(result.losses[:4])


# -- init_loss_scaling: auto --------------------------------------------------------------------------------------


def said(result):
    return [line for line in result.lines if "init_loss_scaling auto" in line]


@pytest.mark.parametrize(("factor", "scale"), [(1e-3, 65536.0), (3.0, None), (2e4, None)])
def test_calibration(factor, scale):
    fault = Fault(healthy, images, lambda out, y: r1_loss(out, y) * factor)
    result = fault.run(8, init_loss_scaling="auto")
    chosen = result.session.scaler.current_scale
    assert len(said(result)) == 1 and f"{chosen:g}" in said(result)[0], result.lines
    assert (scale is None or chosen == scale) and result.finite and not result.treated
    assert (result.lost == 0 and 512 <= chosen <= 65536) if factor < 1e4 else (result.lost <= 4 and chosen < 512)


def test_calibration_changes_nothing_else():
    """With the scale chosen written down as a number, the run is the same to the bit: weights, statistics, losses."""

    class Dropping(ConvBehindNorm):
        def forward(self, x):
            return F.dropout(super().forward(x), 0.3)

    fault = Fault(lambda: Dropping(1.0), images, r1_loss)
    auto = fault.run(1, init_loss_scaling="auto")
    plain = fault.run(1, init_loss_scaling=1024)
    for (name, one), other in zip(auto.model.state_dict().items(), plain.model.state_dict().values(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy()), name
    assert auto.losses == plain.losses
    assert fault.run(12, init_loss_scaling="auto").losses[1] == fault.run(12, init_loss_scaling=1024).losses[1]


def test_calibration_of_a_loop_that_computes_its_loss_itself():
    fault = Fault(healthy, images, r1_loss)
    fault._loss = lambda model, loss, batch: r1_loss(model(batch[0]), batch[1])
    result = fault.run(4, init_loss_scaling="auto")
    assert result.session.scaler.current_scale == 1024.0 and "could not be run again" in said(result)[0]


def test_several_processes_act_alike():
    """Each has its own batch: one found a layer, one another, one only the scale."""
    layer = [Diagnosis("forward_overflow", culprit=n, pins=(Pin("layer", n),)) for n in ("a", "b")]
    scale = Diagnosis("loss_scale", pins=(Pin("scale", "8", 8.0),))
    found = together([scale, *layer, Diagnosis("unknown")])
    assert found.culprit == "a" and [p.name for p in found.pins] == ["a", "b"]
    assert together([*layer, Diagnosis("data", not_amp=True)]).not_amp and together([scale]).pins == scale.pins
