"""Norm detection, pins, decorate, FP32 weights and to_float32."""

from __future__ import annotations

import copy
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_amp_plugin import autocast, software_half
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.norms import is_norm_layer


def make_plan(**changes):
    """What autocast reads of a Plan."""
    values = {
        "enabled": True,
        "level": "O2",
        "dtype": "float16",
        "preset": "safe",
        "custom_white_list": (),
        "custom_black_list": ("layer_norm", "batch_norm", "softmax"),
        "fp32_layers": (),
        "master_weight": True,
        "master_grad": False,
    }
    return SimpleNamespace(**{**values, **changes})


class RMSNorm(nn.Layer):
    """A custom norm: one vector, ordinary ops. x**2 leaves float16's range from 256 on."""

    def __init__(self, size):
        super().__init__()
        self.weight = self.create_parameter([size], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x):
        self.seen = x.dtype
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class Affine(nn.Layer):
    def __init__(self, size):
        super().__init__()
        self.gamma = self.create_parameter([1, size, 1, 1])


class ConvNormAct(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3)
        self.bn = nn.BatchNorm2D(4)


class WeightNormLinear(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([4, 4])


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(4, 8)
        self.norm = RMSNorm(8)
        self.ln = nn.LayerNorm(8)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.head(self.ln(self.norm(self.inp(x))))


@pytest.mark.parametrize(
    ("layer", "name", "expected"),
    [
        (nn.BatchNorm2D(3), "", True),
        (nn.BatchNorm(3), "", True),
        (nn.SyncBatchNorm(3), "", True),
        (nn.LayerNorm(3), "", True),
        (nn.InstanceNorm2D(3), "", True),
        (nn.GroupNorm(1, 3), "", True),
        (RMSNorm(3), "", True),
        (Affine(3), "blocks.0.norm1", True),
        (Affine(3), "blocks.0.scale", False),
        (ConvNormAct(), "norm_block", False),
        (WeightNormLinear(), "norm", False),
        (nn.Linear(3, 3), "norm", False),
        (nn.ReLU(), "norm", False),
        (nn.PReLU(), "", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Layer) else str(value),
)
def test_what_a_norm_layer_is(layer, name, expected):
    assert is_norm_layer(layer, name) is expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_o2_parameters_and_masters(dtype):
    """Norms (custom ones too) stay FP32; masters are the FP32 weights from before the cast (R10)."""
    model = Net()
    before = {name: p.numpy().copy() for name, p in model.named_parameters()}
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters())
    with software_half.emulate():
        autocast.decorate(make_plan(dtype=dtype), model, optimizer)
        dtypes = {name: str(p.dtype).rsplit(".", 1)[-1] for name, p in model.named_parameters()}
        assert {name for name, d in dtypes.items() if d == "float32"} == {"norm.weight", "ln.weight", "ln.bias"}
        assert {d for name, d in dtypes.items() if not name.startswith(("norm", "ln"))} == {dtype}
        for name, parameter in model.named_parameters():
            if dtypes[name] != "float32":
                master = optimizer._master_weights[parameter.name]
                assert np.array_equal(master.numpy(), before[name])
                assert not np.array_equal(parameter.astype("float32").numpy(), before[name]) or not before[name].any()


def test_o2_trains_and_masters_move():
    paddle.seed(1)
    model = Net()
    optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=model.parameters())
    plan = make_plan()
    with software_half.emulate():
        autocast.decorate(plan, model, optimizer)
        weight = model.inp.weight
        before = optimizer._master_weights[weight.name].numpy().copy()
        with autocast.auto_cast(plan):
            loss = model(paddle.ones([2, 4])).astype("float32").square().mean()
        loss.backward()
        optimizer.step()
        after = optimizer._master_weights[weight.name].numpy()
        assert not np.array_equal(before, after)
        assert np.array_equal(weight.numpy(), after.astype("float16"))
    assert model.norm.seen == paddle.float32


