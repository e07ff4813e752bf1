"""Precision audit of PaddleNLP's encoders: ERNIE, BERT and UIE, as their Trainer gets them under the preset ``safe``.

Run with ``-s`` to read the tables.
"""

from __future__ import annotations

import contextlib

import numpy as np
import paddle
import pytest

from paddle_amp_plugin import autocast, software_half
from paddle_amp_plugin.norms import is_norm_layer
from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST
from paddle_amp_plugin.session import Session
from tests.hosts import tiny_nlp
from tests.test_precision_audit import SETTINGS, layer_records, plan_for, print_table, short

pytestmark = tiny_nlp.needs_paddlenlp
HIDDEN = 32
NAMES = ("bert", "ernie", "ernie_tokens", "uie")
LOOKUPS = ("lookup_table_v2", "lookup_table", "embedding")


def settings(**more):
    return {
        "vocab_size": tiny_nlp.VOCABULARY,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * HIDDEN,
        "max_position_embeddings": 32,
        "hidden_act": "relu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_labels": 2,
        **more,
    }


def build(name, **more):
    """(model, labels or None): ``model(ids, labels=…)`` returns the loss first where there are labels."""
    from paddlenlp import transformers as t

    paddle.seed(4)
    batch = (4, tiny_nlp.LENGTH)
    if name == "bert":
        return t.BertForSequenceClassification(t.BertConfig(**settings(**more))), paddle.to_tensor([0, 1, 1, 0])
    config = t.ErnieConfig(**settings(**more))
    if name == "ernie":
        return t.ErnieForSequenceClassification(config), paddle.to_tensor([0, 1, 1, 0])
    if name == "ernie_tokens":
        return t.ErnieForTokenClassification(config), paddle.ones(batch, dtype="int64")
    return t.UIE(config), None


def ids(seed=0, size=4):
    return paddle.to_tensor(tiny_nlp.Words(size, seed=seed).ids)


@contextlib.contextmanager
def trained(model, level, dtype, **plan):
    """The model as a session has it: ``step(call)`` is one forward and backward; yields it and the optimizer."""
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    session = Session(plan_for(level, dtype, **plan))
    with session.attach(model, None, optimizer):

        def step(call):
            loss = call(model)
            loss.backward()
            return loss

        yield step, optimizer, session


def loss_of(model, labels, words=None, mask=None):
    words = ids() if words is None else words
    if labels is None:  # UIE: the probabilities of an answer's first and last word, BCE outside of the model
        first, last = model(words, attention_mask=mask)
        target = paddle.zeros_like(first)
        loss = paddle.nn.functional.binary_cross_entropy
        return loss(first, target) + loss(last, target)
    return model(words, attention_mask=mask, labels=labels)[0]


def softmaxes(ops):
    return [r for r in ops if "softmax" in r.op]


