"""Reading a run: right numbers, and an error a user can act on for each thing that can be wrong with it."""

from __future__ import annotations

import json
import math

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.report import load_run
from paddle_amp_plugin.report.build import RunData
from paddle_amp_plugin.report.charts import FLOAT16_MAX, danger, norm_histogram, ranges, smooth, step_charts, thin
from paddle_amp_plugin.report.words import advice, number, percent, tiles, windows
from tests.report import fake_run


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return fake_run.write(tmp_path_factory.mktemp("run") / "rec_svtr")


@pytest.fixture(scope="module")
def data(run_dir) -> RunData:
    return load_run(run_dir)


def test_everything_is_read(data):
    assert list(data.events) == fake_run.events() and data.broken_lines == 0
    assert data.plan["level"] == "O1" and data.unreadable == ()
    (finding,) = data.findings
    assert finding.culprit == fake_run.CULPRIT and finding.yaml == fake_run.YAML and finding.where == "forward"
    assert len(data.layers) == 60 and data.layers_step == fake_run.OVERFLOW_AT + 5
    hit = next(layer for layer in data.layers if layer.name == fake_run.CULPRIT)
    assert hit.out_absmax == math.inf and hit.out_nonfinite and hit.grad_nonfinite


def test_the_amp_folder_itself_may_be_given(run_dir, data):
    assert load_run(run_dir / "amp") == data


def test_the_run_itself_is_not_changed(run_dir):
    before = {p.name: p.read_bytes() for p in (run_dir / "amp").iterdir()}
    load_run(run_dir)
    assert {p.name: p.read_bytes() for p in (run_dir / "amp").iterdir()} == before


def code_of(path):
    with pytest.raises(AmpError) as caught:
        load_run(path)
    assert caught.value.hint
    return caught.value.code


def test_bad_input(tmp_path):
    assert code_of(tmp_path / "nothing") == "AMP080"
    (tmp_path / "file").write_text("x")
    assert code_of(tmp_path / "file") == "AMP080"
    assert code_of(tmp_path) == "AMP081"
    (tmp_path / "amp").mkdir()
    assert code_of(tmp_path) == "AMP082"
    (tmp_path / "amp" / "events.jsonl").write_text("\n")
    assert code_of(tmp_path) == "AMP082"
    (tmp_path / "amp" / "events.jsonl").write_bytes(b"\x80\x04junk\nmore\n")
    assert code_of(tmp_path) == "AMP083"


BROKEN = ["", "{", "[]", "null", '{"layers": [{}]}', '{"layers": 3}', '{"verdict": "x"}', '{"step": "many"}',
          '{"layers": [{"name": "a", "out_absmax": "big"}]}']  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_diagnosis_is_named_and_the_rest_is_shown(tmp_path, text):
    fake_run.write(tmp_path, steps=30, found=False)
    (tmp_path / "amp" / "overflow-12.json").write_text(text)
    data = load_run(tmp_path)
    assert data.unreadable == ("overflow-12.json",) and not data.findings and len(data.events) == 30


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "\x00"])
def test_a_broken_plan(tmp_path, text):
    fake_run.write(tmp_path, steps=30, found=False)
    (tmp_path / "amp" / "plan.yml").write_text(text)
    data = load_run(tmp_path)
    assert data.unreadable == ("plan.yml",) and data.plan == {}


def test_ranges_of_the_probe(tmp_path):
    fake_run.write(tmp_path, steps=30, found=False)
    probe = {"layers": fake_run.layers(), "step": 0, "loss_scale": 1.0, "verdict": {"culprit": None}}
    (tmp_path / "amp" / "ranges.json").write_text(json.dumps(probe))
    data = load_run(tmp_path)
    assert data.layers_step == 0 and len(data.layers) == 60 and advice(data).level == "good"


# -- what is drawn -------------------------------------------------------------------------------------


def test_the_charts_hold_the_events_numbers(data):
    charts = {chart.key: chart for chart in step_charts(data)}
    assert sorted(charts) == ["loss", "lr", "scale", "skip_rate"]
    by_step = {e.step: e for e in data.events}
    for step, value in charts["scale"].series[0].points:
        assert by_step[int(step)].loss_scale == value
    for step, value in charts["lr"].series[0].points:
        assert by_step[int(step)].lr == value
    for step, value in charts["loss"].series[0].points:
        assert by_step[int(step)].loss == value
    assert charts["scale"].marks == tuple(e.step for e in data.events if e.skipped)
    assert max(v for _, v in charts["skip_rate"].series[0].points) == pytest.approx(0.06)


def test_thinning_keeps_spikes_and_ends():
    points = [(float(i), 0.0) for i in range(10_000)]
    points[4321] = (4321.0, 9.0)
    points[8765] = (8765.0, -9.0)
    kept = thin(points)
    assert len(kept) < 700 and (4321.0, 9.0) in kept and (8765.0, -9.0) in kept
    assert kept[0] == points[0] and kept[-1] == points[-1] and list(kept) == sorted(kept)


