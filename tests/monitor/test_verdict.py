"""The rule of what is normal, by scripted sequences of skips ("x") and updates (".")."""

from __future__ import annotations

import dataclasses

import pytest

from paddle_amp_plugin.loss_scaling import LossScale, ScalingPolicy
from paddle_amp_plugin.monitor.console import judge

DEFAULT = ScalingPolicy()  # 1024, grows every 1000
EVERY_STEP = ScalingPolicy(incr_every_n_steps=1)
EVERY_TEN = ScalingPolicy(incr_every_n_steps=10)
STATIC = ScalingPolicy(dynamic=False)
HIGH = ScalingPolicy(init=65536.0)
SLOW = ScalingPolicy(decr_every_n_nan_or_inf=2)


def ruled(script, policy, last_step=5000, scale=1024.0):
    return judge([c == "x" for c in script], policy, last_step=last_step, loss_scale=scale)


QUIET = "." * 100


@pytest.mark.parametrize(
    ("script", "policy", "kind"),
    [
        (QUIET, DEFAULT, "clean"),
        ("." * 50 + "x" + "." * 49, DEFAULT, "search"),  # one growth, undone
        ("." * 30 + "xxx" + "." * 67, DEFAULT, "search"),
        ("x......" * 14, EVERY_TEN, "often"),  # 14 growths cannot happen in 84 updates at one in ten
        ("..........x" * 9, EVERY_TEN, "search"),
        (".x" * 50, EVERY_STEP, "search"),  # alternate overflow where the scale grows at every step
        (".x" * 50, DEFAULT, "often"),  # and where it does not
        ("." * 20 + "x" + "." * 20 + "x" + "." * 20 + "x" + "." * 20 + "x" + "." * 16, DEFAULT, "stray"),
        ("." * 96 + "xxxx", DEFAULT, "run"),
        ("xxxx" + "." * 96, DEFAULT, "run"),
        ("xxx." * 25, EVERY_STEP, "often"),
        ("." * 95 + "xxxxx", SLOW, "stray"),  # two skips a decrease, so these are two decreases and a half
        ("." * 93 + "xxxxxxx", SLOW, "run"),
        (QUIET[:-31] + "x" * 31, DEFAULT, "run"),
        (QUIET[:-2] + "xx", STATIC, "stray"),
        (QUIET[:-3] + "xxx", STATIC, "run"),
        ("." * 20 + "x" + "." * 20 + "x" + "." * 20 + "x", STATIC, "often"),
        (QUIET[:-1] + "x", None, "stray"),
        ("x" * 10, None, "run"),
    ],
)
def test_the_rule(script, policy, kind):
    assert ruled(script, policy).kind == kind, script


def test_the_start_may_come_down_to_128():
    assert ruled("xxx" + "." * 97, DEFAULT, last_step=100).kind == "start"
    assert ruled("x" * 9 + "." * 91, HIGH, last_step=100, scale=128.0).kind == "start"
    assert ruled("x" * 9, HIGH, last_step=9, scale=128.0).kind == "start"
    assert ruled("x" * 12, HIGH, last_step=12, scale=16.0).kind == "run"
    assert ruled("x" * 9 + "." * 91, HIGH, last_step=5000).kind == "run"  # the same later is not the start


def test_the_floor():
    floor = dataclasses.replace(DEFAULT, minimum=512.0)
    assert ruled("." * 98 + "xx", floor, scale=512.0).kind == "floor"
    assert ruled("." * 99 + "x", floor, scale=512.0).normal  # one bad batch at the floor is none
    assert ruled("xx" + "." * 98, floor, scale=512.0).normal


@pytest.mark.parametrize("limit", [2.0, 128.0, 3000.0, 1e9])
@pytest.mark.parametrize("policy", [DEFAULT, HIGH, EVERY_TEN, ScalingPolicy(incr_every_n_steps=37, incr_ratio=4.0)])
def test_a_healthy_search_is_never_accused(policy, limit):
    """The scale's own machine with gradients that fit up to ``limit``: every window from every step on is normal.

    A limit below 128 on the way from 65536 is the exception that the rule makes on purpose.
    """
    scale = LossScale(policy)
    skips = []
    for step in range(1, 600):
        outcome = scale.advance(scale.scale > limit)
        skips.append(outcome.skipped)
        verdict = judge(skips[-50:], policy, last_step=step, loss_scale=outcome.old_scale)
        if limit >= 128.0:
            assert verdict.normal, (step, verdict)


def test_a_layer_that_always_overflows_is_accused_within_ten_steps():
    scale = LossScale(DEFAULT)
    skips = [False] * 200
    for step in range(201, 211):
        skips.append(scale.advance(True).skipped)
        if not judge(skips[-50:], DEFAULT, last_step=step, loss_scale=scale.scale).normal:
            break
    assert step <= 205


def test_words(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")
    text = ruled("." * 60 + "x" + "." * 38 + "x", DEFAULT, scale=2048.0).text()
    assert text == "2 of 100 steps skipped: normal (the scale is searching), loss scale 2048"
    bad = ruled("." * 19 + "x" * 31, DEFAULT)
    assert bad.text().startswith("31 of the last 50 skipped: not normal") and bad.text().endswith("diagnosing")
    assert "diagnosing" not in bad.text(diagnosing=False)
    assert "scale" not in ruled(QUIET, None).text()
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    assert "正常" in ruled(QUIET, DEFAULT).text() and "不正常" in bad.text()
