"""PaddleFormers' Trainer, the successor of PaddleNLP's, with a small encoder of one's own (it has no BERT)."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from paddle_amp_plugin.errors import AmpError, ConfigError
from paddle_amp_plugin.hosts import paddleformers
from paddle_amp_plugin.monitor import read_events
from tests.hosts import tiny, tiny_formers, tiny_nlp
from tests.hosts.tiny_formers import arguments, encoder, recorder, trainer
from tests.hosts.tiny_nlp import needs_paddleformers, same, weights

pytestmark = needs_paddleformers
PLANS = [
    {"level": "O1", "dtype": "float16"},
    {"level": "O2", "dtype": "float16"},
    {"level": "O2", "dtype": "bfloat16"},
]
PLAIN = {"amp_master_grad": False}  # without it the host refuses to train in FP32
#: Not ``flex_checkpoint``, the default: to resume from one needs ``fleet.init`` also on one process.
OLD_FORMAT = {"save_checkpoint_format": None, "load_checkpoint_format": None}


@pytest.fixture(autouse=True)
def controller():
    with tiny_nlp.patched(paddleformers) as controller:
        yield controller


def train(folder, model=None, resume=None, **changes):
    made = trainer(folder, model, **changes)
    made.train(resume_from_checkpoint=resume)
    return made


def test_the_key_in_yaml_and_on_the_command_line(tmp_path, monkeypatch):
    from paddleformers.trainer import PdArgumentParser, TrainingArguments

    path = tmp_path / "run.yaml"
    path.write_text(f"output_dir: {tmp_path}\ndevice: cpu\namp:\n  level: O2\n  fp32_layers: [classifier]\n")
    parser = PdArgumentParser(TrainingArguments)
    monkeypatch.setattr(sys, "argv", ["x.py", str(path)])
    (args,) = parser.parse_yaml_file_and_cmd_lines()
    assert args.amp == {"level": "O2", "fp32_layers": ["classifier"]}
    monkeypatch.setattr(sys, "argv", ["x.py", str(path), "--amp.dtype", "bfloat16"])
    (args,) = parser.parse_yaml_file_and_cmd_lines()
    assert args.amp == {"level": "O2", "fp32_layers": ["classifier"], "dtype": "bfloat16"}
    (args,) = parser.parse_dict({"output_dir": str(tmp_path), "device": "cpu", "amp": "O2"})
    assert args.amp == "O2"


def test_defaults_and_own_names(tmp_path, controller):
    paddleformers.unpatch()
    with pytest.raises(ValueError):  # alone: its defaults contradict each other
        arguments(tmp_path)
    controller = paddleformers.patch()
    trainer(tmp_path, amp="O2")
    assert controller.run.plan.level == "O2" and not controller.run.plan.master_grad
    trainer(tmp_path, fp16=True)  # master_grad is on by default, which is no one's wish at O1
    assert (controller.run.plan.level, controller.run.plan.dtype) == ("O1", "float16")
    with pytest.raises(ConfigError) as caught:
        trainer(tmp_path, amp="fp16", bf16=True)
    assert caught.value.code == "AMP009"
    with pytest.raises(AmpError) as caught:
        trainer(tmp_path, args=_with(arguments(tmp_path, amp=True), tensor_model_parallel_size=2))
    assert caught.value.code == "AMP200"


def _with(args, **values):
    for name, value in values.items():
        setattr(args, name, value)
    return args


def test_without_the_key_the_run_is_the_hosts_own_to_the_bit(tmp_path):
    def run():
        return weights(train(tmp_path, encoder(dropout=0.1), max_steps=12, **PLAIN).model)

    with_plugin = run()
    paddleformers.unpatch()
    assert same(with_plugin, run())


@pytest.mark.parametrize("amp", PLANS)
def test_it_learns(tmp_path, controller, amp):
    import paddle

    log = recorder()
    made = train(tmp_path, amp=amp, max_steps=30, callbacks=[log])
    values = tiny_nlp.losses(log.logs)
    assert np.mean(values[-5:]) < 0.5 * np.mean(values[:3]), values
    assert made.evaluate()["eval_acc"] > 0.75 and controller.run.session.half_share() > 0.2
    assert made.predict(tiny_nlp.Words(16)).predictions.dtype == np.float32
    assert {str(p.dtype) for p in made.model.parameters()} == {str(paddle.float32)}
    events = read_events(tmp_path / "amp" / "events.jsonl")
    np.testing.assert_allclose([e.loss for e in events], values, rtol=1e-5)


def test_gradient_accumulation(tmp_path, monkeypatch):
    """On a CPU the host alone fails at it (``paddle.device.synchronize``), also in FP32."""
    import paddle

    if not paddle.is_compiled_with_cuda():
        monkeypatch.setattr(paddle.device, "synchronize", lambda *a: None)
    found = []
    for steps, size in ((2, 8), (1, 16)):
        folder = tmp_path / str(steps)
        options = {"gradient_accumulation_steps": steps, "per_device_train_batch_size": size, "max_steps": 4}
        train(folder, amp={"level": "O2", "dtype": "float16"}, **options)
        found.append(read_events(folder / "amp" / "events.jsonl"))
    for name, tolerance in (("loss", 2e-3), ("grad_norm", 2e-2), ("samples", 0)):
        two, one = ([getattr(e, name) for e in events] for events in found)
        np.testing.assert_allclose(two, one, rtol=tolerance, err_msg=name)


def test_plain_fp16_on_one_card(tmp_path):
    """Alone, with its defaults: gradients move to ``main_grad``, the scaler tests ``grad``: overflow goes unseen."""
    from paddle_amp_plugin import software_half

    scale = 2.0**40
    paddleformers.unpatch()
    with software_half.emulate():
        host = train(tmp_path, fp16=True, fp16_opt_level="O2", scale_loss=scale, max_steps=3)
    assert not all(np.isfinite(v).all() for v in weights(host.model).values())
    paddleformers.patch()
    amp = {"init_loss_scaling": scale, "max_loss_scaling": scale, "decr_ratio": 2.0**-30}
    made = train(tmp_path, fp16=True, fp16_opt_level="O2", amp=amp, max_steps=3)
    assert all(np.isfinite(v).all() for v in weights(made.model).values())
    assert made._paddle_amp_run.session.skips == 1 and made._paddle_amp_run.session.updates == 2


@pytest.mark.parametrize(
    "first, second", [(PLANS[0], PLANS[0]), (PLANS[1], PLANS[1]), (None, PLANS[1]), (PLANS[1], None)]
)
def test_resume(tmp_path, first, second):
    import paddle

    options = {"save_strategy": "steps", "save_steps": 4, "lr_scheduler_type": "linear", **OLD_FORMAT, **PLAIN}
    found = []
    for amp, resume in ((first, None), (second, str(tmp_path / "checkpoint-4"))):
        with paddle.utils.unique_name.guard():
            log = recorder()
            made = train(tmp_path, amp=amp, resume=resume, callbacks=[log], **options)
            found.append((tiny_nlp.losses(log.logs)[-4:], weights(made.model)))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=0 if first == second else 5e-3)
    assert first != second or same(found[0][1], found[1][1])


FLEX = """
import json, sys
from pathlib import Path
from paddle_amp_plugin.hosts import paddleformers
paddleformers.patch()
import paddle
from paddle.distributed import fleet
fleet.init(is_collective=True)
from tests.hosts import tiny_formers, tiny_nlp
losses = []
for amp, resume in ((json.loads(sys.argv[1]), None), (json.loads(sys.argv[2]), "out/checkpoint-4")):
    with paddle.utils.unique_name.guard():
        log = tiny_formers.recorder()
        made = tiny_formers.trainer(Path("out"), amp=amp, callbacks=[log], save_strategy="steps", save_steps=4)
        made.train(resume_from_checkpoint=resume)
        losses.append(tiny_nlp.losses(log.logs)[-4:])
