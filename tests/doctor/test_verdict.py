"""The verdict on machines whose answer is known: a table of devices, wheels that do not fit, configs that say no."""

from __future__ import annotations

import dataclasses
import re

import pytest

from paddle_amp_plugin.doctor.model import Check, Driver, SelfTest
from paddle_amp_plugin.doctor.verdict import architecture, has_tensor_cores, judge
from paddle_amp_plugin.doctor.wanted import Config
from paddle_amp_plugin.doctor.words import REASONS, headline, say
from tests.doctor.stubs import CARDS, machine, with_paddle


def keys(verdict):
    return {reason.key for reason in verdict.reasons}


@pytest.mark.parametrize(
    ("name", "state", "dtype", "detection", "tensor_cores", "generation"),
    [
        ("P100", "off", "", "", False, "Pascal"),
        ("P4", "off", "", "", False, "Pascal"),
        ("V100", "works", "float16", "float16", True, "Volta"),
        ("T4", "works", "float16", "float16", True, "Turing"),
        ("GTX1660", "works", "float16", "float16", False, "Turing"),
        ("A100", "works", "float16", "bfloat16", True, "Ampere"),
        ("A10", "works", "float16", "bfloat16", True, "Ampere"),
        ("RTX4090", "works", "float16", "bfloat16", True, "Ada"),
        ("H100", "works", "float16", "bfloat16", True, "Hopper"),
        ("B200", "works", "float16", "bfloat16", True, "Blackwell"),
        ("XPU2", "works", "float16", "float16", None, None),
        ("XPU3", "works", "float16", "bfloat16", None, None),
        ("XPU1", "off", "", "", None, None),
        ("NPU", "works", "float16", "bfloat16", None, None),
    ],
)
def test_devices(name, state, dtype, detection, tensor_cores, generation):
    verdict = judge(machine(name))
    assert (verdict.state, verdict.dtype, verdict.detection_dtype) == (state, dtype, detection)
    assert verdict.exit_code == (0 if state == "works" else 1)
    assert verdict.place == f"{CARDS[name].kind}:0"
    assert has_tensor_cores(CARDS[name]) is tensor_cores
    if CARDS[name].capability:
        assert architecture(CARDS[name].capability) == generation
    if state == "off":
        assert verdict.reasons[0].code == "AMP253" and verdict.level == ""
    else:
        assert verdict.level == "O1" and not {r.code for r in verdict.reasons} - {""}
        assert ("no_bfloat16" in keys(verdict)) is (detection == "float16")
        assert ("tensor_cores" in keys(verdict)) is bool(tensor_cores)


def test_no_device_is_emulated():
    verdict = judge(machine())
    assert (verdict.state, verdict.place, verdict.dtype, verdict.exit_code) == ("emulated", "cpu", "float16", 0)


def broken(verdict, code, key):
    assert (verdict.state, verdict.exit_code) == ("broken", 1)
    assert (verdict.reasons[0].code, verdict.reasons[0].key) == (code, key)
    return headline(verdict, config=False)


def test_cpu_wheel_on_a_machine_with_a_gpu():
    facts = with_paddle(machine("A100"), built="cpu", cuda="", cards=())
    facts = dataclasses.replace(facts, wheels={"paddlepaddle": "3.3.1"})
    assert "NVIDIA A100-SXM4-40GB" in broken(judge(facts), "AMP251", "cpu_wheel")
    both = dataclasses.replace(facts, wheels={"paddlepaddle": "3.3.1", "paddlepaddle-gpu": "3.3.1"})
    assert {"cpu_wheel", "two_wheels"} <= keys(judge(both))


@pytest.mark.parametrize(
    ("driver", "visible", "key"),
    [
        (None, None, "no_driver"),
        (
            Driver(error="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
            None,
            "driver_fails",
        ),
        (Driver("470.82", "11.4", (("Tesla T4", (7, 5), 15109),)), None, "not_seen"),
        (Driver("560.35", "12.6", (("Tesla T4", (7, 5), 15109),)), "", "hidden"),
        (Driver("560.35", "12.6", (("Tesla T4", (7, 5), 15109),)), "-1", "hidden"),
    ],
)
def test_cuda_wheel_without_a_device(driver, visible, key):
    facts = dataclasses.replace(with_paddle(machine("T4"), cards=()), driver=driver, visible=visible)
    broken(judge(facts), "AMP252", key)


def test_old_driver_is_a_remark():
    facts = dataclasses.replace(machine("T4"), driver=Driver("470.82", "11.4", (("Tesla T4", (7, 5), 15109),)))
    verdict = judge(facts)
    assert verdict.state == "works" and "driver_old" in keys(verdict)
    assert "driver_old" not in keys(judge(machine("T4")))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"version": "", "error": "ImportError: libcudart.so.12: cannot open shared object file"}, "paddle_import"),
        ({"version": "", "crash": "SIGSEGV (import)"}, "paddle_crash"),
        ({"crash": "timeout (devices)"}, "paddle_crash"),
    ],
)
def test_a_paddle_that_does_not_import(changes, key):
    broken(judge(with_paddle(machine(), **changes)), "AMP250", key)


