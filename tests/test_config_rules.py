"""The ``amp`` key: the hosts' spellings, rules between keys, and notes."""

from __future__ import annotations

import pytest

from paddle_amp_plugin.config import Source, read_amp
from paddle_amp_plugin.errors import ConfigError
from tests.amp_key import changed, problems, read


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


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
    ],
)  # fmt: skip
def test_rules_between_keys(mapping, expected) -> None:
    assert problems({"amp": mapping}) == expected


def test_what_a_host_has_no_use_for_is_refused_there() -> None:
    amp = {"accumulate_steps": 4, "ema": {"decay": 0.999}}
    assert changed(read({"amp": amp})) == amp
    expected = [("AMP013", "amp.accumulate_steps"), ("AMP013", "amp.ema.decay")]
    assert problems({"amp": amp}, host="paddlenlp") == expected
    assert read({"amp": {"accumulate_steps": 1}}, host="paddlenlp").accumulate_steps == 1


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


@pytest.mark.parametrize(
    "written, meant",
    [("sofmax", "softmax"), ("softmaxx", "softmax?"), ("add", "elementwise_add"), ("linear_v3", "linear_v2")],
)
def test_an_unknown_op_is_noticed_with_the_likely_name(written: str, meant: str) -> None:
    (note,) = read({"amp": {"custom_black_list": [written]}}).notes
    assert note.code == "AMP023" and written in str(note) and meant in str(note)