def test_a_custom_norm_keeps_large_values_finite():
    """300**2 is beyond float16. At O1 too: pow and mean are on no list of Paddle's that would save it."""
    model = nn.Sequential(nn.Linear(4, 4), RMSNorm(4))
    model[0].weight.set_value(paddle.eye(4) * 300.0)
    for level in ("O1", "O2"):
        with software_half.emulate():
            plan = make_plan(level=level)
            autocast.decorate(plan, model, None)
            with autocast.auto_cast(plan):
                assert bool(paddle.isfinite(model(paddle.ones([1, 4]))).all())
        autocast.unpin(model)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_pin_computes_in_float32(level):
    class Probe(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            self.seen = (x.dtype, y.dtype)
            return y

    model = nn.Sequential(Probe(4, 4, bias_attr=False), Probe(4, 4))  # FP32 bias: FP32 sum on 2.6
    plan = make_plan(level=level, fp32_layers=("1",))
    with software_half.emulate():
        autocast.decorate(plan, model, paddle.optimizer.SGD(parameters=model.parameters()))
        with autocast.auto_cast(plan):
            model(paddle.ones([1, 4])).astype("float32").sum().backward()
    assert model[0].seen[1] == paddle.float16
    assert model[1].seen == (paddle.float32, paddle.float32)
    assert model[1].weight.dtype == paddle.float32
    assert type(model[1]).__name__ == "Probe" and isinstance(model[1], Probe)
    duplicate = copy.deepcopy(model)
    assert duplicate[1](paddle.ones([1, 4])).dtype == paddle.float32
    autocast.unpin(model)
    assert type(model[1]) is Probe


def test_a_pin_pins_what_is_inside_it():
    model = Net()
    with software_half.emulate():
        autocast.decorate(make_plan(fp32_layers=("head",)), model, paddle.optimizer.SGD(parameters=model.parameters()))
    assert model.head[0].weight.dtype == model.head[2].weight.dtype == paddle.float32
    assert model.inp.weight.dtype == paddle.float16


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(AmpError) as caught:
        autocast.decorate(make_plan(fp32_layers=("haed.*",)), Net(), None)
    assert caught.value.code == "AMP036" and "head" in caught.value.hint


def test_a_tied_weight_is_not_cast_by_its_other_owner():
    model = Net()
    model.inp.weight = model.head[2].weight
    with software_half.emulate():
        plan = make_plan(fp32_layers=("head.*",))
        autocast.decorate(plan, model, paddle.optimizer.SGD(parameters=model.parameters()))
    assert model.head[2].weight.dtype == paddle.float32


def test_o1_changes_no_parameter():
    model = Net()
    optimizer = paddle.optimizer.SGD(parameters=model.parameters())
    with software_half.emulate():
        autocast.decorate(make_plan(level="O1"), model, optimizer)
    assert all(p.dtype == paddle.float32 for p in model.parameters())
    assert not optimizer._multi_precision


def test_float32_weights_and_back_to_the_bit():
    """Frozen parameters and floating buffers too; also after an exception."""
    model = Net()
    model.inp.weight.stop_gradient = True
    model.register_buffer("table", paddle.rand([5]))
    truth = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    optimizer = paddle.optimizer.Adam(parameters=[p for p in model.parameters() if not p.stop_gradient])
    with software_half.emulate():
        autocast.decorate(make_plan(), model, optimizer)
        half = {name: value.astype("float32").numpy() for name, value in model.state_dict().items()}
        dtypes = {name: value.dtype for name, value in model.state_dict().items()}
        assert dtypes["inp.weight"] == dtypes["table"] == paddle.float16
        with pytest.raises(KeyError), autocast.float32_weights(model, optimizer):
            for name, value in model.state_dict().items():
                assert value.dtype == paddle.float32 and np.array_equal(value.numpy(), truth[name]), name
            raise KeyError
        for name, value in model.state_dict().items():
            assert value.dtype == dtypes[name] and np.array_equal(value.astype("float32").numpy(), half[name])


def test_masters_of_a_resumed_optimizer_are_kept():
    """A host's own O2 checkpoint: half weights, and masters that know more."""
    model = nn.Linear(2, 2, bias_attr=False)
    fine = paddle.to_tensor([[1.0001, 2.0002], [3.0003, 4.0004]])
    fine.name = "resumed"
    model.weight.set_value(fine.astype("float16").astype("float32"))
    optimizer = paddle.optimizer.Adam(parameters=model.parameters())
    optimizer._master_weights = {model.weight.name: fine}
    with software_half.emulate():
        autocast.decorate(make_plan(), model, optimizer)
    assert np.array_equal(optimizer._master_weights[model.weight.name].numpy(), fine.numpy())
    other = nn.Linear(2, 2, bias_attr=False)
    stale = paddle.to_tensor([[9.0, 9.0], [9.0, 9.0]])
    optimizer = paddle.optimizer.Adam(parameters=other.parameters())
    optimizer._master_weights = {other.weight.name: stale}
    wanted = other.weight.numpy().copy()
    with software_half.emulate():
        autocast.decorate(make_plan(), other, optimizer)
    assert np.array_equal(optimizer._master_weights[other.weight.name].numpy(), wanted)


def test_auto_cast_puts_the_global_dtype_back():
    from paddle.amp.auto_cast import amp_global_state

    before = amp_global_state().amp_dtype
    with software_half.emulate(), autocast.auto_cast(make_plan(dtype="bfloat16")):
        assert amp_global_state().amp_dtype == "bfloat16"
    assert amp_global_state().amp_dtype == before


def test_to_float32():
    half, brain = paddle.ones([2]).astype("float16"), paddle.ones([2]).astype("bfloat16")
    ids, full = paddle.arange(3), paddle.ones([1], "float64")
    Pair = namedtuple("Pair", "a b")
    tree = {"a": (half, [brain, ids]), "b": Pair(half, "text"), 3: OrderedDict(x=brain), "n": None, "d": full}
    result = autocast.to_float32(tree)
    assert result["a"][0].dtype == result["a"][1][0].dtype == paddle.float32
    assert result["a"][1][1] is ids and result["d"] is full and result["n"] is None
    assert isinstance(result["a"], tuple) and isinstance(result["b"], Pair) and isinstance(result[3], OrderedDict)
    assert result["b"].a.dtype == result[3]["x"].dtype == paddle.float32 and result["b"].b == "text"
    assert tree["a"][0] is half


def test_to_float32_carries_gradients():
    x = paddle.ones([2])
    x.stop_gradient = False
    with software_half.emulate():
        y = autocast.to_float32([x.astype("float16") * 2.0])[0]
        (y * 3.0).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]
