"""The plan: dtype by device and family, lists, scaling, reasons, table, file."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os

import pytest
import yaml
from rich.cells import cell_len
from rich.console import Console

from paddle_amp_plugin.config import AmpConfig, Source, read_amp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST
from paddle_amp_plugin.plan import Device, Plan, make_plan, plan_from_yaml, plan_to_yaml, print_plan, write_plan

CPU = Device("cpu", "CPU", None, float16=False, bfloat16=False)
A100 = Device("gpu", "NVIDIA A100", (8, 0), float16=True, bfloat16=True)
T4 = Device("gpu", "Tesla T4", (7, 5), float16=True, bfloat16=False)
P100 = Device("gpu", "Tesla P100", (6, 0), float16=False, bfloat16=False)
NPU = Device("npu", "Ascend", None, float16=True, bfloat16=True)
OLD_XPU = Device("xpu", "XPU", None, float16=False, bfloat16=False)
BF16_ONLY = Device("xpu", "XPU3", None, float16=False, bfloat16=True)
OCR_STATIC = {"use_amp": True, "amp_level": "O2", "scale_loss": 1.0, "use_dynamic_loss_scaling": False}


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def config(amp=True, **more) -> AmpConfig:
    read = read_amp({"amp": amp, **more})
    assert read is not None
    return read


def plan(amp=True, device: Device = A100, family: str = "") -> Plan:
    return make_plan(config(amp), device, family=family)


def why(p: Plan, key: str) -> str:
    return next(row.why for row in p.rows() if row.key == key)


# -- dtype ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "family", "dtype", "reason"),
    [
        (CPU, "rec/SVTR", "float16", "auto: what most GPUs would use"),
        (CPU, "cls/CLS", "float16", "auto: what most GPUs would use"),
        (CPU, "", "float16", "auto: what most GPUs would use"),
        (CPU, "det/DB", "bfloat16", "auto: text detection can leave the range of float16"),
        (A100, "rec/SVTR", "float16", "auto: this device computes in it"),
        (A100, "det/DB", "bfloat16", "auto: text detection can leave the range of float16"),
        (A100, "DET/EAST", "bfloat16", "auto: text detection can leave the range of float16"),
        (T4, "rec/CRNN", "float16", "auto: this device computes in it"),
        (T4, "det/DB", "float16", "auto: Tesla T4 has compute capability 7.5; bfloat16 needs 8.0"),
        (NPU, "det/DB", "bfloat16", "auto: text detection can leave the range of float16"),
        (BF16_ONLY, "rec/SVTR", "bfloat16", "auto: XPU3 cannot compute in float16"),
    ],
)
def test_dtype_auto(device, family, dtype, reason) -> None:
    p = plan(True, device, family)
    assert p.enabled and p.dtype == dtype and p.dtype_reason.startswith(reason)
    assert why(p, "dtype") == p.dtype_reason


def test_detection_in_float16_is_warned_about() -> None:
    assert [n.code for n in plan(True, T4, "det/DB").notes] == ["AMP018"]
    assert plan(True, T4, "rec/SVTR").notes == plan(True, A100, "det/DB").notes == ()


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (P100, "Tesla P100 has compute capability 6.0; float16 needs 7.0: FP32"),
        (OLD_XPU, "XPU cannot compute in float16: FP32"),
        (Device("gpu", "odd", (6, 1), True, False), "odd has compute capability 6.1; float16 needs 7.0: FP32"),
    ],
)
def test_a_device_without_half_trains_in_fp32_and_says_why(device, reason) -> None:
    p = plan({"level": "O2"}, device)
    assert (p.enabled, p.level, p.dtype, p.off_reason) == (False, "O0", "float32", reason)
    assert not (p.use_loss_scaling or p.master_weight or p.software_half or p.custom_black_list)
    assert why(p, "enabled") == reason


@pytest.mark.parametrize(
    ("device", "dtype"),
    [(P100, "float16"), (P100, "bfloat16"), (T4, "bfloat16"), (OLD_XPU, "fp16"), (BF16_ONLY, "fp16")],
)
def test_a_dtype_asked_for_that_the_device_lacks_is_an_error_with_a_way_out(device, dtype) -> None:
    with pytest.raises(AmpError) as caught:
        plan(dtype, device)
    assert caught.value.code == "AMP016" and "amp: false" in caught.value.hint
    assert ("or auto" in caught.value.hint) == (device in (T4, BF16_ONLY))


@pytest.mark.parametrize(
    ("device", "dtype"), [(T4, "float16"), (A100, "bfloat16"), (CPU, "bfloat16"), (CPU, "float16")]
)
def test_a_dtype_asked_for_wins_over_the_family(device, dtype) -> None:
    assert plan({"dtype": dtype}, device, "det/DB").dtype == dtype


def test_cpu_words() -> None:
    emulated = plan({"cpu": "emulate"}, CPU)
    assert emulated.enabled and emulated.software_half and "speed is not" in why(emulated, "software_half")
    off = plan({"cpu": "off", "dtype": "fp16"}, CPU)
    assert not off.enabled and "amp.cpu is off" in off.off_reason
    with pytest.raises(AmpError) as caught:
        plan({"cpu": "error"}, CPU)
    assert caught.value.code == "AMP017" and "emulate" in caught.value.hint
    for word in ("emulate", "off", "error"):
        assert plan({"cpu": word}, A100).enabled and not plan({"cpu": word}, A100).software_half


def test_amp_false() -> None:
    p = plan(False, A100)
    assert not p.enabled and p.off_reason == "amp is false" and [r.key for r in p.rows()] == ["enabled", "device"]


# -- lists ---------------------------------------------------------------------------------------------------


def test_preset_safe_is_the_black_list_less_what_the_user_white_lists() -> None:
    p = plan({"custom_white_list": ["softmax", "conv2d"], "custom_black_list": ["elementwise_add"]})
    assert p.custom_white_list == ("conv2d", "softmax")
    assert p.custom_black_list == tuple(sorted((SAFE_BLACK_LIST - {"softmax"}) | {"elementwise_add"}))
    assert p.sources["custom_black_list"] == Source("preset", "safe + amp.custom_black_list")
    assert plan().sources["custom_black_list"] == Source("preset", "safe")
    assert {"batch_norm", "layer_norm", "softmax", "reduce_sum"} <= set(plan("O2").custom_black_list)


def test_preset_fast_adds_nothing() -> None:
    p = plan({"preset": "fast", "custom_black_list": ["tanh", "exp"]})
    assert p.custom_black_list == ("exp", "tanh") and p.custom_white_list == ()
    assert p.sources["custom_black_list"] == Source("yaml", "amp.custom_black_list")


# -- scaling, masters, collapse --------------------------------------------------------------------------------


def test_scaling_policy_takes_every_key() -> None:
    keys = {
        "init_loss_scaling": 64,
        "use_dynamic_loss_scaling": False,
        "incr_ratio": 3,
        "decr_ratio": 0.25,
        "incr_every_n_steps": 10,
        "decr_every_n_nan_or_inf": 2,
        "min_loss_scaling": 2,
        "max_loss_scaling": 128,
    }
    assert plan(keys).scaling == ScalingPolicy(64.0, False, 3.0, 0.25, 10, 2, 2.0, 128.0)
    assert plan().scaling == ScalingPolicy()


def test_loss_scaling_is_for_float16() -> None:
    assert plan("fp16").use_loss_scaling
    p = plan("bf16")
    assert not p.use_loss_scaling and "range" in why(p, "use_loss_scaling")
    assert "init_loss_scaling" not in [row.key for row in p.rows()]


def test_a_low_static_scale_is_no_matter_to_bfloat16() -> None:
    read = read_amp({"Global": OCR_STATIC})
    assert read is not None
    assert [n.code for n in make_plan(read, T4).notes] == ["AMP020"]
    assert make_plan(read, A100, family="det/DB").notes == ()


@pytest.mark.parametrize(
    ("amp", "weight", "grad"),
    [
        ("O1", False, False),
        ("OD", False, False),
        ("O2", True, False),
        ({"level": "O2", "master_grad": True}, True, True),
        ({"level": "O2", "master_grad": False}, True, False),
    ],
)
def test_masters(amp, weight, grad) -> None:
    p = plan(amp)
    assert (p.master_weight, p.master_grad) == (weight, grad)
    assert why(p, "master_weight") and bool(why(p, "master_grad")) == (config(amp).master_grad == "auto")


@pytest.mark.parametrize("word", ["pin", "fp32", "stop"])
def test_on_collapse_is_what_was_written(word) -> None:
    p = plan({"on_collapse": word})
    assert p.on_collapse == word and {r.key: r.value for r in p.rows()}["on_collapse"] == word
    assert plan().on_collapse == "pin"


def test_a_scale_to_be_calibrated() -> None:
    p = plan({"init_loss_scaling": "auto"})
    assert p.calibrate and p.scaling.init == 1024.0 and "first batches" in why(p, "init_loss_scaling")
    assert {r.key: r.value for r in p.rows()}["init_loss_scaling"] == "auto" and not plan().calibrate
    assert plan({"init_loss_scaling": "auto", "max_loss_scaling": 256}).scaling.init == 256.0
    assert plan({"init_loss_scaling": "auto", "min_loss_scaling": 4096}).scaling.init == 4096.0
    assert not plan({"init_loss_scaling": "auto", "dtype": "bf16"}).calibrate


def test_evaluation_never_uses_the_other_half_type() -> None:
    assert plan().eval_dtype == "float32"
    assert plan({"dtype": "fp16", "eval_dtype": "fp16"}).eval_dtype == "float16"
    p = plan({"eval_dtype": "fp16"}, A100, "det/DB")
    assert (p.dtype, p.eval_dtype) == ("bfloat16", "bfloat16") and why(p, "eval_dtype")


# -- rows and table ------------------------------------------------------------------------------------------


def test_rows_show_value_and_source() -> None:
    read = read_amp(
        {"amp": {"level": "O1", "preset": "fast"}, "Global": {"scale_loss": 256}},
        overrides={"amp.level": "O2", "amp.custom_black_list": ["a", "b", "c", "d"]},
    )
    assert read is not None
    rows = {r.key: (r.value, r.source_text) for r in make_plan(read, A100, family="rec/SVTR").rows()}
    assert rows["enabled"] == ("true", "YAML")
    assert rows["device"] == ("gpu: NVIDIA A100", "")
    assert rows["family"] == ("rec/SVTR", "")
    assert rows["level"] == ("O2", "-o amp.level")
    assert rows["preset"] == ("fast", "YAML")
    assert rows["init_loss_scaling"] == ("256", "host Global.scale_loss")
    assert rows["decr_ratio"] == ("0.5", "default")
    assert rows["custom_black_list"] == ("a, b, c and 1 more", "-o amp.custom_black_list")
    assert rows["fp32_layers"] == ("[]", "default")
    assert rows["monitor.every_n_steps"] == ("1", "default")
    assert make_plan(config("O2"), A100).rows()[2].source_text == "YAML amp"
    assert "preset safe" in {r.source_text for r in plan().rows()}


def test_a_static_scale_shows_no_settings_that_do_nothing() -> None:
    keys = [row.key for row in plan({"use_dynamic_loss_scaling": False}).rows()]
    assert "init_loss_scaling" in keys and not {"incr_ratio", "min_loss_scaling"} & set(keys)


DEVICES = (CPU, A100, T4, P100, NPU)
SHAPES = (
    True,
    "O2",
    "OD",
    {"fp32_layers": ["head[0].*", "[bold]x[/bold]"], "cpu": "off"},
    {"use_dynamic_loss_scaling": False},
)
FAMILIES = ("", "det/DB", "rec/SVTR")


def printed(p: Plan, width: int = 80) -> str:
    out = io.StringIO()
    print_plan(p, Console(file=out, width=width, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("device", "amp", "family"), itertools.product(DEVICES, SHAPES, FAMILIES))
def test_table_fits_80_columns_and_names_every_setting_whole(device, amp, family, lang, monkeypatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", lang)
    p = plan(amp, device, family)
    text = printed(p)
    assert max(map(cell_len, text.splitlines())) <= 80
    assert all(f"  {row.key} " in text for row in p.rows())


def test_names_in_the_table_are_not_markup() -> None:
    assert "[bold]x[/bold]" in printed(plan({"fp32_layers": ["[bold]x[/bold]"]}))


def test_the_widest_spellings_still_fit() -> None:
    read = read_amp({"Global": OCR_STATIC})
    assert read is not None
    text = printed(make_plan(read, T4, family="det/DB"))
    assert max(map(cell_len, text.splitlines())) <= 80
    assert "Global.use_dynamic_loss_scaling" in text and "use_dynamic_loss_scaling " in text


# -- file ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "amp", "family"), itertools.product(DEVICES, SHAPES, FAMILIES))
def test_yaml_round_trip(device, amp, family) -> None:
    p = plan(amp, device, family)
    again = plan_from_yaml(plan_to_yaml(p))
    assert again == p and again.rows() == p.rows()


def test_yaml_round_trip_of_odd_names_and_numbers() -> None:
    odd = {"fp32_layers": ["层.*", "a: b", "#", "yes", "1e5"], "decr_ratio": 1e-7, "max_loss_scaling": 2.0**126}
    p = dataclasses.replace(plan(odd), family="det/数据")
    assert plan_from_yaml(plan_to_yaml(p)) == p


def test_a_plan_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan().level = "O2"  # type: ignore[misc]


def _edit(**changes) -> str:
    data = yaml.safe_load(plan_to_yaml(plan()))
    for key, value in changes.items():
        if value is None:
            del data[key]
        else:
            data[key] = value
    return yaml.safe_dump(data)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not a mapping"),
        ("- 1", "not a mapping"),
        ("a: [", ""),
        ("a: 2001-13-45", ""),
        (_edit(level="O7"), "level"),
        (_edit(dtype=None), "dtype"),
        (_edit(wrong=1), "wrong"),
        (_edit(scaling={"init": 0.0}), "scaling"),
        (_edit(device={"kind": "cpu"}), "device"),
        (_edit(notes=[{"code": 1}]), "notes"),
    ],
)
def test_what_is_no_plan_file_is_refused(text, named) -> None:
    with pytest.raises(AmpError) as caught:
        plan_from_yaml(text)
    assert caught.value.code == "AMP029" and named in caught.value.message and "pydantic" not in str(caught.value)


def test_write_plan_makes_its_folder_and_replaces_the_old_one(tmp_path) -> None:
    path = tmp_path / "out" / "amp" / "plan.yml"
    assert write_plan(plan("O1"), path) == path
    write_plan(plan("O2"), str(path))
    assert plan_from_yaml(path.read_text(encoding="utf-8")) == plan("O2")
    assert os.listdir(path.parent) == ["plan.yml"]


def test_write_plan_says_where_it_cannot_write(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "folder.yml").mkdir()
    for path in (tmp_path / "file" / "amp" / "plan.yml", tmp_path / "folder.yml"):
        with pytest.raises(AmpError) as caught:
            write_plan(plan(), path)
        assert caught.value.code == "AMP028" and str(path) in caught.value.message
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.yml"]


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_the_old_plan_and_nothing_else(tmp_path, monkeypatch, error) -> None:
    path = tmp_path / "plan.yml"
    write_plan(plan("O1"), path)

    def fail(*_args: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises((AmpError, KeyboardInterrupt)) as caught:
        write_plan(plan("O2"), path)
    assert isinstance(caught.value, KeyboardInterrupt) or caught.value.code == "AMP028"
    assert plan_from_yaml(path.read_text(encoding="utf-8")) == plan("O1")
    assert os.listdir(tmp_path) == ["plan.yml"]
