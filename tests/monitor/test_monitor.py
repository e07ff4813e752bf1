"""The monitor: right numbers in both files, one rank, lines when they are due, and nothing stops a training."""

from __future__ import annotations

import builtins
import errno
import json
import os
import shutil
import subprocess
import sys

import pytest

from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.monitor import Monitor, StepEvent, read_events
from paddle_amp_plugin.monitor import writer as writers

LogReader = pytest.importorskip("visualdl").LogReader

VDL = f"vdl/{writers.VDL_FILE}"


@pytest.fixture
def said():
    return []


@pytest.fixture(autouse=True)
def english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def event(step, *, skipped=False, **more):
    values = {"loss": 1.0 / step, "loss_scale": 1024.0, "grad_norm": 2.0, "lr": 1e-3, "seconds": 0.25, "samples": 48}
    return StepEvent(step=step, skipped=skipped, **{**values, **more})


def run(folder, said, steps=range(1, 11), skips=(), **options):
    options.setdefault("policy", ScalingPolicy())
    monitor = Monitor(folder, say=said.append, **options)
    for step in steps:
        monitor.step(event(step, skipped=step in skips))
    monitor.close()
    return monitor


def curve(folder, tag):
    data = LogReader(file_path=str(folder / VDL)).get_data("scalar", tag)
    return [(row.id, row.value) for row in data]


def test_jsonl_and_visualdl_hold_the_same_numbers(tmp_path, said):
    monitor = Monitor(tmp_path, say=said.append, policy=ScalingPolicy())
    events = [event(s, skipped=s == 3, half_share=0.75, losses={"ctc": 0.5, "nrtr": 0.25}) for s in range(1, 8)]
    events[0] = event(1, zero_grad_share=0.125, half_share=0.75, losses={"ctc": 0.5, "nrtr": 0.25})
    events[2] = event(3, skipped=True, grad_norm=float("inf"), half_share=0.75)
    for one in events:
        monitor.step(one)
    monitor.close()
    assert read_events(tmp_path / "events.jsonl") == events and not said
    assert curve(tmp_path, "loss_scale") == [(s, 1024.0) for s in range(1, 8)]
    assert [v for _, v in curve(tmp_path, "loss")] == pytest.approx([1 / s for s in range(1, 8)])
    assert curve(tmp_path, "skipped") == [(s, float(s == 3)) for s in range(1, 8)]
    assert [v for _, v in curve(tmp_path, "skip_rate")] == pytest.approx([0, 0, 1 / 3, 1 / 4, 1 / 5, 1 / 6, 1 / 7])
    assert curve(tmp_path, "grad_norm")[2] == (3, float("inf"))
    assert curve(tmp_path, "samples_per_second") == [(s, 192.0) for s in range(1, 8)]
    assert curve(tmp_path, "half_share")[0] == (1, 0.75) and curve(tmp_path, "zero_grad_share") == [(1, 0.125)]
    assert curve(tmp_path, "loss_terms/nrtr")[0] == (1, 0.25)
    assert [v for _, v in curve(tmp_path, "lr")] == pytest.approx([1e-3] * 7)


def test_events_are_on_disk_at_once(tmp_path, said):
    monitor = Monitor(tmp_path, say=said.append)
    monitor.step(event(1))
    assert len(read_events(tmp_path / "events.jsonl")) == 1
    monitor.close()
    monitor.close()  # twice does no harm


def test_resume_appends_to_both_files(tmp_path, said):
    run(tmp_path, said, range(1, 6))
    run(tmp_path, said, range(4, 8))
    assert [e.step for e in read_events(tmp_path / "events.jsonl")] == list(range(1, 8))
    assert [s for s, _ in curve(tmp_path, "loss")] == [1, 2, 3, 4, 5, 4, 5, 6, 7]
    assert [p.name for p in (tmp_path / "vdl").iterdir()] == [writers.VDL_FILE]


def test_resume_after_a_kill_in_the_middle_of_a_line_and_of_a_record(tmp_path, said):
    run(tmp_path, said, range(1, 4))
    for name, cut in (("events.jsonl", 11), (VDL, 5)):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-cut])
    run(tmp_path, said, range(4, 6))
    assert [e.step for e in read_events(tmp_path / "events.jsonl")] == [1, 2, 4, 5]
    assert [s for s, _ in curve(tmp_path, "loss")] == [1, 2, 3, 4, 5]


def test_every_n_steps_still_writes_and_counts_each_skip(tmp_path, said):
    monitor = Monitor(tmp_path, every_n_steps=5, visualdl=False, say=said.append, policy=ScalingPolicy())
    for step in range(1, 21):
        monitor.step(event(step, skipped=step in (7, 8)))
    assert [e.step for e in read_events(tmp_path / "events.jsonl")] == [1, 5, 7, 8, 10, 15, 20]
    assert monitor.skip_rate == pytest.approx(0.1)
    monitor.close()


def test_only_rank_0_writes_and_speaks(tmp_path, said):
    run(tmp_path / "amp", said, range(1, 300), skips=range(200, 220), rank=1)
    assert not (tmp_path / "amp").exists() and not said


