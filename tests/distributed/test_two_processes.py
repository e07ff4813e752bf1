"""Two real processes (``paddle.distributed.launch``, gloo): what happens on one of them happens on both."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

from tests.hosts.tiny_nlp import needs_paddlenlp
from tests.test_dtype_auto import Beyond

ROOT = Path(__file__).resolve().parents[2]


def launch(folder: Path, *, steps: int, faulty_from: int, **amp) -> list[dict]:
    """What each of the two processes wrote. The second one's batches overflow from step ``faulty_from`` on."""
    return launched(folder, "worker.py", json.dumps(amp), str(steps), str(faulty_from))


def launched(folder: Path, script: str, *arguments: str) -> list[dict]:
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", str(folder)]
    command += [str(ROOT / "tests/distributed" / script), str(folder), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PADDLE_AMP_LANG": "en"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
    logs = "\n".join(p.read_text(encoding="utf-8", errors="replace")[-3000:] for p in folder.glob("workerlog.*"))
    assert done.returncode == 0, done.stderr[-2000:] + logs
    return [json.loads((folder / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]


def the_same(first: dict, second: dict) -> None:
    for key in ("steps", "skips", "scales", "weights", "pins", "dtype", "state"):
        assert first[key] == second[key], key


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_gradients_are_the_mean_of_both(tmp_path, level) -> None:
    """Against one FP32 process that has both batches. (Paddle 3.3.1 alone adds float16 up to inf on CPUs.)"""
    first, second = launch(tmp_path, steps=8, faulty_from=99, level=level, dtype="float16", fp32_layers=["big"])
    the_same(first, second)
    assert first["skips"] == 0
    reference(first, [0.5, 1.5], updates=8)


def reference(found: dict, values: list[float], *, updates: int) -> None:
    """The weights in ``found`` are those of plain FP32 Paddle with a batch of 8 rows of each of ``values``."""
    paddle.seed(5)
    model = Beyond()
    start = model.last.weight.numpy().copy()
    optimizer = paddle.optimizer.SGD(0.5, parameters=model.parameters())
    x = np.concatenate([np.full((8, 4), value, "float32") for value in values])
    for _ in range(updates):
        ((model(paddle.to_tensor(x)) - 0.3) ** 2).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
    for name, expected in model.state_dict().items():
        value = np.frombuffer(bytes.fromhex(found["state"][name]), "float32").reshape(expected.shape)
        np.testing.assert_allclose(value, expected.numpy(), rtol=2e-3, atol=1e-4, err_msg=name)
    assert np.abs(model.last.bias.numpy()).max() > 0.02, "it must have learned something to be a test"
    assert not np.array_equal(start, model.last.weight.numpy())


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_windows_of_two_batches_on_each_of_both(tmp_path, level) -> None:
    """Against one FP32 process that has all four batches; at O2 the gradients are added up in FP32."""
    first, second = launch(
        tmp_path, steps=12, faulty_from=99, level=level, dtype="float16", fp32_layers=["big"], accumulate_steps=2
    )
    the_same(first, second)
    assert (first["steps"], first["skips"]) == (6, 0)
    reference(first, [0.5, 0.75, 1.5, 1.75], updates=6)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_one_overflows_and_both_pin_the_same_layer(tmp_path, level) -> None:
    first, second = launch(tmp_path, steps=12, faulty_from=2, level=level, dtype="float16")
    the_same(first, second)
    assert first["pins"] == ["big"] and first["skips"] == 4
    assert first["scales"] == [1024.0] * 2 + [512.0, 256.0, 128.0] + [1024.0] * 7
    events = (tmp_path / "amp" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in events] == list(range(1, 13))  # rank 0 alone writes


def test_one_does_not_hold_float16_and_both_go_to_bfloat16(tmp_path) -> None:
    first, second = launch(tmp_path, steps=4, faulty_from=0, dtype="auto", level="O2")
    the_same(first, second)
    assert first["dtype"] == "bfloat16" and first["skips"] == 0
    assert all(any("dtype auto: bfloat16" in line for line in one["lines"]) for one in (first, second))


def test_one_calibrates_lower_and_both_start_there(tmp_path) -> None:
    first, second = launch(
        tmp_path, steps=5, faulty_from=0, dtype="float16", init_loss_scaling="auto", fp32_layers=["big"]
    )
    the_same(first, second)
    assert first["skips"] == 0


@needs_paddlenlp
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_paddlenlps_trainer_at_o2(tmp_path, dtype) -> None:
    first, second = launched(tmp_path, "trainer_worker.py", json.dumps({"level": "O2", "dtype": dtype}))
    assert first == second and first["wrapped"] == "DataParallel" and first["world"] == 2
    assert first["steps"] == first["updates"] == 6
    assert (tmp_path / "out" / "checkpoint-6" / "amp.pdamp").is_file()
