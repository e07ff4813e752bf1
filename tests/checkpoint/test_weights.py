"""Weights from files: half into FP32, what does not fit, what half cannot hold (R10, R11)."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_amp_plugin import weights
from paddle_amp_plugin.errors import AmpError
from tests.checkpoint.small import Net, start

HALF = {"float16": paddle.float16, "bfloat16": paddle.bfloat16}


def saved_half(folder, dtype):
    """A whole model in half, saved by somebody else; and its FP32 values."""
    model = Net()
    state = {name: value.astype(dtype) for name, value in model.state_dict().items()}
    paddle.save(state, str(folder / "half.pdparams"))
    return {name: value.astype("float32").numpy() for name, value in state.items()}


@pytest.mark.parametrize("dtype", HALF)
def test_a_half_file_is_read_into_float32_with_one_line(tmp_path, dtype):
    values = saved_half(tmp_path, dtype)
    state = paddle.load(str(tmp_path / "half.pdparams"))
    with pytest.raises(AssertionError):  # R11: what Paddle alone does
        Net().set_state_dict(state)
    loaded, model = weights.Loaded("half.pdparams"), Net()
    found = weights.float32_state(state, loaded)
    weights.compare(found, model, loaded)
    model.set_state_dict(found)
    assert loaded.half == {dtype: len(values)} and loaded.fitting == len(values)
    assert len(loaded.lines()) == 1 and dtype in loaded.lines()[0]
    for name, value in model.state_dict().items():
        assert value.dtype == paddle.float32 and np.array_equal(value.numpy(), values[name]), name


def test_float32_weights_and_other_values_stay_as_they_are():
    state = {"w": paddle.rand([2]), "count": 3, "ids": paddle.arange(2)}
    loaded = weights.Loaded("x.pdparams")
    found = weights.float32_state(state, loaded)
    assert found["w"] is state["w"] and found["count"] == 3 and found["ids"].dtype == paddle.int64
    assert not loaded.half and not loaded.lines()


def test_what_does_not_fit_is_counted_in_one_line():
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6)))
    state = {name: value for name, value in model.state_dict().items() if not name.startswith(("0.", "1.", "2."))}
    state["5.weight"] = paddle.zeros([4, 3])
    state.update({f"old.{i}": paddle.zeros([1]) for i in range(5)})
    state["4.bias"] = paddle.full([3], float("nan"))
    loaded = weights.Loaded("x.pdparams")
    weights.compare(state, model, loaded)
    lines = loaded.lines()
    assert len(lines) == 2 and "1 tensors are not finite: 4.bias" in lines[0]
    assert "5 of the model's 12 weights were read" in lines[1]
    assert "6 are not in the file (0.weight, 0.bias, 1.weight and 3 more)" in lines[1]
    assert "1 have another shape (5.weight: file [4, 3], model [3, 3])" in lines[1]
    assert "5 of the file are not in the model (old.0, old.1, old.2 and 2 more)" in lines[1]


def test_a_file_of_another_model_is_an_error():
    with pytest.raises(AmpError) as caught:
        weights.compare({"a": paddle.zeros([1])}, Net(), weights.Loaded("x.pdparams"))
    assert caught.value.code == "AMP094" and "x.pdparams" in caught.value.message and "conv.weight" in caught.value.hint


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_weights_beyond_the_range_of_float16_are_named(level):
    for dtype, wanted in (("float16", 1), ("bfloat16", 0)):
        run = start({"level": level, "dtype": dtype})
        run.model.fc.weight.set_value(paddle.full([4, 3], 70000.0))
        run.model.bn.weight.set_value(paddle.full([4], 70000.0))  # computes in FP32
        run.session.prepare(run.model, run.optimizer)
        lines = [line for line in run.lines.said if "beyond the range" in line]
        assert len(lines) == wanted and all("fc.weight (7e+04)" in line and '["fc"]' in line for line in lines)
        run.session.close()
    run = start({"level": level, "dtype": "float16", "fp32_layers": ["fc"]})
    run.model.fc.weight.set_value(paddle.full([4, 3], 70000.0))
    run.session.prepare(run.model, run.optimizer)
    assert "beyond the range" not in run.lines.text
    run.session.close()


def test_float32_weights_reach_the_masters_untruncated():
    """R10: Paddle's order (decorate, then load) loses what a weight holds beyond half; ours does not."""
    from paddle_amp_plugin import software_half

    value = np.linspace(0.1, 0.2, 12, dtype=np.float32).reshape(4, 3)
    with software_half.emulate():
        model = nn.Linear(4, 3)
        adam = paddle.optimizer.Adam(0.0, parameters=model.parameters())
        model, adam = paddle.amp.decorate(model, adam, level="O2", dtype="float16")
        model.set_state_dict({"weight": paddle.to_tensor(value).astype("float16")})  # as the host casts it
        with paddle.amp.auto_cast(level="O2", dtype="float16"):
            model(paddle.rand([2, 4])).mean().backward()
        adam.step()
        assert not np.array_equal(adam._master_weights[model.weight.name].numpy(), value)
    run = start({"level": "O2", "dtype": "float16"})
    run.model.fc.weight.set_value(value)
    run.session.prepare(run.model, run.optimizer)
    assert np.array_equal(run.optimizer._master_weights[run.model.fc.weight.name].numpy(), value)
    run.session.close()
