"""PaddleOCR's trainer, stopped and resumed: to the bit what an unbroken run gives, and every difference said."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest

from paddle_amp_plugin.checkpoint_files import read
from paddle_amp_plugin.monitor import read_events, read_log
from tests.checkpoint import ocr
from tests.hosts import tiny

CASES = list(itertools.product(("det", "rec"), ("O1", "O2"), ("float16", "bfloat16"), ("plain", "accumulated")))
#: Each value of each kind once or twice; the others take minutes.
FIRST = [
    ("det", "O1", "float16", "plain"),
    ("det", "O2", "bfloat16", "plain"),
    ("rec", "O1", "bfloat16", "plain"),
    ("rec", "O2", "float16", "plain"),
    ("det", "O2", "float16", "accumulated"),
    ("rec", "O1", "float16", "accumulated"),
]
#: Twice what fits: the scale doubles after each update, so every other step is skipped, on both sides of the cut.
SCALE = {"det": 2.0**18, "rec": 2.0**14}


def amp(kind: str, level: str, dtype: str, steps: str = "plain") -> dict:
    grows = {"incr_every_n_steps": 1, "init_loss_scaling": SCALE[kind]} if dtype == "float16" else {}
    window = {"accumulate_steps": 2, "ema": {"decay": 0.9}} if steps == "accumulated" else {}
    return {"level": level, "dtype": dtype, **grows, **window}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("数据 data")
    tiny.make_data(folder)
    ocr.make_pages(folder)
    return folder


def halve_batches(document: dict) -> None:
    """Six batches an epoch in place of three; the recognizer's last one is smaller (3 lines after 9)."""
    batch = {16: 9, 4: 2}[document["Train"]["loader"]["batch_size_per_card"]]
    document["Train"]["loader"].update(batch_size_per_card=batch, drop_last=False)


