"""The amp key of a Trainer's arguments, without any host: the field, dotted options, what counts as written."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from paddle_amp_plugin.errors import AmpError, ConfigError
from paddle_amp_plugin.hosts import trainer_args


@pytest.fixture
def cls():
    """As a host's TrainingArguments: required and default fields, work in ``__post_init__``."""

    @dataclasses.dataclass
    class Arguments:
        output_dir: str
        fp16: bool = False
        bf16: bool = False
        fp16_opt_level: str = "O1"
        scale_loss: float = 2**15
        amp_master_grad: bool = False
        amp_custom_black_list: Any = dataclasses.field(default_factory=lambda: ["sin"])
        sharding: str = ""
        tensor_parallel_degree: int = -1

        def __post_init__(self):
            self.seen = getattr(self, "amp", "none")

    return Arguments


def test_the_field_and_its_undoing(cls):
    @dataclasses.dataclass
    class Before(cls):
        more: int = 1

    before = (inspect.signature(cls), inspect.signature(Before), [f.name for f in dataclasses.fields(cls)])
    undo = trainer_args.extend(cls)

    @dataclasses.dataclass
    class After(cls):
        more: int = 1

    for made in (cls("x", amp="O2"), Before("x", amp="O2", more=2), After("x", amp="O2", more=2)):
        assert made.amp == "O2" and made.seen == "O2"
        assert "amp" in {f.name for f in dataclasses.fields(made)}
        assert dataclasses.replace(made, output_dir="y").amp == "O2"
    assert cls("x", True).fp16 is True and cls("x").amp is None
    undo()
    assert before == (inspect.signature(cls), inspect.signature(Before), [f.name for f in dataclasses.fields(cls)])
    with pytest.raises(TypeError):
        cls("x", amp="O2")


def test_the_type_of_the_field_reads_yaml():
    assert trainer_args.AmpArgument("true") is True
    assert trainer_args.AmpArgument("O2") == "O2"
    assert trainer_args.AmpArgument('{"level": "O2"}') == {"level": "O2"}
    assert trainer_args.AmpArgument("{'level': 'O2', 'master_grad': True}") == {"level": "O2", "master_grad": True}
    with pytest.raises(ConfigError) as caught:
        trainer_args.AmpArgument("{level: O2")
    assert caught.value.code == "AMP014"


@pytest.mark.parametrize(
    "words, rest, found",
    [
        (["--amp", "O2", "--seed", "1"], ["--amp", "O2", "--seed", "1"], {}),
        (["--amp.level", "O2", "--seed", "1"], ["--seed", "1"], {"amp.level": "O2"}),
        (["--seed", "1", "--amp.level=O2"], ["--seed", "1"], {"amp.level": "O2"}),
        (["--amp.master_grad", "--fp16"], ["--fp16"], {"amp.master_grad": True}),
        (["--amp.master_grad"], [], {"amp.master_grad": True}),
        (["--amp.min_loss_scaling", "0.5"], [], {"amp.min_loss_scaling": 0.5}),
        (["--amp.monitor.visualdl", "false"], [], {"amp.monitor.visualdl": False}),
    ],
)
def test_dotted_options(words, rest, found):
    assert trainer_args.take_dotted(words) == (rest, found)


def read(made):
    return trainer_args.settings_of(made)


def test_what_counts_as_written(cls):
    trainer_args.extend(cls)
    assert read(cls("x")) is None
    assert read(cls("x", fp16_opt_level="O2", scale_loss=4.0)) is None, "no switch is on"
    settings = read(cls("x", amp=True))
    assert settings.enabled and settings.level == "O1" and settings.init_loss_scaling == 1024
    settings = read(cls("x", fp16=True, fp16_opt_level="o2", scale_loss=4.0, amp_custom_black_list=["tanh"]))
    assert (settings.dtype, settings.level, settings.init_loss_scaling) == ("float16", "O2", 4.0)
    assert settings.custom_black_list == ("tanh",) and settings.master_grad == "auto"
    assert read(cls("x", bf16=True)).dtype == "bfloat16"
    assert read(cls("x", fp16=True, fp16_opt_level="O2", amp_master_grad=True)).master_grad is True
    assert not read(cls("x", amp=False)).enabled


@pytest.mark.parametrize(
    "values, code",
    [
        ({"amp": "fp16", "bf16": True}, "AMP009"),
        ({"amp": "O1", "fp16": True, "fp16_opt_level": "O2"}, "AMP009"),
        ({"amp": False, "fp16": True}, "AMP009"),
        ({"amp": True, "fp16_opt_level": "O0"}, "AMP009"),
        ({"amp": {"levle": "O2"}}, "AMP001"),
        ({"amp": "O3"}, "AMP005"),
        ({"fp16": True, "amp_master_grad": True}, "AMP008"),
        ({"fp16": True, "scale_loss": -1.0}, "AMP011"),
    ],
)
def test_what_is_wrong(cls, values, code):
    trainer_args.extend(cls)
    with pytest.raises(ConfigError) as caught:
        read(cls("x", **values))
    assert caught.value.code == code


def test_beyond_one_device_and_data_parallelism(cls):
    trainer_args.extend(cls)
    trainer_args.refuse_beyond(cls("x", amp=True))
    with pytest.raises(AmpError) as caught:
        trainer_args.refuse_beyond(cls("x", sharding="stage1", tensor_parallel_degree=2))
    assert caught.value.code == "AMP200"
    assert "sharding=stage1" in str(caught.value) and "tensor_parallel_degree=2" in str(caught.value)


def test_adapted_arguments_say_it_once(cls):
    trainer_args.extend(cls)
    made = cls("x", fp16=True, fp16_opt_level="o2", scale_loss=4.0)
    settings = read(made)
    trainer_args.adapt(made, {"level": "O2", "dtype": "float16", "init_loss_scaling": 4.0})
    assert (made.fp16, made.fp16_opt_level, made.scale_loss) == (False, "O1", 2**15)
    again = read(made)
    assert (again.level, again.dtype, again.init_loss_scaling) == (settings.level, "float16", 4.0)
