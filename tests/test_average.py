"""The moving average of the weights, against its formula in NumPy."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.checkpoint_files import read
from paddle_amp_plugin.errors import AmpError
from tests.checkpoint import small

DECAY = 0.7


def expected(history: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """``history``: the FP32 weights at the start and after each update."""
    average = {name: value.astype("float64") for name, value in history[0].items()}
    for number, weights in enumerate(history[1:], start=1):
        decay = min(DECAY, (1 + number) / (10 + number))
        for name, value in weights.items():
            average[name] += (1 - decay) * (value - average[name])
    return average


def weights(run) -> dict[str, np.ndarray]:
    with run.session.saving():
        return {name: value.numpy().copy() for name, value in run.model.state_dict().items()}


def evaluated(run) -> dict[str, np.ndarray]:
    with run.session.evaluation():
        return {name: value.astype("float32").numpy().copy() for name, value in run.model.state_dict().items()}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_of_the_masters_after_each_update_that_was_made(level, dtype) -> None:
    """Running statistics too; the two skipped steps (3 and 6) leave it alone."""
    run = small.start({"level": level, "dtype": dtype, "ema": {"decay": DECAY}})
    with run.session.attach(run.model, None, run.optimizer):
        history = [weights(run)]
        for number in range(8):
            run.steps([number])
            if not run.session.held:
                history.append(weights(run))
        assert len(history) == 7
        found = evaluated(run)
        for name, value in expected(history).items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
            assert name.startswith("fc.bias") or not np.allclose(found[name], history[-1][name], rtol=1e-3), name
        after = weights(run)
        assert all(np.array_equal(after[name], history[-1][name]) for name in after)


def test_an_evaluation_in_half_is_of_the_average_too() -> None:
    run = small.start({"level": "O2", "dtype": "float16", "eval_dtype": "float16", "ema": {"decay": DECAY}})
    with run.session.attach(run.model, None, run.optimizer):
        history = [weights(run)]
        for number in range(3):
            run.steps([number], bad=())
            history.append(weights(run))
        with run.session.evaluation():
            assert run.model.conv.weight.dtype == paddle.float16
            found = run.model.conv.weight.astype("float32").numpy()
        assert run.model.conv.weight.dtype == paddle.float16
        np.testing.assert_allclose(found, expected(history)["conv.weight"], rtol=2**-10, atol=2**-14)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_the_file_beside_the_checkpoint_is_a_model_of_its_own(tmp_path, level) -> None:
    """FP32, every key of the state dict, equal to what was evaluated; the checkpoint itself holds the masters."""
    run = small.start({"level": level, "dtype": "float16", "ema": {"decay": DECAY}})
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(4), bad=())
        run.save(tmp_path)
        masters, average = weights(run), evaluated(run)
    saved = paddle.load(str(tmp_path / "latest_ema.pdparams"), return_numpy=True)
    assert saved.keys() == masters.keys() and {str(v.dtype) for v in saved.values()} == {"float32"}
    assert all(np.array_equal(saved[name], average[name]) for name in average)
    kept = paddle.load(str(tmp_path / "latest.pdparams"), return_numpy=True)
    assert all(np.array_equal(kept[name], masters[name]) for name in masters)
    assert not np.array_equal(saved["conv.weight"], kept["conv.weight"])


def test_it_is_whole_or_said_to_be_damaged(tmp_path) -> None:
    """The digest is in the ``.pdamp`` of the checkpoint it belongs to."""
    run = small.start({"dtype": "float16", "ema": {"decay": DECAY}})
    with run.session.attach(run.model, None, run.optimizer):
        run.steps([0], bad=())
        run.save(tmp_path)
    path = tmp_path / "latest_ema"
    assert read(path, say=print, weights_only=True).step == 1
    (tmp_path / "latest_ema.pdparams").write_bytes(b"half a file")
    for prefix, weights_only in ((path, True), (tmp_path / "latest", False)):
        with pytest.raises(AmpError) as caught:
            read(prefix, say=print, weights_only=weights_only)
        assert caught.value.code == "AMP090" and "latest_ema.pdparams" in str(caught.value)
    assert read(tmp_path / "latest", say=print, weights_only=True).step == 1


def test_a_checkpoint_without_one_starts_it_from_its_weights(tmp_path) -> None:
    """One of a run without ``ema``; an average that an earlier run left there is not taken for its own."""
    run = small.start({"dtype": "float16"})
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(2), bad=())
        run.save(tmp_path)
        before = weights(run)
    foreign = {name: paddle.zeros_like(value) for name, value in run.model.state_dict().items()}
    paddle.save(foreign, str(tmp_path / "latest_ema.pdparams"))
    again = small.resumed(tmp_path / "latest", {"dtype": "float16", "ema": {"decay": DECAY}})
    assert len([line for line in again.lines.said if "no moving average" in line]) == 1
    assert "amp: differs from the checkpoint: amp.ema.decay: None -> 0.7" in again.lines.said
    found = evaluated(again)
    assert all(np.array_equal(found[name], before[name]) for name in before)
    again.session.close()
