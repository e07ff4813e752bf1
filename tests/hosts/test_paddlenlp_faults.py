"""What is wrong with PaddleNLP's own AMP: each fault is first shown without the plugin, then that it is gone.

Without a GPU the host's own AMP is run under software half, where plain ``paddle.amp`` code runs as on one.
"""

from __future__ import annotations

import contextlib

import numpy as np
import paddle
import pytest

from paddle_amp_plugin import software_half
from paddle_amp_plugin.hosts import paddlenlp
from tests.hosts import tiny_nlp
from tests.hosts.tiny_nlp import needs_paddlenlp, same, trainer, weights

pytestmark = needs_paddlenlp
SCALE = 2.0**40  # every fp16 gradient overflows


@contextlib.contextmanager
def alone():
    """The host without the plugin, its AMP as on a GPU."""
    paddlenlp.unpatch()
    with software_half.emulate():
        yield


@pytest.fixture(autouse=True)
def unpatched():
    yield
    paddlenlp.unpatch()


def train(folder, model=None, *, plugin, **changes):
    with tiny_nlp.patched(paddlenlp) if plugin else alone():
        made = trainer(folder, model, **changes)
        made.train()
        return made


def dtypes(state):
    return {str(v.dtype).rsplit(".", 1)[-1].lower() for v in state.values()}


def test_fp16_on_a_cpu(tmp_path):
    """Alone: GradScaler is disabled on a CPU and has no ``_scale``."""
    paddlenlp.unpatch()
    if not paddle.is_compiled_with_cuda():
        with pytest.raises(AttributeError):
            trainer(tmp_path, fp16=True).train()
    made = train(tmp_path, plugin=True, fp16=True, max_steps=4)
    assert made.state.global_step == 4 and all(np.isfinite(v).all() for v in weights(made.model).values())


def test_bf16_on_a_cpu_is_not_float32(tmp_path):
    paddlenlp.unpatch()
    plain = trainer(tmp_path)
    plain.train()
    bf16 = trainer(tmp_path, bf16=True)
    bf16.train()
    if not paddle.is_compiled_with_cuda():
        assert same(weights(plain.model), weights(bf16.model)), "alone: FP32 without a word"
    assert not same(weights(plain.model), weights(train(tmp_path, plugin=True, bf16=True).model))


def test_master_grad_on_one_process(tmp_path):
    """Alone: gradients move to ``main_grad``, the scaler tests ``grad``: overflow is never seen."""
    options = {"fp16": True, "fp16_opt_level": "O2", "amp_master_grad": True, "max_steps": 3}
    host = train(tmp_path, plugin=False, scale_loss=SCALE, **options)
    assert not all(np.isfinite(v).all() for v in weights(host.model).values())
    model = tiny_nlp.bert()
    before = weights(model)
    amp = {"init_loss_scaling": SCALE, "max_loss_scaling": SCALE, "decr_ratio": 2.0**-30}
    made = train(tmp_path, model, plugin=True, amp=amp, **options)
    assert all(np.isfinite(v).all() for v in weights(made.model).values())
    session = made._paddle_amp_run.session
    assert session.plan.master_grad and session.skips == 1 and session.updates == 2
    assert not same(before, weights(made.model))


def test_master_grad_learns_what_it_learns_without(tmp_path):
    found = []
    for master_grad in (True, False):
        amp = {"level": "O2", "dtype": "float16", "master_grad": master_grad}
        log = tiny_nlp.recorder()
        train(tmp_path, plugin=True, amp=amp, max_steps=6, gradient_accumulation_steps=2, callbacks=[log])
        found.append(tiny_nlp.losses(log.logs))
    np.testing.assert_allclose(found[0], found[1], rtol=5e-3)


