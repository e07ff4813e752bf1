"""PaddleNLP runs that overflow: the layer is found and kept in FP32, whichever way the loss is computed."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts import paddlenlp
from paddle_amp_plugin.monitor import read_events
from paddle_amp_plugin.plan import plan_from_yaml
from tests.hosts import tiny_nlp
from tests.hosts.tiny_nlp import needs_paddlenlp, trainer, weights

pytestmark = needs_paddlenlp
SICK = "bert.encoder.layers.1.linear2"


@pytest.fixture(autouse=True)
def controller():
    with tiny_nlp.patched(paddlenlp) as controller:
        yield controller


def sick_bert():
    """One feed-forward layer multiplies beyond float16 (65504); the norm after it brings it back: finite in FP32."""
    model = tiny_nlp.bert()
    layer = model.bert.encoder.layers[1].linear2
    layer.weight.set_value(layer.weight * 2.0e6)
    return model


class Functional:
    """``compute_loss`` as scripts override it; the loss is no output of the model and no criterion's."""

    def __new__(cls):
        from paddlenlp.trainer import Trainer

        class Mine(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                labels = inputs.pop("labels")
                logits = model(**inputs)
                loss = paddle.nn.functional.cross_entropy(logits, labels)
                return (loss, (loss, logits)) if return_outputs else loss

        return Mine


@pytest.mark.parametrize(
    "level, how, accumulate",
    [
        ("O1", "criterion", 1),
        ("O2", "inside", 1),
        ("O1", "functional", 2),
        ("O2", "functional", 1),
        ("O1", "inside", 2),
    ],
)
def test_one_sick_layer(tmp_path, controller, level, how, accumulate):
    options = {"loss_inside": how != "criterion", "gradient_accumulation_steps": accumulate, "max_steps": 12}
    if how == "functional":
        options["cls"] = Functional()
    made = trainer(tmp_path, sick_bert(), amp={"level": level, "dtype": "float16"}, **options)
    made.train()
    session = controller.run.session
    events = read_events(tmp_path / "amp" / "events.jsonl")
    assert [e.step for e in events if e.skipped] == [1, 2, 3, 4]
    found = json.loads((tmp_path / "amp" / "overflow-4.json").read_text(encoding="utf-8"))["verdict"]
    assert found["culprit"] == SICK and not found["not_amp"], found
    assert plan_from_yaml((tmp_path / "amp" / "plan.yml").read_text(encoding="utf-8")).fp32_layers == (SICK,)
    assert controller.run.plan.fp32_layers == (SICK,) and session.scaler.current_scale == 1024
    assert session.half_share() > 0.2
    values = [e.loss for e in events if not e.skipped]
    assert len(values) == 8 and np.isfinite(values).all()
    assert all(np.isfinite(v).all() for v in weights(made.model).values())


def test_the_one_bad_batch_of_an_accumulated_step(tmp_path, controller):
    """Only the first of each two batches overflows: it is the one that is looked into, not the last."""

    class Loud(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = paddle.nn.Embedding(tiny_nlp.VOCABULARY, 8)
            self.loud, self.quiet = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)
            self.loud.weight.set_value(self.loud.weight * 1.0e8)
            self.norm = paddle.nn.LayerNorm(8)
            self.last = paddle.nn.Linear(8, 2)

        def forward(self, input_ids):
            layer = self.loud if int(input_ids[0, 0]) == 1 else self.quiet
            return self.last(self.norm(layer(self.table(input_ids).mean(1))))

    turns = []

    def every_other_is_loud(items):
        turns.append(len(turns) % 2 == 0)
        batch = tiny_nlp.collate(items)
        batch["input_ids"][:, 0] = 1 if turns[-1] else 2
        return batch

    paddle.seed(3)
    made = trainer(tmp_path, Loud(), amp={"dtype": "float16"}, gradient_accumulation_steps=2, max_steps=10)
    made.data_collator = every_other_is_loud
    made.train()
    events = read_events(tmp_path / "amp" / "events.jsonl")
    assert [e.step for e in events if e.skipped] == [1, 2, 3, 4], [e.skipped for e in events]
    (found,) = controller.run.session.treatment.treated
    assert found.culprit == "loud" and not found.not_amp
    assert all(np.isfinite(v).all() for v in weights(made.model).values())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("constant", [-1e4, -1e9])
def test_a_mask_at_o2(tmp_path, controller, constant, dtype):
    """-1e9 is -inf in float16, and a row that is masked throughout becomes NaN. Here it trains, or is healed."""

    class Masked(tiny_nlp.Words):
        def __getitem__(self, index):
            item = super().__getitem__(index)
            mask = np.zeros((1, 1, tiny_nlp.LENGTH), dtype="float32")
            mask[..., tiny_nlp.LENGTH // 2 :] = constant
            if index % 2 == 0:
                mask[...] = constant
            return {**item, "attention_mask": mask}

    made = trainer(
        tmp_path, amp={"level": "O2", "dtype": dtype}, max_steps=12, train_dataset=Masked(), loss_inside=True
    )
    made.train()
    session = controller.run.session
    assert session.skips <= 4 and all(np.isfinite(v).all() for v in weights(made.model).values())
    last = read_events(tmp_path / "amp" / "events.jsonl")[-4:]
    assert not any(e.skipped for e in last) and np.isfinite([e.loss for e in last]).all()
    assert [d.kind for d in session.treatment.treated] == (["mask_constant"] if session.skips else [])
    assert bool(session.skips) == (constant == -1e9 and dtype == "float16")


def test_what_float32_cannot_do_either_stops_the_run(tmp_path):
    model = tiny_nlp.bert()
    layer = model.bert.encoder.layers[1].linear2
    layer.weight.set_value(layer.weight * float("inf"))
    with pytest.raises(AmpError) as caught:
        trainer(tmp_path, model, amp="fp16", max_steps=12, loss_inside=True).train()
    assert caught.value.code == "AMP054" and caught.value.exit_code == 3
    # and everything is as before
    assert "training_step" not in vars(model) and paddle.Tensor.backward.__module__.startswith("paddle.")


def test_stop_keeps_the_last_checkpoint(tmp_path):
    with pytest.raises(AmpError) as caught:
        trainer(
            tmp_path, sick_bert(), amp={"dtype": "float16", "on_collapse": "stop"}, max_steps=12, loss_inside=True
        ).train()
    assert caught.value.code == "AMP045" and f'fp32_layers: ["{SICK}"]' in str(caught.value)


def test_a_model_that_never_updated_is_not_the_best(tmp_path):
    made = trainer(
        tmp_path,
        amp={
            "dtype": "float16",
            "init_loss_scaling": 2.0**40,
            "max_loss_scaling": 2.0**41,
            "use_dynamic_loss_scaling": False,
        },
        max_steps=2,
        evaluation_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        metric_for_best_model="acc",
        load_best_model_at_end=True,
    )
    made.train()
    assert made._paddle_amp_run.session.skips == 2
    assert made.state.best_model_checkpoint is None and made.state.best_metric is None
