"""Plain ``paddle.amp`` code on a CPU: the dtypes and op counts that Paddle's own GPU tests expect.

Expected counts and dtypes: PaddlePaddle/Paddle ``test/amp`` (test_amp_promote.py, test_amp_list.py,
test_amp_decorate.py, test_amp_master_grad.py, test_collect_operator_stats.py).
"""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from paddle_amp_plugin import software_half


@pytest.fixture(autouse=True)
def _emulated():
    with software_half.emulate():
        yield


class ConvNet(paddle.nn.Layer):
    """Convolution, FP32 relu, linear, softmax: the model of Paddle's promotion tests."""

    def __init__(self):
        super().__init__()
        self.conv = paddle.nn.Conv2D(1, 6, 3)
        self.linear = paddle.nn.Linear(96, 4)

    def forward(self, x):
        x = F.relu(self.conv(x).cast("float32"))
        return F.softmax(self.linear(x.flatten(1)))


def half_calls(counts, op, column=0):
    return int(counts[op].split(",")[column])


@pytest.fixture
def legacy_linear():
    """Paddle 3 on CUDA runs a Linear as one op unless told otherwise; Paddle's tests tell it otherwise."""
    if not software_half.installer.linear_is_one_op():
        yield
        return
    software_half.uninstall()
    paddle.set_flags({"FLAGS_use_legacy_linear": True})
    with software_half.emulate():
        yield
    paddle.set_flags({"FLAGS_use_legacy_linear": False})
    software_half.install()


@pytest.mark.parametrize("use_promote, relu_calls", [(True, 0), (False, 1)])
def test_op_counts_at_o2(use_promote, relu_calls, legacy_linear):
    model = ConvNet()
    optimizer = paddle.optimizer.AdamW(0.01, parameters=model.parameters())
    scaler = paddle.amp.GradScaler(init_loss_scaling=32768.0)
    model, optimizer = paddle.amp.decorate(model, optimizer, level="O2", dtype="float16")
    paddle.amp.debugging.enable_operator_stats_collection()
    with paddle.amp.auto_cast(level="O2", dtype="float16", use_promote=use_promote):
        loss = paddle.mean(model(paddle.rand([1, 1, 6, 6])))
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.minimize(optimizer, scaled)
    optimizer.clear_grad()
    paddle.amp.debugging.disable_operator_stats_collection()
    counts = paddle.base.core.get_low_precision_op_list()
    expected = {"conv2d": 1, "elementwise_add": 2, "relu": relu_calls, "matmul_v2": 1, "softmax": 1, "reduce_mean": 1}
    assert {op: half_calls(counts, op) for op in expected} == expected
    assert half_calls(counts, "adamw_") == 4
    assert half_calls(counts, "conv2d_grad") == 1


@pytest.mark.parametrize("use_promote, linear_dtype", [(True, paddle.float32), (False, paddle.float16)])
def test_promotion_at_o2(use_promote, linear_dtype, legacy_linear):
    conv = paddle.nn.Conv2D(1, 6, 3, bias_attr=False)
    linear = paddle.nn.Linear(4, 4)
    with paddle.amp.auto_cast(level="O2", use_promote=use_promote):
        convolved = conv(paddle.rand([1, 1, 6, 6]))
        added = convolved + paddle.rand(convolved.shape, dtype="float16")
        out = linear(added)
    assert convolved.dtype == added.dtype == paddle.float16
    assert out.dtype == linear_dtype


def test_a_linear_is_one_white_op_on_paddle_3():
    """nn/functional/common.py: a CUDA build without FLAGS_use_legacy_linear calls ``linear_v2``, which is white."""
    linear = paddle.nn.Linear(4, 4)
    with paddle.amp.auto_cast(level="O1"), software_half.record_ops() as ops:
        out = linear(paddle.rand([2, 4]))
    if hasattr(paddle._C_ops, "linear_v2"):
        assert [r.op for r in ops] == ["linear_v2"] and out.dtype == paddle.float16
    else:
        assert [(r.op, r.compute_dtype) for r in ops] == [("matmul_v2", "float16"), ("elementwise_add", "float32")]


def test_custom_white_list():
    with paddle.amp.auto_cast(custom_white_list={"elementwise_add"}):
        added = paddle.rand([2, 3]) + paddle.rand([2, 3])
        mean = added.mean()
        log = paddle.log(mean)
    assert (added.dtype, mean.dtype, log.dtype) == (paddle.float16, paddle.float32, paddle.float32)


