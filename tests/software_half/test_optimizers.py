"""Optimizers with half parameters: masters follow the FP32 run, half copies are their rounding."""

import numpy as np
import paddle
import pytest

from paddle_amp_plugin import software_half

OPTIMIZERS = {
    "SGD": lambda p, **k: paddle.optimizer.SGD(0.1, parameters=p, **k),
    "Momentum": lambda p, **k: paddle.optimizer.Momentum(0.1, 0.9, parameters=p, **k),
    "Momentum+L2": lambda p, **k: paddle.optimizer.Momentum(0.1, 0.9, parameters=p, weight_decay=0.01, **k),
    "Momentum, merged": lambda p, **k: paddle.optimizer.Momentum(0.1, 0.9, parameters=p, use_multi_tensor=True, **k),
    "Adam": lambda p, **k: paddle.optimizer.Adam(0.1, parameters=p, **k),
    "Adam, merged": lambda p, **k: paddle.optimizer.Adam(0.1, parameters=p, use_multi_tensor=True, **k),
    "Adam+L1": lambda p, **k: paddle.optimizer.Adam(
        0.1, parameters=p, weight_decay=paddle.regularizer.L1Decay(0.01), **k
    ),
    "AdamW": lambda p, **k: paddle.optimizer.AdamW(0.1, parameters=p, weight_decay=0.05, **k),
    "AdamW, clipped": lambda p, **k: paddle.optimizer.AdamW(
        0.1, parameters=p, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5), **k
    ),
    "Lamb": lambda p, **k: paddle.optimizer.Lamb(0.1, parameters=p, **k),
    "RMSProp": lambda p, **k: paddle.optimizer.RMSProp(0.1, parameters=p, **_without_masters(k)),
    "Adamax": lambda p, **k: paddle.optimizer.Adamax(0.1, parameters=p, **_without_masters(k)),
}


def _without_masters(options):
    # These take masters by an attribute, as paddle.amp.decorate sets it.
    return {k: v for k, v in options.items() if k != "multi_precision"}


@pytest.fixture(autouse=True)
def _emulated():
    with software_half.emulate():
        yield


def parameters(dtype):
    rng = np.random.default_rng(2)
    made = []
    for shape in ([4, 3], [3]):
        values = rng.integers(-16, 16, shape).astype(np.float32) / 8  # both halves hold these exactly
        made.append(paddle.create_parameter(shape, dtype, default_initializer=paddle.nn.initializer.Assign(values)))
    return made


def run(build, dtype, steps=6, **options):
    params = parameters(dtype)
    optimizer = build(params, **options)
    if options.get("multi_precision"):
        optimizer._multi_precision = True
    rng = np.random.default_rng(3)
    for _ in range(steps):
        for p in params:
            # Values that both halves hold exactly, so that the FP32 run sees the same gradients.
            p.grad = paddle.to_tensor(rng.integers(-8, 8, p.shape).astype(np.float32) / 8).astype(dtype)
        optimizer.step()
        optimizer.clear_grad()
    return params, optimizer


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_masters_follow_the_float32_run(name, dtype):
    single, _ = run(OPTIMIZERS[name], "float32")
    half, optimizer = run(OPTIMIZERS[name], dtype, multi_precision=True)
    # Clipping and decay go through half-precision gradients, as on a GPU; the rest is the same to the bit.
    exact = "clipped" not in name and "+L" not in name
    tolerance = 0 if exact else {"float16": 2e-3, "bfloat16": 2e-2}[dtype]
    masters = [optimizer._master_weights[p.name] for p in half]
    for p, master, reference in zip(half, masters, single, strict=True):
        assert master.dtype == paddle.float32
        np.testing.assert_allclose(master.numpy(), reference.numpy(), rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(p.astype("float32").numpy(), master.astype(dtype).astype("float32").numpy())


@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW", "Adam, merged", "Momentum, merged"])
def test_without_masters_every_update_is_rounded(name):
    single, _ = run(OPTIMIZERS[name], "float32", steps=1)
    half, _ = run(OPTIMIZERS[name], "float16", steps=1)
    for p, reference in zip(half, single, strict=True):
        assert p.dtype == paddle.float16
        np.testing.assert_allclose(p.numpy().astype(np.float32), reference.numpy(), rtol=2**-10, atol=2**-10)


def test_parameter_groups():
    first, second = parameters("float16")
    optimizer = paddle.optimizer.AdamW(
        parameters=[{"params": [first], "learning_rate": 1.0}, {"params": [second], "weight_decay": 0.0}],
        learning_rate=0.1,
    )
    optimizer._multi_precision = True
    for p in (first, second):
        p.grad = paddle.ones(p.shape, dtype="float16")
    before = [first.numpy(), second.numpy()]
    optimizer.step()
    assert (first.numpy() != before[0]).all() and (second.numpy() != before[1]).all()


def test_the_scaler_unscales_half_gradients_and_finds_inf():
    first, second = parameters("float16")
    optimizer = paddle.optimizer.SGD(1.0, parameters=[first, second], multi_precision=True)
    scaler = paddle.amp.GradScaler(init_loss_scaling=4.0)
    scaler.scale(paddle.ones([1], dtype="float16") * 1)  # sets nothing; a step without auto_cast must not disable it
    with paddle.amp.auto_cast(level="O2"):
        loss = (first * 1).sum() + (second * 1).sum()
    scaler.scale(loss).backward()
    before = first.numpy()
    scaler.unscale_(optimizer)
    np.testing.assert_array_equal(first.grad.numpy(), np.ones([4, 3], np.float16))
    scaler.step(optimizer)
    scaler.update()
    assert (first.numpy() != before).all()
    optimizer.clear_grad()
    before = first.numpy()
    with paddle.amp.auto_cast(level="O2"):
        loss = (first * 60000).sum() + (second * 1).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_array_equal(first.numpy(), before)
    assert scaler.state_dict()["scale"] == 2.0
