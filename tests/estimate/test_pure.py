"""The arithmetic, without Paddle: a network of two ops whose bytes are added up by hand."""

import json
import math
from dataclasses import replace

import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.estimate.lifetime import usage
from paddle_amp_plugin.estimate.modes import Mode, Parts, largest_batch, parts
from paddle_amp_plugin.estimate.picture import draw
from paddle_amp_plugin.estimate.policy import Policy, apply
from paddle_amp_plugin.estimate.result import Result, advice, rows
from paddle_amp_plugin.estimate.sizes import parse_size, shown
from paddle_amp_plugin.estimate.trace_model import NEVER, BackwardStep, Call, Trace, TracedModel, Value
from paddle_amp_plugin.op_rules import CastSettings

X, W, H, Y = range(4)
KIB, WEIGHT = 1024, 10 * 1024


def trace(batch):
    """h = x @ w (keeps both); y = softmax(h) (keeps y). h is dropped by Python as soon as y is there."""
    values = (
        Value(batch * KIB, "float32", 0, False, "input", NEVER),
        Value(WEIGHT, "float32", 1, True, "parameter", NEVER, "w"),
        Value(batch * 3 * KIB, "float32", 2, True, "activation", 2),
        Value(batch * 3 * KIB, "float32", 3, True, "activation", NEVER),
    )
    calls = (
        Call("matmul_v2", (X, W), (H,), (X, W), layer="body"),
        Call("softmax", (H,), (Y,), (Y,), layer="head"),
    )
    # softmax's node makes the gradient of h; matmul's that of w
    backward = (BackwardStep(1, batch * 3 * KIB), BackwardStep(0, WEIGHT))
    return Trace(batch, values, calls, backward, batch * KIB, 2 * WEIGHT + 8, 100)


TRACED = TracedModel(trace(2), trace(4))
WHITE, BLACK = {"matmul_v2"}, {"softmax"}
O1 = Mode("O1", "float16", Policy(CastSettings("O1", "float16", WHITE, BLACK)))
O2 = Mode("O2", "float16", Policy(CastSettings("O2", "float16", WHITE, BLACK), frozenset({"w"})), master_weight=True)
FP32 = Mode("FP32", "float32", Policy())


def test_fp32():
    found = parts(TRACED, FP32, 10, reserve=7)
    assert (found.weights, found.masters, found.gradients, found.states) == (WEIGHT, 0, WEIGHT, 2 * WEIGHT + 8)
    assert (found.batch, found.reserve, found.where, found.op) == (10 * KIB, 7, "backward", "matmul_v2")
    # y, which Python holds; the gradient of h that came to matmul, and the one of w that it makes. (The two highest
    # points before: softmax forward, h and y; softmax backward, y and the gradient of h.)
    assert (found.activations, found.temporary) == (30 * KIB, 30 * KIB + WEIGHT)
    assert found.total == 4 * WEIGHT + 8 + 10 * KIB + 60 * KIB + WEIGHT + 7


def test_every_size_between_and_beyond_is_on_the_line():
    assert TRACED.at(2) == trace(2) and TRACED.at(4) == trace(4) and TRACED.at(100) == trace(100)


def test_o1_keeps_casts_in_the_place_of_their_originals():
    new = apply(trace(10), O1.policy)
    assert [c.op for c in new.calls] == ["cast", "cast", "matmul_v2", "cast", "softmax"]
    assert [new.values[v].dtype for v in new.calls[2].saved] == ["float16", "float16"]
    assert [new.values[c.outputs[0]].dtype for c in new.calls] == [
        "float16",
        "float16",
        "float16",
        "float32",
        "float32",
    ]
    # backward: softmax, the cast before it, matmul, then the weight's cast (x needs no gradient)
    assert [new.calls[s.call].op for s in new.backward] == ["softmax", "cast", "matmul_v2", "cast"]
    found = parts(TRACED, O1, 10)
    assert (found.weights, found.masters, found.gradients) == (WEIGHT, 0, WEIGHT)
    # half x (5), half w (5), y (30); h's FP32 copy is gone when softmax has run
    end = usage(new).timeline[len(new.calls)]
    assert end == 5 * KIB + 5 * KIB + 30 * KIB
    # the highest point is softmax forward: those, and h twice: half, and FP32 for softmax
    assert (found.where, found.activations, found.temporary) == ("forward", 40 * KIB + 15 * KIB + 30 * KIB, 0)