def test_without_visualdl_there_is_no_folder_and_no_import(tmp_path, said):
    code = (
        "import sys\nfrom pathlib import Path\nfrom paddle_amp_plugin.monitor import Monitor, StepEvent\n"
        "m = Monitor(Path(sys.argv[1]), visualdl=False, say=print)\nm.step(StepEvent(step=1))\nm.close()\n"
        "print([n for n in ('visualdl', 'paddle', 'numpy', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=os.getcwd(),
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["events.jsonl"]


# -- lines ------------------------------------------------------------------------------------------------


def test_one_line_every_n_steps(tmp_path, said):
    run(tmp_path, said, range(1, 301), skips=(50, 120, 170), visualdl=False)
    assert said == [
        "amp: 1 of 100 steps skipped: normal (the scale is searching), loss scale 1024",
        "amp: 2 of 100 steps skipped: normal (the scale is searching), loss scale 1024",
        "amp: 0 of 100 steps skipped: normal, loss scale 1024",
    ]


def test_an_alarm_does_not_wait_for_its_turn_and_is_not_repeated(tmp_path, said):
    monitor = Monitor(tmp_path, visualdl=False, say=said.append, policy=ScalingPolicy())
    verdicts = {s: monitor.step(event(s, skipped=120 <= s < 150)) for s in range(1, 200)}
    given = {s: v for s, v in verdicts.items() if v is not None}
    assert sorted(given) == [100, 123] and given[100].normal and not given[123].normal
    assert said[1] == "amp: 4 of the last 50 skipped: not normal (4 in a row), loss scale 1024, diagnosing"
    monitor.close()


def test_no_lines_if_none_are_wanted(tmp_path, said):
    run(tmp_path, said, range(1, 300), skips=range(100, 200), visualdl=False, verdict_every=0)
    assert not said


def test_going_back_to_an_earlier_step_starts_the_window_again(tmp_path, said):
    monitor = Monitor(tmp_path, visualdl=False, say=said.append, policy=ScalingPolicy())
    for step in (*range(1, 90), *range(60, 70)):
        monitor.step(event(step, skipped=step >= 80))
    assert monitor.skip_rate == 0.0
    monitor.close()


def test_zero_share_is_sampled(tmp_path, said):
    monitor = Monitor(tmp_path, visualdl=False, say=said.append)
    assert [s for s in range(1, 201) if monitor.wants_zero_share(s)] == [1, 50, 100, 150, 200]
    monitor.close()


# -- nothing stops a training ---------------------------------------------------------------------------


class Full:
    """A file on a disk that became full."""

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk(tmp_path, said):
    monitor = Monitor(tmp_path, say=said.append)
    monitor.step(event(1))
    monitor._jsonl._file = Full(monitor._jsonl._file)
    monitor._vdl._file = Full(monitor._vdl._file)
    for step in range(2, 50):
        monitor.step(event(step))
    monitor.close()
    assert len(said) == 2 and all("No space left on device" in line and "\n" not in line for line in said)
    assert said[0].startswith("amp: events.jsonl is off") and said[1].startswith("amp: VisualDL is off")
    assert [e.step for e in read_events(tmp_path / "events.jsonl")] == [1]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_really_full_disk(small_disk, said):
    monitor = Monitor(small_disk / "amp", say=said.append, verdict_every=0)
    for step in range(1, 3000):
        monitor.step(event(step))
    monitor.close()
    assert len(said) == 2 and all("No space left on device" in line for line in said), said
    assert len(read_events(small_disk / "amp" / "events.jsonl")) > 50


def test_no_torn_record_is_left_on_a_full_disk(small_disk, said, monkeypatch):
    monkeypatch.setattr(writers, "FLUSH_SECONDS", 0.0)
    monitor = Monitor(small_disk / "amp", say=said.append, verdict_every=0)
    for step in range(1, 3000):
        monitor.step(event(step))
    monitor.close()
    steps = [s for s, _ in curve(small_disk / "amp", "loss")]
    assert len(said) == 2 and len(steps) > 20 and steps == list(range(1, len(steps) + 1))


def test_a_folder_that_cannot_be_made(tmp_path, said):
    (tmp_path / "file").write_text("")
    run(tmp_path / "file" / "amp", said)
    assert len(said) == 2 and all("training goes on" in line for line in said)


def test_a_read_only_folder(tmp_path, said, monkeypatch):
    real = builtins.open

    def refuse(path, mode="r", *args, **kwargs):  # root may write anywhere, so the mode bits would test nothing
        if str(path).startswith(str(tmp_path)) and mode[0] in "aw":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, mode, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", refuse)
    run(tmp_path, said)
    assert len(said) == 2 and all("Permission denied" in line for line in said)


def test_a_deleted_folder(tmp_path, said, monkeypatch):
    monkeypatch.setattr(writers, "FLUSH_SECONDS", 0.0)
    monitor = Monitor(tmp_path / "amp", say=said.append)
    monitor.step(event(1))
    shutil.rmtree(tmp_path / "amp")
    for step in range(2, 20):
        monitor.step(event(step))
    monitor.close()
    assert len(said) == 2 and all("No such file" in line for line in said)


def test_a_missing_visualdl(tmp_path, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "visualdl.component.base_component", None)
    run(tmp_path, said)
    assert said == ["amp: VisualDL is off from here on (not installed: pip install visualdl); training goes on"]
    assert len(read_events(tmp_path / "events.jsonl")) == 10


@pytest.mark.parametrize("error", [TypeError("Descriptors cannot be created\ndirectly"), OSError(30, "Read-only")])
def test_a_broken_visualdl(tmp_path, said, monkeypatch, error):
    import visualdl.component.base_component as component

    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(component, "scalar", broken)
    run(tmp_path, said)
    assert len(said) == 1 and said[0].startswith("amp: VisualDL is off") and "\n" not in said[0]
    assert len(read_events(tmp_path / "events.jsonl")) == 10


def test_every_line_of_the_file_is_strict_json(tmp_path, said):
    monitor = Monitor(tmp_path, visualdl=False, say=said.append)
    monitor.step(event(1, loss=float("nan"), grad_norm=float("-inf"), loss_scale=float("inf")))
    monitor.close()
    row = json.loads((tmp_path / "events.jsonl").read_text(), parse_constant=lambda c: pytest.fail(c))
    assert row["loss"] == "nan" and row["grad_norm"] == "-inf"
