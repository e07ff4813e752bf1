"""Real networks of PaddleOCR and PaddleNLP with one sick layer, healed while they train."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.diagnosis import range_probe
from tests.diagnosis.helpers import load_models
from tests.faults.helpers import Fault, near

models = load_models()

DB_LAYER = "backbone.stage2.2.expand_conv.conv"
SVTR_LAYER = "backbone.patch_embed.proj.0.conv"


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def needs(name):
    return pytest.mark.skipif(models.why_not(name) is not None, reason=str(models.why_not(name)))


def first_output(out):
    while not isinstance(out, paddle.Tensor):
        out = next(iter(out.values())) if isinstance(out, dict) else out[0]
    return out


def sick(name, layer, reach=240000.0):
    """``layer``'s weights are scaled so that its FP32 output reaches ``reach`` on this batch; targets in [0, 1]."""
    model, arrays = models.build(name)
    inputs = [paddle.to_tensor(x) for x in arrays]
    report = range_probe(model, [inputs], lambda model, batch: (model(*batch), None)[1])
    factor = reach / next(row.out_absmax for row in report.layers if row.name == layer)

    def build():
        model, _ = models.build(name)
        weight = dict(model.named_sublayers())[layer].weight
        weight.set_value(weight * factor)
        return model

    def loss(out, _):
        out = first_output(out)  # DB's are probabilities already
        out = out if name == "db" else paddle.nn.functional.sigmoid(out)
        return (out - 0.3).square().mean()

    return Fault(build, lambda step: (*inputs, None), loss, rate=1e-3)


def check(fault, layer, steps, **amp):
    result = fault.run(steps, **amp)
    assert result.error is None and result.culprits == [layer], (result.error, result.culprits, result.lines)
    assert [p.name for p in result.treated[0].pins] == [layer]
    assert result.lost == 4 and result.finite and result.session.scaler.current_scale == 1024.0
    assert result.losses[-1] < 0.9 * result.losses[result.lost], result.losses
    assert near(result.losses, fault.float32(steps - result.lost))


@needs("db")
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_db(level):
    fault = sick("db", DB_LAYER)
    if level == "O1":
        losses, _, skips, _ = fault.host_alone(4)
        assert skips == 4 and np.isfinite(losses).all()  # a finite loss, and not one update
    check(fault, DB_LAYER, 24, level=level)


@needs("svtr")
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_svtr(level):
    fault = sick("svtr", SVTR_LAYER)
    assert fault.host_alone(4, level=level)[2] == 4
    check(fault, SVTR_LAYER, 24, level=level)


@needs("bert")
def test_bert_with_a_mask_of_1e9_at_o2_with_preset_fast():
    """No layer can be pinned against a mask that is -inf when it comes in: AMP goes off, and the YAML says bfloat16."""
    _, (ids, labels) = models.build("bert")
    ids, labels = paddle.to_tensor(ids[:, :7]), paddle.to_tensor(labels)
    mask = np.zeros((2, 1, 1, 7), "float32")
    mask[0] = -1e9
    mask = paddle.to_tensor(mask)

    def build():
        model, _ = models.build("bert")
        inner = model.net

        class Masked(type(model)):
            def forward(self, ids, labels):
                given = mask.astype(inner.bert.pooler.dense.weight.dtype)
                return self.loss(inner(ids, attention_mask=given), labels)

        model.__class__ = Masked
        return model

    fault = Fault(build, lambda step: (ids, labels), None, rate=1e-3)
    assert fault.host_alone(8, level="O2")[2] == 8
    result = fault.run(24, level="O2", preset="fast")
    assert result.error is None and result.lost == 4 and result.finite, (result.error, result.lines)
    found = result.treated[0]
    assert found.kind == "mask_constant" and found.culprit.startswith("net.bert.encoder.layers.0")
    assert found.dtype == "bfloat16" or found.pins
    assert near(result.losses, fault.float32(20)) and result.losses[-1] < result.losses[5]


@needs("crnn")
def test_a_poisoned_batch_is_not_an_amp_problem():
    _, arrays = models.build("crnn")
    good = [paddle.to_tensor(x) for x in arrays]
    image = arrays[0].copy()
    image[0, 0, 3, 3] = np.nan
    bad = [paddle.to_tensor(image), *good[1:]]
    fault = Fault(lambda: models.build("crnn")[0], lambda step: tuple(bad if step >= 2 else good), None)
    _, _, skips, model = fault.host_alone(20)
    assert skips == 18 and not np.isfinite(model.state_dict()["net.backbone.conv1.bn._mean"].numpy()).all()
    result = fault.run(20)
    assert result.error.code == "AMP054" and result.error.exit_code == 3 and "input.0" in result.error.message
    assert result.session.updates == 2 and result.finite and not result.treated
    assert result.session.scaler.current_scale > 64  # the search of four steps, and no change for the diagnosis
    one_bad = Fault(fault.build, lambda step: tuple(bad if step == 2 else good), None)
    _, _, skips, model = one_bad.host_alone(8)
    assert skips == 1 and not np.isfinite(model.state_dict()["net.backbone.conv1.bn._mean"].numpy()).all()
    single = one_bad.run(8)
    assert single.error is None and single.lost == 1 and single.finite
