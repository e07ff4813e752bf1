"""bfloat16 attention masks: Paddle takes them for integers, and attention is gone."""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import importlib.util

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn.layer.transformer import _convert_attention_mask

from paddle_amp_plugin import attention_masks, autocast, software_half
from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.device import Device
from paddle_amp_plugin.plan import make_plan

GPU = Device(kind="gpu", name="", capability=None, float16=True, bfloat16=True)


@pytest.fixture(autouse=True)
def as_paddle_is():
    attention_masks.restore()
    yield
    attention_masks.restore()


def plan_of(**amp):
    return make_plan(read_amp({"amp": {"level": "O2", "dtype": "bfloat16", **amp}}, source="test"), GPU)


def test_paddle_takes_a_bfloat16_mask_for_an_integer_one():
    mask = paddle.to_tensor([0.0, -1e4]).astype("bfloat16")
    assert (_convert_attention_mask(mask, paddle.float32).numpy() < -9e8).all()
    attention_masks.correct()
    attention_masks.correct()
    np.testing.assert_array_equal(_convert_attention_mask(mask, paddle.float32).numpy(), mask.astype("float32").numpy())
    attention_masks.restore()
    assert (_convert_attention_mask(mask, paddle.float32).numpy() < -9e8).all()


def test_masks_of_integers_are_what_they_were():
    attention_masks.correct()
    for dtype in ("bool", "int32", "int64"):
        converted = _convert_attention_mask(paddle.to_tensor([1, 0]).astype(dtype), paddle.float32)
        np.testing.assert_allclose(converted.numpy(), [0.0, -1e9])


def encoder():
    paddle.seed(5)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
    for parameter in layer.parameters():
        parameter.set_value(parameter * 4.0)  # attention that prefers some positions
    layer.eval()
    return layer


def outputs(layer, plan):
    paddle.seed(6)
    x, mask = paddle.randn([2, 5, 16]), paddle.zeros([2, 1, 1, 5], "bfloat16" if plan else "float32")
    if plan is None:
        return layer(x, mask).numpy()
    with autocast.auto_cast(plan):
        return layer(x, mask).astype("float32").numpy()


@pytest.mark.parametrize("preset", ["safe", "fast"])
def test_attention_at_o2_is_that_of_fp32(preset):
    right = outputs(encoder(), None)
    with software_half.emulate(), paddle.no_grad():
        layer, plan = encoder(), plan_of(preset=preset)
        autocast.decorate(plan, layer)
        found = np.abs(outputs(layer, plan) - right).mean()
        attention_masks.restore()
        lost = np.abs(outputs(layer, plan) - right).mean()
        autocast.unpin(layer)
    assert found < 0.05 and lost > 4 * found, (found, lost)


@pytest.mark.skipif(importlib.util.find_spec("paddlenlp") is None, reason="package paddlenlp is not installed")
def test_ernie_at_o2_sees_its_padding_and_its_words():
    from paddlenlp.transformers import ErnieConfig, ErnieModel

    def built():
        paddle.seed(7)
        sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        model = ErnieModel(ErnieConfig(**sizes, intermediate_size=32, max_position_embeddings=16))
        for parameter in model.encoder.parameters():
            parameter.set_value(parameter * 20.0)
        model.eval()
        return model

    ids = paddle.to_tensor(np.array([[3, 4, 5, 6, 0, 0], [7, 8, 9, 10, 11, 12]]))
    with paddle.no_grad():
        right = built()(ids)[0].numpy()
    with software_half.emulate(), paddle.no_grad():
        model, plan = built(), plan_of()
        autocast.decorate(plan, model)
        with autocast.auto_cast(plan):
            found = np.abs(model(ids)[0].astype("float32").numpy() - right)
            attention_masks.restore()
            lost = np.abs(model(ids)[0].astype("float32").numpy() - right)
        autocast.unpin(model)
    scale = np.abs(right).mean()
    assert found.mean() < 0.05 * scale and lost.mean() > 20 * found.mean(), (found.mean(), lost.mean(), scale)