def test_metrics_in_bfloat16(tmp_path):
    """Alone: logits arrive as uint16 bit patterns, in which every negative number is the larger."""
    seen = []

    def metric(result):
        seen.append(result.predictions.dtype)
        return tiny_nlp.accuracy(result)

    options = {"bf16": True, "fp16_opt_level": "O2", "max_steps": 40, "compute_metrics": metric}
    scores = {}
    for plugin in (False, True):
        made = train(tmp_path, plugin=plugin, **options)
        with tiny_nlp.patched(paddlenlp) if plugin else alone():
            scores[plugin] = made.evaluate()["eval_acc"]
    if seen[0] == np.uint16:  # some versions of Paddle have a float32 there
        assert scores[False] < 0.8
    assert seen[1] == np.float32 and scores[True] > 0.8


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_norms_softmax_and_losses_at_o2(tmp_path, dtype):
    """Alone, at O2: they compute in half; bf16 turns LayerNorm's weights to bfloat16."""
    half = {"fp16": "float16", "bf16": "bfloat16"}[dtype]
    computed, norms = {}, {}
    wanted = ("layer_norm", "softmax", "softmax_with_cross_entropy", "cross_entropy_with_softmax", "reduce_mean")

    for plugin in (False, True):
        model = tiny_nlp.bert()
        with tiny_nlp.patched(paddlenlp) if plugin else alone():
            made = trainer(tmp_path, model, loss_inside=True, max_steps=1, fp16_opt_level="O2", **{dtype: True})
            kept = []
            model.bert.encoder.layers[0].norm1.register_forward_post_hook(
                lambda layer, i, o, kept=kept: kept.append(str(layer.weight.dtype).rsplit(".", 1)[-1].lower())
            )
            with software_half.record_ops() as ops:
                made.train()
        computed[plugin] = {r.op: r.compute_dtype for r in ops if r.op in wanted}
        norms[plugin] = kept[0].replace("fp32", "float32").replace("bf16", "bfloat16")
    assert half in computed[False].values(), computed[False]
    assert computed[True] and set(computed[True].values()) == {"float32"}
    assert norms[True] == "float32" and (dtype == "fp16" or norms[False] == "bfloat16")


def test_half_checkpoints(tmp_path):
    """Alone: half ``.pdparams``, a config that says so, and ``from_pretrained`` in half."""
    for plugin in (False, True):
        folder = tmp_path / str(plugin)
        train(folder, plugin=plugin, fp16=True, fp16_opt_level="O2", max_steps=2, save_strategy="steps", save_steps=2)
        found = dtypes(paddle.load(str(folder / "checkpoint-2" / "model_state.pdparams")))
        assert found == {"float32"} if plugin else "float16" in found
    from paddlenlp.transformers import BertForSequenceClassification

    loaded = BertForSequenceClassification.from_pretrained(str(tmp_path / "True" / "checkpoint-2"))
    assert dtypes(loaded.state_dict()) <= {"float32", "fp32"}


def test_an_optimizer_of_ones_own(tmp_path):
    """Alone, bf16 O2: no masters, so updates below 1/256 of a weight are lost."""
    moved = {}
    for plugin in (False, True):
        model = tiny_nlp.bert()
        rate = paddle.optimizer.lr.LambdaDecay(1e-5, lambda step: 1.0)
        optimizer = paddle.optimizer.AdamW(rate, parameters=model.parameters())
        made = train(tmp_path, model, plugin=plugin, optimizers=(optimizer, rate), bf16=True, fp16_opt_level="O2")
        name = "bert.embeddings.layer_norm.weight"  # ones: 1e-5 is far below a bfloat16 step
        dense = "bert.encoder.layers.0.linear1.weight"
        before = weights(tiny_nlp.bert())
        after = weights(made.model)
        moved[plugin] = float((after[dense] != before[dense].astype("float32")).mean()), after[name]
    assert np.all(moved[False][1] == 1.0), "alone: nothing was learned"
    assert moved[True][0] > 0.9 and np.all(moved[True][1] != 1.0)


