"""The ``amp`` key: shapes, values, sources, overrides."""

from __future__ import annotations

import copy
import pickle

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_amp_plugin.config import Source, load_yaml, parse_override, read_amp, widen
from paddle_amp_plugin.config_schema import KEYS, LARGEST_SCALE, NESTED, SMALLEST_SCALE
from paddle_amp_plugin.errors import ConfigError
from tests.amp_key import DEFAULTS, changed, problems, read, values


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


# -- shapes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [True, {}])
def test_on_means_every_default(shape) -> None:
    config = read({"amp": shape})
    assert config.enabled and values(config) == DEFAULTS and config.notes == ()
    assert config.sources["enabled"] == Source("yaml", "amp")
    assert {s.kind for key, s in config.sources.items() if key != "enabled"} == {"default"}


def test_every_key_has_a_source() -> None:
    keys = [key for key in KEYS if key not in NESTED]
    assert set(read({"amp": True}).sources) == {
        "enabled",
        *keys,
        "ema.decay",
        "monitor.visualdl",
        "monitor.every_n_steps",
    }


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
      accumulate_steps: 4
      ema: {decay: 0.999}
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
        "accumulate_steps": 4,
        "ema": {"decay": 0.999},
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
        "accumulate_steps": st.integers(1, 64),
        "ema": st.fixed_dictionaries({}, optional={"decay": st.floats(0.001, 0.999) | st.none()}),
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
    for key in NESTED:
        expected[key] = {**DEFAULTS[key], **mapping.get(key, {})}
    assert values(config) == expected
    kinds = {config.sources[key].kind for key in mapping if key not in NESTED}
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
