"""A workload as the step that is traced: where its batches come from."""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

from types import SimpleNamespace

import paddle
import pytest

from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.estimate.plans import ANY_GPU, FP32, asked_mode, mode_of
from paddle_amp_plugin.estimate.allocator import in_use, on_cpu
from paddle_amp_plugin.estimate.modes import Mode
from paddle_amp_plugin.estimate.policy import Policy
from paddle_amp_plugin.estimate.step import WorkloadStep, accumulate_steps
from paddle_amp_plugin.plan import make_plan


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


def net():
    """Linear 4 -> 4 (16 + 4), BatchNorm of 4 (4 + 4, and 4 + 4 running), a frozen Linear 4 -> 2."""
    model = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 2))
    for parameter in model[2].parameters():
        parameter.stop_gradient = True
    return model


@pytest.mark.parametrize(
    ("amp", "floats"),
    [
        ({"level": "O1"}, 8),
        ({"level": "O2"}, 8),
        ({"level": "O2", "ema": {"decay": 0.9}}, 8 + 16 + 4 + 8 + 8),
        ({"level": "O0"}, 0),
        ({"level": "O0", "accumulate_steps": 2}, 8),
        ({"level": "O0", "ema": {"decay": 0.9}}, 8 + 36),
    ],
)
def test_copies_that_a_session_keeps(amp, floats):
    """The running statistics, and with ``ema`` the FP32 average of trained weights and statistics; O0: AMP is off."""
    off = amp["level"] == "O0"
    settings = read_amp({"amp": {**amp, "level": "O1"} if off else amp}, source="")
    plan = make_plan(settings.model_copy(update={"enabled": not off}), ANY_GPU)
    assert mode_of(plan, net()).copies == 4 * floats


def test_copies_are_those_of_a_real_session():
    """What the allocator counts when the session makes them (O1: nothing else is made)."""
    from paddle_amp_plugin.average import WeightAverage
    from paddle_amp_plugin.norm_buffers import NormBuffers

    model = net()
    plan = make_plan(read_amp({"amp": {"level": "O1", "ema": {"decay": 0.9}}}, source=""), ANY_GPU)
    with on_cpu():
        before = in_use()
        made = WeightAverage(model, None, 0.9), NormBuffers(model)
        assert in_use() - before == mode_of(plan, model).copies
    assert made


def test_accumulating_at_o2_has_fp32_gradients():
    for amp, expected in (
        ({"level": "O2", "accumulate_steps": 4}, True),
        ({"level": "O2"}, False),
        ({"level": "O2", "accumulate_steps": 4, "master_grad": False}, False),
        ({"level": "O1", "accumulate_steps": 4}, False),
    ):
        plan = make_plan(read_amp({"amp": amp}, source="", host="paddleocr"), ANY_GPU)
        assert mode_of(plan, net()).master_grad is expected, amp
