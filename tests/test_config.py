"""The ``amp`` key: shapes, values, sources, host spellings, overrides, files."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_amp_plugin.config import AmpConfig, Source, load_yaml, parse_override, read_amp, widen
from paddle_amp_plugin.config_schema import KEYS, LARGEST_SCALE, SMALLEST_SCALE
from paddle_amp_plugin.errors import AmpError, ConfigError

DEFAULTS = {
    "level": "O1",
    "dtype": "auto",
    "preset": "safe",
    "custom_black_list": (),
    "custom_white_list": (),
    "fp32_layers": (),
    "init_loss_scaling": 1024.0,
    "use_dynamic_loss_scaling": True,
    "incr_ratio": 2.0,
    "decr_ratio": 0.5,
    "incr_every_n_steps": 1000,
    "decr_every_n_nan_or_inf": 1,
    "min_loss_scaling": 1.0,
    "max_loss_scaling": 16777216.0,
    "master_grad": "auto",
    "on_collapse": "pin",
    "accumulate_steps": 1,
    "eval_dtype": "float32",
    "cpu": "emulate",
    "monitor": {"visualdl": True, "every_n_steps": 1},
}


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


def read(document, **more) -> AmpConfig:
    config = read_amp(document, **more)
    assert config is not None
    return config


def values(config: AmpConfig) -> dict:
    return {key: value for key, value in config.model_dump().items() if key in KEYS}


def changed(config: AmpConfig) -> dict:
    return {key: value for key, value in values(config).items() if value != DEFAULTS[key]}


def problems(document, **more) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        read_amp(document, **more)
    return [(p.code, p.path) for p in caught.value.problems]


# -- shapes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [True, {}])
def test_on_means_every_default(shape) -> None:
    config = read({"amp": shape})
    assert config.enabled and values(config) == DEFAULTS and config.notes == ()
    assert config.sources["enabled"] == Source("yaml", "amp")
    assert {s.kind for key, s in config.sources.items() if key != "enabled"} == {"default"}


def test_every_key_has_a_source() -> None:
    keys = [key for key in KEYS if key != "monitor"]
    assert set(read({"amp": True}).sources) == {"enabled", *keys, "monitor.visualdl", "monitor.every_n_steps"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("fp16", {"dtype": "float16"}),
        ("FP16", {"dtype": "float16"}),
        ("float16", {"dtype": "float16"}),
        ("bf16", {"dtype": "bfloat16"}),
        ("bfloat16", {"dtype": "bfloat16"}),
        ("O1", {}),
        ("o2", {"level": "O2"}),
        ("O2", {"level": "O2"}),
        ("OD", {"level": "OD"}),
    ],
)
def test_one_word(word, expected) -> None:
    config = read({"amp": word})
    assert config.enabled and changed(config) == expected


def test_false_is_off_and_absent_is_none() -> None:
    off = read({"amp": False})
    assert not off.enabled and off.sources["enabled"] == Source("yaml", "amp")
    assert read_amp({}) is None
    assert read_amp({"Global": {"epoch_num": 3}, "Optimizer": {}, "Train": None}) is None
    assert read_amp({"Global": None}) is None


def test_global_amp_is_the_same_key() -> None:
    config = read({"Global": {"amp": {"level": "O2", "monitor": {"every_n_steps": 5}}}})
    assert changed(config) == {"level": "O2", "monitor": {"visualdl": True, "every_n_steps": 5}}
    assert config.sources["monitor.every_n_steps"] == Source("yaml", "Global.amp.monitor.every_n_steps")
    assert read_amp({"Global": {"amp": True}}, host="paddlenlp") is None


def test_the_mapping_of_the_design_page_with_every_key() -> None:
    text = """
    amp:
      level: o2
      dtype: fp16
      preset: FAST
      custom_black_list: [exp, exp, conv2d]
      custom_white_list: [softmax]
      fp32_layers: ["backbone.conv1", "head.*"]
      init_loss_scaling: 1e3
      use_dynamic_loss_scaling: yes
      incr_ratio: 3
      decr_ratio: .25
      incr_every_n_steps: 1e2
      decr_every_n_nan_or_inf: 2
      min_loss_scaling: 2
      max_loss_scaling: 1.5e5
      master_grad: true
      on_collapse: stop
      accumulate_steps: 1
      eval_dtype: fp32
      cpu: off
      monitor: {visualdl: off, every_n_steps: 10}
    """
    config = read(yaml.safe_load(text))
    assert values(config) == {
        "level": "O2",
        "dtype": "float16",
        "preset": "fast",
        "custom_black_list": ("exp", "conv2d"),
        "custom_white_list": ("softmax",),
        "fp32_layers": ("backbone.conv1", "head.*"),
        "init_loss_scaling": 1000.0,
        "use_dynamic_loss_scaling": True,
        "incr_ratio": 3.0,
        "decr_ratio": 0.25,
        "incr_every_n_steps": 100,
        "decr_every_n_nan_or_inf": 2,
        "min_loss_scaling": 2.0,
        "max_loss_scaling": 150000.0,
        "master_grad": True,
        "on_collapse": "stop",
        "accumulate_steps": 1,
        "eval_dtype": "float32",
        "cpu": "off",
        "monitor": {"visualdl": False, "every_n_steps": 10},
    }
    assert {s.kind for s in config.sources.values()} == {"yaml"}
    assert isinstance(config.incr_every_n_steps, int) and isinstance(config.incr_ratio, float)


def test_config_is_immutable_and_can_be_pickled_and_copied() -> None:
    config = read({"amp": {"level": "O2"}})
    with pytest.raises(ValueError):
        config.level = "O1"
    assert pickle.loads(pickle.dumps(config)) == config == copy.deepcopy(config)


def test_the_document_is_not_changed() -> None:
    document = {"amp": {"monitor": {"visualdl": True}}, "Global": {"use_amp": True}}
    before = copy.deepcopy(document)
    read_amp(document, overrides={"amp.monitor.visualdl": False, "amp.level": "O2", "Global.amp_level": "O2"})
    assert document == before


scales = (
    st.floats(SMALLEST_SCALE, LARGEST_SCALE)
    .map(lambda x: float(f"{x:.6g}"))
    .filter(lambda x: SMALLEST_SCALE <= x <= LARGEST_SCALE)
)
ops = st.sampled_from(["conv2d", "matmul_v2", "exp", "softmax", "elementwise_add"])
good = st.fixed_dictionaries(
    {},
    optional={
        "level": st.sampled_from(["O1", "O2", "OD"]),
        "dtype": st.sampled_from(["auto", "float16", "bfloat16"]),
        "preset": st.sampled_from(["safe", "fast"]),
        "custom_black_list": st.lists(ops, unique=True, max_size=3),
        "fp32_layers": st.lists(st.text("abc.*[0]_", min_size=1, max_size=8), unique=True, max_size=3),
        "use_dynamic_loss_scaling": st.booleans(),
        "incr_ratio": st.floats(1.001, 1e6),
        "decr_ratio": st.floats(0.001, 0.999),
        "incr_every_n_steps": st.integers(1, 2**31 - 1),
        "decr_every_n_nan_or_inf": st.integers(1, 100),
        "on_collapse": st.sampled_from(["pin", "fp32", "stop"]),
        "accumulate_steps": st.just(1),
        "cpu": st.sampled_from(["emulate", "off", "error"]),
        "monitor": st.fixed_dictionaries(
            {}, optional={"visualdl": st.booleans(), "every_n_steps": st.integers(1, 1000)}
        ),
    },
)


@settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(good, st.lists(scales, min_size=3, max_size=3), st.sampled_from(["amp", "Global.amp", "-o"]))
def test_good_configs_survive_the_way_through_a_file(tmp_path, mapping, three, where) -> None:
    low, init, high = sorted(three)
    mapping |= {"min_loss_scaling": low, "init_loss_scaling": init, "max_loss_scaling": high}
    document = {"amp": mapping} if where == "amp" else {"Global": {"amp": mapping} if where == "Global.amp" else {}}
    path = tmp_path / "c.yml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    given_by_o = {f"amp.{key}": value for key, value in mapping.items()} if where == "-o" else None
    config = read(load_yaml(path), overrides=given_by_o)
    expected = {**DEFAULTS, **{k: tuple(v) if isinstance(v, list) else v for k, v in mapping.items()}}
    expected["monitor"] = {**DEFAULTS["monitor"], **mapping.get("monitor", {})}
    assert values(config) == expected
    kinds = {config.sources[key].kind for key in mapping if key != "monitor"}
    assert kinds == {"override" if where == "-o" else "yaml"}


# -- overrides -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amp.level=O2", ("amp.level", "O2")),
        ("amp=true", ("amp", True)),
        ("amp=off", ("amp", False)),
        (" amp.incr_ratio = 2.5 ", ("amp.incr_ratio", 2.5)),
        ("amp.fp32_layers=[a, b.*]", ("amp.fp32_layers", ["a", "b.*"])),
        ("amp={level: O2}", ("amp", {"level": "O2"})),
        ("amp.fp32_layers=['a=b']", ("amp.fp32_layers", ["a=b"])),
        ("amp.level=", ("amp.level", None)),
    ],
)
def test_parse_override(text, expected) -> None:
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["", "amp", "=1", "amp.=1", ".level=1", "amp.level=[", "amp.level=2001-13-45"])
def test_parse_override_refuses(text) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_override(text)
    assert caught.value.code == "AMP014"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(True, {}), ("O2", {"level": "O2"}), ("bf16", {"dtype": "bfloat16"}), ({"level": 3}, {"level": 3})],
)
def test_widen(shape, expected) -> None:
    assert widen(shape) == expected


@pytest.mark.parametrize("shape", [False, None, 3, [], "O9"])
def test_widen_refuses(shape) -> None:
    with pytest.raises(ConfigError) as caught:
        widen(shape, path="Global.amp")
    assert [(p.code, p.path) for p in caught.value.problems] == [("AMP005", "Global.amp")]


OVERRIDES = [
    # document, overrides, what differs from the defaults
    ({"amp": True}, {"amp.level": "O2"}, {"level": "O2"}),
    ({"amp": "bf16"}, {"amp.level": "O2"}, {"level": "O2", "dtype": "bfloat16"}),
    ({"amp": {"level": "O1"}}, {"amp.level": "O2"}, {"level": "O2"}),
    ({"amp": {"level": "O2"}}, {"amp": True}, {"level": "O2"}),
    ({"amp": {"level": "O2"}}, {"amp": "fp16"}, {"level": "O2", "dtype": "float16"}),
    ({"amp": {"level": "O2"}}, {"amp": {"dtype": "fp16"}}, {"level": "O2", "dtype": "float16"}),
    ({}, {"amp.level": "O2"}, {"level": "O2"}),
    ({}, {"amp": "O2"}, {"level": "O2"}),
    ({"amp": False}, {"amp": True}, {}),
    ({"amp": False}, {"amp.level": "O2", "amp": True}, {"level": "O2"}),
    ({"Global": {"amp": True}}, {"amp.level": "O2"}, {"level": "O2"}),
    ({"amp": True}, {"Global.amp.level": "O2"}, {"level": "O2"}),
    ({"Global": {}}, {"Global.use_amp": True, "Global.amp_level": "O2"}, {"level": "O2"}),
    ({"Global": {"use_amp": False}}, {"Global.use_amp": True}, {}),
    ({}, {"amp.monitor.every_n_steps": 9}, {"monitor": {"visualdl": True, "every_n_steps": 9}}),
    ({"amp": {"monitor": {"visualdl": False}}}, {"amp.monitor": {"every_n_steps": 9}},
     {"monitor": {"visualdl": False, "every_n_steps": 9}}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "overrides", "expected"), OVERRIDES)
def test_overrides(document, overrides, expected) -> None:
    assert changed(read(document, overrides=overrides)) == expected


def test_overrides_that_the_host_has_merged_already_change_nothing_but_the_source() -> None:
    config = read({"amp": {"level": "O2", "preset": "fast"}}, overrides={"amp.level": "O2"})
    assert config.sources["level"] == Source("override", "-o amp.level")
    assert config.sources["preset"] == Source("yaml", "amp.preset")
    assert config.sources["enabled"] == Source("yaml", "amp")


def test_sources_of_words_and_hosts_given_by_o() -> None:
    config = read({"amp": {"level": "O2"}}, overrides={"amp": "fp16"})
    assert config.sources["dtype"] == config.sources["enabled"] == Source("override", "-o amp")
    config = read({}, overrides={"Global.use_amp": True})
    assert config.sources["enabled"] == Source("override", "-o Global.use_amp")


def test_o_can_switch_off_but_not_tune_what_is_off() -> None:
    assert not read({"amp": {"level": "O2"}}, overrides={"amp": False}).enabled
    assert problems({"amp": False}, overrides={"amp.level": "O2"}) == [("AMP009", "amp.level")]


def test_bad_overrides_name_the_path() -> None:
    assert problems({"amp": True}, overrides={"amp.levle": "O2"}) == [("AMP001", "amp.levle")]
    assert problems({"amp": {"level": "O1"}}, overrides={"amp.level.x": 1}) == [("AMP014", "amp.level.x")]
    assert problems({"amp": [1]}, overrides={"amp.level": "O2"}) == [("AMP005", "amp")]
    assert problems({}, overrides={"apm.level": "O2"}) == [("AMP010", "apm")]
    assert problems({}, overrides={"Global.use_apm": True}) == [("AMP010", "Global.use_apm")]
    assert problems({}, overrides={"amp": "O7"}) == [("AMP005", "amp")]


# -- host spellings --------------------------------------------------------------------------------------------


def test_paddleocr_spelling_alone_is_the_key_and_only_its_values_are_carried_over() -> None:
    config = read({"Global": {"use_amp": True}})
    assert changed(config) == {} and config.sources["enabled"] == Source("host", "Global.use_amp")
    config = read(
        {
            "Global": {
                "use_amp": True,
                "amp_level": "O2",
                "amp_dtype": "bfloat16",
                "scale_loss": 256,
                "use_dynamic_loss_scaling": False,
                "amp_custom_black_list": ["exp"],
                "amp_custom_white_list": ["softmax"],
            }
        }
    )
    assert changed(config) == {
        "level": "O2",
        "dtype": "bfloat16",
        "init_loss_scaling": 256.0,
        "use_dynamic_loss_scaling": False,
        "custom_black_list": ("exp",),
        "custom_white_list": ("softmax",),
    }
    assert config.sources["init_loss_scaling"] == Source("host", "Global.scale_loss")


@pytest.mark.parametrize(
    "document",
    [
        {"Global": {"use_amp": False}},
        {"Global": {"use_amp": False, "amp_level": "O2", "scale_loss": "whatever"}},
        {"Global": {"amp_level": "O2"}},
        {"Global": {"use_amp": None}},
        {"Global": {"use_amp": True, "amp_level": "O0"}},
    ],
)
def test_paddleocr_spelling_that_is_not_on_is_left_to_the_host(document) -> None:
    assert read_amp(document) is None


def test_host_parameters_take_part_when_amp_is_on() -> None:
    assert changed(read({"amp": True, "Global": {"amp_level": "O2", "scale_loss": None}})) == {"level": "O2"}
    config = read({"amp": {"level": "o2"}, "Global": {"amp_level": "O2", "use_amp": True}})
    assert config.sources["level"] == Source("yaml", "amp.level")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"fp16": True}, {"dtype": "float16"}),
        ({"bf16": True, "fp16": False}, {"dtype": "bfloat16"}),
        ({"fp16": True, "fp16_opt_level": "O2", "amp_master_grad": True},
         {"dtype": "float16", "level": "O2", "master_grad": True}),
        ({"fp16": True, "scale_loss": 32768, "amp_custom_black_list": None},
         {"dtype": "float16", "init_loss_scaling": 32768.0}),
        ({"amp": True, "bf16": True}, {"dtype": "bfloat16"}),
        ({"amp": "bf16", "fp16": False}, {"dtype": "bfloat16"}),
        ({"amp": "O2", "bf16": False}, {"level": "O2"}),
    ],
)  # fmt: skip
def test_paddlenlp_spelling(flags, expected) -> None:
    assert changed(read(flags, host="paddlenlp")) == expected


@pytest.mark.parametrize("flags", [{"fp16": False}, {"fp16": False, "bf16": False}, {"fp16_opt_level": "O2"}, {}])
def test_paddlenlp_off(flags) -> None:
    assert read_amp(flags, host="paddlenlp") is None


CONTRADICTIONS = [
    ("paddleocr", {"amp": False, "Global": {"use_amp": True}}, "amp", "Global.use_amp"),
    ("paddleocr", {"amp": True, "Global": {"use_amp": False}}, "amp", "Global.use_amp"),
    ("paddleocr", {"amp": "O1", "Global": {"amp_level": "O2"}}, "amp", "Global.amp_level"),
    ("paddleocr", {"amp": {"level": "O1"}, "Global": {"amp_level": "O2"}}, "amp.level", "Global.amp_level"),
    ("paddleocr", {"amp": True, "Global": {"amp_level": "O0"}}, "amp", "Global.amp_level"),
    ("paddleocr", {"amp": {"dtype": "auto"}, "Global": {"amp_dtype": "float16"}}, "amp.dtype", "Global.amp_dtype"),
    ("paddleocr", {"amp": {"init_loss_scaling": 2}, "Global": {"scale_loss": 4}},
     "amp.init_loss_scaling", "Global.scale_loss"),
    ("paddleocr", {"amp": {"level": "O2"}, "Global": {"amp": {"level": "O1"}}}, "amp.level", "Global.amp.level"),
    ("paddleocr", {"amp": False, "Global": {"amp": True}}, "amp", "Global.amp"),
    ("paddlenlp", {"fp16": True, "bf16": True}, "fp16", "bf16"),
    ("paddlenlp", {"amp": "fp16", "bf16": True}, "amp", "bf16"),
    ("paddlenlp", {"amp": "bf16", "bf16": False}, "amp", "bf16"),
    ("paddlenlp", {"amp": True, "fp16": False}, "amp", "fp16"),
    ("paddlenlp", {"amp": True, "fp16": False, "bf16": False}, "amp", "fp16"),
    ("paddlenlp", {"amp": False, "fp16": True}, "amp", "fp16"),
    ("paddlenlp", {"amp": {"master_grad": False, "level": "O2"}, "amp_master_grad": True},
     "amp.master_grad", "amp_master_grad"),
]  # fmt: skip


@pytest.mark.parametrize(("host", "document", "first", "second"), CONTRADICTIONS)
def test_a_contradiction_names_both_paths(host, document, first, second) -> None:
    with pytest.raises(ConfigError) as caught:
        read_amp(document, host=host)
    assert [(p.code, p.path) for p in caught.value.problems] == [("AMP009", second)]
    message = caught.value.problems[0].message
    assert f"{first} is" in message and f"{second} is" in message


# -- rules between keys, what is not available yet, notes ----------------------------------------------------


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({"init_loss_scaling": 0.5}, [("AMP006", "amp.init_loss_scaling")]),
        ({"min_loss_scaling": 2048}, [("AMP006", "amp.min_loss_scaling")]),
        ({"max_loss_scaling": 512}, [("AMP006", "amp.max_loss_scaling")]),
        ({"init_loss_scaling": 2**25}, [("AMP006", "amp.init_loss_scaling")]),
        ({"custom_black_list": ["b", "a"], "custom_white_list": ["a", "b", "c"]},
         [("AMP007", "amp.custom_black_list")] * 2),
        ({"master_grad": True}, [("AMP008", "amp.master_grad")]),
        ({"dtype": "fp16", "eval_dtype": "bf16"}, [("AMP015", "amp.eval_dtype")]),
        ({"accumulate_steps": 4}, [("AMP013", "amp.accumulate_steps")]),
    ],
)  # fmt: skip
def test_rules_between_keys(mapping, expected) -> None:
    assert problems({"amp": mapping}) == expected


def test_host_paths_are_named_in_rules_between_keys() -> None:
    document = {"Global": {"use_amp": True, "scale_loss": 0.25}}
    assert problems(document) == [("AMP006", "Global.scale_loss")]
    assert problems({"fp16": True, "amp_master_grad": True}, host="paddlenlp") == [("AMP008", "amp_master_grad")]


@pytest.mark.parametrize(
    ("document", "codes"),
    [
        ({"amp": True}, []),
        ({"amp": {"use_dynamic_loss_scaling": False}}, []),
        ({"amp": {"use_dynamic_loss_scaling": False, "init_loss_scaling": 127}}, ["AMP020"]),
        ({"amp": {"use_dynamic_loss_scaling": False, "init_loss_scaling": 128}}, []),
        ({"Global": {"use_amp": True, "use_dynamic_loss_scaling": False, "scale_loss": 1.0}}, ["AMP020"]),
        ({"amp": {"dtype": "bf16", "init_loss_scaling": 8}}, ["AMP021"]),
        ({"amp": {"dtype": "bf16"}}, []),
        ({"amp": {"on_collapse": "pin"}}, []),
        ({"amp": {"custom_black_list": ["softmax", "elementwise_add"]}}, []),
        ({"amp": {"custom_black_list": ["sofmax"]}}, ["AMP023"]),
        ({"amp": {"custom_white_list": ["add"], "custom_black_list": ["my_own_op"]}}, ["AMP023", "AMP023"]),
        ({"amp": {"on_collapse": "fp32"}}, []),
        ({"amp": {"init_loss_scaling": "auto"}}, []),
        ({"amp": {"on_collapse": "stop"}}, []),
    ],
)
def test_notes(document, codes, monkeypatch) -> None:
    notes = read(document).notes
    assert [n.code for n in notes] == codes
    english = [str(n) for n in notes]
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    assert all(str(n) != e for n, e in zip(notes, english, strict=True))


# -- files -------------------------------------------------------------------------------------------------


def test_load_yaml_reads_what_paddleocr_reads(tmp_path) -> None:
    path = tmp_path / "a.yml"
    path.write_bytes("\ufeffamp: true\nGlobal:\n  shape: !!python/tuple [3, 32]\n  名: 值\n".encode())
    assert load_yaml(path) == {"amp": True, "Global": {"shape": [3, 32], "名": "值"}}


FILES = [
    (b"", "AMP034", "is empty"),
    (b"# only a comment\n", "AMP034", "is empty"),
    (b"- a\n- b\n", "AMP034", "found: ['a', 'b']"),
    (b"just text", "AMP034", "'just text'"),
    (b"amp: true\nGlobal: [1, 2\nx: 3\n", "AMP032", "line 3, column 2"),
    (b"amp:\n\tlevel: O1\n", "AMP032", "line 2, column 1"),
    (b"a: b: c\n", "AMP032", "line 1, column 5"),
    (b"a: 2001-13-45\n", "AMP032", "unreadable value"),
    (b"a: !!int ''\n", "AMP032", "unreadable value"),
    (b"a: " + b"9" * 6000 + b"x: !foo 3\n", "AMP032", ""),
    (b"a: " + b"[" * 3000, "AMP032", ""),
    (b"a: !unknown 3\n", "AMP032", "line 1, column 4"),
    (b"a: 1\n---\nb: 2\n", "AMP032", "line 2"),
    (b"a: \x00\n", "AMP032", ""),
    (b"{[a]: 1}: 2\n", "AMP032", "line 1"),
    ("amp: 真".encode("gbk"), "AMP031", "byte 0xd5 at line 1"),
    (b"a: 1\nb: \xff\n", "AMP031", "line 2"),
    ("amp: true".encode("utf-16"), "AMP031", "not UTF-8"),
    (b"amp: true\nx: 1\namp: false\n", "AMP033", "key amp stands twice (lines 1 and 3)"),
    (b"amp:\n  level: O1\n  level: O2\n", "AMP033", "amp.level stands twice (lines 2 and 3)"),
    (b"amp: {monitor: {visualdl: on,\n visualdl: off}}", "AMP033", "amp.monitor.visualdl"),
    (b"Global:\n  use_amp: true\n  use_amp: false\n", "AMP033", "Global.use_amp stands twice (lines 2 and 3)"),
    (b"Global:\n  amp: {level: O1, level: O2}\n", "AMP033", "Global.amp.level"),
    (b"Global:\n  use_amp: true\nx: 1\nGlobal:\n  y: 1\n", "AMP033", "key Global stands twice (lines 1 and 4)"),
    (b"fp16: true\nfp16: false\n", "AMP033", "key fp16"),
]


@pytest.mark.parametrize(("content", "code", "text"), FILES)
def test_load_yaml_says_what_is_wrong(tmp_path, content, code, text) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(content)
    with pytest.raises(AmpError) as caught:
        load_yaml(path)
    assert caught.value.code == code and text in str(caught.value) and "c.yml" in str(caught.value)


def test_load_yaml_leaves_other_duplicates_to_the_host(tmp_path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("Global:\n  a: 1\n  a: 2\nGlobal:\n  b: 1\n", encoding="utf-8")
    assert load_yaml(path) == {"Global": {"b": 1}}


def test_load_yaml_without_a_file(tmp_path, monkeypatch) -> None:
    for path, code in [(tmp_path / "no.yml", "AMP030"), (tmp_path, "AMP030"), ("a\0b", "AMP031")]:
        with pytest.raises(AmpError) as caught:
            load_yaml(path)
        assert caught.value.code == code

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(AmpError) as caught:
        load_yaml(tmp_path / "c.yml")
    assert caught.value.code == "AMP031" and "Permission denied" in str(caught.value)


def test_a_recursive_yaml_is_an_error_and_no_crash(tmp_path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("amp: &a\n  monitor: *a\n", encoding="utf-8")
    assert problems(load_yaml(path)) == [("AMP001", "amp.monitor.monitor")]


def test_the_pure_floor_does_not_import_paddle() -> None:
    names = ["config", "plan", "plan_table", "plan_file", "loss_scaling", "op_rules", "errors", "messages"]
    code = f"import sys\nfor n in {names}: __import__('paddle_amp_plugin.' + n)\nsys.exit('paddle' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "written, meant",
    [("sofmax", "softmax"), ("softmaxx", "softmax?"), ("add", "elementwise_add"), ("linear_v3", "linear_v2")],
)
def test_an_unknown_op_is_noticed_with_the_likely_name(written: str, meant: str) -> None:
    (note,) = read({"amp": {"custom_black_list": [written]}}).notes
    assert note.code == "AMP023" and written in str(note) and meant in str(note)