def make_runs(cases, data: Path, root: Path) -> dict:
    """(unbroken folder, folder of the run resumed after its first epoch, what that printed) of every case."""
    (root / "真实 目录").mkdir()
    (root / "输出 out").symlink_to(root / "真实 目录", target_is_directory=True)
    jobs, folders = [], {}
    for case in cases:
        kind, *settings = case
        outputs = [root / "输出 out" / f"{'-'.join(case)} {part}" for part in ("unbroken", "resumed")]
        for output in outputs:
            document = getattr(ocr, kind)(data, output, epochs=2, amp=amp(kind, *settings))
            if case[3] == "accumulated":
                halve_batches(document)
            jobs.append([str(tiny.write(root / f"{output.name}.yml", document))])
        jobs[-1].append(f"Global.checkpoints={outputs[0] / 'iter_epoch_1'}")
        folders[case] = outputs
    done = ocr.many(jobs, root)
    return {case: (*folders[case], done[2 * i + 1]) for i, case in enumerate(cases)}


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    return make_runs(FIRST, data, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def more_runs(data, tmp_path_factory):
    return make_runs([case for case in CASES if case not in FIRST], data, tmp_path_factory.mktemp("more"))


@pytest.mark.parametrize("case", FIRST, ids="-".join)
def test_to_the_bit(runs, case):
    check_to_the_bit(*runs[case], case)


@pytest.mark.convergence
@pytest.mark.parametrize("case", [case for case in CASES if case not in FIRST], ids="-".join)
def test_to_the_bit_of_the_others(more_runs, case):
    check_to_the_bit(*more_runs[case], case)


def check_to_the_bit(unbroken, resumed, done, case):
    """Weights, masters, moments, schedule, scaler, counters, random states and the order of the data."""
    assert done.code == "0", done.text[-3000:]
    assert ocr.differing(unbroken / "latest", resumed / "latest") == []
    assert any(line.startswith("amp: resumed after step 3 (") for line in done.said)
    assert not any("differs" in line or "no .pdamp" in line or "not to the bit" in line for line in done.said)
    events = read_events(unbroken / "amp" / "events.jsonl")
    again = read_events(resumed / "amp" / "events.jsonl")
    assert [e.step for e in events] == [1, 2, 3, 4, 5, 6] and [e.step for e in again] == [4, 5, 6]
    for one, other in zip(events[3:], again, strict=True):
        for name in ("loss", "losses", "loss_scale", "skipped", "grad_norm", "lr", "updates"):
            assert repr(getattr(one, name)) == repr(getattr(other, name)), name  # a NaN is equal, too
    if case[2] == "float16":
        skipped = [e.skipped for e in events]
        assert any(skipped[:3]) and any(skipped[3:]) and not all(skipped[3:]), skipped


def test_the_folder_holds_checkpoints_and_nothing_else(runs):
    unbroken, _, _ = runs["rec", "O2", "float16", "plain"]
    hidden = [path.name for path in unbroken.iterdir() if path.name.startswith(".")]
    assert hidden == [] and unbroken.parent.is_symlink()
    saved = read(unbroken / "iter_epoch_1", say=print)
    assert sorted(e.name for e in saved.files) == [f"iter_epoch_1.{s}" for s in ("pdopt", "pdparams", "states")]
    assert (saved.step, saved.level, saved.dtype, saved.host["epoch"]) == (3, "O2", "float16", 1)
    assert saved.host["global_step"] == saved.updates and saved.stored_dtype == saved.master_dtype == "float32"


@pytest.fixture(scope="module")
def others(runs, data, tmp_path_factory):
    """What else may be resumed: by name, (what it printed, its folder). One more epoch each."""
    unbroken, _, _ = runs["rec", "O2", "float16", "plain"]
    root = tmp_path_factory.mktemp("others")
    spoilt = {name: root / f"from {name}" for name in ("damaged", "foreign", "host", "written over")}
    for folder in spoilt.values():
        shutil.copytree(unbroken, folder)
    (spoilt["damaged"] / "latest.pdopt").write_bytes((unbroken / "latest.pdopt").read_bytes()[:-100])
    (spoilt["foreign"] / "latest.pdamp").write_bytes(b"\x80\x04not ours")
    (spoilt["host"] / "latest.pdamp").unlink()
    for suffix in (".pdparams", ".pdopt"):  # as a run without the plugin would
        shutil.copyfile(f"{unbroken / 'iter_epoch_1'}{suffix}", f"{spoilt['written over'] / 'latest'}{suffix}")
    settings = {
        "damaged": amp("rec", "O2", "float16"),
        "foreign": amp("rec", "O2", "float16"),
        "host": amp("rec", "O2", "float16"),
        "written over": amp("rec", "O2", "float16"),
        "bfloat16": {"level": "O1", "dtype": "bfloat16"},
        "float32": False,
        "fewer": amp("rec", "O2", "float16"),
    }
    jobs = []
    for name, key in settings.items():
        document = ocr.rec(data, root / name, epochs=3, amp=key)
        if name == "fewer":
            document["Train"]["loader"]["batch_size_per_card"] = 24
        path = tiny.write(root / f"{name}.yml", document)
        jobs.append([str(path), f"Global.checkpoints={spoilt.get(name, unbroken) / 'latest'}"])
    document = ocr.rec(data, root / "back", epochs=4, amp=amp("rec", "O2", "float16"))
    jobs.append([str(tiny.write(root / "back.yml", document)), f"Global.checkpoints={root / 'float32' / 'latest'}"])
    done = ocr.many(jobs, root)
    return {name: (one, root / name) for name, one in zip([*settings, "back"], done, strict=True)}


def test_a_damaged_file_is_named_and_the_last_good_checkpoint_offered(others):
    done, _ = others["damaged"]
    assert done.code == "AMP090" and "latest.pdopt: " in done.text and "latest.pdparams" not in done.text
    assert "iter_epoch_2 (step 6)" in done.text and "Traceback" not in done.text


def test_a_foreign_pdamp_is_named(others):
    done, _ = others["foreign"]
    assert done.code == "AMP092" and "latest.pdamp" in done.text and "Traceback" not in done.text


@pytest.mark.parametrize("name", ["host", "written over"])
def test_a_checkpoint_of_the_host_alone(others, name):
    done, folder = others[name]
    assert done.code == "0" and len([line for line in done.said if "no .pdamp" in line]) == 1
    assert any("latest.pdamp belongs to an earlier" in line for line in done.said) == (name == "written over")
    assert [e.step for e in read_events(folder / "amp" / "events.jsonl")] == [1, 2, 3]
    assert "no optimizer state" not in done.text


def test_the_step_of_the_host_goes_on(others, runs):
    """``global_step`` restarts at 0 in the host alone; here it is taken from its own ``.states``, too.

    It counts updates, so a run's last one is the checkpoint's plus the updates made since.
    """
    began = read(runs["rec", "O2", "float16", "plain"][0] / "latest", say=print).host["global_step"]
    for name in ("host", "bfloat16"):
        done, folder = others[name]
        made = sum(not event.skipped for event in read_events(folder / "amp" / "events.jsonl"))
        steps = re.findall(r"global_step: (\d+), ", done.text)
        assert int(steps[-1]) == began + made, (name, began, made, steps)


def test_another_dtype_and_level_are_allowed_and_named(others):
    done, folder = others["bfloat16"]
    assert done.code == "0"
    for change in ("amp.level: O2 -> O1", "amp.dtype: float16 -> bfloat16"):
        assert f"amp: differs from the checkpoint: {change}" in done.said
    assert [e.step for e in read_events(folder / "amp" / "events.jsonl")] == [7, 8, 9]


def test_float32_and_back(others):
    """R9: O2 -> FP32 -> O2. The FP32 run is the host's own: it reads our files, moments too, and leaves no .pdamp."""
    done, folder = others["float32"]
    assert done.code == "0" and "Optimizer set error" not in done.text
    assert not (folder / "latest.pdamp").exists()
    back, _ = others["back"]
    assert back.code == "0" and any("no .pdamp" in line for line in back.said) and "no optimizer" not in back.text


def test_other_data_is_said(others):
    done, _ = others["fewer"]
    assert (
        done.code == "0"
        and len([line for line in done.said if "had 3 batches" in line and "now it has 2" in line]) == 1
    )


# -- in processes of their own ---------------------------------------------------------------------------------


def test_within_an_epoch_and_on_in_the_same_folder(data, tmp_path):
    """``best_accuracy``, saved after an evaluation in the middle of an epoch, with workers that read ahead."""
    out = tmp_path / "out"
    document = ocr.rec(data, out, epochs=3, workers=2, amp={"level": "O2", "dtype": "float16"})
    document["Global"]["eval_batch_step"] = [0, 5]
    path = tiny.write(tmp_path / "c.yml", document)
    first = tiny.tool("train", "-c", str(path), cwd=tmp_path)
    assert first.returncode == 0, first.stdout[-4000:]
    kept = tmp_path / "kept"
    shutil.copytree(out, kept)
    assert read(out / "best_accuracy", say=print).host["batch"] == 2
    assert read(out / "best_model" / "model", say=print).step == 5
    again = tiny.tool("train", "-c", str(path), "-o", f"Global.checkpoints={out / 'best_accuracy'}", cwd=tmp_path)
    assert again.returncode == 0 and "after batch 2 of 3" in again.stdout, again.stdout[-4000:]
    assert ocr.differing(kept / "latest", out / "latest") == []
    log = read_log(out / "amp" / "events.jsonl")
    assert [e.step for e in log.events] == list(range(1, 10)) and not log.broken
    assert len((out / "amp" / "events.jsonl").read_text().splitlines()) == 9 + 4
    assert "amp: 9 steps, 9 updates" in again.stdout


FULL_DISK = """
import resource, signal, sys, runpy
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (150000, resource.RLIM_INFINITY))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_full_disk_keeps_the_former_checkpoint(runs, data, tmp_path):
    """The system refuses files of more than 150 kB (RLIMIT_FSIZE), as a full disk would; weights are larger."""
    source, _, _ = runs["rec", "O1", "bfloat16", "plain"]
    out = tmp_path / "out"
    shutil.copytree(source, out)
    before = {path.name: path.read_bytes() for path in out.glob("latest.*")}
    path = tiny.write(tmp_path / "c.yml", ocr.rec(data, out, epochs=3, amp=amp("rec", "O1", "bfloat16")))
    train = str(tiny.ROOT / "tools" / "train.py")
    options = ["-o", f"Global.checkpoints={out / 'latest'}"]
    result = tiny.call(["-c", FULL_DISK, train, "-c", str(path), *options], tmp_path)
    assert result.returncode == 2 and "AMP091" in result.stdout and "Traceback" not in result.stdout, result.stdout[
        -3000:
    ]
    assert str(out) in result.stdout and "is whole" in result.stdout
    assert {path.name: path.read_bytes() for path in out.glob("latest.*")} == before
    assert read(out / "latest", say=print).step == 6
