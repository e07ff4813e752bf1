"""Gradient accumulation: what a window of batches gives is what one batch of their samples gives."""

from __future__ import annotations

import logging
import math

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.monitor import Monitor, read_events
from paddle_amp_plugin.session import Session
from paddle_amp_plugin.window import Window, load_gradients, save_gradients
from tests.checkpoint.small import STARTED, plan

STEPS = 6


class Net(nn.Layer):
    """No BatchNorm: that one sees a batch, and not a window, by its nature."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        return self.last(paddle.tanh(self.norm(self.first(x))))


def network(clip=None):
    paddle.seed(3)
    model = Net()
    schedule = paddle.optimizer.lr.StepDecay(0.1, step_size=2, gamma=0.5)
    return model, schedule, paddle.optimizer.Momentum(schedule, parameters=model.parameters(), grad_clip=clip)


def samples(step: int, count: int = 12) -> np.ndarray:
    return np.random.RandomState(step).randn(count, 5).astype("float32")


def loss_of(out):
    return (out - 1.0).square().mean()


def big_batches(clip=None) -> dict[str, np.ndarray]:
    """Paddle alone, in FP32, one batch a step: the independent result."""
    model, schedule, optimizer = network(clip)
    for step in range(STEPS):
        loss_of(model(paddle.to_tensor(samples(step)))).backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()
    return {name: value.numpy() for name, value in model.state_dict().items()}


def start(amp, clip=None, folder=None):
    model, schedule, optimizer = network(clip)
    session = Session(plan(amp), logger=logging.getLogger("window"))
    STARTED.append(session)
    if folder is not None:
        session.watch(Monitor(folder, visualdl=False, say=print))
    return session, model, schedule, optimizer


def accumulated(amp, sizes, *, clip=None, bad=(), folder=None, steps=STEPS):
    """A loop that knows nothing of windows, on the same samples cut into batches of these sizes."""
    session, model, schedule, optimizer = start(amp, clip, folder)
    with session.attach(model, None, optimizer):
        for step in range(steps):
            parts = np.split(samples(step), np.cumsum(sizes)[:-1])
            for place, part in enumerate(parts):
                session.window.open(len(parts) - place)
                x = part * math.inf if (step, place) in bad else part
                loss_of(model(paddle.to_tensor(x))).backward()
                optimizer.step()
                optimizer.clear_grad()
                session.after_update(schedule.step)
        with session.saving():
            weights = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    return session, weights


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [4, 4, 4], [5, 5, 2], [12]], ids=str)
@pytest.mark.parametrize("clip", [None, 0.05], ids=["no clip", "clip"])
def test_in_fp32_it_is_the_big_batch(sizes, clip) -> None:
    """Also where the last batch is smaller, where the epoch ends before the window is full, and with one clip."""
    clip = clip and nn.ClipGradByGlobalNorm(clip)
    session, weights = accumulated({"cpu": "off", "accumulate_steps": 4}, sizes, clip=clip)
    assert not session.plan.enabled and session.steps == session.updates == STEPS
    for name, expected in big_batches(clip).items():
        np.testing.assert_allclose(weights[name], expected, rtol=2e-5, atol=2e-6, err_msg=name)


def test_a_mean_of_means_would_be_another_result(monkeypatch) -> None:
    """The tolerance above is small enough to tell."""
    monkeypatch.setattr(Window, "weight", lambda self, samples: 1.0 / 3.0)
    monkeypatch.setattr(Window, "correction", 1.0)
    _, weights = accumulated({"cpu": "off", "accumulate_steps": 3}, [5, 5, 2])
    expected = big_batches()
    assert max(np.abs(weights[name] - expected[name]).max() for name in expected) > 1e-3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_in_half_it_is_the_big_batch_within_its_rounding(level, dtype) -> None:
    session, weights = accumulated({"level": level, "dtype": dtype, "accumulate_steps": 4}, [3, 3, 3, 3])
    assert session.updates == STEPS and session.plan.master_grad == (level == "O2")
    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    for name, expected in big_batches().items():
        np.testing.assert_allclose(weights[name], expected, rtol=4 * unit, atol=4 * unit, err_msg=name)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("place", [0, 3])
def test_one_bad_batch_skips_its_window_and_nothing_else(level, place) -> None:
    """One skip, the scale halved once, neither weights nor the LR schedule moved; the next window is whole."""
    amp = {"level": level, "dtype": "float16", "accumulate_steps": 4}
    session, skipped = accumulated(amp, [3] * 4, bad={(1, place)}, steps=2)
    assert (session.steps, session.skips, session.scaler.current_scale) == (2, 1, 512.0)
    _, before = accumulated(amp, [3] * 4, steps=1)
    assert all(np.array_equal(skipped[name], before[name]) for name in before)
    session, _ = accumulated(amp, [3] * 4, bad={(1, place)}, steps=4)
    assert (session.steps, session.skips) == (4, 1) and session.optimizer.get_lr() == pytest.approx(0.05)


def test_an_event_is_a_window(tmp_path) -> None:
    """Loss: the mean over its samples; gradient norm: of the one update; samples: all of them."""
    accumulated({"dtype": "float16", "accumulate_steps": 3}, [5, 5, 2], folder=tmp_path)
    events = read_events(tmp_path / "events.jsonl")
    assert [(e.step, e.samples) for e in events] == [(n + 1, 12) for n in range(STEPS)]
    model, _, _ = network()
    loss = loss_of(model(paddle.to_tensor(samples(0))))
    loss.backward()
    norm = math.sqrt(sum(float((p.grad.astype("float64") ** 2).sum()) for p in model.parameters()))
    assert events[0].loss == pytest.approx(float(loss), rel=2e-3)
    assert events[0].grad_norm == pytest.approx(norm, rel=5e-3)
    assert [e.lr for e in events] == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025])


def test_between_updates_the_host_is_told_that_nothing_happened() -> None:
    session, model, _, optimizer = start({"dtype": "float16", "accumulate_steps": 3})
    held = []
    with session.attach(model, None, optimizer):
        for step in range(6):
            loss_of(model(paddle.to_tensor(samples(step)))).backward()
            optimizer.step()
            optimizer.clear_grad()
            held.append((session.held, bool(model.last.weight.grad.abs().sum() > 0)))
    assert held == [(True, True), (True, True), (False, False)] * 2


# -- the window by itself ------------------------------------------------------------------------------------


def test_shares_and_corrections() -> None:
    """Weights are relative to the first batch; the correction makes their sum one."""
    window = Window(3)
    window.open(99)
    weights = []
    for count in (4, 8, 4):
        weights.append(window.weight(count))
        done = window.batch_done(count)
    assert done and weights == [1 / 3, 2 / 3, 1 / 3]
    assert [w * window.correction for w in weights] == pytest.approx([4 / 16, 8 / 16, 4 / 16])
    window.close()
    window.open(2)  # the end of an epoch
    assert window.weight(4) == 1 / 2 and not window.batch_done(4) and window.closing and window.batch_done(4)


@pytest.mark.parametrize(
    "state",
    [
        {"count": 0, "planned": 3, "samples": 0, "first": 0},
        {"count": 3, "planned": 3, "samples": 6, "first": 2},
        {"count": 1, "planned": 3, "samples": -1, "first": 2},
        {"count": "x", "planned": 3, "samples": 2, "first": 2},
        {"count": 1},
    ],
)
def test_what_is_no_state_of_a_window(state) -> None:
    with pytest.raises(ValueError):
        Window(3).load_state_dict(state)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradients_survive_a_file_to_the_bit(tmp_path, dtype) -> None:
    values = np.array([[6.1e-5, -0.1], [3.3e4, np.inf]], "float32")
    one, other = (paddle.create_parameter([2, 2], "float32") for _ in range(2))
    one.name = other.name = "w"
    one.grad = paddle.to_tensor(values).astype(dtype)
    save_gradients(tmp_path / "x.pdgrad", [one, paddle.create_parameter([1], "float32")])
    load_gradients(tmp_path / "x.pdgrad", [other])
    assert other.grad.dtype == one.grad.dtype
    assert np.array_equal(other.grad.astype("float32").numpy(), one.grad.astype("float32").numpy())


def test_gradients_that_cannot_be_used(tmp_path) -> None:
    parameter = paddle.create_parameter([2, 2], "float32")
    parameter.grad = paddle.ones([2, 2])
    path = tmp_path / "x.pdgrad"
    save_gradients(path, [parameter])
    whole = path.read_bytes()
    for content, others in ((whole, []), (whole[:50], [parameter]), (b"\x80\x04no zip", [parameter]), (b"", [])):
        path.write_bytes(content)
        with pytest.raises(AmpError) as caught:
            load_gradients(path, others)
        assert caught.value.code == "AMP098" and "x.pdgrad" in str(caught.value)
