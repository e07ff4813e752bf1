"""A session around a plain training loop: what it routes, what it counts, and that it leaves nothing behind."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_amp_plugin import software_half
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.routing import routed_method
from paddle_amp_plugin.session import Session


@dataclasses.dataclass(frozen=True)
class FakePlan:
    """What a session reads of a Plan."""

    enabled: bool = True
    level: str = "O1"
    dtype: str = "float16"
    preset: str = "safe"
    custom_white_list: tuple = ()
    custom_black_list: tuple = ("batch_norm", "mean", "reduce_mean")
    fp32_layers: tuple = ()
    master_weight: bool = True
    master_grad: bool = False
    use_loss_scaling: bool = True
    scaling: ScalingPolicy = dataclasses.field(default_factory=ScalingPolicy)
    software_half: bool = True
    eval_dtype: str = "float32"
    on_collapse: str = "pin"
    calibrate: bool = False
    probe: bool = False
    accumulate_steps: int = 1
    ema_decay: float | None = None


class Net(nn.Layer):
    """A convolution and a BatchNorm, so that there are running statistics to poison."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2D(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        y = self.bn(self.conv(x))
        self.inside = self.fc(y.mean([2, 3]))
        return {"out": (self.inside, paddle.arange(2))}


def data(seed=0):
    rng = np.random.default_rng(seed)
    return paddle.to_tensor(rng.normal(size=(8, 1, 6, 6)).astype("float32"))


def make(plan):
    paddle.seed(3)
    model = Net()
    optimizer = paddle.optimizer.Adam(learning_rate=0.05, parameters=model.parameters())
    return Session(plan), model, optimizer


def run(session, model, optimizer, steps=6, batch=data):
    losses = []
    with session.attach(model, None, optimizer):
        for step in range(steps):
            out, ids = model(batch(step))["out"]
            assert out.dtype == paddle.float32 and ids.dtype == paddle.int64
            loss = (out - 1.0).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss))
    return losses


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_training(level, dtype):
    plan = FakePlan(level=level, dtype=dtype, use_loss_scaling=dtype == "float16")
    session, model, optimizer = make(plan)
    losses = run(session, model, optimizer, steps=30)
    assert np.isfinite(losses).all() and np.mean(losses[-5:]) < 0.5 * losses[0]
    assert session.steps == session.updates == 30
    assert session.ops and session.ops["half"] > 0
    assert 0 < session.half_share() <= 1
    assert "30 steps" in session.summary()


def test_everything_is_as_before_afterwards():
    session, model, optimizer = make(FakePlan(fp32_layers=("fc",)))
    backward, classes = paddle.Tensor.backward, [type(layer) for layer in model.sublayers(include_self=True)]
    with pytest.raises(ZeroDivisionError), session.attach(model, None, optimizer):
        assert paddle.Tensor.backward is not backward
        assert type(model) is not Net and isinstance(model, Net) and type(model).__name__ == "Net"
        raise ZeroDivisionError
    assert paddle.Tensor.backward is backward and "step" not in vars(optimizer)
    assert [type(layer) for layer in model.sublayers(include_self=True)] == classes
    assert not software_half.installed()


def test_software_half_of_somebody_else_stays():
    session, model, optimizer = make(FakePlan())
    with software_half.emulate():
        run(session, model, optimizer, steps=1)
        assert software_half.installed()


def test_a_bad_batch_is_skipped_and_the_statistics_stay_finite():
    """An overflowing forward pass poisons BatchNorm's running statistics before the step can be skipped."""
    session, model, optimizer = make(FakePlan())

    def batch(step):
        return data(step) * math.inf if step == 2 else data(step)

    losses = run(session, model, optimizer, steps=5, batch=batch)
    assert (session.steps, session.skips, session.updates) == (5, 1, 4)
    assert session.numbers() == {"loss_scale": 512.0, "skipped_steps": 1.0}
    assert not math.isfinite(losses[2]) and math.isfinite(losses[4])
    for name, tensor in model.state_dict().items():
        assert np.isfinite(tensor.numpy()).all(), name


