"""N + N steps equal 2 N steps to the bit, and what is said and done where the two runs are not of the same settings."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import paddle
import pytest

from paddle_amp_plugin import pdamp
from paddle_amp_plugin.checkpoint_files import read
from paddle_amp_plugin.errors import AmpError
from tests.checkpoint.small import equal, resumed, start


def broken_and_unbroken(folder, amp, **kw):
    """Eight steps, saved after four; the batches before (3) and after (6) the cut overflow."""
    run = start(amp, **kw)
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(4))
        run.save(folder)
        run.steps(range(4, 8))
        unbroken = run.state()
    again = resumed(folder / "latest", amp, **kw)
    with again.session.attach(again.model, None, again.optimizer):
        again.steps(range(4, 8))
        return unbroken, again.state(), again


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_n_plus_n_steps_equal_2n_steps(tmp_path, level, dtype):
    """With dropout, a schedule, a skip before and after the cut, and running statistics that were repaired."""
    unbroken, broken, run = broken_and_unbroken(tmp_path, {"level": level, "dtype": dtype})
    assert equal(unbroken, broken) == []
    assert unbroken["steps"].tolist() == [8, 2]
    assert len([line for line in run.lines.said if line.startswith("amp: resumed after step 4 (3 updates, 1 sk")]) == 1
    assert "differs" not in run.lines.text


@pytest.mark.parametrize("cut", [6, 7, 8], ids=["between two windows", "after one batch", "before the last batch"])
@pytest.mark.parametrize("amp", [("O1", "float16"), ("O2", "float16"), ("O2", "bfloat16")], ids="-".join)
def test_with_accumulation_also_within_a_window(tmp_path, amp, cut):
    """Windows of three batches, the second and the fourth skipped; the moving average goes on, too."""
    amp = {"level": amp[0], "dtype": amp[1], "accumulate_steps": 3, "ema": {"decay": 0.9}}
    run = start(amp)
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(cut), bad=(4,))
        run.save(tmp_path)
        assert (tmp_path / "latest.pdgrad").exists() == (cut != 6)
        run.steps(range(cut, 15), bad=(10,))
        unbroken = run.state()
    again = resumed(tmp_path / "latest", amp)
    with again.session.attach(again.model, None, again.optimizer):
        again.steps(range(cut, 15), bad=(10,))
        broken = again.state()
    assert equal(unbroken, broken) == [] and unbroken["steps"].tolist() == [5, 2]
    assert any(name.startswith("average ") for name in unbroken) and "differs" not in again.lines.text


def test_what_is_seen_of_a_window_goes_on(tmp_path):
    """The event of a window that was cut is that of the unbroken run: its loss, its samples."""
    from paddle_amp_plugin.monitor import Monitor, read_events

    amp = {"dtype": "float16", "accumulate_steps": 3}

    def watched(run, name):
        run.session.watch(Monitor(tmp_path / name, visualdl=False, say=print))
        return run.session.attach(run.model, None, run.optimizer)

    run = start(amp)
    with watched(run, "one"):
        run.steps(range(4), bad=())
        run.save(tmp_path)
        run.steps(range(4, 6), bad=())
    again = resumed(tmp_path / "latest", amp)
    with watched(again, "other"):
        again.steps(range(4, 6), bad=())
    one, other = (read_events(tmp_path / name / "events.jsonl")[-1] for name in ("one", "other"))
    for name in ("step", "loss", "grad_norm", "samples", "lr", "updates"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.samples == 24


def test_a_window_that_does_not_fit_is_dropped_with_a_line(tmp_path):
    run = start({"dtype": "float16", "accumulate_steps": 3})
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(4), bad=())
        run.save(tmp_path)
    again = resumed(tmp_path / "latest", {"dtype": "float16", "accumulate_steps": 2})
    assert len([line for line in again.lines.said if "within a window of 3 batches, of which 1" in line]) == 1
    with again.session.attach(again.model, None, again.optimizer):
        again.steps(range(4, 6), bad=())
    assert again.session.steps == 2
    (tmp_path / "latest.pdgrad").write_bytes(b"no gradients")
    with pytest.raises(AmpError) as caught:
        resumed(tmp_path / "latest", {"dtype": "float16", "accumulate_steps": 3})
    assert caught.value.code == "AMP090" and "latest.pdgrad" in str(caught.value)


@pytest.mark.parametrize("optimizer", ["Momentum", "AdamW", "RMSProp", "Lamb"])
def test_other_optimizers(tmp_path, optimizer):
    def make(**kw):
        if optimizer == "RMSProp":
            kw["rho"] = 0.9
        return getattr(paddle.optimizer, optimizer)(**kw)

    unbroken, broken, _ = broken_and_unbroken(tmp_path, {"level": "O2", "dtype": "float16"}, optimizer=make)
    assert equal(unbroken, broken) == [] and any(name.startswith("moment") for name in unbroken)


def test_without_the_random_states_it_would_differ(tmp_path):
    """The comparison can fail."""
    run = start("O1")
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(4))
        run.save(tmp_path)
        run.steps(range(4, 8))
        unbroken = run.state()
    again = resumed(tmp_path / "latest", "O1")
    paddle.seed(5)
    with again.session.attach(again.model, None, again.optimizer):
        again.steps(range(4, 8))
        assert any("conv" in name for name in equal(unbroken, again.state()))


def saved_run(folder, amp, steps=4, bad=(3,), **kw):
    run = start(amp, **kw)
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(steps), bad=bad)
        run.save(folder)
        return run.state()


def test_the_scaler_is_resumed_at_its_value_and_its_counters(tmp_path):
    """R8: saved at 64, resumed at 64, though the YAML says where a new run starts."""
    amp = {"dtype": "float16", "init_loss_scaling": 128}
    before = saved_run(tmp_path, amp)
    run = resumed(tmp_path / "latest", {**amp, "init_loss_scaling": 4096})
    assert run.session.scaler.current_scale == 64.0
    state = run.session.scaler.loss_scale.state_dict()
    assert state == {"scale": 64.0, "good_steps": 0, "bad_steps": 0, "skips_total": 1, "skips_in_a_row": 1} | {
        "steps": 4,
        "updates": 3,
    }
    assert state["scale"] == before["scaler scale"]


def test_an_empty_scaler_starts_fresh_with_one_line(tmp_path):
    """R8: what a scaler that was switched off leaves behind."""
    saved_run(tmp_path, {"dtype": "float16"})
    path = tmp_path / "latest.pdamp"
    saved = dataclasses.replace(read(tmp_path / "latest", say=print), scaler={})
    path.write_text(pdamp.to_text(saved), encoding="utf-8")
    run = resumed(tmp_path / "latest", {"dtype": "float16", "init_loss_scaling": 256})
    assert run.session.scaler.current_scale == 256.0 and run.session.steps == 4
    assert len([line for line in run.lines.said if "the saved loss scaler is empty" in line]) == 1


def test_policy_from_the_yaml_each_difference_in_one_line(tmp_path):
    saved_run(tmp_path, {"dtype": "float16", "incr_every_n_steps": 1000})
    run = resumed(
        tmp_path / "latest",
        {"dtype": "float16", "incr_every_n_steps": 7, "max_loss_scaling": 2048, "custom_black_list": ["relu"]},
    )
    policy = run.session.scaler.policy
    assert (policy.incr_every_n_steps, policy.maximum) == (7, 2048.0)
    assert [line for line in run.lines.said if "differs" in line] == [
        "amp: differs from the checkpoint: amp.custom_black_list: +relu",
        "amp: differs from the checkpoint: amp.incr_every_n_steps: 1000 -> 7",
        "amp: differs from the checkpoint: amp.max_loss_scaling: 16777216.0 -> 2048.0",
    ]


KINDS = [{"level": level, "dtype": dtype} for level in ("O1", "O2") for dtype in ("float16", "bfloat16")]


@pytest.mark.parametrize("now", KINDS, ids=str)
@pytest.mark.parametrize("before", KINDS, ids=str)
def test_dtype_and_level_may_change(tmp_path, before, now):
    """Masters and Adam's moments are taken over as they are; the change is named."""
    state = saved_run(tmp_path, before)
    run = resumed(tmp_path / "latest", now)
    with run.session.saving():
        for name, value in run.model.state_dict().items():
            assert np.array_equal(value.numpy(), state[f"weight {name}"]), name
    for key in ("level", "dtype"):
        line = f"amp: differs from the checkpoint: amp.{key}: {before[key]} -> {now[key]}"
        assert (line in run.lines.said) == (before[key] != now[key])
    with run.session.attach(run.model, None, run.optimizer):
        run.optimizer._learning_rate.base_lr = 0.0
        seen = {}
        make = run.optimizer._create_accumulators

        def look(*args):
            made = make(*args)
            seen.update({k: v.numpy().copy() for by in run.optimizer._accumulators.values() for k, v in _named(by)})
            return made

        run.optimizer._create_accumulators = look
        run.steps([4], bad=())
        with run.session.saving():
            own = {v.name for by in run.optimizer._accumulators.values() for v in by.values()}
        assert own == {name.removeprefix("moment ") for name in state if name.startswith("moment ")}
    both_half = before["dtype"] == now["dtype"] == "float16"
    assert run.session.scaler.current_scale == (512.0 if both_half else 1024.0 if now["dtype"] == "float16" else 1.0)
    flat = [state[k] for k in sorted(state) if k.startswith("moment")]
    taken = [seen[k] for k in sorted(seen)]
    assert len(flat) == len(taken) and all(np.array_equal(a, b) for a, b in zip(flat, taken, strict=True))


