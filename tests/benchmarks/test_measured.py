"""Every benchmark runs, once and tiny; no time is asserted. And the two sides of a comparison do the same work."""

from __future__ import annotations

import json
import math

import numpy as np
import paddle
import pytest

from benchmarks import loops, measured, models
from benchmarks.__main__ import main, measure
from paddle_amp_plugin import software_half


def tiny():
    """A convolution, a BatchNorm and two linear layers, in place of the networks."""
    net = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 4, 3, padding=1),
        paddle.nn.BatchNorm2D(4),
        paddle.nn.ReLU(),
        paddle.nn.Flatten(),
        paddle.nn.Linear(64, 8),
        paddle.nn.LayerNorm(8),
        paddle.nn.Linear(8, 4),
    )
    return models.Case(net, (paddle.randn([2, 3, 4, 4]),), lambda out: out.astype("float32").square().mean())


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(models, "CASES", {"tiny": tiny})
    monkeypatch.setattr(loops, "CASES", {"tiny": tiny})
    monkeypatch.setattr(measured, "OWN_COST", ("tiny",))


@pytest.mark.parametrize("name", [name for name in measured.BENCHMARKS if name != "imports"])
def test_each_runs(small, name):
    result = measure([name], "cpu", 1)
    assert {"date", "cpu", "cores", "paddle", "threads", "load"} <= set(result["machine"])
    rows = [row for row in result["rows"] if row["benchmark"] == name]
    assert len(rows) == len(result["rows"]) == (3 if name == "half" else 1)
    for row in rows:
        assert {"case", "sides", "repeats", "clock", "ratio", "wall_ratio", "seconds"} <= set(row)
        assert row["repeats"] == 1 and row["clock"] == "cpu" and all(map(math.isfinite, row["ratio"].values()))
    json.dumps(result)
    if name == "monitoring":
        assert rows[0]["own_ms"] > 0
    if name == "overhead":
        assert rows[0]["skips"] == 0
    assert not software_half.installed() and paddle.Tensor.backward is loops._backward


def test_imports_and_the_command_line(tmp_path, capsys):
    path = tmp_path / "r.json"
    main(["imports", "--repeats", "1", "--out", str(path)])
    result = json.loads(path.read_text())
    assert [row["benchmark"] for row in result["rows"]] == ["imports", "imports"]
    assert all(row["milliseconds"]["median"] > 0 for row in result["rows"])
    assert "import paddle_amp_plugin" in capsys.readouterr().out


def test_what_was_measured_is_kept_row_by_row(monkeypatch):
    def two_and_a_fault(target, repeats, tick):
        yield {"benchmark": "x", "case": "1"}
        yield {"benchmark": "x", "case": "2"}
        raise KeyboardInterrupt

    monkeypatch.setitem(measured.BENCHMARKS, "x", measured.Benchmark(two_and_a_fault, 2, 1))
    seen = []
    with pytest.raises(KeyboardInterrupt):
        measure(["x"], "cpu", 1, keep=lambda result: seen.append(len(result["rows"])))
    assert seen == [1, 2]


@pytest.mark.parametrize("arguments", [["nothing"], ["--repeats", "0"], ["--device", "tpu"]])
def test_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_no_gpu_is_said():
    if paddle.is_compiled_with_cuda():
        pytest.skip("a CUDA build")
    with pytest.raises(SystemExit, match="no GPU"):
        measure(["half"], "gpu", 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_both_sides_do_the_same_work(small, monkeypatch, dtype):
    """Three steps by hand and three by the plugin: the same weights, to the bit."""
    made = []
    real = loops.case_of
    monkeypatch.setattr(loops, "case_of", lambda name: made.append(real(name)) or made[-1])
    with software_half.emulate():
        by_hand = loops.by_hand("tiny", dtype=dtype)
        with loops.by_plugin("tiny", dtype=dtype) as (by_plugin, session):
            for _ in range(3):
                by_hand()
                by_plugin()
    assert session.updates == 3 and session.half_share() > 0.2
    hand, plugin = ({n: p.numpy() for n, p in case.model.named_parameters()} for case, _ in made)
    assert all(np.array_equal(hand[name], plugin[name]) for name in hand)
    start = dict(real("tiny")[0].model.named_parameters())
    assert not np.array_equal(hand["0.weight"], start["0.weight"].numpy())


@pytest.mark.gpu
def test_on_a_gpu(small):
    result = measure(["overhead", "monitoring", "armed", "half"], "gpu", 1)
    half = [row for row in result["rows"] if row["benchmark"] == "half"]
    assert all(row["clock"] == "wall" and len(row["samples_per_second"]) == 2 for row in half)
    assert all(peak > 0 for row in half for peak in row["peak_mib"])
