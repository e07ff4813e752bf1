"""Generated bad configs: each is refused with the right code and path, in both languages, and never with a traceback.

The generator is seeded: the same configs on every machine. Three families: wrong values under ``amp`` (one to
four at once, mixed with good ones, in every place the key may stand), misspelt keys, and random rubbish.
"""

from __future__ import annotations

import datetime
import random
import re
import string
from collections.abc import Iterator
from typing import Any

import pytest

from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.config_schema import KEYS, NESTED
from paddle_amp_plugin.errors import ConfigError
from paddle_amp_plugin.host_spellings import PADDLENLP, PADDLEOCR

CHINESE = re.compile(r"[\u4e00-\u9fff]")
NAN, INF = float("nan"), float("inf")
NESTED_KEYS = [key for keys in NESTED.values() for key in keys]
NOT_TEXT = [None, 3, 0, 2.5, True, [], ["O1"], {}, {"a": 1}, datetime.date(2024, 1, 2), b"O1", 10**5000, NAN]
NOT_NUMBER = [None, True, False, "", "many", "1024", "1,5", "0x10", "nan", "inf", "1_0.5", [], [1], {}, b"1"]
NOT_BOOL = [None, 0, 1, 2, 0.5, "true", "false", "yes", "", [], {}, NAN, 10**5000]
NOT_LIST = [None, True, 3, 2.5, "exp", "exp, log", {"exp": 1}, datetime.date(2024, 1, 2)]
NOT_NAME = [[""], ["  "], [None], [3], ["exp", True], [["exp"]], [{"a": 1}], ["exp", "a\nb"], ["a\x00"]]


def wrong(values: list[Any], code: str) -> list[tuple[Any, str]]:
    return [(value, code) for value in values]


def words(*unknown: str) -> list[tuple[Any, str]]:
    return wrong(NOT_TEXT, "AMP002") + wrong(list(unknown), "AMP003")


SCALE = wrong(NOT_NUMBER, "AMP002") + wrong(
    [0, -1, -0.5, NAN, INF, -INF, 1e-30, 1e39, 10**400, "1e400", "-1e3"], "AMP004"
)
COUNT = wrong([*NOT_NUMBER, 1.5, "1.5e0"], "AMP002") + wrong([0, -3, NAN, INF, 2**31, 10**5000, -1.0, "1e99"], "AMP004")
FLAG = wrong(NOT_BOOL, "AMP002")
OPS = wrong(NOT_LIST, "AMP002") + wrong([*NOT_NAME, ["a b"], ["conv-2d"], ["名"], ["2d"]], "AMP012")
#: Dotted key -> wrong values, each with the code of its Problem.
BAD: dict[str, list[tuple[Any, str]]] = {
    "level": words("O3", "O0", "01", "", "fp16", "level", "x" * 5000, "{level}"),
    "dtype": words("fp32", "float32", "float8", "int8", "bf-16", "O2"),
    "preset": words("save", "fastest", "true"),
    "custom_black_list": OPS,
    "custom_white_list": OPS,
    "fp32_layers": wrong(NOT_LIST, "AMP002") + wrong(NOT_NAME, "AMP012"),
    "init_loss_scaling": SCALE,
    "use_dynamic_loss_scaling": FLAG,
    "incr_ratio": wrong(NOT_NUMBER, "AMP002") + wrong([1, 1.0, 0.5, 0, -2, 1 + 1e-12, NAN, INF, 10**400], "AMP004"),
    "decr_ratio": wrong(NOT_NUMBER, "AMP002") + wrong([0, 1, 1.5, -0.5, 1 - 1e-12, NAN, -INF, "2e0"], "AMP004"),
    "incr_every_n_steps": COUNT,
    "decr_every_n_nan_or_inf": COUNT,
    "min_loss_scaling": SCALE,
    "max_loss_scaling": [*SCALE, ("auto", "AMP002")],
    "master_grad": [pair for pair in FLAG if not isinstance(pair[0], str)]
    + [("true", "AMP002"), ("of course", "AMP003")],
    "on_collapse": words("pine", "continue", "fp16", "O1"),
    "accumulate_steps": COUNT,
    "ema": wrong([None, True, 0.999, "0.999", [], ["decay"]], "AMP002"),
    "ema.decay": wrong([v for v in NOT_NUMBER if v not in (None, False)], "AMP002")
    + wrong([0, 1, 1.5, -0.5, 1 - 1e-12, NAN, INF, 10**400], "AMP004"),
    "eval_dtype": words("auto", "fp8", "same"),
    "cpu": words("on", "emulation", "gpu"),
    "monitor": wrong([None, True, 3, "visualdl", [], ["visualdl"], 2.5], "AMP002"),
    "monitor.visualdl": FLAG,
    "monitor.every_n_steps": COUNT,
}
GOOD: dict[str, list[Any]] = {
    "level": ["O1", "o2", "OD"],
    "dtype": ["auto"],
    "preset": ["safe", "fast"],
    "custom_black_list": [[], ["exp"]],
    "custom_white_list": [[], ["conv2d"]],
    "fp32_layers": [["head.*"]],
    "init_loss_scaling": [1024, "1e3"],
    "use_dynamic_loss_scaling": [True],
    "incr_every_n_steps": [10],
    "min_loss_scaling": [1],
    "max_loss_scaling": [65536.0],
    "on_collapse": ["stop"],
    "cpu": ["off", False],
}
Case = tuple[dict[Any, Any], dict[str, Any], set[tuple[str, str]], str]