def test_o2_has_half_weights_and_gradients_and_fp32_masters():
    found = parts(TRACED, O2, 10)
    assert (found.weights, found.masters, found.gradients) == (WEIGHT // 2, WEIGHT, WEIGHT // 2)
    assert found.states == 2 * WEIGHT + 8  # made for the masters
    # half x, h twice, y; the half weight is the weight itself
    assert found.activations == 5 * KIB + 15 * KIB + 30 * KIB + 30 * KIB


def test_master_grad_keeps_fp32_gradients_beside_the_half_ones():
    master_grad = replace(O2, master_grad=True)
    found = parts(TRACED, master_grad, 10)
    assert found.gradients == WEIGHT // 2 + WEIGHT
    assert parts(TRACED, replace(master_grad, accumulated=True), 10) == found
    assert parts(TRACED, replace(O2, accumulated=True), 10) == parts(TRACED, O2, 10)


def test_passes_that_are_added_up_have_their_fp32_gradients_twice_for_a_moment():
    """At one sample: 3 + 1.5 KiB of activations are less than the half gradient that is gone by then."""
    mode = replace(O2, master_grad=True, accumulated=True)
    light = TracedModel(*(replace(t, backward=(BackwardStep(1, 0), BackwardStep(0, 0))) for t in (trace(2), trace(4))))
    alone = parts(light, replace(mode, accumulated=False), 0)
    assert (alone.gradients, alone.where) == (WEIGHT // 2 + WEIGHT, "forward")
    found = parts(light, mode, 0)
    assert (found.gradients, found.activations, found.temporary) == (2 * WEIGHT, 0, 0)
    assert (found.where, found.op) == ("gradients", "")


def test_fp32_gradients_of_norms_are_there_once():
    """``master_grad`` beside a second weight that stays FP32 at O2: half, its FP32 form, and the FP32 one."""
    base = trace(10)
    gamma = Value(WEIGHT // 4, "float32", 9, True, "parameter", NEVER, "gamma")
    calls = (base.calls[0], replace(base.calls[1], inputs=(H, 4)))
    both = replace(base, values=(*base.values, gamma), calls=calls)
    model = TracedModel(replace(both, batch=10), replace(both, batch=11))
    assert parts(model, replace(O2, master_grad=True), 10).gradients == WEIGHT // 2 + WEIGHT + WEIGHT // 4


def test_averages_and_copies_are_the_same_at_every_batch():
    mode = replace(O1, copies=12345)
    for samples in (1, 100):
        found, without = parts(TRACED, mode, samples), parts(TRACED, O1, samples)
        assert found.copies == 12345 and found.total == without.total + 12345


def test_the_optimizers_own_need_counts_where_it_is_the_highest_point():
    big = TracedModel(*(replace(t, step_workspace=WEIGHT * 100) for t in (trace(2), trace(4))))
    found = parts(big, FP32, 1)
    assert (found.where, found.temporary, found.activations) == ("step", WEIGHT * 100, 0)
    assert parts(big, O2, 1).temporary == WEIGHT * 50  # copies of half gradients


def test_a_pinned_layer_and_the_loss_stay_fp32():
    pinned = replace(O1.policy, pinned=("body",))
    assert all(v.dtype == "float32" for v in apply(trace(2), pinned).values)
    outside = replace(trace(2), calls=tuple(replace(c, in_model=False) for c in trace(2).calls))
    assert all(v.dtype == "float32" for v in apply(outside, O1.policy).values)


def test_an_in_place_op_is_left_alone():
    calls = (trace(2).calls[0], replace(trace(2).calls[1], inplace=True))
    new = apply(replace(trace(2), calls=calls), O1.policy)
    assert [c.op for c in new.calls] == ["cast", "cast", "matmul_v2", "softmax"]
    assert new.values[new.calls[-1].outputs[0]].dtype == "float16"


@pytest.mark.parametrize("mode", [FP32, O1, O2])
def test_the_largest_batch_is_the_last_that_fits(mode):
    memory = 10 << 20
    largest = largest_batch(TRACED, mode, memory, reserve=1 << 20)
    assert parts(TRACED, mode, largest, reserve=1 << 20).total <= memory
    assert parts(TRACED, mode, largest + 1, reserve=1 << 20).total > memory
    by_hand = math.floor((memory - (1 << 20) - (5 * WEIGHT + 8)) / (7 * KIB))
    assert mode is not FP32 or largest == by_hand
    assert largest_batch(TRACED, mode, 1000) == 0


def result(memory=None, asked="O1", samples=10):
    columns = tuple(
        (m, parts(TRACED, m, samples), None if memory is None else largest_batch(TRACED, m, memory))
        for m in (FP32, O1, O2)
    )
    return Result("tiny", samples, 2, memory, 0, asked, columns, (2, 4), True)


def test_fits_is_about_the_mode_that_the_config_asks_for():
    between = (parts(TRACED, FP32, 10).total + parts(TRACED, O1, 10).total) // 2
    smaller = parts(TRACED, O1, 10).total < parts(TRACED, FP32, 10).total
    assert result(between, "O1").fits is smaller and result(between, "FP32").fits is not smaller
    assert result(None).fits


def test_table_json_picture_and_advice_tell_the_same():
    found = result(1 << 20)
    table = {row[0]: row[1:] for row in rows(found)}
    data = json.loads(json.dumps(found.as_dict()))
    for place, name in enumerate(("FP32", "O1", "O2")):
        assert table["total"][place] == shown(data["modes"][name]["total"])
        assert table["largest batch"][place] == str(data["modes"][name]["largest_batch"])
        assert shown(data["modes"][name]["total"]) in draw(found)
    assert sum(data["modes"]["O2"][p] for p in ("weights", "masters", "gradients", "states", "copies")) > 0
    assert "activations" in advice(result(samples=1000)) and "optimizer states" in advice(result(samples=1))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 << 30),
        ("24 GB", 24 * 10**9),
        ("512mib", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("0MiB", 0),
        (".5 kB", 500),
    ],
)
def test_sizes(text, size):
    assert parse_size(text, "--memory") == size


@pytest.mark.parametrize("text", ["16", "16G", "GiB", "-1GiB", "16 gigs", "", "1e9", "16GiB!"])
def test_bad_sizes_say_what_is_allowed(text):
    with pytest.raises(AmpError) as caught:
        parse_size(text, "--memory")
    assert caught.value.code == "AMP285" and "GiB" in str(caught.value) and "--memory" in str(caught.value)


def test_suggested_size():
    with pytest.raises(AmpError) as caught:
        parse_size("24g", "--memory")
    assert "24GiB" in str(caught.value)


def test_parts_add_up():
    one = Parts(1, 1, 2, 3, 4, 5, 6, 7, 8, 9, "forward", "relu", "")
    assert one.total == 45 and one.as_dict()["total"] == 45
