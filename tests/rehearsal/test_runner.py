"""Planted faults are found and named, healthy models pass, and what is suggested holds."""

from __future__ import annotations

import math

import pytest
import yaml

from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.hosts.workloads import plan_for
from paddle_amp_plugin.rehearsal.record import read, to_json
from paddle_amp_plugin.rehearsal.runner import rehearse
from paddle_amp_plugin.rehearsal.verdict import DIVERGED, as_dict, divergence, judge
from tests.rehearsal.toy import Toy, scaled

#: LayerNorm follows ``body``: whatever its outputs grow to, FP32 trains as before.
OVERFLOW = scaled("body", 120_000.0)


@pytest.mark.parametrize("amp", [{"dtype": "float16"}, {"dtype": "bfloat16"}, {"level": "O2", "dtype": "float16"}])
def test_a_healthy_model_holds(amp):
    work = Toy(amp)
    record = rehearse(work, work.plan, steps=12)
    verdict = judge(record)
    assert verdict.holds, verdict
    assert len(record.steps) == 12 and not any(s.skipped for s in record.steps)
    assert divergence(record.steps) < 0.03
    # dropout fell on the same places: otherwise the losses would be percents apart from the first step on
    assert record.steps[0].amp == pytest.approx(record.steps[0].fp32, rel=5e-3)
    assert record.steps[0].amp != record.steps[0].fp32
    assert record.half_share > 0


def test_an_overflowing_layer_is_named_and_both_remedies_hold():
    work = Toy({"dtype": "float16"})
    record = rehearse(work, work.plan, steps=20, change=OVERFLOW)
    verdict = judge(record)
    assert not verdict.holds
    assert [row.name for row in record.layers if row.overflows] == ["body"]
    assert "body" in verdict.reasons[0].en and "body" in verdict.reasons[0].zh
    wide, pinned = (yaml.safe_load(text)["amp"] for text in verdict.yaml)
    assert wide["dtype"] == "bfloat16" and pinned == {**pinned, "dtype": "float16", "fp32_layers": ["body"]}
    for amp in (wide, pinned):
        assert read_amp({"amp": amp}) is not None
        again = Toy(amp)
        second = rehearse(again, again.plan, steps=10, change=OVERFLOW)
        assert judge(second).holds, judge(second)


def test_dtype_auto_moves_by_itself():
    work = Toy({"dtype": "auto"})
    record = rehearse(work, work.plan, steps=6, change=OVERFLOW)
    assert (record.asked, record.used) == ("O1 float16", "O1 bfloat16")
    verdict = judge(record)
    assert verdict.holds and yaml.safe_load(verdict.yaml[0])["amp"]["dtype"] == "bfloat16"


def test_fp32_that_is_not_finite_is_not_amps_fault():
    work = Toy({"dtype": "float16"}, bad_batch=5)
    verdict = judge(rehearse(work, work.plan, steps=8))
    assert not verdict.holds and verdict.yaml == ()
    assert "Not an AMP problem" in verdict.headline.en


def test_losses_that_run_apart_are_found():
    """Only the mixed-precision side gets another learning rate."""
    work, sides = Toy({"dtype": "float16"}), []

    def change(model, optimizer):
        sides.append(optimizer)
        if len(sides) == 2:
            optimizer._learning_rate.base_lr *= 40
            optimizer._learning_rate.last_lr *= 40

    record = rehearse(work, work.plan, steps=20, change=change)
    assert divergence(record.steps) > DIVERGED
    verdict = judge(record)
    assert not verdict.holds and "run apart" in verdict.reasons[0].en


def test_lost_gradients_are_warned_of():
    work = Toy({"dtype": "float16", "use_dynamic_loss_scaling": False, "init_loss_scaling": 1}, factor=1e-8)
    record = rehearse(work, work.plan, steps=4)
    lost = {row.name: row.lost for row in record.layers}
    assert lost["body"] > 0.9
    assert any("lose more than half" in remark.en for remark in judge(record).remarks)
    high = Toy({"dtype": "float16", "init_loss_scaling": 65536}, factor=1e-8)
    assert {r.name: r.lost for r in rehearse(high, high.plan, steps=4).layers}["body"] < 0.5


def test_a_scale_that_starts_too_high_comes_down_and_is_suggested():
    """Gradients near 100 at the head: 65536 is too much, 128 is not."""
    work = Toy({"dtype": "float16", "init_loss_scaling": 65536}, factor=50.0)
    record = rehearse(work, work.plan, steps=20)
    assert record.steps[0].skipped
    verdict = judge(record)
    assert verdict.holds, verdict
    assert yaml.safe_load(verdict.yaml[0])["amp"]["init_loss_scaling"] == record.steps[-1].scale < 65536
    # the FP32 side withheld the same updates: the losses stay together
    assert divergence(record.steps) < 0.03


def test_the_run_is_the_sessions_own_and_on_collapse_stop_ends_it(tmp_path):
    work = Toy({"dtype": "float16", "on_collapse": "stop"})
    record = rehearse(work, work.plan, steps=20, folder=tmp_path, change=OVERFLOW)
    assert record.stopped and len(record.steps) < 20
    assert list(tmp_path.glob("overflow-*.json"))
    assert any("stopped after" in reason.en for reason in judge(record).reasons)


def test_the_record_survives_its_file(tmp_path):
    work = Toy({"dtype": "float16"})
    record = rehearse(work, work.plan, steps=20, change=OVERFLOW)
    path = tmp_path / "rehearsal.json"
    path.write_text(to_json(record, as_dict(judge(record))), encoding="utf-8")
    again = read(path)
    assert [s.step for s in again.steps] == list(range(1, 21))
    assert judge(again).headline == judge(record).headline and judge(again).yaml == judge(record).yaml
    assert any(s.amp is not None and not math.isfinite(s.amp) for s in record.steps) is any(
        s.amp is not None and not math.isfinite(s.amp) for s in again.steps
    )


def test_nothing_is_left_behind():
    import paddle

    work = Toy({"dtype": "float16"})
    backward = paddle.Tensor.backward
    rehearse(work, work.plan, steps=3)
    assert paddle.Tensor.backward is backward
    x = paddle.ones([2, 8])
    with paddle.amp.auto_cast(enable=False):
        assert Toy().build_model()(x).dtype == paddle.float32
    assert plan_for(work).enabled