def _named(by_tensor):
    for value in by_tensor.values():
        name = value.name
        if "_fp32_master_" in name:
            head, tail = name.split("_fp32_master_")
            name = f"{head}_{tail.split('_', 1)[1]}"
        yield name, value


def test_paddle_alone_cannot_take_moments_from_o2_to_fp32_and_from_ours_it_can(tmp_path):
    """The fault, then the cure: a .pdopt of ours is read by plain FP32 Paddle."""
    from paddle.utils import unique_name

    from paddle_amp_plugin import software_half
    from tests.checkpoint.small import Net

    def plain(state):
        with unique_name.guard():
            model = Net()
            adam = paddle.optimizer.Adam(0.01, parameters=model.parameters())
            adam.set_state_dict(state)
            model(paddle.rand([2, 1, 6, 6])).mean().backward()
            adam.step()
        return adam

    with software_half.emulate(), unique_name.guard():
        model = Net()
        adam = paddle.optimizer.Adam(0.01, parameters=model.parameters())
        model, adam = paddle.amp.decorate(model, adam, level="O2", dtype="float16")
        with paddle.amp.auto_cast(level="O2", dtype="float16"):
            model(paddle.rand([2, 1, 6, 6])).mean().backward()
        adam.step()
        theirs = adam.state_dict()
    assert any("_fp32_master_" in name for name in theirs)
    with pytest.raises(AssertionError, match="should in state dict"):
        plain(theirs)
    state = saved_run(tmp_path, {"level": "O2", "dtype": "float16"})
    ours = paddle.load(str(tmp_path / "latest.pdopt"))
    assert not any("_fp32_master_" in name for name in ours)
    ours.pop("LR_Scheduler")
    adam = plain(ours)
    power = adam._accumulators["beta1_pow_acc"]["conv2d_0.w_0"].numpy()
    assert np.array_equal(power, state["moment conv2d_0.w_0_beta1_pow_acc_0"] * np.float32(0.9))


