"""Installed and removed without trace; nothing changes for who does not use it."""

import subprocess
import sys
import types

import numpy as np
import paddle
from paddle.base import core

from paddle_amp_plugin import software_half


def snapshot():
    """Every function reference that an installation may touch, by place and identity."""
    places = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "paddle" and isinstance(module, types.ModuleType):
            for key, value in vars(module).items():
                if callable(value):
                    places[(name, key)] = id(value)
    for key, value in vars(paddle.Tensor).items():
        places[("Tensor", key)] = id(value)
    return places


def test_every_original_is_back():
    before = snapshot()
    with software_half.emulate():
        inside = snapshot()
        with software_half.emulate():
            assert snapshot() == inside
        assert software_half.installed()
        changed = {place for place in before if inside.get(place) != before[place]}
        assert ("paddle._C_ops", "matmul") in changed and ("Tensor", "__add__") in changed
    assert not software_half.installed()
    assert {place: before[place] for place in before} == {p: i for p, i in snapshot().items() if p in before}


def test_names_imported_in_between_are_restored():
    module = types.ModuleType("imported_during_emulation")
    sys.modules[module.__name__] = module
    try:
        with software_half.emulate():
            module.matmul = paddle._C_ops.matmul
        assert module.matmul is paddle._C_ops.matmul
    finally:
        del sys.modules[module.__name__]


def test_an_exception_inside_uninstalls():
    try:
        with software_half.emulate():
            raise KeyError
    except KeyError:
        pass
    assert not software_half.installed()


def test_as_a_decorator():
    @software_half.emulate()
    def dtype():
        with paddle.amp.auto_cast():
            return paddle.matmul(paddle.ones([2, 2]), paddle.ones([2, 2])).dtype

    assert dtype() == paddle.float16
    assert not software_half.installed()


def test_uninstall_without_install_does_nothing():
    software_half.uninstall()
    assert not software_half.installed()


def test_float32_results_are_the_same_bits_with_it_installed():
    def train():
        paddle.seed(7)
        net = paddle.nn.Sequential(
            paddle.nn.Conv2D(3, 4, 3), paddle.nn.BatchNorm2D(4), paddle.nn.ReLU(), paddle.nn.Flatten()
        )
        head = paddle.nn.Linear(4 * 36, 3)
        optimizer = paddle.optimizer.AdamW(0.01, parameters=[*net.parameters(), *head.parameters()])
        x = paddle.to_tensor(np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32))
        for _ in range(3):
            out = head(net(x)) / 3 + 1 - x[:, 0, 0, :1]
            paddle.nn.functional.cross_entropy(out, paddle.to_tensor([0, 1, 2, 0])).backward()
            optimizer.step()
            optimizer.clear_grad()
        return [p.numpy() for p in (*net.parameters(), *head.parameters())]

    plain = train()
    with software_half.emulate():
        emulated = train()
    for a, b in zip(plain, emulated, strict=True):
        np.testing.assert_array_equal(a, b)


def test_static_mode_and_export_work_while_installed(tmp_path):
    with software_half.emulate():
        net = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Softmax(), paddle.nn.LayerNorm(8))
        x = paddle.rand([3, 4])
        expected = net(x).numpy()
        static = paddle.jit.to_static(net, input_spec=[paddle.static.InputSpec([None, 4], "float32")])
        paddle.jit.save(static, str(tmp_path / "net"))
    loaded = paddle.jit.load(str(tmp_path / "net"))
    np.testing.assert_allclose(loaded(x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_paddle_alone_still_warns_and_does_nothing():
    """Outside software half the host's CPU behaviour is untouched."""
    with paddle.amp.auto_cast(level="O1"):
        assert paddle.matmul(paddle.ones([2, 2]), paddle.ones([2, 2])).dtype == paddle.float32
    assert paddle.amp.GradScaler().state_dict() == {}


def test_importing_the_package_does_not_import_paddle():
    code = "import paddle_amp_plugin, sys; assert 'paddle' not in sys.modules; assert 'zlib' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_operator_statistics_functions_are_restored():
    original = core.get_low_precision_op_list
    with software_half.emulate():
        assert core.get_low_precision_op_list is not original
    assert core.get_low_precision_op_list is original