def test_operator_stats_of_a_convolution_at_o2():
    conv = paddle.nn.Conv2D(3, 2, 3)
    with paddle.amp.debugging.collect_operator_stats(), paddle.amp.auto_cast(level="O2"):
        conv(paddle.rand([2, 3, 8, 8]))
    counts = paddle.base.core.get_low_precision_op_list()
    assert half_calls(counts, "conv2d") == 1
    assert sum(map(int, counts["elementwise_add"].split(","))) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_decorate_keeps_batch_norm_and_excluded_layers(dtype):
    net = paddle.nn.Sequential(
        paddle.nn.Conv2D(4, 8, 3), paddle.nn.BatchNorm2D(8), paddle.nn.Linear(6, 6), paddle.nn.LayerNorm(6)
    )
    net = paddle.amp.decorate(net, level="O2", dtype=dtype, excluded_layers=[net[2]])
    half = getattr(paddle, dtype)
    assert net[0].weight.dtype == half
    assert net[1].weight.dtype == net[1]._mean.dtype == net[2].weight.dtype == paddle.float32
    # Paddle keeps LayerNorm for float16 only; the plugin's decorate cures that.
    assert net[3].weight.dtype == (paddle.float32 if dtype == "float16" else half)
    with paddle.amp.auto_cast(level="O2", dtype=dtype):
        assert net(paddle.rand([2, 4, 8, 8])).shape == [2, 8, 6, 6]


def test_master_grad_gives_float32_gradients():
    net = paddle.nn.Linear(2, 4)
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    net, optimizer = paddle.amp.decorate(net, optimizer, level="O2", master_grad=True)
    scaler = paddle.amp.GradScaler()
    before = net.weight.numpy()
    for _ in range(2):
        with paddle.amp.auto_cast(level="O2"):
            loss = F.l1_loss(net(paddle.rand([2, 2])), paddle.rand([2, 4]))
        scaler.scale(loss).backward()
        assert net.weight.grad.dtype == net.bias.grad.dtype == paddle.float32
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    assert net.weight.dtype == paddle.float16 and (net.weight.numpy() != before).any()


def test_levels():
    a, b = paddle.rand([4, 4]), paddle.rand([4, 4])
    for level, matmul, add, softmax in (
        ("O0", "float32", "float32", "float32"),
        ("OD", "float16", "float32", "float32"),
        ("O1", "float16", "float16", "float32"),
        ("O2", "float16", "float16", "float16"),
    ):
        with paddle.amp.auto_cast(level=level), software_half.record_ops() as ops:
            product = a @ b
            F.softmax(product + product)
        assert [r.compute_dtype for r in ops] == [matmul, add, softmax], level


def test_nested_blocks_and_exceptions_restore_the_settings():
    a = paddle.rand([2, 2])
    with paddle.amp.auto_cast(level="O1"):
        with paddle.amp.auto_cast(enable=False):
            assert (a @ a).dtype == paddle.float32
        with pytest.raises(RuntimeError), paddle.amp.auto_cast(level="O2", dtype="bfloat16"):
            raise RuntimeError
        assert (a @ a).dtype == paddle.float16
    assert (a @ a).dtype == paddle.float32


def test_batch_norm_promotes_by_its_input_and_keeps_its_statistics():
    norm = paddle.nn.BatchNorm2D(3)
    with paddle.amp.auto_cast(level="O1", custom_white_list={"batch_norm"}):
        out = norm(paddle.rand([2, 3, 4, 4]))
    assert out.dtype == paddle.float16
    assert norm._mean.dtype == norm.weight.dtype == paddle.float32
    assert float(norm._mean.abs().sum()) > 0


def test_gradients_of_float32_parameters_come_back_float32():
    net = ConvNet()
    with paddle.amp.auto_cast(level="O1"):
        loss = net(paddle.rand([2, 1, 6, 6])).square().mean()
    loss.backward()
    assert {p.grad.dtype for p in net.parameters()} == {paddle.float32}
    # They went through half on the way: every value is one that half can hold.
    grad = net.linear.weight.grad.numpy()
    np.testing.assert_array_equal(grad, grad.astype(np.float16).astype(np.float32))
    assert np.abs(grad).max() > 0


def test_the_functional_checks_answer_as_on_a_gpu():
    assert paddle.amp.is_float16_supported() and paddle.amp.is_bfloat16_supported()
    scaler = paddle.amp.GradScaler(init_loss_scaling=64.0)
    assert scaler.is_enable() and scaler.state_dict()["scale"] == 64.0
