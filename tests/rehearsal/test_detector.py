"""PP-OCRv3's detector in float16 and bfloat16, through the command: overflow named, remedies suggested, remedies hold.

What is public: in AMP training of ch_PP-OCRv2_det / v3_det in float16, O1 and O2 give NaN, because the outputs of
convolutions leave float16's range; bfloat16 trains as FP32 does with nothing else changed (PaddleOCR PR #10119 and
PR #10180). Nothing is published about which of the layers, and the weights are not here. So the scales are put where
this network lets training put them: RSEFPN's convolutions and the first ones of DBHead have no norm between them, and
the BatchNorm behind them divides whatever they have grown to, so no loss holds them back. At random weights their
outputs reach 85; three convolutions in a row, each 10 times larger (1,000 in all), bring head.*.conv1 to about 80,000
in FP32, past 65504, and leave what the BatchNorm gives, the loss and the training as they were.
"""

from __future__ import annotations

import json
import re

import paddle
import pytest
import yaml

from paddle_amp_plugin.cli.rehearse import rehearse
from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.workloads import open_workload
from paddle_amp_plugin.rehearsal.record import read
from tests.workloads import configs

GROWN = re.compile(r"neck\.(ins|inp)_conv\.\d\.in_conv|head\.(binarize|thresh)\.conv1")
CULPRITS = {"head.binarize.conv1", "head.thresh.conv1"}
FACTOR = 10.0
STEPS = 3


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    """The config, its ``pretrained_model`` being weights of such scales."""
    folder = tmp_path_factory.mktemp("det")
    document = configs.det_v3_student(folder, size=96)
    path = configs.write(folder, document)
    with open_workload(path) as work:
        model = work.build_model()
        for name, layer in model.named_sublayers():
            if GROWN.fullmatch(name):
                layer.weight.set_value(layer.weight.numpy() * FACTOR)
        paddle.save(model.state_dict(), str(folder / "grown.pdparams"))
    document["Global"]["pretrained_model"] = str(folder / "grown")
    return configs.write(folder, document)


def run(path, amp, capsys, *, steps=STEPS, **more):
    out = path.parent / "rehearsal"
    options = [f"amp={json.dumps(amp)}"]
    given = {"synthetic": True, "png": False, "lang": None, "paddleocr_dir": None, **more}
    holds = rehearse(path, options=options, steps=steps, out=out, **given)
    return holds, read(out / "rehearsal.json"), capsys.readouterr().out


def test_float16_breaks_and_both_suggestions_hold(detector, capsys):
    holds, record, said = run(detector, {"dtype": "float16"}, capsys)
    assert not holds
    assert {row.name for row in record.layers if row.overflows} == CULPRITS
    assert all(65504 < row.out_absmax < 1e6 for row in record.layers if row.overflows)
    assert all(name in said for name in CULPRITS) and "Would break" in said
    suggested = [yaml.safe_load(block)["amp"] for block in re.findall(r"^amp:\n(?:  .*\n)+", said, re.MULTILINE)]
    assert [s["dtype"] for s in suggested] == ["bfloat16", "float16"]
    assert set(suggested[1]["fp32_layers"]) == CULPRITS
    for amp in suggested:
        assert read_amp({"amp": amp}) is not None
        holds, record, said = run(detector, amp, capsys)
        assert holds, said
        assert not any(step.skipped for step in record.steps)
        assert {row.name for row in record.layers if row.out_absmax > 65504} == CULPRITS  # the same network


def test_auto_takes_bfloat16_for_detection(detector, capsys):
    holds, record, said = run(detector, True, capsys, steps=3)
    assert holds and record.used == "O1 bfloat16" and "text detection" in said


def test_missing_data_is_said_with_the_way_round_it(detector, capsys):
    with pytest.raises(AmpError) as caught:
        run(detector, True, capsys, synthetic=False)
    assert caught.value.code == "AMP262" and "--synthetic" in str(caught.value) and "nowhere" in str(caught.value)
