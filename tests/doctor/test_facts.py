"""Gathering: nvidia-smi's output, children that crash, hang or raise, and a probe of the Paddle that is here."""

from __future__ import annotations

import json
import os
import signal
import sys
from types import SimpleNamespace

import pytest

from paddle_amp_plugin.doctor import child, examine, facts, probe
from paddle_amp_plugin.doctor.child import Ended, Findings, run_child
from paddle_amp_plugin.doctor.model import SelfTest
from tests.doctor.stubs import machine, with_paddle

ROWS = "NVIDIA A100-SXM4-40GB, 40960, 560.35.03, 8.0\nTesla T4, 15360, 560.35.03, 7.5\n"
HEAD = "| NVIDIA-SMI 560.35.03     Driver Version: 560.35.03    CUDA Version: 12.6     |"


def test_nvidia_smi_is_read():
    driver = facts.read_smi(ROWS, HEAD)
    assert (driver.version, driver.cuda) == ("560.35.03", "12.6")
    assert driver.gpus == (("NVIDIA A100-SXM4-40GB", (8, 0), 40960), ("Tesla T4", (7, 5), 15360))
    old = facts.read_smi("Tesla P4, 7611, 418.87\n", "")
    assert old.gpus == (("Tesla P4", None, 7611),) and old.cuda == ""
    assert facts.read_smi("Orin, [N/A], 540.3, 8.7\n", "").gpus == (("Orin", (8, 7), None),)


SMI = """#!{python}
import sys
query = next((a for a in sys.argv if a.startswith("--query")), "")
if "compute_cap" in query and {old}:
    sys.exit('Field "compute_cap" is not a valid field to query.')
if {dead}:
    print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    sys.exit(9)
print("Tesla T4, 15360, 418.87" + (", 7.5" if "compute_cap" in query else "") if query else "CUDA Version: 10.1")
"""


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("dead", [False, True])
def test_nvidia_smi_is_run(tmp_path, monkeypatch, old, dead):
    script = tmp_path / "nvidia-smi"
    script.write_text(SMI.format(python=sys.executable, old=old, dead=dead))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    driver = facts.nvidia_smi()
    if dead:
        assert "couldn't communicate" in driver.error and not driver.gpus
    else:
        assert driver.gpus == (("Tesla T4", None if old else (7, 5), 15360),) and driver.cuda == "10.1"


def test_without_nvidia_smi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.nvidia_smi() is None


CHILD = """
import os, sys, time
from paddle_amp_plugin.doctor.child import Findings
found = Findings(sys.argv[1])
found.put(stage="before")
found.put(stage="import", version="9")
{act}
found.put(stage="done")
"""


