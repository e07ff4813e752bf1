"""N steps, a stop, N more steps with PaddleNLP's Trainer: to the bit what 2N steps give."""

from __future__ import annotations

import json
import shutil

import numpy as np
import paddle
import pytest

from paddle_amp_plugin import pdamp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts import paddlenlp
from paddle_amp_plugin.monitor import read_events
from tests.hosts import tiny_nlp
from tests.hosts.tiny_nlp import needs_paddlenlp, same, trainer, weights

pytestmark = needs_paddlenlp
#: With dropout, so that the random state counts; clipped; a batch that overflows before the cut and one after it.
OPTIONS = {
    "save_strategy": "steps",
    "save_steps": 5,
    "lr_scheduler_type": "linear",
    "warmup_steps": 3,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "max_steps": 14,
}


@pytest.fixture(autouse=True)
def controller():
    with tiny_nlp.patched(paddlenlp) as controller:
        yield controller


class Overflowing:
    """A criterion whose gradients leave float16 in some batches: those with the words that ``rare`` names."""

    def __init__(self, every):
        self.every, self.calls = every, 0

    def __call__(self, logits, labels):
        self.calls += 1
        loss = paddle.nn.functional.cross_entropy(logits, labels)
        return loss * 1e6 if self.calls in self.every else loss


def run(folder, *, skips=(), resume=None, cls=None, **changes):
    """One training as in a process of its own; ``skips``: the calls of the loss that overflow."""
    with paddle.utils.unique_name.guard():
        own = {"criterion": Overflowing(skips)}
        made = trainer(folder, tiny_nlp.bert(dropout=0.1), cls=cls, **{**OPTIONS, **own, **changes})
        made.train(resume_from_checkpoint=resume)
    return made


def state(made):
    session = made._paddle_amp_run.session
    return session.steps, session.skips, session.scaler.loss_scale.state_dict(), made.lr_scheduler.state_dict()


CASES = [
    ({"level": "O1", "dtype": "float16", "incr_every_n_steps": 4}, 1, 5),
    ({"level": "O2", "dtype": "float16", "incr_every_n_steps": 4}, 2, 5),
    ({"level": "O2", "dtype": "float16", "incr_every_n_steps": 4}, 1, 8),  # 8 batches: the end of an epoch
    ({"level": "O1", "dtype": "bfloat16"}, 2, 4),  # 4 steps of 2: the end of an epoch
    ({"level": "O2", "dtype": "bfloat16"}, 1, 5),
]


@pytest.mark.parametrize(("amp", "accumulate", "cut"), CASES)
def test_to_the_bit(tmp_path, amp, accumulate, cut):
    """The overflowing calls lie just before the cut and just after it."""
    half = amp["dtype"] == "float16"
    before, after = cut * accumulate, cut * accumulate + 2 * accumulate
    options = {"amp": amp, "gradient_accumulation_steps": accumulate, "save_steps": cut}
    whole = run(tmp_path / "a", skips=(before, after) if half else (), **options)
    checkpoint = tmp_path / "a" / f"checkpoint-{cut}"
    resumed = run(tmp_path / "b", skips=(after - before,) if half else (), resume=str(checkpoint), **options)
    assert same(weights(whole.model), weights(resumed.model))
    assert state(whole) == state(resumed) and state(whole)[0] == 14 and state(whole)[1] == (2 if half else 0)
    moments, found = (made.optimizer.state_dict() for made in (whole, resumed))
    compared = [name for name, value in moments.items() if isinstance(value, paddle.Tensor)]
    assert len(compared) > 50
    for name in compared:
        assert np.array_equal(moments[name].numpy(), found[name].numpy()), name
    steps = [event.step for event in read_events(tmp_path / "b" / "amp" / "events.jsonl")]
    assert steps == list(range(cut + 1, 15))
    saved = pdamp.read(checkpoint / "amp.pdamp")
    assert saved.step == cut and saved.updates == cut - half and saved.level == amp["level"]
    assert {"model_state.pdparams", "optimizer.pdopt"} <= {entry.name for entry in saved.files}
    assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == cut