def test_no_paddle_at_all():
    broken(judge(dataclasses.replace(machine(), paddle=None, wheels={})), "AMP250", "no_paddle")


def test_a_paddle_that_lacks_something():
    line = broken(judge(with_paddle(machine("T4"), missing=("paddle.amp.decorate(dtype)",))), "AMP258", "amp_lacks")
    assert "paddle.amp.decorate(dtype)" in line


def test_a_card_that_does_not_answer():
    dead = dataclasses.replace(CARDS["T4"], index=0, error="OSError: CUDA error(46)")
    broken(judge(with_paddle(machine("T4"), cards=(dead,))), "AMP252", "card_fails")


def test_several_unlike_gpus():
    verdict = judge(machine("A100", "T4"))
    unlike = next(r for r in verdict.reasons if r.key == "unlike")
    assert unlike.code == "AMP259" and verdict.state == "works" and verdict.place == "gpu:0"
    assert "gpu:0 NVIDIA A100-SXM4-40GB: float16, bfloat16" in say(unlike) and "gpu:1 Tesla T4: float16" in say(unlike)
    assert "unlike" not in keys(judge(machine("A100", "A10")))  # another card, the same precision


# -- configs ---------------------------------------------------------------------------------------------------------

OCR = "Architecture: {{model_type: {kind}, algorithm: X}}\nGlobal: {{save_model_dir: o{more}}}\n{amp}\n"


def config(tmp_path, amp="amp: true", *, kind="rec", more=""):
    path = tmp_path / "x.yml"
    path.write_text(OCR.format(kind=kind, more=more, amp=amp), encoding="utf-8")
    return Config(str(path))


def judged(read, facts):
    return judge(facts, read.wanted(facts))


@pytest.mark.parametrize(
    ("card", "kind", "dtype"),
    [("A100", "rec", "float16"), ("A100", "det", "bfloat16"), ("T4", "det", "float16"), ("NPU", "rec", "float16")],
)
def test_a_config_works(tmp_path, card, kind, dtype):
    more = ", use_npu: true" if card == "NPU" else ""
    verdict = judged(config(tmp_path, kind=kind, more=more), machine(card))
    assert (verdict.state, verdict.dtype, verdict.level) == ("works", dtype, "O1")


def test_a_reader_that_will_be_waited_for(tmp_path):
    amp = "amp: true\nTrain: {loader: {num_workers: 0}}"
    assert "reader" in keys(judged(config(tmp_path, amp), machine("T4")))
    assert "reader" not in keys(judged(config(tmp_path, amp), machine()))
    assert "reader" not in keys(judged(config(tmp_path, amp.replace("0", "4")), machine("T4")))


@pytest.mark.parametrize(
    ("amp", "card", "code", "words"),
    [
        ("", "A100", "AMP254", "no `amp` key"),
        ("amp: false", "A100", "AMP254", "amp is false"),
        ("amp: {cpu: off}", None, "AMP254", "amp.cpu is off"),
        ("amp: true", "P100", "AMP253", "compute capability 6.0"),
        ("amp: bf16", "T4", "AMP255", "bfloat16 needs 8.0"),
        ("amp: fp16", "P4", "AMP255", "float16 needs 7.0"),
        ("amp: {cpu: error}", None, "AMP255", "AMP017"),
    ],
)
def test_a_config_that_says_no(tmp_path, amp, card, code, words):
    verdict = judged(config(tmp_path, amp), machine(*([card] if card else [])))
    line = headline(verdict, config=True)
    assert verdict.exit_code == 1 and verdict.reasons[0].code == code and words in line
    assert line.startswith("AMP would be off") or code == "AMP255"
    assert "\n" not in line


def test_amp_false_on_an_old_card_gives_both_reasons(tmp_path):
    assert {"config_off", "too_old"} <= keys(judged(config(tmp_path, "amp: false"), machine("P100")))


def test_the_device_is_the_runs_own(tmp_path):
    """``use_gpu: false`` trains on the CPU, whatever there is; ``use_xpu`` without an XPU too."""
    facts = machine("A100")
    verdict = judged(config(tmp_path, more=", use_gpu: false"), facts)
    assert (verdict.state, verdict.place) == ("emulated", "cpu") and "emulated_by_choice" in keys(verdict)
    assert judged(config(tmp_path, more=", use_gpu: true"), facts).place == "gpu:0"
    assert judged(config(tmp_path, more=", use_gpu: true"), machine()).state == "emulated"