def test_moments_and_masters_of_a_half_checkpoint_of_the_host_alone(tmp_path):
    """Half .pdparams, FP32 masters and moments under the masters' names in .pdopt: R9, O2 -> O1 and O2 -> O2."""
    state = saved_run(tmp_path, {"level": "O2", "dtype": "float16"})
    folder = tmp_path / "host"
    folder.mkdir()
    weights = paddle.load(str(tmp_path / "latest.pdparams"))
    paddle.save({k: v.astype("float16") for k, v in weights.items()}, str(folder / "latest.pdparams"))
    optimizer = paddle.load(str(tmp_path / "latest.pdopt"))
    masters = optimizer["master_weights"]
    renamed = {}
    for name, value in optimizer.items():
        owner = next((p for p in masters if name.startswith(p + "_")), None)
        renamed[name.replace(owner, f"{owner}_fp32_master_0", 1) if owner else name] = value
    paddle.save(renamed, str(folder / "latest.pdopt"))
    for level in ("O1", "O2"):
        run = start({"level": level, "dtype": "float16"})
        half = paddle.load(str(folder / "latest.pdparams"))
        run.model.set_state_dict({k: v.astype("float32") for k, v in half.items()})
        run.optimizer.set_state_dict(paddle.load(str(folder / "latest.pdopt")))
        run.session.prepare(run.model, run.optimizer)
        with run.session.saving():
            for name in ("conv.weight", "fc.weight", "fc.bias"):
                found = dict(run.model.named_parameters())[name].numpy()
                assert np.array_equal(found, state[f"weight {name}"]), (level, name)
        with run.session.attach(run.model, None, run.optimizer):
            run.steps([4], bad=())
        assert "no optimizer state" not in run.lines.text
        assert run.optimizer._accumulators["beta1_pow_acc"]  # made from the file, or Paddle would have raised