def _put(mapping: dict[str, Any], dotted: str, value: Any) -> bool:
    first, _, rest = dotted.partition(".")
    if not rest:
        return mapping.setdefault(first, value) is value
    below = mapping.setdefault(first, {})
    return isinstance(below, dict) and below.setdefault(rest, value) is value


def _slip(rng: random.Random, word: str) -> str:
    """``word`` with one slip of the fingers."""
    at = rng.randrange(len(word) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + rng.choice(string.ascii_lowercase) + word[at + 1 :]


def one_bad_value(_rng: random.Random) -> Iterator[Case]:
    """Every wrong value of the table by itself."""
    for key, bad in BAD.items():
        for value, code in bad:
            mapping: dict[str, Any] = {}
            _put(mapping, key, value)
            yield {"amp": mapping}, {}, {(code, f"amp.{key}")}, "paddleocr"
    for key, value in (("accumulate_steps", 2), ("accumulate_steps", "1e1"), ("ema.decay", 0.999)):
        mapping = {}
        _put(mapping, key, value)
        yield {"amp": mapping}, {}, {("AMP013", f"amp.{key}")}, "paddlenlp"


def several_bad_values(rng: random.Random) -> Iterator[Case]:
    """Two to four wrong values among good ones, in every place where the key may stand."""
    for number in range(150):
        mapping: dict[str, Any] = {}
        expected = set()
        root = ("amp", "Global.amp")[number % 2]
        keys = rng.sample(sorted(set(BAD) - set(NESTED)), rng.randint(2, 4))
        for key in keys:
            value, code = rng.choice(BAD[key])
            _put(mapping, key, value)
            expected.add((code, f"{root}.{key}"))
        for key in rng.sample(sorted(set(GOOD) - set(keys)), 3):
            _put(mapping, key, rng.choice(GOOD[key]))
        if rng.random() < 0.5:
            misspelt = _slip(rng, rng.choice(["level", "preset", "custom_black_list", "incr_ratio"]))
            if misspelt not in KEYS:
                mapping[misspelt] = 1
                expected.add(("AMP001", f"{root}.{misspelt}"))
        if number % 3 == 2:
            overrides = {f"{root}.{key}": value for key, value in mapping.items()}
            yield {}, overrides, expected, "paddleocr"
        else:
            yield ({"amp": mapping} if root == "amp" else {"Global": {"amp": mapping}}), {}, expected, "paddleocr"


def misspelt_keys(rng: random.Random) -> Iterator[Case]:
    """Slips in our keys, in the hosts' AMP keys, and in ``amp`` itself."""
    for key in [*KEYS, *(f"{outer}.{k}" for outer, inner in NESTED.items() for k in inner)] * 4:
        parent, _, name = key.rpartition(".")
        slip = _slip(rng, name)
        if slip in (*KEYS, *NESTED_KEYS):
            continue
        dotted = f"{parent}.{slip}".lstrip(".")
        mapping: dict[str, Any] = {}
        _put(mapping, dotted, rng.choice([True, 1, "O1", None]))
        yield {"amp": mapping}, {}, {("AMP001", f"amp.{dotted}")}, "paddleocr"
    for key in [*PADDLEOCR] * 3:
        slip = _slip(rng, key)
        if slip not in PADDLEOCR:
            yield {"Global": {slip: True}}, {}, {("AMP010", f"Global.{slip}")}, "paddleocr"
    for key in [k for k in PADDLENLP if len(k) > 4] * 2:
        slip = _slip(rng, key)
        if slip not in PADDLENLP:
            yield {slip: True}, {}, {("AMP010", slip)}, "paddlenlp"
    for key in ("Amp", "AMP", "apm", "amp_", "_amp", "amps", "am", "aamp", "ampp", "A.M.P"):
        for value in (True, "O2", {"level": "O1"}):
            yield {key: value}, {}, {("AMP010", key)}, "paddleocr"
            yield {"Global": {key: value}}, {}, {("AMP010", f"Global.{key}")}, "paddleocr"
    for key in ("init_loss_scaling", "fp32_layers", "custom_black_list", "on_collapse"):
        yield {"Global": {key: 1}}, {}, {("AMP010", f"Global.{key}")}, "paddleocr"
    yield {"use_amp": True}, {}, {("AMP010", "use_amp")}, "paddleocr"
    yield {"fp61": True}, {}, {("AMP010", "fp61")}, "paddlenlp"
    yield {"use_amp": True}, {}, {("AMP010", "use_amp")}, "paddlenlp"


def bad_host_values(_rng: random.Random) -> Iterator[Case]:
    """Wrong values under the hosts' names, which the hosts would take as they come."""
    for names, prefix, host in ((PADDLEOCR, "Global.", "paddleocr"), (PADDLENLP, "", "paddlenlp")):
        switch = {"use_amp": True} if host == "paddleocr" else {"fp16": True}
        for name, key in names.items():
            bad = BAD.get(key, FLAG)
            for value, _ in bad[::3]:
                if value is None or name == "bf16":
                    continue
                section = {**switch, name: value}
                document = {"Global": section} if prefix else section
                yield document, {}, {("AMP011", prefix + name)}, host


def bad_shapes(rng: random.Random) -> Iterator[Case]:
    """What is no shape of the key at all."""
    shapes = [None, 0, 1, 2.5, NAN, 10**5000, "", "on please", "true", "false", "O3", "O0", "fp32", "auto", "safe"]
    shapes += [[], [True], ["O1", "fp16"], b"O1", datetime.date(2024, 1, 2), (1,), {1}, "x" * 5000, "{}", "a\nb"]
    for shape in shapes:
        yield {"amp": shape}, {}, {("AMP005", "amp")}, "paddleocr"
        yield {"Global": {"amp": shape}}, {}, {("AMP005", "Global.amp")}, "paddleocr"
        yield {}, {"amp": shape}, {("AMP005", "amp")}, "paddlenlp"
    for key in (1, None, 2.5, True, False, (1, 2)):
        name = str(key).lower() if isinstance(key, bool) else repr(key)
        yield {"amp": {key: rng.random()}}, {}, {("AMP001", f"amp.{name}")}, "paddleocr"
        yield {"amp": {"monitor": {key: 1}}}, {}, {("AMP001", f"amp.monitor.{name}")}, "paddleocr"
    for key in ("le\nvel", "\x1b[31m", "__class__", "model_config", "", " ", "level.x", "monitor.visualdl"):
        name = key if key.isprintable() else repr(key)
        yield {"amp": {key: 1}}, {}, {("AMP001", f"amp.{name}")}, "paddleocr"


FAMILIES = (one_bad_value, several_bad_values, misspelt_keys, bad_host_values, bad_shapes)
CASES = [case for family in FAMILIES for case in family(random.Random(20240501))]


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 300
    assert {code for case in CASES for code, _ in case[2]} >= {f"AMP{n:03d}" for n in (1, 2, 3, 4, 5, 10, 11, 12, 13)}


@pytest.mark.parametrize("start", range(0, len(CASES), 50))
def test_each_bad_config_is_refused_with_code_and_path_in_both_languages(start, monkeypatch) -> None:
    for document, overrides, expected, host in CASES[start : start + 50]:
        for lang in ("en", "zh"):
            monkeypatch.setenv("PADDLE_AMP_LANG", lang)
            with pytest.raises(ConfigError) as caught:
                pytest.fail(f"accepted: {read_amp(document, host=host, overrides=overrides)}")  # type: ignore[arg-type]
            found = {(p.code, p.path) for p in caught.value.problems}
            assert found == expected
            text = str(caught.value)
            assert all(path in text for _, path in expected)
            assert "pydantic" not in text and "Input should be" not in text
            if lang == "zh":
                assert all(CHINESE.search(p.message) for p in caught.value.problems)
            else:
                assert not any(CHINESE.search(p.message) for p in caught.value.problems if "名" not in p.message)
            assert all(len(line) < 600 for line in text.splitlines())


def _rubbish(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(9 if depth else 7)
    if kind == 7:
        return [_rubbish(rng, depth - 1) for _ in range(rng.randrange(3))]
    if kind == 8:
        keys = [*KEYS, *NESTED_KEYS, *PADDLEOCR, *PADDLENLP, "amp", "x", 1, None, True]
        return {rng.choice(keys): _rubbish(rng, depth - 1) for _ in range(rng.randrange(4))}
    plain = [None, True, rng.randint(-5, 5), rng.uniform(-1e3, 1e3), "O2", "".join(rng.sample(string.printable, 5))]
    return plain[kind] if kind < 6 else rng.choice([NAN, INF, 10**400, 1e308, b"x", "1e5", "auto", "\ud800", "🙂"])


def test_rubbish_is_either_refused_with_paths_or_fully_valid() -> None:
    rng = random.Random(7)
    refused = 0
    for _ in range(1500):
        key = {rng.choice([*KEYS, "monitor", "x"]): _rubbish(rng) for _ in range(rng.randrange(1, 4))}
        section = {rng.choice([*PADDLEOCR, "amp", "seed"]): _rubbish(rng, 1) for _ in range(2)}
        document = rng.choice(
            [{"amp": key}, {"amp": key, "Global": section}, {"Global": section}, {"amp": _rubbish(rng)}]
        )
        overrides = {"amp.level": _rubbish(rng, 1)} if rng.random() < 0.2 else {}
        try:
            config = read_amp(document, overrides=overrides)
        except ConfigError as error:
            refused += 1
            assert error.problems and all(p.path and re.fullmatch(r"AMP0[012]\d", p.code) for p in error.problems)
            str(error).encode("utf-8")
        else:
            assert config is None or not config.enabled or 0 < config.min_loss_scaling <= config.max_loss_scaling
    assert refused > 700


@pytest.mark.parametrize("document", [None, [], "amp: true", 3])
def test_a_document_that_is_no_mapping_is_refused(document) -> None:
    from paddle_amp_plugin.errors import AmpError

    with pytest.raises(AmpError) as caught:
        read_amp(document)
    assert caught.value.code == "AMP034"


SUGGESTIONS = [
    ({"amp": {"levle": "O1"}}, "level"),
    ({"amp": {"init_loss_scale": 1}}, "init_loss_scaling"),
    ({"amp": {"black_list": []}}, "custom_black_list"),
    ({"amp": {"enabled": True}}, "amp: true / amp: false"),
    ({"amp": {"level": 1}}, "O1"),
    ({"amp": {"level": 2}}, "O2"),
    ({"amp": {"level": "02"}}, "O2"),
    ({"amp": {"dtype": "fp61"}}, "float16"),
    ({"amp": {"dtype": "bfloat"}}, "bfloat16"),
    ({"amp": {"init_loss_scaling": "1024"}}, "1024"),
    ({"amp": {"init_loss_scaling": "atuo"}}, "auto"),
    ({"amp": {"use_dynamic_loss_scaling": "yes"}}, "true"),
    ({"amp": {"use_dynamic_loss_scaling": 0}}, "false"),
    ({"amp": {"fp32_layers": "head.*, neck"}}, "['head.*', 'neck']"),
    ({"amp": {"custom_black_list": None}}, "[]"),
    ({"amp": {"incr_every_n_steps": 1.5}}, "2"),
    ({"amp": {"monitor": {"visuldl": True}}}, "visualdl"),
    ({"amp": "fp61"}, "fp16"),
    ({"amp": "02"}, "O2"),
    ({"amp": "ture"}, "true"),
    ({"amp": "fp32"}, "false"),
    ({"amp": 1}, "true"),
    ({"amp": None}, "true"),
    ({"Amp": True}, "amp"),
    ({"Global": {"use_apm": True}}, "Global.use_amp"),
    ({"Global": {"amp_levl": "O1"}}, "Global.amp_level"),
    ({"Global": {"init_loss_scaling": 1}}, "amp.init_loss_scaling"),
    ({"Global": {"use_amp": "true"}}, "true"),
]


@pytest.mark.parametrize(("document", "suggestion"), SUGGESTIONS)
def test_did_you_mean(document, suggestion, monkeypatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")
    with pytest.raises(ConfigError) as caught:
        read_amp(document)
    assert [p.suggestion for p in caught.value.problems] == [suggestion]
    assert f"did you mean: {suggestion}" in str(caught.value)


#: Keys that real PaddleOCR and PaddleNLP files hold and that look a little like ours.
INNOCENT_OCR = """
    algorithm cal_metric_during_train character_dict_path character_type checkpoints class_path d2s_train_image_shape
    debug distributed enable_to_static epoch_num eval_batch_epoch eval_batch_step infer_img infer_mode infer_visual_type
    kie_det_model_dir load_static_weights log_smooth_window max_seq_len max_text_length model_name
    num_classes print_batch_step pretrained_model profiler_options rec_model_dir sample_num save_epoch_step
    save_inference_dir save_model_dir save_res_path seed sync_bn total_batch_size uniform_output_enabled use_gcu use_gpu
    use_mlu use_npu use_space_char use_sync_bn use_tpu use_visualdl use_wandb use_xpu valid_set export_with_pir
"""
INNOCENT_NLP = "fp16_full_eval bf16_full_eval fp8 tf32 optim output_dir max_steps logging_steps recompute scale map app"


def test_the_hosts_own_keys_are_not_taken_for_slips() -> None:
    assert read_amp({"Global": dict.fromkeys(INNOCENT_OCR.split(), True), "Train": {}, "map": True}) is None
    assert read_amp(dict.fromkeys(INNOCENT_NLP.split(), True), host="paddlenlp") is None