def test_alone_the_host_goes_on_with_another_order_after_the_first_epoch(tmp_path):
    def of(plugin):
        more = {"amp": {"level": "O1", "dtype": "bfloat16"}} if plugin else {}
        more |= {"save_steps": 10, "criterion": None, "loss_inside": True}
        folder = tmp_path / str(plugin)
        whole = run(folder / "a", **more)
        resumed = run(folder / "b", resume=str(folder / "a" / "checkpoint-10"), **more)
        return same(weights(whole.model), weights(resumed.model))

    assert of(True)
    paddlenlp.unpatch()
    assert not of(False)


def test_a_collator_that_draws(tmp_path):
    """Masked language modelling draws in the collator: the draws of an epoch are those of the unbroken run."""

    class Drawing(tiny_nlp.Words):
        def __getitem__(self, index):
            item = super().__getitem__(index)
            drawn = np.random.randint(3, tiny_nlp.VOCABULARY)
            return {**item, "input_ids": np.concatenate([item["input_ids"][:-1], [drawn]]).astype("int64")}

    options = {"amp": {"dtype": "float16"}, "train_dataset": Drawing()}
    whole = run(tmp_path / "a", **options)
    resumed = run(tmp_path / "b", resume=str(tmp_path / "a" / "checkpoint-5"), **options)
    assert same(weights(whole.model), weights(resumed.model))


def test_the_last_checkpoint_by_true_and_one_a_kill_caught_in_the_moving(tmp_path):
    """A set that is ready but not all in its place yet is finished before the host looks."""
    amp = {"dtype": "float16"}
    whole = run(tmp_path, amp=amp)
    ready = tmp_path / ".checkpoint-10.ready" / "checkpoint-10"
    ready.mkdir(parents=True)
    for name in ("optimizer.pdopt", "amp.pdamp"):
        shutil.move(tmp_path / "checkpoint-10" / name, ready / name)
    resumed = run(tmp_path, amp=amp, resume=True)
    assert same(weights(whole.model), weights(resumed.model)) and not ready.exists()
    assert not list(tmp_path.glob(".checkpoint-*"))


def test_a_damaged_file_is_named_and_the_last_good_checkpoint_offered(tmp_path):
    run(tmp_path, amp={"dtype": "float16"})
    broken = tmp_path / "checkpoint-10" / "model_state.pdparams"
    broken.write_bytes(broken.read_bytes()[:-100])
    with pytest.raises(AmpError) as caught:
        run(tmp_path, amp={"dtype": "float16"}, resume=str(tmp_path / "checkpoint-10"))
    assert caught.value.code == "AMP090" and "model_state.pdparams" in str(caught.value)
    assert str(tmp_path / "checkpoint-5") in caught.value.hint


def test_the_best_model_is_known_by_its_real_folder(tmp_path):
    made = run(
        tmp_path,
        amp={"dtype": "float16"},
        save_total_limit=2,
        save_steps=2,
        eval_steps=2,
        evaluation_strategy="steps",
        metric_for_best_model="acc",
        load_best_model_at_end=True,
    )
    folders = sorted(path.name for path in tmp_path.glob("*checkpoint-*"))
    assert "checkpoint-14" in folders and not any(name.startswith(".") for name in folders)
    best = made.state.best_model_checkpoint
    assert best.startswith(str(tmp_path / "checkpoint-")) and best.rpartition("/")[2] in folders
    known = json.loads((tmp_path / "checkpoint-14" / "trainer_state.json").read_text())["best_model_checkpoint"]
    assert known == best


def test_pins_of_a_healing_come_back(tmp_path):
    def sick():
        model = tiny_nlp.bert()
        layer = model.bert.encoder.layers[1].linear2
        layer.weight.set_value(layer.weight * 2.0e6)
        return model

    options = {**OPTIONS, "amp": {"dtype": "float16"}, "max_steps": 10}
    with paddle.utils.unique_name.guard():
        first = trainer(tmp_path / "a", sick(), **options)
        first.train()
    pins = first._paddle_amp_run.session.plan.fp32_layers
    assert pins
    with paddle.utils.unique_name.guard():
        again = trainer(tmp_path / "b", sick(), **{**options, "max_steps": 14})
        again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-10"))
    session = again._paddle_amp_run.session
    assert session.plan.fp32_layers == pins and session.skips == 4 and session.steps == 14