def test_without_loss_scaling_a_bad_batch_is_skipped_too():
    session, model, optimizer = make(FakePlan(dtype="bfloat16", use_loss_scaling=False))
    run(session, model, optimizer, steps=3, batch=lambda step: data() * (math.nan if step == 1 else 1.0))
    assert session.skips == 1
    assert all(np.isfinite(p.numpy()).all() for p in model.parameters())


def test_data_that_is_not_finite_stops_the_run_with_exit_code_3():
    """No precision can help, and this loop computes its loss by itself: nothing needs to be run again to know."""
    session, model, optimizer = make(FakePlan())
    before = [p.numpy().copy() for p in model.parameters()]
    with pytest.raises(AmpError) as caught:
        run(session, model, optimizer, steps=200, batch=lambda step: data() * math.inf)
    assert caught.value.code == "AMP054" and caught.value.exit_code == 3
    assert "Not an AMP problem" in caught.value.message and "input.0" in caught.value.message
    assert session.steps < 10
    assert all(np.array_equal(a, p.numpy()) for a, p in zip(before, model.parameters(), strict=True))


def test_any_backward_is_scaled_once():
    """On whichever tensor, and with an explicit gradient."""
    session, model, optimizer = make(FakePlan())
    with session.attach(model, None, optimizer):
        x = paddle.to_tensor([3.0], stop_gradient=False)
        (x * 2.0).backward(paddle.to_tensor([0.5]))
        assert x.grad.tolist() == [1024.0]


def test_evaluation_is_float32_and_the_weights_come_back():
    session, model, optimizer = make(FakePlan(level="O2"))
    with session.attach(model, None, optimizer):
        model(data())["out"][0].mean().backward()
        optimizer.step()
        half = model.conv.weight.astype("float32").numpy()
        master = optimizer._master_weights[model.conv.weight.name].numpy()
        assert model.inside.dtype == paddle.float16
        model.eval()
        with paddle.no_grad(), session.evaluation():
            model(data())
            assert model.inside.dtype == paddle.float32
            assert np.array_equal(model.conv.weight.numpy(), master)
        model.train()
        assert model.conv.weight.dtype == paddle.float16
        assert np.array_equal(model.conv.weight.astype("float32").numpy(), half)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_evaluation_in_half_while_training_and_alone(level):
    session, model, optimizer = make(FakePlan(level=level, eval_dtype="float16"))
    with session.attach(model, None, optimizer), paddle.no_grad(), session.evaluation():
        assert model(data())["out"][0].dtype == paddle.float32
        assert model.inside.dtype == paddle.float16 or level == "O1"
    alone, model, _ = make(FakePlan(level=level, eval_dtype="float16"))
    with paddle.no_grad(), alone.evaluation(model):
        assert model(data())["out"][0].dtype == paddle.float32
    assert type(model) is Net and not software_half.installed()


def test_saving_sees_masters_and_refuses_what_is_not_finite(tmp_path):
    session, model, optimizer = make(FakePlan(level="O2"))
    with session.attach(model, None, optimizer):
        with session.saving():
            paddle.save(model.state_dict(), str(tmp_path / "a.pdparams"))
        saved = paddle.load(str(tmp_path / "a.pdparams"))
        assert all(value.dtype == paddle.float32 for value in saved.values())
        master = optimizer._master_weights[model.conv.weight.name].numpy()
        assert np.array_equal(saved["conv.weight"].numpy(), master)
        model.bn._mean.set_value(paddle.full([4], math.nan))
        with pytest.raises(AmpError) as caught, session.saving():
            raise AssertionError("not reached")
        assert caught.value.code == "AMP046" and "bn._mean" in caught.value.message


