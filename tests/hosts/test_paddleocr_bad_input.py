"""Whatever a user gets wrong: one message, an exit code, no traceback, nothing half-written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.hosts import tiny


def fails(result, code: int, *words: str) -> None:
    text = result.stdout
    assert result.returncode == code, (result.returncode, text[-3000:])
    assert "Traceback" not in text, text[-3000:]
    for word in words:
        assert word in text, (word, text[-3000:])


@pytest.fixture
def make(data, tmp_path):
    """``make(change) -> path`` of a config; ``change`` edits the document."""

    def build(change=lambda document: None, **sections):
        document = tiny.config(data, tmp_path / "out", epochs=1, **{"amp": True, **sections})
        change(document)
        return tiny.write(tmp_path / "c.yml", document)

    return build


def train(path, *arguments, **env):
    return tiny.tool("train", "-c", str(path), *arguments, cwd=path.parent, **env)


def test_no_config(tmp_path):
    fails(tiny.tool("train", cwd=tmp_path), 2, "AMP050", "-c FILE")
    fails(tiny.tool("train", "-c", "none.yml", cwd=tmp_path), 2, "AMP030", "none.yml", str(tmp_path))
    (tmp_path / "c.txt").write_text("a: 1")
    fails(tiny.tool("eval", "-c", "c.txt", cwd=tmp_path), 2, ".yml")


def test_yaml_syntax(tmp_path):
    (tmp_path / "c.yml").write_text("Global:\n  a: [1\nb: 2\n")
    fails(tiny.tool("train", "-c", "c.yml", cwd=tmp_path), 2, "AMP032", "c.yml", "line")


def test_amp_mistakes_come_at_once_and_before_paddle(make):
    result = train(make(amp={"levl": "O1", "dtype": "fp12"}), PYTHONPROFILEIMPORTTIME="1")
    fails(result, 2, "amp.levl", "level", "amp.dtype")
    imported = re.findall(r"^import time:.*\|\s*(\S+)$", result.stdout, re.MULTILINE)
    assert "yaml" in imported and "paddle" not in imported


@pytest.mark.parametrize("key", ["Global.checkpoints", "Global.pretrained_model"])
def test_missing_weights(make, tmp_path, key):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "latest.pdparams").write_bytes(b"")
    fails(train(make(), "-o", f"{key}=w/lastest"), 2, "AMP056", key, "w/lastest.pdparams", "latest")
    fails(train(make(), "-o", f"{key}=nowhere/x.pdparams"), 2, "AMP056", "nowhere/x.pdparams", str(tmp_path))


def test_bad_option(make):
    fails(train(make(), "-o", "Global.epoch_num"), 2, "Global.epoch_num", "key=value")


def test_no_paddleocr_config(tmp_path):
    tiny.write(tmp_path / "c.yml", {"amp": True})
    fails(train(tmp_path / "c.yml"), 2, "AMP055", "Global, Architecture")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_wrong_tree(make, tmp_path, how):
    folder = tmp_path / "tree"
    folder.mkdir()
    path = make()
    given, env = (["--paddleocr", str(folder)], {}) if how == "option" else ([], {"PADDLEOCR_HOME": str(folder)})
    result = train(path, *given, **env)
    fails(result, 2, "AMP041", str(folder), "tools/program.py")


def test_this_projects_tools_folder_is_no_tree(make):
    fails(train(make(), "--paddleocr", str(tiny.ROOT)), 2, "AMP041", "ppocr/")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda d: d["Train"]["dataset"].update(data_dir="/no/such/folder"), "Train.dataset.data_dir"),
        (lambda d: d["Train"]["dataset"].update(label_file_list=["/no/such.txt"]), "/no/such.txt"),
    ],
    ids=["folder", "labels"],
)
def test_missing_data(make, change, word):
    fails(train(make(change)), 2, "AMP047", word)


def test_labels_of_other_images(make, tmp_path):
    (tmp_path / "labels.txt").write_text("a.png\t12\nb.png\t34\n")
    path = make(lambda d: d["Train"]["dataset"].update(label_file_list=[str(tmp_path / "labels.txt")]))
    fails(train(path), 2, "AMP047", "labels.txt", "a.png")


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_cannot_be_read_end_the_run(make, tmp_path, workers):
    """The host alone retries for ever (or dies of a RecursionError). Here the images are no images."""
    for name in "abcdefgh":
        (tmp_path / f"{name}.png").write_bytes(b"not an image")
    (tmp_path / "labels.txt").write_text("".join(f"{name}.png\t12\n" for name in "abcdefgh"))

    def change(document):
        document["Train"]["dataset"].update(label_file_list=[str(tmp_path / "labels.txt")], data_dir=str(tmp_path))
        document["Train"]["loader"]["num_workers"] = workers

    result = train(make(change))
    fails(result, 2 if workers == 0 else result.returncode, "AMP048", "samples in a row")
    assert result.returncode != 0
    assert result.stdout.count("When parsing line") <= 3


def test_output_that_cannot_be_written(make, tmp_path):
    (tmp_path / "file").write_text("")
    path = make(lambda d: d["Global"].update(save_model_dir=str(tmp_path / "file" / "out")))
    fails(train(path), 2, "AMP049", "save_model_dir")
    path = make(lambda d: d["Global"].update(save_model_dir="/proc/out"))
    fails(train(path), 2, "AMP049", "/proc/out")


def test_weights_that_are_not_there(make):
    result = tiny.tool("eval", "-c", str(make()), "-o", "Global.pretrained_model=/no/weights", cwd=make().parent)
    fails(result, 2, "AMP056", "/no/weights.pdparams")


def test_a_pin_that_names_nothing(make):
    fails(train(make(amp={"fp32_layers": ["haed.*"]})), 2, "AMP036", "haed", "head")


def test_collapse(make, tmp_path):
    """A scale that overflows every gradient and may not fall: exit code 3 and what to try."""
    scale = 8.0e37
    amp = {"init_loss_scaling": scale, "min_loss_scaling": scale, "max_loss_scaling": scale, "on_collapse": "stop"}
    result = train(make(amp=amp))
    fails(result, 3, "AMP045", "dtype: bfloat16", "last checkpoint is kept", "0 updates")
    assert not list((tmp_path / "out").glob("*.pdparams"))


def test_a_package_the_host_would_install_by_itself(make):
    """EAST's post-processing calls ``pip install lanms-nova`` in the host."""
    code = (
        "import paddle_amp_plugin, sys\n"
        "from paddle_amp_plugin.hosts import paddleocr, paddleocr_tree\n"
        "paddleocr_tree.put_first(paddleocr_tree.find_tree())\n"
        "controller = paddleocr.patch()\n"
        "from paddle_amp_plugin.cli.errors import guarded\n"
        "from ppocr.utils.utility import check_install\n"
        "sys.exit(guarded(lambda: check_install('no_such_module', 'no-such-package')))\n"
    )
    fails(tiny.call(["-c", code], make().parent), 2, "AMP044", "pip install no-such-package")


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c(make, tmp_path, workers):
    def change(document):
        document["Global"].update(epoch_num=1000)
        document["Train"]["loader"]["num_workers"] = workers

    command = [sys.executable, str(tiny.ROOT / "tools" / "train.py"), "-c", str(make(change))]
    log = (tmp_path / "log.txt").open("w+")
    # a process group of its own, as in a terminal: the host's own handler would kill all of it
    process = subprocess.Popen(
        command, cwd=tmp_path, env=tiny.environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        deadline = time.monotonic() + tiny.TIMEOUT
        while "global_step: 10" not in (tmp_path / "log.txt").read_text() and time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "log.txt").read_text()[-3000:]
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        if process.poll() is None:
            process.kill()
        log.close()
    text = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in text and len(re.findall("stopped by Ctrl-C", text)) == 1
    import paddle

    for file in (tmp_path / "out").glob("*.pdparams"):
        assert paddle.load(str(file))


def test_debug_shows_the_traceback(tmp_path):
    result = tiny.tool("train", "-c", "none.yml", cwd=tmp_path, PADDLE_AMP_DEBUG="1")
    assert "Traceback" in result.stdout and "AMP030" in result.stdout


def test_chinese(tmp_path):
    result = tiny.tool("train", "-c", "none.yml", cwd=tmp_path, PADDLE_AMP_LANG="zh")
    assert "文件不存在" in result.stdout