print("LOSSES", json.dumps(losses))
"""


@pytest.mark.parametrize("first, second", [(PLANS[1], PLANS[1]), (PLANS[0], PLANS[2])])
def test_resume_from_its_default_format(tmp_path, first, second):
    result = tiny.call(["-c", FLEX, json.dumps(first), json.dumps(second)], tmp_path)
    line = next((line for line in result.stdout.splitlines() if line.startswith("LOSSES")), None)
    assert line is not None, result.stdout[-3000:]
    want, got = json.loads(line.removeprefix("LOSSES"))
    np.testing.assert_allclose(got, want, rtol=0 if first == second else 2e-2)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_one_sick_layer_is_healed(tmp_path, controller, level):
    model = encoder()
    sick = model.encoder.layers[1].linear2
    sick.weight.set_value(sick.weight * 2.0e6)
    made = train(tmp_path, model, amp={"level": level, "dtype": "float16"}, max_steps=10)
    assert controller.run.plan.fp32_layers == ("encoder.layers.1.linear2",)
    assert controller.run.session.skips == 4
    assert all(np.isfinite(v).all() for v in weights(made.model).values())


def test_nothing_is_left_behind(tmp_path, controller):
    from paddleformers.trainer import Trainer, TrainingArguments

    absent = [row for row in controller.patches.listing() if row[1] != "patched"]
    assert not absent, absent
    paddleformers.unpatch()
    with pytest.raises(TypeError):
        arguments(tmp_path, amp="O2")
    for cls in (Trainer, TrainingArguments):
        assert not [name for name, value in vars(cls).items() if type(value).__module__.startswith("paddle_amp")]
    assert tiny_formers.trainer(tmp_path, **PLAIN).train() is not None
