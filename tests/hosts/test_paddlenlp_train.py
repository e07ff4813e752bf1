"""PaddleNLP's Trainer trains under a plan, in this process, with a BERT of two layers."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.hosts import paddlenlp
from paddle_amp_plugin.monitor import read_events
from paddle_amp_plugin.plan import plan_from_yaml
from tests.hosts import tiny_nlp
from tests.hosts.tiny_nlp import needs_paddlenlp, same, trainer, weights

pytestmark = needs_paddlenlp
PLANS = [
    {"level": "O1", "dtype": "float16"},
    {"level": "O2", "dtype": "float16"},
    {"level": "O2", "dtype": "bfloat16"},
]


@pytest.fixture(autouse=True)
def controller():
    with tiny_nlp.patched(paddlenlp) as controller:
        yield controller


def fresh(make):
    """``make()`` as in a process of its own: the parameters' names start from 0."""
    with paddle.utils.unique_name.guard():
        return make()


def train(folder, model=None, resume=None, **changes):
    made = trainer(folder, model, **changes)
    made.train(resume_from_checkpoint=resume)
    return made


@pytest.mark.parametrize("loss_inside", [False, True])
def test_without_the_key_the_run_is_the_hosts_own_to_the_bit(tmp_path, loss_inside):
    options = {"max_steps": 12, "loss_inside": loss_inside, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5}

    def run():
        return weights(train(tmp_path, tiny_nlp.bert(dropout=0.1), **options).model)

    with_plugin, again = run(), run()
    paddlenlp.unpatch()
    alone = run()
    assert same(with_plugin, again) and same(with_plugin, alone)
    paddlenlp.patch()
    assert not same(alone, weights(train(tmp_path, tiny_nlp.bert(dropout=0.1), amp=True, **options).model))


@pytest.mark.parametrize("amp, loss_inside", [(PLANS[0], True), (PLANS[1], False), (PLANS[2], True)])
def test_it_learns(tmp_path, controller, amp, loss_inside):
    log = tiny_nlp.recorder()
    made = train(tmp_path, amp=amp, loss_inside=loss_inside, max_steps=40, callbacks=[log])
    session = controller.run.session
    values = tiny_nlp.losses(log.logs)
    assert np.mean(values[-5:]) < 0.5 * np.mean(values[:3]), values
    assert session.steps == 40 and session.skips == 0 and session.half_share() > 0.2
    assert made.evaluate()["eval_acc"] > 0.8
    assert {str(p.dtype) for p in made.model.parameters()} == {str(paddle.float32)}
    assert not any(type(layer).__dict__.get("_amp_unpinned") for layer in made.model.sublayers(include_self=True))


@pytest.mark.parametrize("amp", PLANS)
def test_it_follows_float32(tmp_path, amp):
    """The losses of the first steps are those of FP32 within what the half type can hold."""
    logs = []
    for setting in (None, amp):
        logs.append(tiny_nlp.recorder())
        train(tmp_path, amp=setting, max_steps=6, callbacks=[logs[-1]])
    tolerance = 2e-3 if amp["dtype"] == "float16" else 2e-2
    np.testing.assert_allclose(tiny_nlp.losses(logs[1].logs), tiny_nlp.losses(logs[0].logs), rtol=tolerance)


def test_files_log_and_scaler(tmp_path):
    log = tiny_nlp.recorder()
    train(tmp_path, amp={"dtype": "float16", "init_loss_scaling": 256}, max_steps=4, callbacks=[log])
    events = read_events(tmp_path / "amp" / "events.jsonl")
    assert [e.step for e in events] == [1, 2, 3, 4] and all(e.loss_scale == 256 for e in events)
    np.testing.assert_allclose([e.loss for e in events], tiny_nlp.losses(log.logs), rtol=1e-5)
    assert all(e.samples == 8 and e.grad_norm > 0 and e.lr == pytest.approx(2e-3) for e in events)
    assert plan_from_yaml((tmp_path / "amp" / "plan.yml").read_text(encoding="utf-8")).scaling.init == 256
    training = [entry for entry in log.logs if "loss" in entry]
    assert all(entry["loss_scale"] == 256 and entry["skipped_steps"] == 0 for entry in training)
    assert len(log.scalers) == 4 and all(float(s._scale) == 256 for s in log.scalers)


