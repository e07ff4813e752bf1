"""The host in one file of the page *Contributing* works as it stands there."""

from __future__ import annotations

import re
import sys
import types

import numpy as np
import paddle
import pytest

from docs_site import DOCS


def host_of(language: str) -> types.ModuleType:
    text = (DOCS / language / "contributing.md").read_text(encoding="utf-8")
    module = types.ModuleType("my_host")
    exec(re.search(r"```python\n(.*?)\n```", text, re.DOTALL).group(1), module.__dict__)
    return module


def train(config, model, loss_fn, optimizer, seen):
    for _ in range(3):
        loss = loss_fn(model(paddle.ones([4, 8])), paddle.zeros([4, 2]))
        seen.append(str(model.fc.weight.dtype))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()


@pytest.fixture
def trainer(monkeypatch):
    module = types.ModuleType("mytrainer")
    module.train = train
    monkeypatch.setitem(sys.modules, "mytrainer", module)
    return module


def run(trainer, config):
    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = paddle.nn.Linear(8, 2, bias_attr=False)  # a bias is added in FP32 on Paddle 2

        def forward(self, x):
            out = self.fc(x)
            computed.append(out.dtype)
            return out

    computed, seen = [], []
    paddle.seed(3)
    model = Net()
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    trainer.train(config, model, paddle.nn.MSELoss(), optimizer, seen)
    return model.fc.weight.numpy(), computed, seen


@pytest.mark.parametrize("language", ["en", "zh"])
def test_host(trainer, language):
    host = host_of(language)
    plain, computed, _ = run(trainer, {})
    assert set(computed) == {paddle.float32}
    try:
        host.patch()
        assert host.patch() is host.patch() and [row[0] for row in host.patch().listing()] == ["mytrainer:train"]
        again, computed, _ = run(trainer, {})
        assert np.array_equal(again, plain) and set(computed) == {paddle.float32}  # no key: the host's own, to the bit
        half, computed, _ = run(trainer, {"amp": "fp16"})
        assert set(computed) == {paddle.float16}
        assert not np.array_equal(half, plain) and np.allclose(half, plain, rtol=2e-3, atol=2e-3)
        _, computed, seen = run(trainer, {"amp": {"level": "O2", "dtype": "bfloat16"}})
        assert set(computed) == {paddle.bfloat16} and "paddle.bfloat16" in seen
    finally:
        host.unpatch()
    assert trainer.train is train and host.detect() is None and host.supported_versions()
