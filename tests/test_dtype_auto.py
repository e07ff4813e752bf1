"""``dtype: auto``: the first batches decide, before a step is made in float16."""

import dataclasses

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_amp_plugin.plan import Device, make_plan, plan_from_yaml
from tests.faults.helpers import CPU, Fault, plan_of

T4 = Device("gpu", "Tesla T4", (7, 5), float16=True, bfloat16=False)


class Beyond(nn.Layer):
    """A layer whose output is 240000 (30 * 4 * 2000): inf in float16; a relu and a linear layer after it."""

    def __init__(self):
        super().__init__()
        self.small = nn.Linear(4, 4)
        self.big = nn.Linear(4, 4)
        self.big.weight.set_value(np.full((4, 4), 30.0, "float32"))
        self.last = nn.Linear(4, 1)

    def forward(self, x):
        y = nn.functional.relu(self.big(x + 0 * self.small(x)))
        return nn.functional.sigmoid(self.last(y * 1e-5))


class Healthy(nn.Layer):
    """Whatever a probe could leave traces in: dropout (random state) and BatchNorm (running statistics)."""

    def __init__(self):
        super().__init__()
        self.fc, self.bn, self.drop, self.last = nn.Linear(4, 8), nn.BatchNorm1D(8), nn.Dropout(0.3), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.drop(self.bn(self.fc(x))))


class LargeNorm(nn.Layer):
    """The norm's output, 1e5 and more, is the model's: computed in FP32 at every level, so nothing is lost."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 8), nn.LayerNorm(8)
        self.norm.weight.set_value(np.full(8, 1e5, "float32"))

    def forward(self, x):
        return self.norm(self.fc(x))


def fault(build, value=2000.0):
    def batch(step):
        rng = np.random.default_rng(step)
        x = np.full((8, 4), value, "float32") if build is Beyond else rng.normal(size=(8, 4)).astype("float32")
        return paddle.to_tensor(x), paddle.to_tensor(np.full((8, 1), 0.3, "float32"))

    return Fault(build, batch, lambda out, y: ((out - y) ** 2).mean() * 1e-3)


def rounded_to_bfloat16(values):
    """To nearest, ties to even, on the bits (finite values)."""
    bits = values.view("uint32")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view("float32")


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_what_float16_cannot_hold_is_trained_in_bfloat16_from_the_first_step(level, tmp_path) -> None:
    run = fault(Beyond).run(6, folder=tmp_path, level=level, dtype="auto")
    assert run.error is None and run.session.steps == run.session.updates == 6
    plan = run.session.plan
    assert plan.dtype == "bfloat16" and not plan.use_loss_scaling and not plan.probe
    line = next(line for line in run.lines if "dtype auto" in line)
    assert "bfloat16" in line and "layer big (Linear)" in line and "240000" in line and "65504" in line
    assert "layer big" in plan.dtype_reason
    assert plan_from_yaml((tmp_path / "plan.yml").read_text(encoding="utf-8")) == plan
    if level == "O2":
        weight, master = run.model.big.weight, run.optimizer._master_weights[run.model.big.weight.name]
        assert weight.dtype == paddle.bfloat16 and master.dtype == paddle.float32
        np.testing.assert_array_equal(weight.astype("float32").numpy(), rounded_to_bfloat16(master.numpy()))


def test_at_o2_the_masters_are_what_the_weights_were(tmp_path) -> None:
    paddle.seed(5)
    before = {k: v.numpy().copy() for k, v in Beyond().state_dict().items()}
    run = dataclasses.replace(fault(Beyond), rate=0.0).run(1, level="O2", dtype="auto")
    with run.session.saving():
        for name, value in run.model.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), before[name])


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_without_bfloat16_the_layer_is_pinned(level, monkeypatch, tmp_path) -> None:
    from tests.faults import helpers

    monkeypatch.setattr(helpers, "make_plan", lambda config, _: dataclasses.replace(make_plan(config, CPU), device=T4))
    run = fault(Beyond).run(6, folder=tmp_path, level=level, dtype="auto")
    assert run.session.steps == run.session.updates == 6
    assert run.session.plan.dtype == "float16" and run.session.plan.fp32_layers == ("big",)
    assert any("fp32_layers: [big]" in line and "no bfloat16" in line for line in run.lines)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_model_that_fits_trains_as_with_float16_written_down(level) -> None:
    asked, written = (fault(Healthy).run(6, level=level, dtype=dtype) for dtype in ("auto", "float16"))
    line = next(line for line in asked.lines if "dtype auto" in line)
    assert "float16" in line and "first 3 batches" in line and asked.session.plan.dtype == "float16"
    assert not any("dtype auto" in line for line in written.lines)
    assert asked.losses == written.losses
    for name, value in asked.model.state_dict().items():
        np.testing.assert_array_equal(value.astype("float32"), written.model.state_dict()[name].astype("float32"))


def test_a_norm_that_computes_in_fp32_is_not_accused() -> None:
    run = fault(LargeNorm).run(4, dtype="auto")
    assert run.session.plan.dtype == "float16" and run.session.plan.fp32_layers == ()


def test_a_pinned_layer_is_not_accused() -> None:
    run = fault(Beyond).run(4, dtype="auto", fp32_layers=["big"])
    assert run.session.plan.dtype == "float16" and run.session.skips == 0


def test_what_is_not_finite_in_fp32_is_left_to_the_diagnosis() -> None:
    run = fault(Beyond, value=float("inf")).run(8, dtype="auto")
    assert run.session.plan.dtype == "float16" and run.error is not None and run.error.code == "AMP054"


def test_the_layers_before_a_switch_within_a_window_keep_their_gradients() -> None:
    """Of several micro-batches only the first is looked at: the others' gradients wait for the update."""
    from paddle_amp_plugin.session import Session

    build = fault(Healthy)
    model, optimizer, loss = build._made()
    session = Session(plan_of(dtype="auto"))
    with session.attach(model, loss, optimizer):
        for step in range(2):
            for micro in range(3):
                build._loss(model, loss, build.batch(3 * step + micro)).backward()
            assert session.treatment.dtype_auto.probe.batches == step + 1
            optimizer.step()
            optimizer.clear_grad()