def test_gradient_accumulation(tmp_path, controller):
    """Two batches of 8 are one of 16: the same updates within half precision, one event a step with the whole loss."""
    runs = {}
    for name, steps, size in (("two", 2, 8), ("one", 1, 16)):
        folder = tmp_path / name
        made = train(
            folder,
            amp={"dtype": "float16"},
            max_steps=4,
            gradient_accumulation_steps=steps,
            per_device_train_batch_size=size,
            max_grad_norm=0.5,
        )
        runs[name] = (weights(made.model), read_events(folder / "amp" / "events.jsonl"))
    for name, value in runs["one"][0].items():
        np.testing.assert_allclose(runs["two"][0][name], value, atol=4e-3, err_msg=name)
    two, one = runs["two"][1], runs["one"][1]
    assert len(two) == len(one) == 4 and all(e.samples == 16 for e in two)
    np.testing.assert_allclose([e.loss for e in two], [e.loss for e in one], rtol=2e-3)
    np.testing.assert_allclose([e.grad_norm for e in two], [e.grad_norm for e in one], rtol=2e-2)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_skipped_step_changes_nothing(tmp_path, controller, accumulate):
    """The first scale overflows: weights, moments and LR stay; the gradients are gone; the count goes on."""
    from paddlenlp.trainer import TrainerCallback

    seen = []

    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **kwargs):
            grads = [p.grad for p in model.parameters() if p.grad is not None and bool((p.grad != 0).any())]
            seen.append((state.global_step, weights(model), optimizer.get_lr(), len(grads)))

    model = tiny_nlp.bert()
    before = weights(model)
    train(
        tmp_path,
        model,
        amp={"dtype": "float16", "init_loss_scaling": 2.0**40, "max_loss_scaling": 2.0**41, "decr_ratio": 2.0**-30},
        max_steps=4,
        gradient_accumulation_steps=accumulate,
        lr_scheduler_type="linear",
        warmup_steps=2,
        callbacks=[Look()],
    )
    assert controller.run.session.skips == 1 and [s[0] for s in seen] == [1, 2, 3, 4]
    # the second step is made at the rate that the first one should have had, which a warm-up starts at 0
    assert same(seen[0][1], before) and same(seen[1][1], before) and not same(seen[2][1], before)
    rates = [s[2] for s in seen]
    assert rates[0] == 0.0 and rates[1] == pytest.approx(1e-3) and rates[2] == pytest.approx(2e-3)
    assert all(s[3] == 0 for s in seen)


@pytest.mark.parametrize("amp", PLANS)
def test_evaluation_checkpoints_and_the_best_model(tmp_path, controller, amp):
    made = train(
        tmp_path,
        amp=amp,
        max_steps=30,
        evaluation_strategy="steps",
        eval_steps=10,
        save_strategy="steps",
        save_steps=10,
        load_best_model_at_end=True,
        metric_for_best_model="acc",
        learning_rate=3e-3,
    )
    best = made.state.best_model_checkpoint
    assert made.evaluate()["eval_acc"] == pytest.approx(made.state.best_metric) and made.state.best_metric > 0.6
    for folder in sorted(tmp_path.glob("checkpoint-*")):
        state = paddle.load(str(folder / "model_state.pdparams"))
        assert {str(v.dtype) for v in state.values()} == {str(paddle.float32)}
        assert json.loads((folder / "config.json").read_text()).get("dtype", "float32") == "float32"
        moments = paddle.load(str(folder / "optimizer.pdopt"))
        assert not any("fp32_master" in name for name in moments)
        own = {tensor.name: state[name] for name, tensor in made.model.state_dict().items()}
        for name, master in moments.get("master_weights", {}).items():  # for the host's own O2
            assert np.array_equal(master.numpy(), own[name].numpy())
    from paddlenlp.transformers import BertForSequenceClassification

    loaded = BertForSequenceClassification.from_pretrained(best)
    assert same(weights(loaded), weights(made.model))
    result = made.predict(tiny_nlp.Words(16, seed=5))
    assert result.predictions.dtype == np.float32 and np.isfinite(result.predictions).all()


def test_evaluation_in_half_if_asked_for(tmp_path):
    made = trainer(tmp_path, amp={"dtype": "bfloat16", "eval_dtype": "bfloat16"}, max_steps=30)
    first = made.evaluate()
    made.train()
    assert first["eval_acc"] < 0.8 < made.evaluate()["eval_acc"]
    assert made.predict(tiny_nlp.Words(16)).predictions.dtype == np.float32


@pytest.mark.parametrize("amp, unified", [*((amp, False) for amp in PLANS), (PLANS[1], True)])
def test_resumed_is_the_unbroken_run_to_the_bit(tmp_path, amp, unified):
    """Weights, moments and LR."""
    options = {
        "amp": amp,
        "max_steps": 8,
        "save_strategy": "steps",
        "save_steps": 4,
        "lr_scheduler_type": "linear",
        "weight_decay": 0.01,
        "unified_checkpoint": unified,
    }
    unbroken = fresh(lambda: weights(train(tmp_path / "a", **options).model))
    resumed = fresh(lambda: weights(train(tmp_path / "b", resume=str(tmp_path / "a/checkpoint-4"), **options).model))
    assert same(unbroken, resumed)


