"""What PaddleOCR forgets, drowns or breaks when it loads and saves, and what becomes of it with the plugin."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from paddle_amp_plugin.hosts.paddleocr_checkpoint import _states
from tests.hosts import tiny


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("load")
    result = tiny.call([str(Path(__file__).with_name("load_cases.py")), str(folder)], folder)
    lines = [line for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, result.stdout[-5000:]
    return json.loads(lines[-1].removeprefix("RESULT "))


def test_the_best_metric_and_the_step_are_not_forgotten(found):
    """The host alone starts again at 0, so the next evaluation overwrites the best model."""
    assert found["alone"]["loads"]["best"]["result"]["acc"] == 0.0
    assert "global_step" not in found["alone"]["loads"]["best"]["result"]
    ours = found["ours"]["loads"]["best"]["result"]
    assert (ours["acc"], ours["best_epoch"], ours["start_epoch"], ours["global_step"]) == (0.955, 2, 4, 12)


def test_a_half_file_is_read_into_float32_with_one_line(found):
    ours = found["ours"]["loads"]["half"]
    assert ours["same"] and ours["dtypes"] == ["paddle.float32"] and ours["result"]["is_float16"] is False
    lines = [line for line in ours["said"] if "float16" in line]
    assert lines == [
        "INFO amp: half.pdparams: 60 tensors are float16: read into FP32 (they hold no more than float16 had)"
    ]


def test_what_does_not_fit_is_one_line(found):
    """The host alone says a line a weight."""
    alone, ours = (found[who]["loads"]["part"]["said"] for who in ("alone", "ours"))
    assert len([line for line in alone if "not in model" in line]) == 6
    assert [line for line in ours if "fit" in line or "not in" in line or "WARNING" in line] == [
        "INFO amp: part.pdparams: 4 of the model's 60 weights were read; 56 are not in the file (l0.weight, l0.bias, "
        "l1.weight and 53 more); 6 of the file are not in the model (l30.weight, l30.bias, l31.weight and 3 more)"
    ]


def test_a_file_of_another_model_is_an_error(found):
    """The host alone goes on with random weights."""
    assert found["alone"]["loads"]["other"]["error"] == ""
    assert found["ours"]["loads"]["other"]["error"].startswith("AMP094 no weight in other.pdparams fits this model")


@pytest.mark.parametrize(("name", "code"), [("torn", "AMP096"), ("torn optimizer", "AMP097"), ("list", "AMP096")])
def test_files_that_cannot_be_read_are_named(found, name, code):
    assert not found["alone"]["loads"][name]["error"].startswith("AMP") and found["alone"]["loads"][name]["error"]
    assert found["ours"]["loads"][name]["error"].startswith(f"{code} cannot read ")


def test_a_save_that_fails_half_way(found):
    """The host alone leaves the moments of one step and the weights of another."""
    assert found["alone"]["interrupted"] == {"changed": ["latest.pdopt"], "error": "OSError"}
    assert found["ours"]["interrupted"]["changed"] == []
    assert found["ours"]["interrupted"]["error"].startswith("AMP091 ") and "No space left" in str(found["ours"])


class _GoesOff:
    def __reduce__(self):
        return (open, ("/nonexistent/went-off", "w"))


def test_a_save_that_would_hold_nan(found):
    assert found["alone"]["nan"] == {"finite": False, "error": ""}
    assert found["ours"]["nan"]["finite"] and found["ours"]["nan"]["error"].startswith("AMP046 ")


def test_alone_a_kill_leaves_files_of_two_checkpoints(found):
    """With the plugin: ``test_kill.py``."""
    assert found["alone"]["killed"] == {"signal": -9, "changed": ["latest.pdopt"]}


def test_states_are_read_without_executing_anything(tmp_path):
    """Where there is no .pdamp the host's own pickle is looked into, for plain values only."""
    path = tmp_path / "latest.states"
    path.write_bytes(pickle.dumps({"best_model_dict": {"acc": 0.5}, "global_step": 3}, protocol=2))
    assert _states(path) == {"best_model_dict": {"acc": 0.5}, "global_step": 3}
    for content in (pickle.dumps({"x": _GoesOff()}, protocol=2), b"", b"nonsense", pickle.dumps([1], protocol=2)):
        path.write_bytes(content)
        assert _states(path) == {}
    assert _states(tmp_path / "never") == {}