def test_smoothing_does_not_lag():
    line = [(float(i), 3.0 * i) for i in range(500)]
    assert [v for _, v in smooth(line)] == pytest.approx([v for _, v in line])


def test_the_histogram_counts_every_norm(data):
    histogram = norm_histogram(data.events)
    skipped = sum(e.skipped for e in data.events)
    assert sum(histogram.counts) == len(data.events) - skipped and histogram.nonfinite == skipped
    assert norm_histogram([]) is None


def test_the_range_chart_shows_the_culprit_and_what_is_near(data):
    shown = ranges(data)
    names = [row.name for row in shown.rows]
    assert fake_run.CULPRIT in names and len(names) == 32 and shown.total == 60
    assert [row.order for row in shown.rows] == sorted(row.order for row in shown.rows)
    left_out = [layer for layer in data.layers if layer.name not in names]
    assert all(danger(layer) < math.log10(1e4 / FLOAT16_MAX) for layer in left_out)


# -- words ----------------------------------------------------------------------------------------------


def test_the_verdict_of_a_healed_run(data):
    words = advice(data)
    assert words.level == "warn" and fake_run.CULPRIT in words.headline.en and "healthy since" in words.headline.en
    assert words.yaml == (fake_run.YAML,) and "81234" in words.lines[0].zh
    assert sum(not v.normal for v in windows(data.events, fake_run.POLICY)) == 1


def test_the_figures(data):
    values = {label.en: value for label, value in tiles(data)}
    skipped = sum(e.skipped for e in data.events)
    assert values["steps"] == "1200" and values["updates"] == str(1200 - skipped)
    assert values["skipped"] == f"{skipped} (1 %)" and values["last loss scale"] == number(data.events[-1].loss_scale)
    assert values["last loss"] == number(data.events[-1].loss) and values["ops in half"] == "71.6 %"


def changed(tmp_path, change, plan=None):
    fake_run.write(tmp_path, steps=300, found=False)
    path = tmp_path / "amp" / "events.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row.update(skipped=False)
        change(row)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    if plan:
        text = (tmp_path / "amp" / "plan.yml").read_text()
        (tmp_path / "amp" / "plan.yml").write_text(text.replace(*plan))
    return advice(load_run(tmp_path))


def test_a_healthy_run(tmp_path):
    words = changed(tmp_path, lambda row: None)
    assert words.level == "good" and not words.yaml and "None of 300 steps" in words.lines[0].en


def test_steps_that_were_not_written_count_as_updates(tmp_path):
    """``every_n_steps: 10`` writes every tenth step and each skip: 3 skips in 300 steps are normal."""
    fake_run.write(tmp_path, steps=300, found=False)
    path = tmp_path / "amp" / "events.jsonl"
    kept = [e for e in load_run(tmp_path).events if e.step == 1 or e.step % 10 == 0 or e.skipped]
    skipped = sum(e.skipped for e in kept)
    path.write_text("\n".join(e.to_json() for e in kept))
    data = load_run(tmp_path)
    assert len(data.events) < 40 and advice(data).level == "good" and f"{skipped} of 300" in advice(data).lines[0].en
    assert dict((label.en, value) for label, value in tiles(data))["skipped"] == f"{skipped} ({percent(skipped / 300)})"


def test_a_collapse_without_a_diagnosis(tmp_path):
    words = changed(tmp_path, lambda row: row.update(skipped=row["step"] > 250))
    assert words.level == "bad" and "Not normal" in words.headline.en and "不正常" in words.headline.zh


def test_a_static_scale_that_skips(tmp_path):
    words = changed(tmp_path, lambda row: row.update(skipped=row["step"] > 250), ("dynamic: true", "dynamic: false"))
    assert words.yaml == ("amp:\n  use_dynamic_loss_scaling: true",)


def test_no_effect_and_underflow_and_a_loss_term(tmp_path):
    def change(row):
        row.update(half_share=0.0, zero_grad_share=0.93, losses={"ctc": 1.0, "nrtr": "nan"})

    words = changed(tmp_path, change)
    text = " ".join(line.en for line in words.lines)
    assert words.level == "warn" and "no effect" in text and "93 %" in text and "nrtr" in text and "ctc," not in text


def test_not_an_amp_problem(tmp_path):
    fake_run.write(tmp_path, steps=30, found=False)
    finding = {**fake_run.overflow(), "step": 20}
    finding["verdict"] = {"culprit": None, "where": None, "cause_en": "x", "cause_zh": "y", "yaml": "", "not_amp": True}
    (tmp_path / "amp" / "overflow-20.json").write_text(json.dumps(finding))
    words = advice(load_run(tmp_path))
    assert words.level == "bad" and "not an AMP problem" in words.headline.en and not words.yaml


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.inf, "inf"),
        (math.nan, "NaN"),
        (1024.0, "1024"),
        (0.00012346, "0.0001235"),
        (2.0**24, "16777216"),
    ],
)
def test_number(value, text):
    assert number(value) == text


def test_percent():
    assert [percent(v) for v in (None, 0.0, 0.0123, 0.716, 1.0)] == ["–", "0 %", "1.2 %", "71.6 %", "100 %"]
