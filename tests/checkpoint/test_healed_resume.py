"""A run that was healed goes on healed: its pins, its treatments, or AMP switched off; and to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from paddle import nn

from paddle_amp_plugin.checkpoint_files import read
from tests.checkpoint.small import Net, equal, resumed, start


class Sick(Net):
    """One layer leaves the range of float16; the norm behind it hides that from the loss."""

    def __init__(self):
        super().__init__()
        self.big = nn.Linear(4, 4, weight_attr=nn.initializer.Uniform(-60.0, 60.0))
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        feature = self.drop(self.bn(self.conv(x)).mean([2, 3]))
        return self.fc(self.norm(self.big(feature + 2000.0)))


class Loss:
    def __call__(self, out):
        return (out - 1.0).square().mean()


def run_on(run, numbers):
    run.loss = Loss()
    context = run.session.attach(run.model, run.loss, run.optimizer)
    context.__enter__()
    run.steps(numbers, bad=())
    return context


def broken_and_unbroken(folder, amp, **how):
    run = start(amp, net=Sick)
    context = run_on(run, range(8))
    run.save(folder)
    run.steps(range(8, 12), bad=())
    unbroken, treated = run.state(), run.session.treatment.treated
    context.__exit__(None, None, None)
    again = resumed(folder / "latest", amp, net=Sick, **how)
    context = run_on(again, range(8, 12))
    broken = again.state()
    context.__exit__(None, None, None)
    return unbroken, broken, treated, again


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_pins_come_back(tmp_path, level):
    amp = {"level": level, "dtype": "float16"}
    unbroken, broken, treated, run = broken_and_unbroken(tmp_path, amp)
    assert [found.culprit for found in treated] == ["big"] and unbroken["steps"].tolist() == [12, 4]
    assert equal(unbroken, broken) == []
    assert run.session.plan.fp32_layers == ("big",) and run.session.treatment.treatments == 1
    assert not run.session.treatment.treated  # healthy from its first step
    assert len([line for line in run.lines.said if "pins of the earlier run come back" in line and "big" in line]) == 1
    assert "differs" not in run.lines.text  # the YAML is the same: a pin is no difference


@pytest.mark.parametrize("on_collapse", ["pin", "fp32"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_host_that_decorates_before_it_knows_of_a_checkpoint(tmp_path, level, on_collapse):
    amp = {"level": level, "dtype": "float16", "on_collapse": on_collapse}
    unbroken, broken, _, run = broken_and_unbroken(tmp_path, amp, prepared_first=True)
    assert equal(unbroken, broken) == []
    assert run.session.plan.fp32_layers == (("big",) if on_collapse == "pin" else ())


def test_a_static_scale_that_was_lowered_holds_until_the_yaml_names_another(tmp_path):
    amp = {"dtype": "float16", "use_dynamic_loss_scaling": False, "init_loss_scaling": 2.0**24}
    run = start(amp)
    context = run_on(run, range(8))
    run.save(tmp_path)
    lowered = run.session.scaler.current_scale
    context.__exit__(None, None, None)
    assert lowered < 2.0**24 and run.session.updates > 0
    for yaml, scale in ((2.0**24, lowered), (512.0, 512.0)):
        again = resumed(tmp_path / "latest", {**amp, "init_loss_scaling": yaml})
        assert again.session.scaler.current_scale == scale
        again.session.close()


def test_pins_are_kept_over_a_second_resume_and_not_said_twice_once_in_the_yaml(tmp_path):
    amp = {"dtype": "float16"}
    broken_and_unbroken(tmp_path, amp)
    run = resumed(tmp_path / "latest", amp, net=Sick)
    context = run_on(run, range(8, 9))
    run.save(tmp_path)
    context.__exit__(None, None, None)
    assert read(tmp_path / "latest", say=print).pins.layers == ("big",)
    written = resumed(tmp_path / "latest", {**amp, "fp32_layers": ["big"]}, net=Sick)
    assert written.session.plan.fp32_layers == ("big",)
    assert "amp: differs from the checkpoint: amp.fp32_layers: +big" in written.lines.said
    written.session.close()


def test_pins_for_float16_are_not_taken_over_by_bfloat16(tmp_path):
    broken_and_unbroken(tmp_path, {"dtype": "float16"})
    run = resumed(tmp_path / "latest", {"dtype": "bfloat16"}, net=Sick)
    assert run.session.plan.fp32_layers == ()
    assert len([line for line in run.lines.said if "not taken over: big" in line]) == 1
    run.session.close()


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_amp_that_was_switched_off_stays_off(tmp_path, level):
    amp = {"level": level, "dtype": "float16", "on_collapse": "fp32"}
    unbroken, broken, _, run = broken_and_unbroken(tmp_path, amp)
    assert equal(unbroken, broken) == []
    assert not run.session.plan.enabled and "stays off" in run.lines.text and "step 4" in run.lines.text


def test_calibration_is_not_done_again(tmp_path):
    amp = {"dtype": "float16", "init_loss_scaling": "auto"}
    run = start(amp)
    context = run_on(run, range(5))
    run.save(tmp_path)
    scale = run.session.scaler.current_scale
    assert "init_loss_scaling auto" in run.lines.text
    context.__exit__(None, None, None)
    again = resumed(tmp_path / "latest", amp)
    context = run_on(again, range(5, 10))
    assert "init_loss_scaling auto" not in again.lines.text and again.session.scaler.current_scale == scale
    context.__exit__(None, None, None)


def test_calibration_that_was_under_way_goes_on(tmp_path):
    amp = {"dtype": "float16", "init_loss_scaling": "auto"}
    run = start(amp)
    context = run_on(run, range(2))
    run.save(tmp_path)
    run.steps(range(2, 6), bad=())
    unbroken = run.state()
    context.__exit__(None, None, None)
    again = resumed(tmp_path / "latest", amp)
    context = run_on(again, range(2, 6))
    assert equal(unbroken, again.state()) == []
    assert np.isfinite(unbroken["scaler scale"])
    context.__exit__(None, None, None)
