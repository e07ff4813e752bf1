"""What one child measures of a model whose sizes are known, and what becomes of a child that ends badly."""

from __future__ import annotations

import paddle
import pytest

from paddle_amp_plugin.comparison.child import MARK, measure, warm_up
from paddle_amp_plugin.comparison.record import run_of
from paddle_amp_plugin.comparison.runner import Request, compare, in_child
from paddle_amp_plugin.errors import AmpError
from tests.rehearsal.toy import Toy

STEPS = 8


@pytest.fixture(scope="module")
def fp32():
    seen: list[int] = []
    result = measure(Toy(), "fp32", STEPS, say=seen.append)
    assert seen == list(range(1, STEPS + 1))
    return result


def test_sizes_of_the_products(fp32):
    """body: 8 x 16 at 16 samples; head: 16 x 1, whose width is no multiple of 8."""
    assert fp32["model"]["macs"] == 16 * 8 * 16 + 16 * 16 * 1
    assert fp32["model"]["products"] == 2
    assert fp32["model"]["odd"] == ("head (16 x 1)",)
    assert fp32["model"]["odd_share"] == pytest.approx(256 / 2304)
    assert fp32["model"]["parameters"] == 8 * 16 + 16 + 16 + 16 + 16 + 1


def test_steps_and_times(fp32):
    run = run_of(fp32["run"])
    assert (len(run.losses), run.timed, run.samples) == (STEPS, STEPS - warm_up(STEPS), 16 * (STEPS - warm_up(STEPS)))
    assert run.half_share is None and run.skipped == 0 and run.used == "O0 float32"
    assert all(seconds > 0 for seconds in (run.reader, run.forward, run.backward, run.update))
    assert sum(run.share(part) for part in ("reader", "forward", "backward", "update")) == pytest.approx(1.0)


@pytest.mark.parametrize(("mode", "used"), [("O1", "O1 float16"), ("O2", "O2 float16"), ("O2-bf16", "O2 bfloat16")])
def test_modes_start_from_the_same_weights_and_batches(fp32, mode, used):
    result = measure(Toy({"init_loss_scaling": 512, "master_grad": False}), mode, STEPS)
    run = run_of(result["run"])
    assert run.used == used and result["model"] is None and run.half_share > 0
    assert run.losses[0] == pytest.approx(fp32["run"]["losses"][0], rel=0.02)
    assert run.losses[0] != fp32["run"]["losses"][0]


def test_a_learning_rate_of_its_own_is_seen_as_another_result(fp32):
    """The whole way from measured runs to the verdict, with a mode that is sabotaged."""
    from paddle_amp_plugin.comparison.verdict import judge

    def call(request, told):
        rate = 1e-7 if request.mode == "O1" else 3e-2  # it hardly learns
        return measure(Toy(rate=rate, seed=request.options["seed"]), request.mode, request.steps)

    found = compare(
        "toy.yml", {}, modes=("fp32", "O1", "O1-bf16"), steps=60, seeds=(3, 4), seed_key="seed", synthetic=False,
        metric=False, paddleocr_dir=None, told=lambda label, step: None, call=call,
    )  # fmt: skip
    assert [(run.seed, run.mode) for run in found.runs] == [(s, m) for s in (3, 4) for m in ("fp32", "O1", "O1-bf16")]
    assert [one.apart for one in judge(found).modes] == [True, False]


def test_a_child_that_dies_is_told_with_its_last_words(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    error = in_child(Request("c.yml", {}, "fp32", 4), lambda step: None)["error"]
    assert error["code"] == "AMP264" and "code 1" in error["message"]


def test_what_stops_the_first_stops_all():
    def call(request, told):
        return {"error": {"code": "AMP262", "message": "no data", "hint": "--synthetic"}}

    with pytest.raises(AmpError) as caught:
        compare(
            "c.yml", {}, modes=("fp32", "O1"), steps=4, seeds=(1,), seed_key="seed", synthetic=False, metric=False,
            paddleocr_dir=None, told=lambda label, step: None, call=call,
        )  # fmt: skip
    assert caught.value.code == "AMP262"


def test_the_mark_of_a_step_is_no_word_a_host_prints():
    assert MARK.startswith("\x1e")


@pytest.mark.gpu
@pytest.mark.skipif(not paddle.is_compiled_with_cuda(), reason="no GPU in this Paddle")
def test_memory_of_a_gpu():
    run = run_of(measure(Toy(), "O1", STEPS)["run"])
    assert run.memory > 0 and run.memory_start == 0