@pytest.mark.parametrize("first, second", [(None, PLANS[1]), (PLANS[1], None), (PLANS[0], PLANS[2])])
def test_the_precision_may_change_on_resume(tmp_path, first, second):
    """Moments carry over between FP32, O1 and O2 (alone, the host ends in "Optimizer set error")."""
    # within one epoch: after it the host alone resumes with another order of the data
    options = {"save_strategy": "steps", "save_steps": 20, "train_dataset": tiny_nlp.Words(240)}
    fresh(lambda: train(tmp_path / "a", amp=first, max_steps=20, **options))
    found = []
    for amp in (first, second):
        log = tiny_nlp.recorder()
        options.update(max_steps=24, resume=str(tmp_path / "a/checkpoint-20"), callbacks=[log])
        fresh(lambda amp=amp: train(tmp_path / "b", amp=amp, **options))
        found.append(tiny_nlp.losses(log.logs))
    np.testing.assert_allclose(found[1], found[0], rtol=5e-3)
    assert len(found[0]) == 4 and found[0][0] < 0.5, "it went on from what was learned"


def test_training_twice(tmp_path, controller):
    made = trainer(tmp_path, amp={"level": "O2", "dtype": "float16"}, max_steps=6)
    made.train()
    before, first = weights(made.model), controller.run.session
    made.train()
    assert not same(before, weights(made.model)) and all(np.isfinite(v).all() for v in weights(made.model).values())
    assert controller.run.session is not first
    assert controller.run.session.half_share() == pytest.approx(first.half_share())


def test_weights_loaded_in_half(tmp_path):
    """Scripts load the model in half where ``fp16_opt_level`` is O2; FP32 weights are learned all the same."""
    model = tiny_nlp.bert()
    for p in model.parameters():
        p.set_value(p.astype("float16").astype("float32"))
    reference = weights(train(tmp_path, model, amp=PLANS[1], max_steps=4).model)
    half = tiny_nlp.bert()
    half.to(dtype="float16")
    made = train(tmp_path, half, amp=PLANS[1], max_steps=4)
    assert same(weights(made.model), reference)
    assert {str(p.dtype) for p in made.model.parameters()} == {str(paddle.float32)}


@pytest.mark.parametrize("amp", [None, *PLANS])
def test_recompute(tmp_path, amp):
    """Its backward calls the forward again, from inside: the same numbers, one step a step."""
    outcome = []
    for recompute in (False, True):
        made = train(tmp_path, tiny_nlp.bert(), amp=amp, max_steps=4, recompute=recompute)
        assert not recompute or made.model.bert.encoder.enable_recompute
        outcome.append(weights(made.model))
    for name, value in outcome[0].items():
        np.testing.assert_allclose(outcome[1][name], value, atol=1e-6 if amp is None else 1e-3, err_msg=name)


@pytest.mark.parametrize("amp", PLANS)
def test_lora(tmp_path, amp):
    """Only the adapters learn; the frozen weights come back to the bit; the adapters are saved in FP32."""
    from paddlenlp.peft import LoRAConfig, LoRAModel

    base = tiny_nlp.bert()
    config = LoRAConfig(target_modules=[".*self_attn.[qv]_proj"], r=4, lora_alpha=8, merge_weights=False)
    model = LoRAModel(base, config)
    model.mark_only_lora_as_trainable()
    before = weights(model)
    made = train(tmp_path, model, amp=amp, max_steps=6, loss_inside=True, save_strategy="steps", save_steps=6)
    after = weights(made.model)
    changed = {name for name, value in after.items() if not np.array_equal(value, before[name])}
    assert changed and all("lora" in name for name in changed), changed
    (saved,) = (tmp_path / "checkpoint-6").glob("lora*.pdparams")
    assert {str(v.dtype) for v in paddle.load(str(saved)).values()} == {str(paddle.float32)}


def test_export(tmp_path):
    from paddlenlp.transformers import export_model

    made = train(tmp_path, amp={"level": "O2", "dtype": "float16"}, max_steps=2, loss_inside=True)
    spec = [paddle.static.InputSpec([None, None], "int64"), paddle.static.InputSpec([None, None], "int64")]
    export_model(made.model, input_spec=spec, path=str(tmp_path / "export"))
    (parameters,) = (tmp_path / "export").glob("*.pdiparams")
    count = sum(int(np.prod(p.shape)) for p in made.model.parameters())
    assert parameters.stat().st_size >= 4 * count


def test_a_loss_the_script_computes_itself(tmp_path, controller):
    """``compute_loss`` overridden, as most scripts do; the model's calls in it are under the plan, the loss is FP32."""
    from paddlenlp.trainer import Trainer

    seen = set()

    class Mine(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False):
            labels = inputs.pop("labels")
            logits = model(**inputs)
            seen.add(str(logits.dtype))
            loss = paddle.nn.functional.cross_entropy(logits, labels)
            return (loss, (loss, logits)) if return_outputs else loss

    made = train(tmp_path, cls=Mine, amp={"level": "O2", "dtype": "float16"}, max_steps=40)
    assert seen == {str(paddle.float32)} and controller.run.session.half_share() > 0.2
    assert made.evaluate()["eval_acc"] > 0.8
