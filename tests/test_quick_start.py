"""The quick start, as `make train` runs it: 0.90 on held-out lines, with AMP and without, and what follows."""

from __future__ import annotations

import re

import numpy as np
import pytest
import yaml

from tests.quick_start import PROJECT, run, trained

pytestmark = pytest.mark.convergence


@pytest.fixture(scope="session")
def amp(tmp_path_factory):
    return trained(tmp_path_factory.getbasetemp() / "quick_start_amp")


def test_it_learns_in_mixed_precision(amp):
    print(f"amp: true: accuracy {amp.accuracy:.3f} in {amp.seconds:.0f} s")
    assert amp.accuracy >= 0.90
    steps, updates, skipped = map(int, re.search(r"amp: (\d+) steps, (\d+) updates, (\d+) skipped", amp.text).groups())
    assert steps == updates + skipped and skipped <= 5
    # 1000 good steps in a row double the scale: it is a scale in use.
    assert float(re.search(r"final loss scale (\d+)", amp.text).group(1)) > 1024
    assert int(re.search(r"(\d+)% of the forward ops in float16", amp.text).group(1)) > 30
    plan = yaml.safe_load((amp.output / "amp" / "plan.yml").read_text(encoding="utf-8"))
    assert "O1" in str(plan) and "float16" in str(plan)


def test_float32_reaches_the_same(amp, tmp_path_factory):
    """Within 0.02, both ways, as the mean of two seeds: one training differs from another by 0.01 by chance."""
    base = tmp_path_factory.getbasetemp()
    plain = trained(base / "quick_start_fp32", "amp=false")
    again = trained(base / "quick_start_amp_7", "Global.seed=7")
    plain_again = trained(base / "quick_start_fp32_7", "amp=false", "Global.seed=7")
    found = [run.accuracy for run in (amp, again, plain, plain_again)]
    print(f"accuracy of two seeds: amp: true {found[:2]}, amp: false {found[2:]}")
    assert min(found) >= 0.90
    assert abs(np.mean(found[:2]) - np.mean(found[2:])) <= 0.02


def test_the_commands_it_prints_work(amp, tmp_path):
    """Evaluate, export, read an image: the lines under "What to do next", as printed."""
    lines = amp.text[amp.text.index("What to do next") :].splitlines()
    commands = {line.split(": ")[0].strip(): line.split(": ", 1)[1].split() for line in lines if ": python" in line}
    assert set(commands) == {"evaluate", "export", "use"}
    text = run(*commands["evaluate"][1:])
    assert float(re.search(r"acc:\s*([\d.]+)", text).group(1)) == pytest.approx(amp.accuracy, abs=1e-6)
    run(*commands["export"][1:])
    assert any((amp.output / "inference").iterdir())
    run(*commands["use"][1:])
    path, read, score = (amp.output / "predicts.txt").read_text(encoding="utf-8").split("\t")
    labels = dict(row.split("\t") for row in (PROJECT / "train_data/ocr_amp/val.txt").read_text("utf-8").splitlines())
    assert path.endswith(".jpg") and 0 < float(score) <= 1 and len(labels) == 500
    assert np.char.str_len(read) >= 1