def test_a_state_that_lacks_parameters_is_said_and_theirs_starts_anew(tmp_path):
    saved_run(tmp_path, "O1")
    state = paddle.load(str(tmp_path / "latest.pdopt"))
    kept = {name: value for name, value in state.items() if not name.startswith("linear")}
    run = start("O1")
    run.optimizer.set_state_dict(kept)
    with run.session.attach(run.model, None, run.optimizer):
        run.steps([0, 1], bad=())
    lines = [line for line in run.lines.said if "no optimizer state" in line]
    assert len(lines) == 1 and "2 parameter(s)" in lines[0] and "linear_0.w_0" in lines[0]


def test_world_size_and_paddle_version_are_named(tmp_path):
    saved_run(tmp_path, "O1")
    path = tmp_path / "latest.pdamp"
    saved = dataclasses.replace(read(tmp_path / "latest", say=print), world_size=4, paddle="2.5.2")
    path.write_text(pdamp.to_text(saved), encoding="utf-8")
    run = resumed(tmp_path / "latest", "O1")
    assert len([line for line in run.lines.said if "2.5.2" in line]) == 1
    assert len([line for line in run.lines.said if "4 process(es), now there are 1" in line]) == 1


def test_host_facts_come_back(tmp_path):
    run = start("O1")
    with run.session.attach(run.model, None, run.optimizer):
        run.steps([0])
        run.save(tmp_path, "模型 a", epoch=3, best={"acc": 0.955})
        with pytest.raises(ValueError, match="JSON"):
            run.save(tmp_path, "模型 a", best={"acc": math.inf})
    assert read(tmp_path / "模型 a", say=print).host == {"epoch": 3, "best": {"acc": 0.955}}


def test_weights_that_are_not_finite_leave_the_former_checkpoint(tmp_path):
    saved_run(tmp_path, "O1")
    before = (tmp_path / "latest.pdparams").read_bytes()
    run = resumed(tmp_path / "latest", "O1")
    run.model.fc.weight.set_value(paddle.full([4, 3], math.nan))
    with pytest.raises(AmpError) as caught:
        run.save(tmp_path)
    assert caught.value.code == "AMP046" and (tmp_path / "latest.pdparams").read_bytes() == before
    run.session.close()


def test_everything_is_as_before_afterwards(tmp_path):
    run = start({"level": "O2", "dtype": "float16"})
    with run.session.attach(run.model, None, run.optimizer):
        run.steps([0], bad=())
        names = [v.name for by in run.optimizer._accumulators.values() for v in by.values()]
        run.save(tmp_path)
        assert [v.name for by in run.optimizer._accumulators.values() for v in by.values()] == names
    assert not {"_add_accumulator", "_create_accumulators", "step"} & set(vars(run.optimizer))