def test_a_device_that_is_not_there(tmp_path):
    """PaddleOCR's ``check_device`` and PaddleNLP's ``set_device`` end such a run."""
    for read in (config(tmp_path, more=", use_xpu: true"), recipe(tmp_path, more=", device: 'gpu:3'")):
        broken(judged(read, machine()), "AMP252", "absent")
    assert judged(recipe(tmp_path, more=", device: gpu"), machine("T4")).place == "gpu:0"


RECIPE = """task: sequence_classification
{amp}
model: {{architecture: ernie, tokenizer_name_or_path: t}}
data: {{train: a.jsonl, labels: [x, y]}}
trainer: {{output_dir: o{more}}}
"""


def recipe(tmp_path, amp="amp: O2", more=""):
    path = tmp_path / "r.yml"
    path.write_text(RECIPE.format(amp=amp, more=more), encoding="utf-8")
    return Config(str(path))


def test_an_nlp_recipe(tmp_path):
    read = recipe(tmp_path)
    verdict = judged(read, machine("V100"))
    assert read.nlp and (verdict.state, verdict.level, verdict.dtype) == ("works", "O2", "float16")
    assert judged(recipe(tmp_path, more=", device: cpu"), machine("V100")).state == "emulated"
    assert judged(recipe(tmp_path, amp=""), machine("V100")).reasons[0].key == "no_key"


def test_an_nlp_recipe_with_sharding_is_refused(tmp_path):
    refused = judged(recipe(tmp_path, more=", sharding: stage1"), machine("V100")).reasons[0]
    assert refused.code == "AMP255" and "AMP200" in say(refused)


def test_the_host_is_not_there(tmp_path):
    facts = dataclasses.replace(machine("T4"), hosts={}, paddleocr="")
    assert judged(config(tmp_path), facts).reasons[0].code == "AMP041"
    assert judged(recipe(tmp_path), facts).reasons[0].code == "AMP226"
    assert judge(facts).state == "works"  # without a config no host is needed


# -- the self-test, and words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("failed", "AMP256", "half: Conv2D float32"),
        ("crashed", "AMP257", "SIGSEGV"),
        ("timeout", "AMP257", "step 3"),
    ],
)
def test_a_self_test_that_goes_wrong(state, code, words):
    checks = (Check("losses", True, "fine"), Check("half", False, "Conv2D float32"))
    test = SelfTest(state, "gpu:0", "O1", "float16", "step 3", (), checks, "SIGSEGV")
    verdict = judge(machine("T4"), None, test)
    assert verdict.exit_code == 1 and verdict.reasons[0].code == code and words in headline(verdict, config=False)
    assert "fine" not in headline(verdict, config=False)


def test_a_self_test_that_passes_is_a_reason():
    assert "test_passed" in keys(judge(machine("T4"), None, SelfTest("passed", "gpu:0", "O1", "float16", "done")))
    assert keys(judge(machine("T4"), None, SelfTest("skipped"))) == keys(judge(machine("T4")))


def test_every_reason_has_words_in_both_languages():
    import inspect

    from paddle_amp_plugin.doctor import verdict

    text = inspect.getsource(verdict)
    used = set(re.findall(r'Reason\(\s*"(\w+)"', text)) | {"test_crashed", "test_timeout", "too_old", "no_half"}
    assert used | {"emulated", "emulated_by_choice"} == set(REASONS)
    for english, chinese in REASONS.values():
        assert set(re.findall(r"\{(\w+)\}", english)) == set(re.findall(r"\{(\w+)\}", chinese))
        assert not re.search(r"[\u4e00-\u9fff]", english)
        assert re.search(r"[\u4e00-\u9fff]", chinese) or not re.search(r"[a-z]", re.sub(r"\{\w+\}", "", english))
        assert not re.search(r"[\u4e00-\u9fff] ?[,:;!?]", chinese)  # full-width punctuation


def test_chinese(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    assert headline(judge(machine("P100")), config=False).startswith("AMP 不会启用：[AMP253] Tesla P100")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_code_is_documented(language):
    import inspect

    from paddle_amp_plugin.doctor import verdict
    from tests.hosts.tiny import ROOT

    page = (ROOT / "docs" / language / "doctor.md").read_text(encoding="utf-8")
    codes = set(re.findall(r'"(AMP\d{3})"', inspect.getsource(verdict)))
    assert {f"AMP25{n}" for n in range(10)} <= codes
    assert not [code for code in codes if code not in page]
