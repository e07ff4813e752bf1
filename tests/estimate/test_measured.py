"""Real configs: the estimate from 2 and 4 samples against the allocator's peak in three real training steps."""

import importlib.util

import pytest

from benchmarks.estimate import CASES, run_child

#: Of the benchmark's cases, those that take a few seconds; docs/en/estimate.md has all of them.
SMALL = {"crnn": 12, "cls mobilenetv3": 24, "ernie 4x128": 12}


@pytest.mark.parametrize("name", SMALL)
def test_error_is_below_ten_percent(name, tmp_path):
    package = "paddlenlp" if "ernie" in name else "unstructured_paddleocr"
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"package {package} is not installed")
    config = CASES[name][0](tmp_path)
    measured, estimated = run_child(config, "both", SMALL[name])
    assert measured > 1 << 20
    assert estimated == pytest.approx(measured, rel=0.10)