@pytest.mark.parametrize(
    ("act", "how", "line", "stage"),
    [
        ("pass", "", "", "done"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV", "", "import"),
        ("os._exit(134)", "SIGABRT", "", "import"),
        (
            "sys.exit('OSError: libcudart.so: no such file')",
            "exit code 1",
            "OSError: libcudart.so: no such file",
            "import",
        ),
        ("time.sleep(60)", "timeout", "", "import"),
    ],
)
def test_children_end_in_many_ways(tmp_path, monkeypatch, act, how, line, stage):
    (tmp_path / "amp_child_of_a_test.py").write_text(CHILD.format(act=act))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    ended = run_child("amp_child_of_a_test", seconds=3 if how == "timeout" else 60)
    assert (ended.how, ended.last_line, ended.found["stage"]) == (how, line, stage)
    said = facts.read_probe(ended.found, ended.how, ended.last_line)
    assert said.version == "9" and said.imports is (not how)
    assert not how or said.crash.startswith(f"{how} (import)")
    assert signal.SIGSEGV == 11


def test_findings_are_whole_at_any_time(tmp_path):
    found = Findings(str(tmp_path / "f.json"))
    found.put(a=1)
    found.put(b=[2])
    assert json.loads((tmp_path / "f.json").read_text()) == {"a": 1, "b": [2]}


def test_last_line_skips_what_paddle_draws():
    text = b"noise\nFatalError: `Segmentation fault` is detected.\n  [TimeInfo: ***]\n-------\n"
    assert child._last_line(text) == "FatalError: `Segmentation fault` is detected."


@pytest.mark.parametrize(
    ("found", "how", "state"),
    [
        ({"stage": "done", "losses": [2.0, 1.0], "checks": [{"name": "a", "ok": True, "seen": ""}]}, "", "passed"),
        ({"stage": "done", "checks": [{"name": "a", "ok": False, "seen": ""}]}, "", "failed"),
        ({"stage": "step 2", "losses": [2.0, None]}, "SIGSEGV", "crashed"),
        ({"stage": "step 2"}, "timeout", "timeout"),
        ({"stage": "build", "error": "OSError: x"}, "", "crashed"),
        ({}, "", "crashed"),
    ],
)
def test_self_test_results(found, how, state):
    assert examine.read_test(Ended(found, how), "cpu", "O1", "float16").state == state


def test_no_self_test_where_it_cannot_be_made():
    assert examine.tested(machine("P100"), None) == SelfTest("skipped", "gpu:0", error="device")
    assert examine.tested(with_paddle(machine("T4"), version="", error="ImportError"), None).error == "paddle"


def test_a_probe_that_fails_does_not_end_the_others(monkeypatch):
    def broken():
        raise OSError("no")

    monkeypatch.setattr(facts, "paddle_wheels", broken)
    monkeypatch.setattr(facts, "nvidia_smi", broken)
    monkeypatch.setattr(facts, "probe_paddle", lambda: None)
    found = facts.gather()
    assert found.failures == ("wheels: OSError: no", "nvidia-smi: OSError: no") and found.python


class Card:
    """A stand-in for ``paddle`` on a machine with devices, one of which does not answer."""

    def __init__(self, kind):
        self.kind, self.current = kind, "cpu"
        cuda = SimpleNamespace(
            device_count=lambda: 2,
            get_device_properties=lambda place: SimpleNamespace(total_memory=16 * 2**30),
        )
        self.device = SimpleNamespace(
            cuda=cuda, set_device=self.set_device, get_available_custom_device=lambda: ["npu:0"] * (kind == "npu")
        )
        self.base = SimpleNamespace(core=SimpleNamespace(get_xpu_device_count=lambda: 1))

    def is_compiled_with_cuda(self):
        return self.kind == "gpu"

    def is_compiled_with_rocm(self):
        return False

    def is_compiled_with_xpu(self):
        return self.kind == "xpu"

    def set_device(self, place):
        if place == "gpu:1":
            raise OSError("(External) CUDA error(46), all devices are busy\nmore")
        self.current = place


@pytest.mark.parametrize("kind", ["gpu", "xpu", "npu"])
def test_cards_are_listed(monkeypatch, kind):
    from paddle_amp_plugin import device
    from paddle_amp_plugin.plan_model import Device

    paddle = Card(kind)
    monkeypatch.setattr(
        device, "current_device", lambda: Device(kind, "X", (8, 0) if kind == "gpu" else None, True, False)
    )
    rows = probe.cards(paddle, lambda name, look, otherwise: look())
    first = {"index": 0, "kind": kind, "name": "X", "float16": True, "bfloat16": False}
    if kind == "gpu":
        assert rows[0] == {**first, "capability": (8, 0), "memory": 16384}
        assert rows[1] == {"index": 1, "kind": "gpu", "name": "GPU", "error": rows[1]["error"]}
        assert rows[1]["error"] == "OSError: (External) CUDA error(46), all devices are busy"
    else:
        assert rows == [{**first, "capability": None}]


def test_what_is_missing():
    import paddle

    assert probe.missing(paddle) == []
    old = SimpleNamespace(amp=SimpleNamespace(__all__=["auto_cast"], auto_cast=lambda enable=True: None))
    lacking = probe.missing(old)
    assert "paddle.amp.decorate" in lacking and "paddle.amp.auto_cast(level)" in lacking
    assert not any("enable" in name for name in lacking)


def test_the_rule_asked_is_auto_casts_own(monkeypatch):
    """On a P100 ``paddle.amp.is_float16_supported()`` is true and ``auto_cast`` off."""
    import paddle

    from paddle_amp_plugin import device

    rule = sys.modules["paddle.amp.auto_cast"]
    monkeypatch.setattr(paddle.device, "get_device", lambda: "gpu:0")
    monkeypatch.setattr(paddle.device.cuda, "get_device_capability", lambda *a: (6, 0))
    monkeypatch.setattr(paddle.device.cuda, "get_device_name", lambda *a: "Tesla P100")
    found = device.current_device()
    assert (found.capability, found.float16, found.bfloat16) == ((6, 0), False, False)
    monkeypatch.setattr(paddle.device.cuda, "get_device_capability", lambda *a: (8, 0))
    monkeypatch.setattr(paddle.version, "cuda", lambda: "12.6")
    assert device.current_device().bfloat16
    monkeypatch.setattr(paddle.version, "cuda", lambda: "10.2")  # bfloat16 came with CUDA 11
    assert not device.current_device().bfloat16 and device.current_device().float16
    monkeypatch.setattr(paddle.device, "get_device", lambda: "xpu:0")
    for fp16, bf16 in ((True, True), (True, False), (False, False)):
        monkeypatch.setattr(rule, "_is_xpu_float16_supported", lambda v=fp16: v, raising=False)
        monkeypatch.setattr(rule, "_is_xpu_bfloat16_supported", lambda v=bf16: v, raising=False)
        found = device.current_device()
        assert (found.kind, found.float16, found.bfloat16) == ("xpu", fp16, bf16)
    monkeypatch.delattr(rule, "_is_xpu_float16_supported")
    monkeypatch.delattr(rule, "_is_xpu_bfloat16_supported")  # as in Paddle 2.6
    assert device.current_device().float16 and not device.current_device().bfloat16


@pytest.mark.gpu
def test_cards_of_a_real_gpu():
    import paddle

    rows = probe.cards(paddle, lambda name, look, otherwise: look())
    assert rows and rows[0]["kind"] == "gpu" and rows[0]["capability"][0] >= 3 and rows[0]["memory"] > 1000
