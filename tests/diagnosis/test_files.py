"""``overflow-<step>.json``, the words in both languages, and the range probe."""

from __future__ import annotations

import json
import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from paddle_amp_plugin import software_half
from paddle_amp_plugin.diagnosis import Diagnosis, Pin, cause, range_probe, read_diagnosis, says, write_diagnosis
from paddle_amp_plugin.diagnosis.verdict import _WORDS, yaml_of
from tests.diagnosis.helpers import Case
from tests.diagnosis.test_recipes import R1, half_target


def refuse(name):
    raise AssertionError(f"{name} is not strict JSON")


def test_the_file(tmp_path):
    with software_half.emulate():
        found, _ = Case(R1, [paddle.full([2, 4], 2000.0)], half_target).diagnose()
    path = write_diagnosis(found, tmp_path / "amp")
    assert path.name == "overflow-7.json" and [p.name for p in path.parent.iterdir()] == [path.name]
    raw = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    first = raw["layers"][0]
    assert first["name"] == "first" and first["out_absmax"] == "inf" and first["out_nonfinite"] == 8
    assert first["fp32_absmax"] == 240000.0
    assert set(first) >= {"type", "order", "out_zero_share", "grad_absmax", "grad_zero_share", "grad_nonfinite"}
    assert (raw["step"], raw["loss_scale"]) == (7, 1024.0)
    verdict = raw["verdict"]
    assert verdict["culprit"] == "first" and verdict["where"] == "forward" and verdict["limit"] == 65504.0
    assert verdict["yaml"] == yaml_of(found) and verdict["not_amp"] is False
    assert verdict["cause_zh"].startswith("层 first") and verdict["cause_en"].startswith("Op ")
    data = read_diagnosis(path)
    assert data["layers"][0]["out_absmax"] == math.inf and data["verdict"]["value"] == 240000.0


def test_no_such_file_is_made_or_read_by_halves(tmp_path):
    bad = tmp_path / "overflow-1.json"
    bad.write_text('{"layers": []}')
    with pytest.raises(ValueError, match="overflow-1"):
        read_diagnosis(bad)
    found = Diagnosis("finite", step=2)
    found.layers = [{"name": object()}]
    with pytest.raises(TypeError):
        write_diagnosis(found, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["overflow-1.json"]


@pytest.mark.parametrize("kind", _WORDS)
@pytest.mark.parametrize("culprit", [(None, None), ("a.b", None), (None, "exp"), ("a.b", "exp")])
def test_every_kind_has_words_in_both_languages(kind, culprit, monkeypatch):
    found = Diagnosis(kind, culprit=culprit[0], culprit_op=culprit[1], value=math.nan, pins=(Pin("op", "exp"),))
    en, zh = cause(found)
    assert "{" not in en + zh and en.isascii() and not zh.isascii()
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    assert says(found) == zh


def test_pins_that_are_none():
    assert Diagnosis("finite").pin == Pin() and Diagnosis("finite").pin.kind is None
    assert yaml_of(Diagnosis("data", not_amp=True)) == ""


class Wide(nn.Layer):
    def __init__(self):
        super().__init__()
        self.big = nn.Linear(4, 4, weight_attr=nn.initializer.Constant(30.0))
        self.near = nn.Linear(4, 4, weight_attr=nn.initializer.Constant(0.02))
        self.bn = nn.BatchNorm1D(4)
        self.small = nn.Linear(4, 1)

    def forward(self, x):
        return self.small(self.bn(self.near(self.big(x))))


def test_range_probe(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")
    model = Wide()
    before = {n: t.numpy().copy() for n, t in model.state_dict().items()}
    rng = np.random.default_rng(0)
    batches = [paddle.to_tensor(rng.uniform(1000, 2000, (8, 4)).astype("float32")) for _ in range(2)]
    report = range_probe(model, batches, lambda m, x: F.sigmoid(m(x)).mean() * 1e-9)
    assert [r.name for r in report.overflowing] == ["big"] and [r.name for r in report.near] == ["near"]
    assert report.batches == 2 and not report.holds_float16 and "small" in {r.name for r in report.losing}
    assert [r.name for r in report.layers] == ["big", "near", "bn", "small"]
    assert len(report.lines()) == 3 and "bfloat16" in report.lines()[0]
    data = json.loads(report.to_json(), parse_constant=refuse)
    assert data["layers"][0]["overflows"] and data["limit"] == 65504.0
    for name, tensor in model.state_dict().items():
        assert np.array_equal(tensor.numpy(), before[name]), name
    assert all(p.grad is None for p in model.parameters())
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    assert "层 big" in report.lines()[0]


def test_range_probe_of_a_healthy_model_without_a_loss():
    report = range_probe(nn.Linear(4, 4), [paddle.ones([2, 4])], lambda m, x: (m(x), None)[1])
    assert report.holds_float16 and not report.near and len(report.lines()) == 1
    assert report.layers[0].grad_absmax is None
