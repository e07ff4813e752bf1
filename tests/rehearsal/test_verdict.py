"""Known answers of the rule, on records made by hand; and the page that shows them."""

from __future__ import annotations

import dataclasses
import math
from xml.etree import ElementTree

import pytest
import yaml

from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.rehearsal.keys import amp_with
from paddle_amp_plugin.rehearsal.page import render
from paddle_amp_plugin.rehearsal.record import Layer, Rehearsal, Remedy, Step, Treatment
from paddle_amp_plugin.rehearsal.verdict import amp_yaml, divergence, judge

SCALING = {
    "init": 1024.0,
    "dynamic": True,
    "incr_ratio": 2.0,
    "decr_ratio": 0.5,
    "incr_every_n_steps": 1000,
    "decr_every_n_nan_or_inf": 1,
    "minimum": 1.0,
    "maximum": 16777216.0,
}


def steps(count: int = 20, *, skip: tuple[int, ...] = (), factor: float = 1.0) -> tuple[Step, ...]:
    return tuple(
        Step(i, 10.0 / i, 10.0 / i * factor, 1024.0 / 2 ** sum(s < i for s in skip), i in skip)
        for i in range(1, count + 1)
    )


def record(**changes) -> Rehearsal:
    values = {
        "name": "c",
        "family": "rec/CRNN",
        "device": "cpu: CPU",
        "software_half": True,
        "synthetic": False,
        "seed": 1,
        "batch_size": 8,
        "asked": "O1 float16",
        "used": "O1 float16",
        "dtype_reason": "as written",
        "amp": {},
        "scaling": SCALING,
        "planned_steps": 20,
        "steps": steps(),
        "probed": 2,
        "layers": (Layer("a", "Linear", 10.0, 1e-3, 0.0), Layer("b", "Conv2D", 100.0, 1e-3, 0.0)),
        "half_share": 0.5,
        "fp32_finite": True,
    }
    return Rehearsal(**{**values, **changes})


def test_a_clean_record_holds():
    verdict = judge(record())
    assert verdict.holds and verdict.level == "good" and not verdict.reasons
    assert yaml.safe_load(verdict.yaml[0]) == {"amp": {"level": "O1", "dtype": "float16"}}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"layers": (Layer("head.conv1", "Conv2D", 93350.0, overflows=True),)}, "head.conv1 (93350)"),
        ({"treatments": (Treatment(4, "b", "b overflows.", "b 溢出。", "amp:\n  fp32_layers: [b]\n"),)}, "b overflows"),
        ({"stopped": "[AMP045] collapsed"}, "AMP045"),
        ({"steps": (*steps(19), Step(20, 0.5, math.inf, 1024.0, True))}, "not finite"),
        ({"steps": steps(skip=tuple(range(1, 21)))}, "20 of 20 steps were skipped"),
        ({"steps": steps(factor=1.2)}, "run apart: 20"),
    ],
)
def test_what_breaks(changes, word):
    verdict = judge(record(**changes))
    assert not verdict.holds and verdict.level == "bad"
    assert any(word in reason.en for reason in verdict.reasons), verdict.reasons
    assert all(reason.zh and reason.zh != reason.en for reason in verdict.reasons)
    assert verdict.yaml and all(read_amp(yaml.safe_load(text)) is not None for text in verdict.yaml)


def test_three_skips_at_the_start_are_the_search():
    verdict = judge(record(steps=steps(skip=(1, 2, 3))))
    assert verdict.holds
    assert yaml.safe_load(verdict.yaml[0])["amp"]["init_loss_scaling"] == 128


def test_fp32_that_is_not_finite():
    verdict = judge(record(fp32_finite=False, steps=(Step(1, math.nan, math.nan, 1024.0, True),)))
    assert not verdict.holds and "Not an AMP problem" in verdict.headline.en and verdict.yaml == ()


def test_warnings_do_not_break():
    found = record(
        layers=(Layer("near", "Conv2D", 20000.0), Layer("tiny", "Linear", 1.0, 1e-9, 0.9)),
        half_share=0.0,
        synthetic=True,
    )
    verdict = judge(found)
    text = " ".join(remark.en for remark in verdict.remarks)
    assert verdict.holds and verdict.level == "warn"
    for word in ("near (20000)", "1 layer(s) lose", "no effect", "Made-up data"):
        assert word in text, text


def test_remedies_come_in_their_order():
    remedies = (Remedy({"level": "O1", "dtype": "bfloat16"}, True), Remedy({"fp32_layers": ["b"]}, True))
    verdict = judge(record(stopped="x", remedies=remedies))
    assert [yaml.safe_load(text)["amp"] for text in verdict.yaml] == [dict(r.amp) for r in remedies]


def test_without_any_remedy_fp32_is_left():
    assert judge(record(stopped="x")).yaml == ("amp: false\n",)


def test_divergence_is_that_of_the_last_third():
    rows = (*steps(14, factor=3.0), *steps(20)[14:])
    assert divergence(rows) == 0.0
    assert divergence((*steps(19), Step(20, None, None, 1.0, True))) is None


def test_yaml_is_as_one_writes_it():
    text = amp_yaml({"level": "O1", "init_loss_scaling": 128.0, "fp32_layers": ["a.b", "c.*"], "master_grad": True})
    assert text == "amp:\n  level: O1\n  init_loss_scaling: 128\n  fp32_layers: [a.b, c.*]\n  master_grad: true\n"


def test_amp_with_leaves_no_contradiction():
    own = {"level": "O2", "dtype": "float16", "master_grad": True, "eval_dtype": "float16", "init_loss_scaling": 8}
    changed = amp_with(own, level="O1", dtype="bfloat16")
    assert changed == {"level": "O1", "dtype": "bfloat16"}
    assert read_amp({"amp": changed}) is not None


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_is_one_well_formed_file(language):
    found = record(
        layers=(Layer("head.conv1<x>", "Conv2D", 93350.0, 1.0, 0.0, overflows=True), Layer("b", "Linear", math.inf)),
        steps=(*steps(19), Step(20, 0.5, math.nan, 1024.0, True)),
        plan={"level": "O1", "dtype": "float16", "device": {"kind": "cpu", "name": "CPU"}},
    )
    page = render(found, judge(found), language)
    root = ElementTree.fromstring(page.replace("<!DOCTYPE html>", ""))
    assert root.get("data-lang") == language
    text = "".join(root.itertext())
    assert "head.conv1" in text and "Would break" in text and "会出问题" in text
    assert "http" not in page.replace("http-equiv", "")
    none_yet = dataclasses.replace(found, steps=(), stopped="[AMP036] x")
    assert render(none_yet, judge(none_yet))
