"""Every way to give PaddleNLP the amp key, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest

from paddle_amp_plugin.errors import AmpError, ConfigError
from paddle_amp_plugin.hosts import paddlenlp
from tests.hosts import tiny_nlp
from tests.hosts.tiny_nlp import needs_paddlenlp

pytestmark = needs_paddlenlp


@pytest.fixture(autouse=True)
def controller():
    with tiny_nlp.patched(paddlenlp) as controller:
        yield controller


def parser():
    from paddlenlp.trainer import PdArgumentParser, TrainingArguments

    return PdArgumentParser(TrainingArguments)


def base(folder):
    return ["--output_dir", str(folder), "--device", "cpu"]


@pytest.mark.parametrize(
    "words, amp",
    [
        ([], None),
        (["--amp"], True),
        (["--amp", "true"], True),
        (["--amp", "off"], False),
        (["--amp", "O2"], "O2"),
        (["--amp", "{level: O2, fp32_layers: [classifier]}"], {"level": "O2", "fp32_layers": ["classifier"]}),
        (["--amp.level", "O2"], {"level": "O2"}),
        (["--amp", "bf16", "--amp.level=O2", "--amp.monitor.visualdl", "false"], None),
    ],
)
def test_command_line(tmp_path, words, amp):
    (args,) = parser().parse_args_into_dataclasses([*base(tmp_path), *words, "--seed", "7"])
    assert args.seed == 7
    if "bf16" in words:
        amp = {"dtype": "bfloat16", "level": "O2", "monitor": {"visualdl": False}}
    assert args.amp == amp


def test_json_file(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    path.write_text(
        json.dumps({"output_dir": str(tmp_path), "device": "cpu", "amp": {"level": "O2", "cpu": "emulate"}})
    )
    (args,) = parser().parse_json_file(str(path))
    assert args.amp == {"level": "O2", "cpu": "emulate"}
    if hasattr(parser(), "parse_json_file_and_cmd_lines"):
        monkeypatch.setattr(sys, "argv", ["x.py", str(path), "--amp.level", "O1"])
        (args,) = parser().parse_json_file_and_cmd_lines()
        assert args.amp == {"level": "O1", "cpu": "emulate"}


def test_dict(tmp_path):
    (args,) = parser().parse_dict({"output_dir": str(tmp_path), "device": "cpu", "amp": "O2"})
    assert args.amp == "O2"
    with pytest.raises(ConfigError) as caught:
        parser().parse_dict({"output_dir": str(tmp_path), "device": "cpu", "apm": True})
    assert caught.value.code == "AMP010" and "did you mean: amp" in str(caught.value)


def test_set_after_post_init_as_scripts_with_their_own_yaml_do(tmp_path, controller):
    args = tiny_nlp.arguments(tmp_path)
    assert hasattr(args, "amp")
    args.amp = {"level": "O2", "dtype": "bfloat16"}
    tiny_nlp.trainer(tmp_path, args=args)
    assert (controller.run.plan.level, controller.run.plan.dtype) == ("O2", "bfloat16")


def test_a_bad_value_is_said_before_a_model_is_loaded(tmp_path):
    with pytest.raises(ConfigError) as caught:
        tiny_nlp.arguments(tmp_path, amp={"levle": "O2"})
    assert caught.value.code == "AMP001"


def test_dataclasses_made_of_the_arguments(tmp_path):
    from paddlenlp.trainer import PdArgumentParser, TrainingArguments

    @dataclasses.dataclass
    class Mine(TrainingArguments):
        extra: int = 1

    words = [*base(tmp_path), "--amp", "O2", "--extra", "3"]
    (args,) = PdArgumentParser(Mine).parse_args_into_dataclasses(words)
    assert args.amp == "O2" and args.extra == 3


@pytest.mark.parametrize(
    "values, level, dtype",
    [
        ({"fp16": True}, "O1", "float16"),
        ({"bf16": True, "fp16_opt_level": "o2"}, "O2", "bfloat16"),
        ({"fp16": True, "scale_loss": 64.0, "amp": {"level": "O2"}, "fp16_opt_level": "O2"}, "O2", "float16"),
    ],
)
def test_the_hosts_own_names(tmp_path, controller, values, level, dtype):
    trainer = tiny_nlp.trainer(tmp_path, **values)
    plan = controller.run.plan
    assert (plan.level, plan.dtype) == (level, dtype)
    assert plan.scaling.init == values.get("scale_loss", 1024.0)
    assert not trainer.args.fp16 and not trainer.args.bf16 and not trainer.do_grad_scaling
    tiny_nlp.trainer(tmp_path, args=trainer.args)  # the same arguments once more mean the same
    assert (controller.run.plan.level, controller.run.plan.dtype) == (level, dtype)


def test_contradictions(tmp_path):
    with pytest.raises(ConfigError) as caught:
        tiny_nlp.trainer(tmp_path, amp="fp16", bf16=True)
    assert caught.value.code == "AMP009" and "bf16" in str(caught.value)


def test_master_grad_is_not_lost_with_the_key(tmp_path, controller):
    """The host alone answers: "set amp_master_grad to false since amp is disabled"."""
    tiny_nlp.trainer(tmp_path, amp="O2", amp_master_grad=True)
    assert controller.run.plan.master_grad


def test_what_does_not_go_together(tmp_path):
    with pytest.raises(AmpError) as caught:
        tiny_nlp.trainer(tmp_path, amp=True, to_static=True)
    assert caught.value.code == "AMP200" and "to_static=True" in str(caught.value)


def test_off(tmp_path, controller):
    trainer = tiny_nlp.trainer(tmp_path, amp=False, max_steps=2)
    trainer.train()
    assert not controller.run.plan.enabled and controller.run.session is None
    assert (tmp_path / "amp" / "plan.yml").is_file() and not (tmp_path / "amp" / "events.jsonl").exists()


def test_nothing_is_left_behind(tmp_path, controller):
    from paddlenlp.trainer import Trainer, TrainingArguments
    from paddlenlp.trainer.trainer_callback import CallbackHandler

    assert all(state == "patched" for _, state, _ in controller.patches.listing()), controller.patches.listing()
    paddlenlp.unpatch()
    with pytest.raises(TypeError):
        tiny_nlp.arguments(tmp_path, amp="O2")
    assert "amp" not in {f.name for f in dataclasses.fields(TrainingArguments)}
    for cls in (Trainer, TrainingArguments, CallbackHandler):
        assert not [name for name, value in vars(cls).items() if type(value).__module__.startswith("paddle_amp")]
    assert not hasattr(tiny_nlp.trainer(tmp_path), "_paddle_amp_run")
    paddlenlp.patch()
    assert tiny_nlp.arguments(tmp_path, amp="O2").amp == "O2"
