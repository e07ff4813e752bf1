"""The language of messages, and that every message exists in both."""

from __future__ import annotations

import re

import pytest

from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.config_schema import ALLOWED, KEYS, NESTED
from paddle_amp_plugin.errors import ConfigError
from paddle_amp_plugin.messages import language, tr
from paddle_amp_plugin.spelling import SHOWN_CHARACTERS, likeness, nearest, plain, show

CHINESE = re.compile(r"[\u4e00-\u9fff]")
VARIABLES = ("PADDLE_AMP_LANG", "LC_ALL", "LC_MESSAGES", "LANG")


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ({"PADDLE_AMP_LANG": "en", "LC_ALL": "zh_CN.UTF-8"}, "en"),
        ({"PADDLE_AMP_LANG": "ZH"}, "zh"),
        ({"PADDLE_AMP_LANG": "cn"}, "zh"),
        ({"PADDLE_AMP_LANG": "fr"}, "en"),
    ],
)
def test_language_follows_the_first_variable_that_is_set(env, settings, expected) -> None:
    for name, value in settings.items():
        env.setenv(name, value)
    assert language() == expected


def test_tr_fills_fields_and_leaves_braces_alone_without_fields(env) -> None:
    assert tr("{a} of {b}", "{b} 的 {a}", a=1, b="{x}") == "1 of {x}"
    assert tr("{not a field}", "{}") == "{not a field}"
    env.setenv("PADDLE_AMP_LANG", "zh")
    assert tr("{a} of {b}", "{b} 的 {a}", a=1, b=2) == "2 的 1"


def test_every_key_says_what_it_allows_in_both_languages() -> None:
    assert set(ALLOWED) == set(KEYS) | {f"{outer}.{key}" for outer, keys in NESTED.items() for key in keys}
    assert all(en and zh for en, zh in ALLOWED.values())


BAD = {
    "amp": {"level": "O3", "incr_ratio": 1, "monitor": [], "levle": 1, "custom_black_list": [1], "ema": 2},
    "Global": {"use_amp": False, "use_apm": True, "scale_loss": "x"},
}


def test_all_problems_are_rendered_in_english_and_in_chinese(env) -> None:
    texts = {}
    for lang in ("en", "zh"):
        env.setenv("PADDLE_AMP_LANG", lang)
        with pytest.raises(ConfigError) as caught:
            read_amp(BAD, source="x.yml")
        texts[lang] = caught.value, str(caught.value)
    assert not CHINESE.search(texts["en"][1])
    assert all(CHINESE.search(p.message) for p in texts["zh"][0].problems)
    assert texts["zh"][1].startswith("x.yml: amp 设置有 9 处问题")
    english, chinese = ([(p.code, p.path) for p in texts[lang][0].problems] for lang in ("en", "zh"))
    assert english == chinese


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "'a'"),
        (None, "None"),
        (Unprintable(), "<Unprintable>"),
        ("a\nb", "'a\\nb'"),
        ([1, {"a": 2}], "[1, {'a': 2}]"),
    ],
)
def test_show_never_fails(value, expected) -> None:
    assert show(value) == expected


def test_show_is_short_even_for_long_and_recursive_values() -> None:
    assert len(show(10**6000)) <= SHOWN_CHARACTERS  # beyond Python's digit limit, if it has one
    endless: list[object] = []
    endless.append(endless)
    assert show(endless) == "[[...]]"
    assert len(show("x" * 10_000)) == SHOWN_CHARACTERS


def test_plain_keeps_a_path_on_one_line() -> None:
    assert plain("level") == "level"
    assert plain("le\nvel") == "'le\\nvel'"


@pytest.mark.parametrize(
    ("word", "expected"),
    [("levle", "level"), ("LEVEL", "level"), ("pre-set", "preset"), ("dtpye", "dtype"), ("zzz", ""), (3, "")],
)
def test_nearest(word, expected) -> None:
    assert nearest(word, ["level", "dtype", "preset"]) == expected


def test_a_swap_of_neighbours_is_nearer_than_any_other_two_faults() -> None:
    assert likeness("use_apm", "use_amp") > 0.9 > likeness("use_npu", "use_amp")
    assert likeness("", "amp") == 0.0
