"""The parts of the PaddleOCR host that need neither Paddle nor PaddleOCR running."""

from __future__ import annotations

import logging
import sys

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts import paddleocr
from paddle_amp_plugin.hosts.paddleocr_args import is_amp_option, parse
from paddle_amp_plugin.hosts.paddleocr_data import BadData, RetryGuard, check_dataset
from paddle_amp_plugin.hosts.paddleocr_tree import MARKERS, find_tree, put_first, tree_of_script
from tests.hosts import tiny


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "PaddleOCR"
    for marker in MARKERS:
        (folder / marker).parent.mkdir(parents=True, exist_ok=True)
        (folder / marker).write_text("")
    return folder


def test_order_of_the_trees(checkout, tmp_path, monkeypatch):
    monkeypatch.delenv("PADDLEOCR_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "unstructured_paddleocr" in str(find_tree().path)
    monkeypatch.chdir(checkout)
    assert find_tree().path == checkout
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDLEOCR_HOME", str(checkout))
    assert find_tree().path == checkout
    monkeypatch.setenv("PADDLEOCR_HOME", "/nowhere")
    assert find_tree(str(checkout)).path == checkout
    with pytest.raises(AmpError, match="/nowhere"):
        find_tree()


def test_this_project_is_not_a_tree(monkeypatch):
    monkeypatch.delenv("PADDLEOCR_HOME", raising=False)
    monkeypatch.chdir(tiny.ROOT)
    assert "unstructured_paddleocr" in str(find_tree().path)
    assert paddleocr.detect(tiny.ROOT) is None and paddleocr.detect(find_tree().path) is not None


def test_the_package_is_found_when_its_tree_is_on_the_path(monkeypatch, tmp_path):
    """Importing ppocr puts the tree on sys.path, where a file of the package's own name hides the package."""
    monkeypatch.delenv("PADDLEOCR_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    tree = find_tree().path
    monkeypatch.setattr(sys, "path", [str(tree), *sys.path])
    sys.modules.pop("unstructured_paddleocr", None)
    assert find_tree().path == tree


def test_tree_of_a_script(checkout, tmp_path):
    assert tree_of_script(checkout / "tools" / "train.py").path == checkout
    assert tree_of_script(tmp_path / "x.py") is None


@pytest.fixture
def hosts_modules():
    """Other tests may have imported the host; they get their modules back."""
    before = {n: m for n, m in sys.modules.items() if n.split(".")[0] in ("tools", "ppocr")}
    yield
    sys.modules.update(before)


def test_put_first(checkout, monkeypatch, hosts_modules):
    monkeypatch.setattr(sys, "path", [str(tiny.ROOT / "tools"), "/x", str(checkout), "/y"])
    put_first(paddleocr.detect(checkout), instead_of=tiny.ROOT / "tools")
    assert sys.path == [str(checkout), "/x", "/y"]
    assert not any(name.split(".")[0] == "ppocr" for name in sys.modules)


def test_arguments():
    found = parse(["-c", "a.yml", "-o", "Global.epoch_num=2", "amp={level: O2}", "-p", "x", "-o", "a.b=c"])
    assert found.config_path == "a.yml"
    assert found.options == {"Global.epoch_num": 2, "amp": {"level": "O2"}, "a.b": "c"}
    for bad in (["-o", "x"], ["-o", "a=b=c"], ["-o", "a=[1"], ["-o"]):
        with pytest.raises(AmpError):
            parse(["-c", "a.yml", *bad])


def test_whose_options():
    assert all(map(is_amp_option, ("amp", "amp.level", "Global.amp", "Global.amp.level")))
    assert not any(map(is_amp_option, ("Global.amp_level", "amplify", "Global.epoch_num", "Global.amplify")))


def test_data_checks(tmp_path, caplog):
    tiny.make_data(tmp_path, train=4, val=1)
    document = {"Train": tiny.dataset(tmp_path, "train", 1, 0)}
    logger = logging.getLogger("data_checks")
    check_dataset(document, "Train", logger)
    (tmp_path / "images" / "train0.png").unlink()
    with caplog.at_level(logging.WARNING, "data_checks"):
        check_dataset(document, "Train", logger)
    assert "1 of 4" in caplog.text and "train0.png" in caplog.text
    for content in ("", "images/train1.png 12\n", "nothing.png\t12\n", b"\xff\xfe\t1\n"):
        (tmp_path / "train.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(AmpError) as caught:
            check_dataset(document, "Train", logger)
        assert caught.value.code == "AMP047"


def test_bad_data_survives_a_worker():
    """Paddle's DataLoader rebuilds a worker's exception from its type and one text."""
    text = "DataLoader worker(0) caught BadData with message:\nTraceback ...\n  raise\nX: [AMP048] 32 samples: last"
    assert str(BadData(text)) == "[AMP048] 32 samples: last"
    assert str(BadData("plain")) == "[AMP048] plain"


def test_retry_guard():
    guard = RetryGuard()

    class Data:
        data_lines, data_idx_order_list = [b"a.png\tA\n"], [0]
        calls = 0

        def __getitem__(self, index):
            self.calls += 1
            return guard.getitem(self.__getitem__, self, (index,), {})

    data = Data()
    with pytest.raises(BadData, match=r"a\.png"):
        data[0]
    assert data.calls < 50
    assert guard.getitem(lambda index: index, data, (7,), {}) == 7
    guard.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        guard.getitem(lambda index: index, data, (7,), {})


def test_the_hosts_tracebacks_about_samples_are_cut_short():
    guard = RetryGuard()

    def record(text):
        return logging.LogRecord("ppocr", logging.ERROR, "", 0, text, (), None)

    message = "When parsing line b'a.png', error happened with msg: Traceback ...\n  File x\nOSError: no"
    first = record(message)
    assert guard.filter(first) and first.getMessage() == "When parsing line b'a.png': OSError: no"
    assert [guard.filter(record(message)) for _ in range(4)] == [True, True, False, False]
    assert guard.filter(record("epoch: 1"))


def test_patch_twice_is_one_controller_and_unpatch_restores():
    first = paddleocr.patch()
    try:
        assert paddleocr.patch() is first and first.patches.active
    finally:
        paddleocr.unpatch()
    assert not first.patches.active
    paddleocr.unpatch()
    assert all(isinstance(text, str) for text in paddleocr.supported_versions())
