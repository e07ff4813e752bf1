"""The armed watch: what it sees, what it leaves alone, and the stats beneath it."""

from __future__ import annotations

import math
import random

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_amp_plugin import software_half
from paddle_amp_plugin.diagnosis import LayerWatch
from paddle_amp_plugin.diagnosis.ops import first_checked_op, first_op_in
from paddle_amp_plugin.diagnosis.state import random_state, set_random_state, untouched
from paddle_amp_plugin.diagnosis.stats import Meter, Stat, array_stat, value_stat

VALUES = np.array([[0.0, -0.0, 3.5, -240.0], [1e-9, math.inf, -math.inf, math.nan]], "float32")


@pytest.mark.parametrize("by_ops", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_stats_of_every_type(dtype, by_ops):
    meter = Meter(by_ops=by_ops)
    index = meter.measure(paddle.to_tensor(VALUES).astype(dtype))
    empty = meter.measure(paddle.zeros([0, 3], dtype=dtype))
    stat = meter[index]
    zeros = 3 if dtype == "float16" else 2  # 1e-9 is 0 there
    assert (stat.size, stat.absmax, stat.zeros, stat.nans, stat.infs) == (8, 240.0, zeros, 1, 2)
    assert math.isnan(stat.top) and not stat.finite and meter[empty] == Stat()
    assert value_stat(paddle.to_tensor([1, 2])) is None and value_stat(-2.5).absmax == 2.5


def test_tiny_gradients_are_counted():
    values = np.array([0.0, 1e-9, 5e-8, 7e-8, 1.0], "float32")
    meter = Meter(by_ops=True)
    index = meter.measure(paddle.to_tensor(values), tiny=True)
    assert array_stat(values, tiny=True).tiny == 2 and meter[index].tiny == pytest.approx(2)


class Block(nn.Layer):
    """A container that hands on, a leaf, and arithmetic of its own."""

    def __init__(self):
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1D(4))
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(4, 2)

    def forward(self, x, *, scale):
        y = self.drop(self.seq(x)) * scale
        return {"out": (self.out(y), y + 1.0)}


def step(model, watch=None):
    paddle.seed(5)
    x = paddle.to_tensor(np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4))
    loss = model(x, scale=3.0)["out"][0].square().mean()
    loss.backward()
    return float(loss)


def fresh():
    paddle.seed(9)
    return Block()


@pytest.mark.parametrize("by_ops", [False, True])
def test_layers_in_execution_order_and_nothing_left_behind(by_ops):
    plain, watched = fresh(), fresh()
    expected = step(plain)
    with LayerWatch(watched, by_ops=by_ops) as watch:
        assert step(watched) == expected
    for (name, a), b in zip(plain.state_dict().items(), watched.state_dict().values(), strict=True):
        assert np.array_equal(a.numpy(), b.numpy()), name
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert (a.grad is None and b.grad is None) or np.array_equal(a.grad.numpy(), b.grad.numpy())
    assert all("forward" not in vars(layer) for layer in watched.sublayers(include_self=True))
    rows = [call.name for call in watch.calls if call.own]
    assert rows == ["seq.0", "seq.1", "drop", "out", ""], "the container hands its child's output on"
    assert [n for p, n in watch.ring if p == "forward"] == ["seq.0", "seq.1", "seq", "drop", "out", ""]
    assert next(n for p, n in watch.ring if p == "backward") == "out"
    out = next(call for call in watch.calls if call.name == "out")
    assert watch.grad_stat(out.own).absmax > 0 and watch.stat(out.own).size == 16
    drop = next(call for call in watch.calls if call.name == "drop")
    assert 0.2 < watch.stat(drop.own).zero_share < 0.8
    assert watch.finite and set(watch.parameters) >= {"seq.0.weight", "out.bias"}


def test_an_exception_in_the_model_leaves_nothing_behind():
    model = fresh()
    with pytest.raises(TypeError), LayerWatch(model):
        model(paddle.ones([2, 4]))
    assert all("forward" not in vars(layer) for layer in model.sublayers(include_self=True))
    with LayerWatch(model) as watch:
        step(model)
    assert watch.calls[-1].parent is None


def test_a_layer_that_runs_twice_and_a_forward_of_the_instance():
    model = fresh()
    own = model.out.forward
    object.__setattr__(model.out, "forward", lambda x: own(own(paddle.concat([x[:, :2], x[:, 2:]], 1))[:, :1] + x))
    kept = vars(model.out)["forward"]
    with LayerWatch(model) as watch:
        model(paddle.ones([2, 4]), scale=1.0)
        model(paddle.ones([2, 4]), scale=1.0)
    assert vars(model.out)["forward"] is kept
    assert [call.nth for call in watch.calls if call.name == "out"] == [0, 1]


def test_ops_are_known_under_software_half():
    model = fresh()
    with software_half.emulate():
        note, active = software_half.records.note, software_half.records.ACTIVE
        with LayerWatch(model) as watch, paddle.amp.auto_cast(level="O1"):
            step(model)
        assert software_half.records.note is note and active == software_half.records.ACTIVE
    assert watch.traced_ops
    ops = [(call.layer.name, call.op, call.dtype) for call in watch.op_calls if call.layer is not None]
    assert ("", "scale", "float16") in ops or ("", "scale", "float32") in ops
    assert any(name == "seq.0" and dtype == "float16" for name, _, dtype in ops)


def test_untouched_gives_everything_back():
    model = fresh()
    step(model)
    before = {n: t.numpy().copy() for n, t in model.state_dict().items()}
    grads = [p.grad.numpy().copy() for p in model.parameters() if p.grad is not None]
    state = random_state()
    expected = paddle.rand([3]).numpy(), np.random.rand(), random.random()
    set_random_state(state)
    with pytest.raises(ZeroDivisionError), untouched(model):
        assert all(p.grad is None for p in model.parameters())
        step(model)
        np.random.rand()
        raise ZeroDivisionError
    for name, tensor in model.state_dict().items():
        assert np.array_equal(tensor.numpy(), before[name]), name
    assert all(
        np.array_equal(p.grad.numpy(), g)
        for p, g in zip([p for p in model.parameters() if p.grad is not None], grads, strict=True)
    )
    drawn = paddle.rand([3]).numpy(), np.random.rand(), random.random()
    assert np.array_equal(drawn[0], expected[0]) and drawn[1:] == expected[1:]


def test_paddles_own_checker_names_the_op():
    flags = paddle.get_flags(["FLAGS_check_nan_inf", "FLAGS_check_nan_inf_level"])

    def run():
        x = paddle.to_tensor([1.0, 0.0])
        return paddle.log(x * 2.0) * 3.0

    assert first_checked_op(run) == "log"
    assert first_checked_op(lambda: paddle.ones([2]) * 2.0) is None
    assert paddle.get_flags(list(flags)) == flags
    line = (
        "[PRECISION] [ERROR] in [device=gpu:0, op={o}, tensor=, dtype=fp16], numel=2, num_nan={n}, num_inf={i}, max=1"
    )
    text = "\n".join(
        [line.format(o="scale", n=0, i=0), line.format(o="matmul", n=0, i=4), line.format(o="exp", n=1, i=0)]
    )
    assert first_op_in(text) == "matmul"


@pytest.mark.gpu
def test_stats_on_a_device():
    meter = Meter()
    index = meter.measure(paddle.to_tensor(VALUES).astype("float16").cuda())
    assert meter[index].absmax == 240.0 and meter[index].nans == 1