def test_exporting_shows_plain_classes():
    session, model, optimizer = make(FakePlan(level="O2", fp32_layers=("fc",)))
    with session.attach(model, None, optimizer):
        with session.exporting():
            assert type(model) is Net and type(model.fc) is nn.Linear
            assert model.conv.weight.dtype == paddle.float32
        assert type(model) is not Net and type(model.fc) is not nn.Linear


def test_a_session_holds_one_model():
    session, model, optimizer = make(FakePlan())
    session.prepare(model, optimizer)
    session.prepare(model, optimizer)
    with pytest.raises(AmpError):
        session.prepare(Net(), optimizer)
    session.close()


def test_no_op_in_half_is_said():
    """R20: AMP that is on and does nothing."""
    lines = []
    logger = SimpleNamespace(warning=lines.append, info=lines.append)
    plan = FakePlan(custom_black_list=("conv2d", "depthwise_conv2d", "matmul_v2", "linear_v2"))
    _, model, optimizer = make(plan)
    run(Session(plan, logger=logger), model, optimizer, steps=3)
    assert len([line for line in lines if "no effect" in line]) == 1


def test_a_recurrent_layer_trains_and_saves_at_o2():
    """Its dropout state is a parameter without values: nothing may be read from it."""
    net = nn.Sequential(nn.LSTM(3, 4), _First(), nn.Linear(4, 2))
    optimizer = paddle.optimizer.Adam(0.01, parameters=net.parameters())
    session = Session(FakePlan(level="O2"))
    with session.attach(net, None, optimizer):
        for _ in range(2):
            net(paddle.rand([2, 5, 3])).square().mean().backward()
            optimizer.step()
            optimizer.clear_grad()
        with session.saving():
            saved = {name: p.dtype for name, p in net.state_dict().items()}
    assert session.updates == 2 and set(saved.values()) == {paddle.float32}


class _First(nn.Layer):
    def forward(self, outputs):
        return outputs[0]


def test_the_schedule_stands_still_while_steps_are_skipped():
    """R14: after ten skipped steps under a warm-up of ten the learning rate is still at its start."""
    session, model, _ = make(FakePlan())
    warmup = paddle.optimizer.lr.LinearWarmup(0.1, warmup_steps=10, start_lr=0.0, end_lr=0.1)
    optimizer = paddle.optimizer.Adam(warmup, parameters=model.parameters())
    with session.attach(model, None, optimizer), routed_method(warmup, "step", session.after_update):
        for step in range(13):
            loss = model(data(step))["out"][0].square().mean()
            (loss if step >= 10 else loss * math.inf).backward()
            optimizer.step()
            optimizer.clear_grad()
            warmup.step()
            if step == 9:
                assert session.skips == 10 and warmup.last_epoch == 0 and optimizer.get_lr() == 0.0
    assert session.updates == 3 and warmup.last_epoch == 3
    before = warmup.last_epoch
    warmup.step()
    assert warmup.last_epoch == before + 1  # the schedule is its own again


def test_a_model_without_an_update_is_never_the_best():
    session, model, optimizer = make(FakePlan())
    first = session.judged({"acc": 0.0, "fps": 3.0}, "acc")
    assert not first["acc"] >= 0 and f"{first['acc']}" == "0.0" and first["fps"] == 3.0
    run(session, model, optimizer, steps=2)
    assert session.judged({"acc": 0.5}, "acc")["acc"] >= 0.5
    assert not session.judged({"acc": 0.9}, "acc")["acc"] >= 0.5


def test_counting_the_ops_ends_with_the_count():
    """Software half notes and hooks every op while it counts: that must not go on for the rest of a run."""
    session, model, optimizer = make(FakePlan())
    listening = []
    with session.attach(model, None, optimizer):
        for step in range(4):
            model(data(step))["out"][0].square().mean().backward()
            optimizer.step()
            optimizer.clear_grad()
            listening.append(software_half.records.ACTIVE)
    assert session.half_share() and listening == [False] * 4
