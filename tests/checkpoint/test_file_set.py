"""Several files replaced at once: whatever happens, a reader finds the old ones or the new ones."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.file_set import ready_folder, recover, replacing, staging_folder

NAMES = ("latest.pdparams", "latest.pdopt", "latest.states", "best_model/model.pdparams", "latest.pdamp")
KILLS = 30

WRITER = """
import sys
from pathlib import Path
from paddle_amp_plugin.file_set import replacing
folder, names = Path(sys.argv[1]), sys.argv[2:]
print("ready", flush=True)
for number in range(1, 100000):
    with replacing(folder, "latest") as staging:
        for name in names:
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_bytes(b"%d " % number * 20000)
"""


def generations(folder: Path) -> set[bytes]:
    found = set()
    for name in NAMES:
        words = (folder / name).read_bytes().split()
        assert len(words) == 20000, name
        found |= set(words)
    return found


def fill(folder: Path, value: bytes = b"0 ") -> None:
    with replacing(folder, "latest") as staging:
        (staging / "best_model").mkdir()
        for name in NAMES:
            (staging / name).write_bytes(value * 20000)


def test_a_kill_at_any_moment_leaves_a_whole_set(tmp_path):
    """30 times SIGKILL at a random moment of a process that does nothing but save."""
    rng, seen, interrupted = random.Random(3), set(), 0
    fill(tmp_path)
    for _ in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), *NAMES], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.06))
        child.send_signal(signal.SIGKILL)
        child.wait()
        interrupted += ready_folder(tmp_path, "latest").exists() or staging_folder(tmp_path, "latest").exists()
        recover(tmp_path, "latest")
        found = generations(tmp_path)
        assert len(found) == 1, found
        seen |= found
    assert len(seen) > 1 and interrupted > 0, (seen, interrupted)  # else nothing was tried


@pytest.mark.parametrize("moved", range(len(NAMES) + 1))
def test_an_interrupted_replacement_is_finished(tmp_path, moved):
    """Killed after 0, 1, … moves of the commit."""
    fill(tmp_path)
    ready = ready_folder(tmp_path, "latest")
    for index, name in enumerate(NAMES):
        target = (tmp_path if index < moved else ready) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"1 " * 20000)
    ready.mkdir(exist_ok=True)
    assert recover(tmp_path, "latest") and generations(tmp_path) == {b"1"}
    assert not ready.exists() and not recover(tmp_path, "latest")


def test_what_was_written_since_is_not_overwritten(tmp_path):
    """A kill while moving, then a run without the plugin saved under the same name: its checkpoint counts."""
    fill(tmp_path)
    ready = ready_folder(tmp_path, "latest")
    ready.mkdir()
    (ready / NAMES[0]).write_bytes(b"1 " * 20000)
    for name in NAMES:
        (tmp_path / name).write_bytes(b"2 " * 20000)
        os.utime(tmp_path / name, (time.time() + 5, time.time() + 5))
    recover(tmp_path, "latest")
    assert generations(tmp_path) == {b"2"} and not ready.exists()


def test_an_unfinished_folder_counts_for_nothing(tmp_path):
    fill(tmp_path)
    staging = staging_folder(tmp_path, "latest")
    staging.mkdir()
    (staging / "latest.pdparams").write_bytes(b"half")
    assert not recover(tmp_path, "latest") and generations(tmp_path) == {b"0"}
    assert staging.exists()  # it may be another process's, just now
    fill(tmp_path, b"1 ")
    assert not staging.exists() and generations(tmp_path) == {b"1"}


def test_an_exception_changes_nothing(tmp_path):
    fill(tmp_path)
    with pytest.raises(ZeroDivisionError), replacing(tmp_path, "latest") as staging:
        (staging / "latest.pdparams").write_bytes(b"new")
        raise ZeroDivisionError
    assert generations(tmp_path) == {b"0"} and not staging.exists()


def test_a_full_disk_changes_nothing(tmp_path):
    """The system refuses to let the file grow (RLIMIT_FSIZE), as a full disk would."""
    fill(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(AmpError) as caught:
            fill(tmp_path, b"1 ")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.code == "AMP091" and str(tmp_path) in caught.value.message
    assert generations(tmp_path) == {b"0"} and not staging_folder(tmp_path, "latest").exists()


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(AmpError) as caught, replacing(tmp_path / "out", "latest"):
        pass
    assert caught.value.code == "AMP091"


def test_a_link_to_a_folder_and_names_of_any_language(tmp_path):
    real, link = tmp_path / "真实 目录", tmp_path / "输出 out"
    real.mkdir()
    link.symlink_to(real, target_is_directory=True)
    with replacing(link, "最新 model") as staging:
        (staging / "最新 model.pdparams").write_bytes(b"1")
    assert (real / "最新 model.pdparams").read_bytes() == b"1" and link.is_symlink()
    assert sorted(p.name for p in real.iterdir()) == ["最新 model.pdparams"]