@pytest.mark.parametrize("level, dtype", SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_every_layer(name, level, dtype):
    model, labels = build(name)
    layers = [(layer, n) for n, layer in model.named_sublayers() if not layer.sublayers()]
    with trained(model, level, dtype) as (step, _, _):
        with software_half.record_ops() as ops, layer_records(model, ops) as by_layer:
            loss = step(lambda m: loss_of(m, labels))
        own = {n: sorted({short(p.dtype) for p in layer._parameters.values() if p is not None}) for layer, n in layers}
    rows = [(layer, n, own[n], by_layer[n]) for layer, n in layers]
    print_table(f"{name} {level} {dtype}", rows)
    norms = 0
    for layer, n, dtypes, records in rows:
        if is_norm_layer(layer, n):
            norms += 1
            assert dtypes == ["float32"] and {r.compute_dtype for r in records} == {"float32"}, n
        elif isinstance(layer, paddle.nn.Linear):
            assert dtypes == [dtype if level == "O2" else "float32"], n
            products = [r for r in records if r.op in ("linear_v2", "matmul_v2")]
            assert products and {r.compute_dtype for r in products} == {dtype}, n
        elif isinstance(layer, paddle.nn.Embedding):
            assert {r.compute_dtype for r in records if r.op in LOOKUPS} == {"float32"}, n
    assert norms == 5
    protected = [r for r in ops if r.op in SAFE_BLACK_LIST]
    assert protected and {r.compute_dtype for r in protected} == {"float32"}
    assert softmaxes(ops) and {r.compute_dtype for r in softmaxes(ops)} == {"float32"}
    assert loss.dtype == paddle.float32


@pytest.mark.parametrize("level, dtype", SETTINGS)
def test_gradients_of_embeddings_are_summed_in_float32(level, dtype):
    """One word 4096 times: its gradient, summed in half precision, would stall; rounded once it is right."""
    table = paddle.nn.Embedding(8, 4)
    rows = paddle.full([4096], 5, dtype="int64")
    share = 3e-3  # of each: from a sum of 8 on, float16 cannot add it any more

    class Model(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = table

        def forward(self, words):
            return self.table(words)

    with trained(Model(), level, dtype) as (step, _, session):
        step(lambda m: (m(rows) * share).sum())
        grad = table.weight.grad
        assert short(grad.dtype) == (dtype if level == "O2" else "float32")
        found = grad.astype("float32").numpy()[5] / session.scaler.current_scale
    np.testing.assert_allclose(found, np.full(4, 4096 * share), rtol=1e-3 if dtype == "float16" else 1e-2)


@pytest.mark.parametrize("level, dtype", SETTINGS)
@pytest.mark.parametrize("constant", [-1e4, -1e9])
@pytest.mark.parametrize("name", NAMES)
def test_masks(name, constant, level, dtype):
    """Half of each row masked: loss and gradients are finite, and those of the FP32 model."""
    mask = np.zeros((4, 1, 1, tiny_nlp.LENGTH), dtype="float32")
    mask[..., tiny_nlp.LENGTH // 2 :] = constant
    mask = paddle.to_tensor(mask)
    model, labels = build(name)
    want = float(loss_of(model, labels, mask=mask))
    with trained(model, level, dtype) as (step, optimizer, session):
        loss = float(step(lambda m: loss_of(m, labels, mask=mask)))
        optimizer.step()
        assert session.skips == 0
    assert loss == pytest.approx(want, rel=1e-3 if dtype == "float16" else 1e-2)


@pytest.mark.parametrize("level, dtype", SETTINGS)
@pytest.mark.parametrize("name", ["bert", "ernie"])
def test_tied_embeddings_stay_tied(name, level, dtype):
    from paddlenlp import transformers as t

    paddle.seed(4)
    if name == "bert":
        model = t.BertForMaskedLM(t.BertConfig(**settings()))
        table = model.bert.embeddings.word_embeddings
    else:
        model = t.ErnieForMaskedLM(t.ErnieConfig(**settings()))
        table = model.ernie.embeddings.word_embeddings

    def owners():
        return [n for n, layer in model.named_sublayers() if any(p is table.weight for p in layer._parameters.values())]

    tied = owners()
    assert len(tied) > 1, "the decoder's weight is the table"
    before = table.weight.numpy()
    labels = ids(seed=5)
    with trained(model, level, dtype) as (step, optimizer, session):
        for _ in range(3):
            step(lambda m: m(ids(), labels=labels)[0])
            optimizer.step()
            optimizer.clear_grad()
        assert session.updates == 3
        assert owners() == tied
        masters = getattr(optimizer, "_master_weights", {})
        assert level == "O1" or short(table.weight.dtype) == dtype
        assert level == "O1" or table.weight.name in masters
        with autocast.float32_weights(model, optimizer):
            saved = {k: v.numpy() for k, v in model.state_dict().items() if list(v.shape) == list(before.shape)}
    assert saved and not np.array_equal(before, next(iter(saved.values())))
    assert all(np.array_equal(next(iter(saved.values())), v) for v in saved.values())


@pytest.mark.parametrize("level, dtype", SETTINGS)
def test_what_adamw_does_not_decay(tmp_path, level, dtype):
    """The Trainer's exemptions (biases, norms) go by parameters' names; decorating keeps those."""
    from paddle_amp_plugin.hosts import paddlenlp

    rate, decay = 1e-2, 0.5
    after = {}
    with tiny_nlp.patched(paddlenlp):
        for weight_decay in (0.0, decay):
            made = tiny_nlp.trainer(
                tmp_path,
                amp={"level": level, "dtype": dtype},
                max_steps=1,
                learning_rate=rate,
                weight_decay=weight_decay,
            )
            before = tiny_nlp.weights(made.model)
            made.train()
            after[weight_decay] = tiny_nlp.weights(made.model)
    exempt = {n for n in before if "bias" in n or "norm" in n}
    assert exempt and exempt != before.keys()
    for name, plain in after[0.0].items():
        shift = plain - after[decay][name]
        expected = np.zeros_like(plain) if name in exempt else rate * decay * before[name]
        np.testing.assert_allclose(shift, expected, atol=2e-7, err_msg=name)
