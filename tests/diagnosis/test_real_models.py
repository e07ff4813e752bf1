"""Real networks of PaddleOCR and PaddleNLP, made tiny and then sick in one place."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest

from paddle_amp_plugin import software_half
from paddle_amp_plugin.diagnosis import Diagnosis, cause, range_probe, yaml_of
from paddle_amp_plugin.plan import Device
from tests.diagnosis.helpers import Case, load_models

models = load_models()


@pytest.fixture(autouse=True)
def _emulated():
    with software_half.emulate():
        yield


def needs(name):
    return pytest.mark.skipif(models.why_not(name) is not None, reason=str(models.why_not(name)))


def built(name, sabotage=None):
    def build():
        model, _ = models.build(name)
        if sabotage is not None:
            sabotage(dict(model.named_sublayers()))
        return model

    return build, [paddle.to_tensor(x) for x in models.build(name)[1]]


def scaled_up(layer, reach=240000.0):
    """A sabotage: ``layer``'s weights are scaled so that its FP32 output reaches ``reach`` on this batch."""

    def sabotage(layers):
        layers[layer].weight.set_value(layers[layer].weight * factor["by"])

    factor = {"by": 1.0}
    sabotage.factor, sabotage.reach, sabotage.layer = factor, reach, layer
    return sabotage


def sick(name, layer, loss, **amp):
    sabotage = scaled_up(layer)
    build, inputs = built(name, sabotage)
    report = range_probe(build(), [inputs], lambda model, batch: (model(*batch), None)[1])
    now = next(row.out_absmax for row in report.layers if row.name == layer)
    sabotage.factor["by"] = sabotage.reach / now
    return Case(build, inputs, loss, amp)


def first_output(out):
    while not isinstance(out, paddle.Tensor):
        out = next(iter(out.values())) if isinstance(out, dict) else out[0]
    return out


def bounded(out):
    return paddle.nn.functional.sigmoid(first_output(out)).mean()


def check(found: Diagnosis, layer: str) -> None:
    assert found.culprit == layer and not found.not_amp, (found.culprit, found.culprit_op, found.kind)
    assert found.where == "forward" and found.kind == "forward_overflow"
    assert 200000 < found.value < 260000


@needs("db")
@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("ops", [True, False])
def test_db_with_one_convolution_scaled_up(level, ops):
    layer = "backbone.stage2.2.expand_conv.conv"
    case = sick("db", layer, bounded, level=level)
    found, _ = case.diagnose(ops=ops)
    check(found, layer)
    assert [(p.kind, p.name) for p in found.pins] == [("layer", layer)]
    assert case.finite_with(found)


@needs("db")
def test_a_sane_learning_rate_is_not_accused():
    layer = "backbone.stage1.0.expand_conv.conv"
    case = sick("db", layer, bounded)
    case.rate, case.optimizer = 1e-3, paddle.optimizer.Adam
    found, _ = case.diagnose()
    check(found, layer)


@needs("svtr")
@pytest.mark.parametrize(
    "layer", ["backbone.patch_embed.proj.0.conv", "backbone.blocks2.0.mlp.fc1", "backbone.blocks1.0.mixer.qkv"]
)
def test_svtr_with_one_layer_scaled_up(layer):
    names = dict(models.build("svtr")[0].named_sublayers())
    assert layer in names
    case = sick("svtr", layer, bounded)
    found, _ = case.diagnose()
    check(found, layer)
    # the product of queries and keys overflows with them, so the whole mixer must stay in FP32
    assert found.pin.name == layer.removesuffix(".qkv") and case.finite_with(found)


@needs("bert")
@pytest.mark.parametrize("preset", ["safe", "fast"])
def test_bert_with_a_mask_of_1e9_at_o2(preset):
    """The mask is made in the weights' type: -1e9 is -inf in float16, and NaN in a row masked throughout."""
    build, (ids, labels) = built("bert")
    ids = ids[:, :7]  # Paddle's CPU softmax gives no NaN for rows whose length is a multiple of 8
    mask = np.zeros((2, 1, 1, 7), "float32")
    mask[0] = -1e9
    halved = paddle.to_tensor(mask)

    def build_masked():
        model = build()
        inner = model.net

        class Masked(type(model)):
            def forward(self, ids, labels):
                given = halved.astype(inner.bert.pooler.dense.weight.dtype)
                return self.loss(inner(ids, attention_mask=given), labels)

        model.__class__ = Masked
        return model

    case = Case(build_masked, [ids, labels], lambda out: out, {"level": "O2", "preset": preset})
    found, _ = case.diagnose()
    assert found.kind == "mask_constant" and found.value == pytest.approx(1e9) and not found.not_amp, found.kind
    assert found.culprit is not None and found.culprit.startswith("net.bert.encoder.layers.0")
    assert found.dtype == "bfloat16" or found.pins
    assert case.finite_with(found)


@needs("bert")
def test_o1_where_the_device_has_no_bfloat16():
    """What the mask was cast to is the weights' type, and at O1 that is FP32 (until the attention casts it again)."""
    build, (ids, labels) = built("bert")
    ids = ids[:, :7]

    def build_masked():
        model = build()
        inner = model.net

        class Masked(type(model)):
            def forward(self, ids, labels):
                mask = paddle.full([2, 1, 1, 7], -1e9).astype(inner.bert.pooler.dense.weight.dtype)
                return self.loss(inner(ids, attention_mask=mask), labels)

        model.__class__ = Masked
        return model

    case = Case(build_masked, [ids, labels], lambda out: out, {"level": "O2"})
    case.device = Device(kind="gpu", name="T4", capability=(7, 5), float16=True, bfloat16=False)
    found, _ = case.diagnose()
    assert (found.dtype, found.level) == (None, "O1") and found.kind == "mask_constant"
    assert [p.name for p in found.pins] == [f"net.bert.encoder.layers.{i}.self_attn" for i in (0, 1)]
    assert "level: O1" in yaml_of(found) and "At O2" in cause(found)[0] and case.finite_with(found)


@needs("bert")
def test_bert_with_the_usual_mask_is_healthy():
    build, inputs = built("bert")
    found, _ = Case(build, inputs, lambda out: out, {"level": "O2"}).diagnose()
    assert found.kind == "finite"


@needs("crnn")
def test_crnn_with_a_poisoned_image():
    build, inputs = built("crnn")
    image = inputs[0].numpy().copy()
    image[0, 0, 3, 3] = math.nan
    found, _ = Case(build, [paddle.to_tensor(image), *inputs[1:]], lambda out: out).diagnose()
    assert found.kind == "data" and found.not_amp and not found.pins


@needs("crnn")
def test_crnn_with_one_convolution_scaled_up():
    layer = next(n for n in dict(models.build("crnn")[0].named_sublayers()) if n.endswith("conv1.conv"))
    case = sick("crnn", layer, lambda out: out)
    found, _ = case.diagnose()
    check(found, layer)
    assert case.finite_with(found)