def test_a_level_in_lower_case(tmp_path):
    """Alone: "o2" casts the inputs and leaves the weights; here it is O2."""
    made = train(tmp_path, plugin=False, bf16=True, fp16_opt_level="o2", max_steps=1)
    assert dtypes(made.model.state_dict()) <= {"float32", "fp32"}, "alone: not decorated"
    made = train(tmp_path, plugin=True, bf16=True, fp16_opt_level="o2", max_steps=1)
    assert made._paddle_amp_run.plan.level == "O2"


def test_one_loss_that_is_not_finite(tmp_path):
    """Alone: the log's sum becomes inf - inf, so every loss after it, and the average, is shown as NaN."""
    from paddlenlp.trainer import Trainer

    class Once(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False):
            loss = super().compute_loss(model, inputs, return_outputs)
            return loss * float("inf") if self.state.global_step == 1 else loss

    shown, average = {}, {}
    for plugin in (False, True):
        log = tiny_nlp.recorder()
        made = train(tmp_path, plugin=plugin, cls=Once, fp16=True, max_steps=5, callbacks=[log])
        shown[plugin] = tiny_nlp.losses(log.logs)
        average[plugin] = next(entry["train_loss"] for entry in log.logs if "train_loss" in entry)
    assert np.isnan(shown[False][2:]).all() and not np.isfinite(average[False])
    assert np.isfinite(shown[True]).all() and np.isfinite(average[True])
    assert made._paddle_amp_run.session.skips == 1


def test_resuming_in_another_precision(tmp_path):
    """Alone: FP32 weights do not load at bf16 O2, nor would the moments, which are named after the masters."""
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    with paddle.utils.unique_name.guard():
        train(tmp_path, plugin=False, **options)
    options["max_steps"] = 3
    for plugin in (False, True):
        with tiny_nlp.patched(paddlenlp) if plugin else alone(), paddle.utils.unique_name.guard():
            made = trainer(tmp_path, bf16=True, fp16_opt_level="O2", **options)
            if plugin:
                made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
                assert made.state.global_step == 3
            else:
                with pytest.raises(AssertionError, match=r"need tensor with dtype|should in state dict"):
                    made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_sick_layer(tmp_path):
    """Alone: every step is skipped, down to a scale of 0 if it takes long enough; nothing is learned."""
    moved = {}
    for plugin in (False, True):
        model = tiny_nlp.bert()
        sick = model.bert.encoder.layers[1].linear2
        sick.weight.set_value(sick.weight * 2.0e6)
        before = weights(model)
        made = train(tmp_path, model, plugin=plugin, fp16=True, max_steps=8, loss_inside=True)
        moved[plugin] = not same(before, weights(made.model))
    assert moved == {False: False, True: True}


def test_a_checkpoint_of_the_hosts_own_o2_run(tmp_path):
    """Half weights with masters in the optimizer: it goes on from the masters, in FP32 and at O2."""
    options = {"save_strategy": "steps", "save_steps": 4, "max_steps": 4, "learning_rate": 1e-4}
    with paddle.utils.unique_name.guard():
        train(tmp_path, plugin=False, fp16=True, fp16_opt_level="O2", **options)
    masters = paddle.load(str(tmp_path / "checkpoint-4" / "optimizer.pdopt"))["master_weights"]
    options["max_steps"] = 5
    with alone(), paddle.utils.unique_name.guard(), pytest.raises(AssertionError):
        trainer(tmp_path, **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    from paddlenlp.trainer import TrainerCallback

    class Begin(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
            held = getattr(optimizer, "_master_weights", None) or {}
            found.update({p.name: held.get(p.name, p).numpy() for p in model.parameters()})

    for level in ("O1", "O2"):
        found: dict[str, np.ndarray] = {}
        with tiny_nlp.patched(paddlenlp), paddle.utils.unique_name.guard():
            made = trainer(tmp_path, amp={"level": level, "dtype": "float16"}, callbacks=[Begin()], **options)
            made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
        for name, master in masters.items():
            assert np.array_equal(found[name], master.numpy()), (level, name)
