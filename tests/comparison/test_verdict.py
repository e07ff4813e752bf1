"""Known answers: records of machines, and what must be said of them."""

from __future__ import annotations

import dataclasses
import json
import math
from xml.etree import ElementTree

import pytest

from paddle_amp_plugin.comparison.page import render
from paddle_amp_plugin.comparison.record import Model, parse_modes, read, to_json
from paddle_amp_plugin.comparison.verdict import as_dict, judge
from paddle_amp_plugin.errors import AmpError
from tests.comparison.records import BIG, LOSSES, record, run, slower_parts

SEEDS = (1, 2, 3)


def reasons(found) -> list[str]:
    (one,) = judge(found).modes
    assert not one.faster
    return [text.en.split(":")[0].split(" of ")[0] for text in one.why_not]


def test_really_faster():
    runs = [run("fp32", s, ms=100 + s) for s in SEEDS] + [run("O1", s, ms=50 + s) for s in SEEDS]
    verdict = judge(record(*runs))
    (one,) = verdict.modes
    assert one.faster and not one.apart and one.why_not == () and verdict.level == "good"
    # 101/51, 102/52, 103/53
    assert one.speed.mean == pytest.approx((101 / 51 + 102 / 52 + 103 / 53) / 3)
    assert one.speed.sigma == pytest.approx(0.01849, abs=1e-4)
    assert one.memory.mean == pytest.approx(0.7)
    assert one.loss.mean == 0.0 and one.metric["acc"].mean == 0.0
    assert verdict.headline.en == "O1: 1.96 ± 0.02 times as fast as FP32"


def test_a_gain_within_the_noise_is_no_gain():
    runs = [run("fp32", s) for s in SEEDS] + [run("O1", s, ms=ms) for s, ms in zip(SEEDS, (60, 100, 110), strict=True)]
    (one,) = judge(record(*runs)).modes
    assert one.speed.mean > 1.1 and not one.faster


def test_reader_bound():
    slow = [slower_parts(run(mode, ms=40), "reader", 3.0) for mode in ("fp32", "O1")]
    assert reasons(record(*slow)) == ["Reader-bound"]


def test_small_model():
    small = Model(parameters=500_000, macs=60_000_000, products=20, odd_share=0.0)
    assert reasons(record(run("fp32"), run("O1"), model=small)) == ["Small model"]


def test_pascal_card():
    found = record(run("fp32"), run("O1"), device_name="Tesla P100-PCIE-16GB", capability=(6, 0))
    assert reasons(found) == ["Old card"]
    assert "6.0" in judge(found).modes[0].why_not[0].en and "needs 7.0" in judge(found).modes[0].why_not[0].en


def test_bfloat16_on_a_v100_is_an_old_card_and_float16_is_not():
    found = judge(record(run("fp32"), run("O1"), run("O1-bf16")))
    assert ["Old card" in " ".join(t.en for t in one.why_not) for one in found.modes] == [False, True]


def test_odd_shapes():
    odd = dataclasses.replace(BIG, odd_share=0.7, odd=("head.fc (129 x 6625)",))
    assert reasons(record(run("fp32"), run("O1"), model=odd)) == ["Odd shapes"]
    assert "head.fc (129 x 6625)" in judge(record(run("fp32"), run("O1"), model=odd)).modes[0].why_not[0].en


def test_update_bound_and_few_ops_in_half():
    heavy = [slower_parts(run(mode, half_share=0.1), "update", 5.0) for mode in ("fp32", "O1")]
    assert [r.split()[-1] for r in reasons(record(*heavy))] == ["%", "%"]
    texts = " ".join(t.en for t in judge(record(*heavy)).modes[0].why_not)
    assert "optimizer's update" in texts and "ops compute in half" in texts


def test_no_reason_in_the_record_is_said_too():
    (one,) = judge(record(run("fp32"), run("O1"))).modes
    assert len(one.why_not) == 1 and "Nothing in these numbers" in one.why_not[0].en


def test_diverging_loss():
    worse = tuple(value + 0.5 * (i > 4) for i, value in enumerate(LOSSES))
    runs = [run("fp32", s) for s in SEEDS] + [run("O1", s, losses=worse, ms=50) for s in SEEDS]
    verdict = judge(record(*runs))
    assert verdict.modes[0].apart and verdict.level == "bad" and "O1" in verdict.headline.en
    assert verdict.modes[0].loss.mean == pytest.approx(0.5 / ((1.5 + 1.4 + 1.35) / 3))


def test_a_loss_that_is_not_finite_is_another_result_unless_fp32_has_it_too():
    broken = (*LOSSES[:-1], math.nan)
    assert judge(record(run("fp32"), run("O1", losses=broken))).modes[0].apart
    assert not judge(record(run("fp32", losses=broken), run("O1", losses=broken))).modes[0].apart


def test_noise_over_the_seeds_is_no_divergence():
    """+45 %, -30 %, +20 %: the mean is 12 %, but not more than twice its uncertainty."""
    runs = [run("fp32", s) for s in SEEDS]
    runs += [run("O1", s, losses=tuple(x * f for x in LOSSES)) for s, f in zip(SEEDS, (1.45, 0.7, 1.2), strict=True)]
    assert not judge(record(*runs)).modes[0].apart


def test_on_a_cpu_nothing_is_said_of_speed():
    found = record(run("fp32"), run("O1", ms=400), device="cpu", device_name="CPU", capability=None, software_half=True)
    verdict = judge(found)
    assert not verdict.real_time and verdict.modes[0].why_not == () and not verdict.modes[0].faster
    text = " ".join(t.en for t in verdict.lines)
    assert "times FP32's speed" not in text and "say nothing about a GPU" in text
    assert "GPU" in verdict.headline.en


def test_a_mode_that_failed_is_named():
    found = record(run("fp32"), run("O2", losses=(), timed=0, failed="[AMP045] collapsed"))
    verdict = judge(found)
    assert verdict.level == "bad" and any("AMP045" in line.en for line in verdict.lines)


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("fp32,O1,O2,O1-bf16", ("fp32", "O1", "O2", "O1-bf16")),
        ("o2-BF16", ("fp32", "O2-bf16")),
        ("O1-fp16, O1", ("fp32", "O1")),
    ],
)
def test_modes(text, modes):
    assert parse_modes(text) == modes


@pytest.mark.parametrize("text", ["fp32", "O3", "fp32,O1,O2,OD,O1-bf16", "", "O1 bf16"])
def test_bad_modes(text):
    with pytest.raises(AmpError) as caught:
        parse_modes(text)
    assert caught.value.code == "AMP260"


def test_file_and_page_hold_the_record(tmp_path):
    runs = [run("fp32", s) for s in SEEDS] + [run("O1", s, losses=(*LOSSES[:-1], math.inf)) for s in SEEDS]
    found = record(*runs)
    path = tmp_path / "compare.json"
    path.write_text(to_json(found, as_dict(judge(found))), encoding="utf-8")
    json.loads(path.read_text("utf-8"), parse_constant=lambda text: pytest.fail(text))
    assert read(path) == found
    page = render(found, judge(found), "zh")
    root = ElementTree.fromstring(page.replace("<!DOCTYPE html>", ""))
    assert root.get("lang") == "zh"
    text = "".join(root.itertext())
    assert "O1" in text and "3, " not in text.split("seeds")[0]
    for word in ("http:", "https:", "src="):
        assert word not in page


def test_a_file_that_is_none(tmp_path):
    path = tmp_path / "compare.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(AmpError) as caught:
        read(path)
    assert caught.value.code == "AMP265"
