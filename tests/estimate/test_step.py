"""A workload as the step that is traced: where its batches come from."""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

from types import SimpleNamespace

import paddle
import pytest

from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.estimate.plans import asked_mode, FP32
from paddle_amp_plugin.estimate.modes import Mode
from paddle_amp_plugin.estimate.policy import Policy
from paddle_amp_plugin.estimate.step import WorkloadStep, accumulate_steps


class Work:
    """A workload without made-up data, whose loader gives batches of four."""

    settings = None

    def __init__(self, samples=4):
        self._samples = samples

    def build_model(self):
        return paddle.nn.Linear(3, 2)

    def build_optimizer(self, model):
        return paddle.optimizer.SGD(parameters=model.parameters()), None

    def build_criterion(self):
        return None

    def synthetic_batch(self, size):
        raise AmpError("AMP261", "there is no synthetic data")

    def train_batches(self):
        yield {"x": paddle.randn([self._samples, 3]), "names": ["n"] * self._samples, "one": paddle.to_tensor(1.0)}

    def samples(self, batch):
        return batch["x"].shape[0]


def test_parts_of_a_real_batch_where_none_can_be_made_up():
    step = WorkloadStep(Work())
    batch = step.batch(2)
    assert batch["x"].shape == [2, 3] and batch["names"] == ["n", "n"] and batch["one"].shape == [] and not step.made_up


def test_a_real_batch_that_is_too_small():
    with pytest.raises(AmpError) as caught:
        WorkloadStep(Work(3)).batch(4)
    assert caught.value.code == "AMP287"


def test_other_errors_pass():
    work = Work()

    def broken(size):
        raise AmpError("AMP047", "unreadable")

    work.synthetic_batch = broken
    with pytest.raises(AmpError) as caught:
        WorkloadStep(work).batch(2)
    assert caught.value.code == "AMP047"


def test_passes_an_update():
    recipe = SimpleNamespace(trainer={"gradient_accumulation_steps": 3})
    assert accumulate_steps(SimpleNamespace(settings=None)) == 1
    assert accumulate_steps(SimpleNamespace(settings=read_amp({"amp": True}, source=""), recipe=recipe)) == 3


def test_the_mode_a_config_asks_for():
    modes = [FP32, Mode("O1", "float16", Policy()), Mode("O2", "float16", Policy())]
    for amp, name in ((True, "O1"), ("O2", "O2"), (False, "FP32")):
        assert asked_mode(read_amp({"amp": amp}, source=""), modes).name == name
    assert asked_mode(None, modes).name == "FP32"
