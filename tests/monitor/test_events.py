"""Events: what is written is read back, in strict JSON, whatever the numbers; and a killed run's file can be read."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_amp_plugin.monitor.events import StepEvent, read_events, read_log

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
MAYBE = st.none() | ANY_FLOAT

EVENTS = st.builds(
    StepEvent,
    step=st.integers(1, 10**9),
    loss=MAYBE,
    losses=st.dictionaries(st.text(max_size=8), ANY_FLOAT, max_size=3),
    loss_scale=ANY_FLOAT,
    skipped=st.booleans(),
    grad_norm=MAYBE,
    lr=MAYBE,
    seconds=MAYBE,
    samples=st.none() | st.integers(0, 10**6),
    half_share=st.none() | st.floats(0, 1),
    zero_grad_share=st.none() | st.floats(0, 1),
    updates=st.none() | st.integers(0, 10**9),
)


def same(a, b):
    return repr(a) == repr(b)  # NaN equals itself here


def refuse(name):
    raise AssertionError(f"{name} is not JSON")


@given(EVENTS)
def test_round_trip_in_strict_json_on_one_line(event):
    line = event.to_json()
    assert "\n" not in line
    json.loads(line, parse_constant=refuse)
    assert same(StepEvent.from_json(line), event)


def test_numbers_of_numpy_are_plain_numbers():
    import numpy as np

    event = StepEvent(step=np.int64(3), loss=np.float32(0.5), skipped=np.bool_(True), samples=np.int32(8))
    assert json.loads(event.to_json()) == {"step": 3, "skipped": True, "loss": 0.5, "loss_scale": 1.0, "samples": 8}


def test_unknown_keys_of_a_newer_version_are_passed_over():
    assert StepEvent.from_json('{"step": 4, "colour": "red", "loss": "nan"}').step == 4


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "3",
        '{"loss": 1}',
        '{"step": 0}',
        '{"step": true}',
        '{"step": 1.5}',
        '{"step": 1, "loss": NaN}',
        '{"step": 1, "loss": "much"}',
        '{"step": 1, "skipped": "no"}',
        '{"step": 1, "losses": [1]}',
        '{"step": 1, "samples": "inf"}',
    ],
)
def test_what_is_no_event_is_refused(line):
    with pytest.raises(ValueError):
        StepEvent.from_json(line)


def test_samples_per_second():
    assert StepEvent(step=1, samples=48, seconds=0.5).samples_per_second == 96
    assert StepEvent(step=1, samples=48, seconds=0.0).samples_per_second is None
    assert StepEvent(step=1, seconds=0.5).samples_per_second is None


def write(path, *lines, end="\n"):
    path.write_bytes(("\n".join(lines) + end).encode())
    return path


def line(step, loss=0.0):
    return StepEvent(step=step, loss=loss).to_json()


def test_a_truncated_last_line_is_counted_and_passed_over(tmp_path):
    path = write(tmp_path / "e", line(1), line(2), line(3)[:-9], end="")
    log = read_log(path)
    assert [e.step for e in log.events] == [1, 2] and log.broken == 1


def test_bytes_cut_inside_a_chinese_character(tmp_path):
    path = tmp_path / "e"
    text = StepEvent(step=2, losses={"损失": 1.0}).to_json().encode()
    path.write_bytes(line(1).encode() + b"\n" + text[: text.index("失".encode()) + 1])
    assert [e.step for e in read_events(path)] == [1]


def test_after_a_resume_the_later_lines_win_and_what_was_undone_is_gone(tmp_path):
    path = write(tmp_path / "e", *(line(s, 1.0) for s in range(1, 8)), *(line(s, 2.0) for s in range(4, 6)))
    assert [(e.step, e.loss) for e in read_events(path)] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0)]


def test_blank_lines_and_an_empty_file(tmp_path):
    assert [e.step for e in read_events(write(tmp_path / "e", "", line(1), "", line(2)))] == [1, 2]
    assert read_log(write(tmp_path / "f", end="")).events == []


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        read_events(tmp_path / "nothing")


def test_infinity_is_kept(tmp_path):
    event = StepEvent(step=1, loss=-math.inf, grad_norm=math.inf, loss_scale=1024)
    assert '"-inf"' in event.to_json() and '"inf"' in event.to_json()
    assert StepEvent.from_json(event.to_json()) == event
