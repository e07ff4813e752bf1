"""A config taken apart gives what its host would train: the same classes, calls, batches, losses and updates."""

from __future__ import annotations

import itertools
import re

import numpy as np
import paddle
import pytest
import yaml

from paddle_amp_plugin.config_overrides import texts_of
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.workloads import open_workload, plan_for
from tests.hosts import tiny
from tests.nlp import tiny as tiny_nlp
from tests.workloads import configs

#: 36 characters; CTC adds the blank, SAR three of its own (host: ``tools/train.py``).
CTC, SAR = 37, 39


def arrays(batch) -> list[np.ndarray]:
    return [t.numpy() for t in (batch.values() if isinstance(batch, dict) else batch)]


def head(work, batches: int) -> list[list[np.ndarray]]:
    stream = work.train_batches()
    found = [arrays(batch) for batch in itertools.islice(stream, batches)]
    stream.close()
    return found


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("kind", "family", "extra_input", "shape"),
    [
        ("crnn", "rec/CRNN", False, [3, 3, 32, 100]),
        ("multi_head", "rec/SVTR_LCNet", True, [3, 3, 48, 96]),
        ("distillation", "rec/Distillation", False, [3, 3, 32, 100]),
        ("det_v3_student", "det/DB", False, [3, 3, 160, 160]),
        ("cls", "cls/CLS", False, [3, 3, 48, 192]),
    ],
)
def test_a_config_without_its_data(kind, family, extra_input, shape, tmp_path):
    path = configs.write(tmp_path, configs.KINDS[kind](tmp_path))
    with open_workload(path) as work:
        assert (work.name, work.family, work.host, work.seed) == ("c", family, "paddleocr", 11)
        assert work.settings is None and plan_for(work).enabled
        assert work.missing is not None and work.missing.code == "AMP047"
        with pytest.raises(AmpError, match="nowhere"):
            next(work.train_batches())
        assert work._builder.called.extra_input is extra_input
        model, other = work.build_model(), work.build_model()
        assert same([p.numpy() for p in model.state_dict().values()], [p.numpy() for p in other.state_dict().values()])
        batch = work.synthetic_batch(3)
        assert batch[0].shape == shape and work.samples(batch) == 3
        optimizer, schedule = work.build_optimizer(model)
        loss = work.loss(model, batch)
        assert loss.size == 1 and np.isfinite(float(loss))
        assert schedule is not None and optimizer.get_lr() == 0.0  # the first step of a warm-up
    assert not (tmp_path / "out").exists()


def test_classes_come_from_the_dictionary(tmp_path):
    path = configs.write(tmp_path, configs.crnn(tmp_path))
    with open_workload(path) as work:
        assert work.build_model().head.fc.weight.shape[1] == CTC
    path = configs.write(tmp_path, configs.multi_head(tmp_path))
    with open_workload(path) as work:
        model = work.build_model()
        assert model.head.ctc_head.fc.weight.shape[1] == CTC
        assert model.head.sar_head.decoder.embedding.weight.shape[0] == SAR


def test_synthetic_batches_are_the_same_at_every_call(tmp_path):
    """Cropping at random draws from NumPy's generator in a thread of the loader."""
    path = configs.write(tmp_path, configs.det_v3_student(tmp_path))
    with open_workload(path, synthetic=True) as work:
        first, second = head(work, 3), head(work, 3)
    assert all(same(a, b) for a, b in zip(first, second, strict=True))
    assert not same(first[0], first[1])
    with open_workload(path, {"Global.seed": 12}, synthetic=True) as work:
        assert not same(head(work, 1)[0], first[0])


def test_it_trains_as_the_host_does(tmp_path):
    """The first losses of ``tools/train.py`` itself, FP32, against the same steps made by hand."""
    tiny.make_data(tmp_path)
    document = tiny.config(tmp_path, tmp_path / "out", epochs=1, amp=False)
    document["Global"].update(print_batch_step=1, log_smooth_window=1, cal_metric_during_train=False)
    if paddle.__version__.startswith("2."):  # there a generator's state cannot be read without starting it anew
        document["Architecture"]["Backbone"]["last_drop"] = 0.0
    document["Optimizer"]["lr"] = {"name": "Cosine", "learning_rate": 0.01, "warmup_epoch": 1}
    path = tiny.write(tmp_path / "c.yml", document)
    result = tiny.tool("train", "-c", str(path), cwd=tmp_path)
    written = sorted(p.name for p in (tmp_path / "out").iterdir())
    told = [float(x) for x in re.findall(r"global_step: \d+,.*? loss: ([0-9.]+)", result.stdout)]
    assert len(told) == 6, result.stdout[-2000:]
    losses = []
    with open_workload(path) as work:
        assert work.missing is None and (work.batch_size, work.steps_per_epoch) == (8, 6)
        model = work.build_model()
        optimizer, schedule = work.build_optimizer(model)
        for batch in itertools.islice(work.train_batches(), 6):
            loss = work.loss(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()
            losses.append(float(loss))
        metric = work.evaluate(model)
    assert losses == pytest.approx(told, abs=2e-4)
    shown = re.search(r"cur metric, acc: ([0-9.e-]+), norm_edit_dis: ([0-9.e-]+)", result.stdout)
    assert metric["norm_edit_dis"] == pytest.approx(float(shown.group(2)), abs=1e-3)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == written


def test_amp_keys_are_read_and_overridden(tmp_path):
    path = configs.write(tmp_path, {**configs.crnn(tmp_path), "amp": "O2"})
    with open_workload(path, {"amp.dtype": "bfloat16"}) as work:
        plan = plan_for(work)
        assert (plan.level, plan.dtype) == ("O2", "bfloat16")
        assert plan_for(work, "O1").level == "O1"


def test_options_reach_the_host_as_what_they_are():
    values = {"a": 1e-5, "b": 1e30, "c": "text", "d": [1, "x"], "e": None, "f": True, "g": {"h": 0.5}, "i": "123"}
    assert {t.partition("=")[0]: yaml.safe_load(t.partition("=")[2]) for t in texts_of(values)} == values


def test_what_cannot_be_made_up_is_said(tmp_path):
    document = configs.crnn(tmp_path)
    path = configs.write(tmp_path, document)
    with open_workload(path) as work:
        work.config["Architecture"]["model_type"] = "kie"
        with pytest.raises(AmpError) as caught:
            work.synthetic_batch()
    assert caught.value.code == "AMP261"


@pytest.mark.parametrize(
    "task", ["sequence_classification", "sentence_pair", "token_classification", "question_answering", "masked_lm"]
)
def test_a_recipe(task, tmp_path):
    pytest.importorskip("paddlenlp")
    path = tiny_nlp.write(tmp_path / "r.yml", tiny_nlp.recipe(tmp_path, task))
    with open_workload(path, {"trainer.seed": 5}) as work:
        assert (work.family, work.host, work.seed, work.batch_size) == (f"nlp/{task}", "paddlenlp", 5, 16)
        model, other = work.build_model(), work.build_model()
        assert same([p.numpy() for p in model.parameters()], [p.numpy() for p in other.parameters()])
        first, second = head(work, 2), head(work, 2)
        assert all(same(a, b) for a, b in zip(first, second, strict=True))
        batch = work.synthetic_batch(3)
        assert work.samples(batch) == 3 and all(t.dtype == paddle.int64 for t in batch.values())
        assert np.isfinite(float(work.loss(model, batch)))
        assert work.evaluate(model)
    assert not (tmp_path / "out").exists()


def test_a_recipe_trains_as_the_host_does(tmp_path):
    pytest.importorskip("paddlenlp")
    from paddle_amp_plugin.nlp.run import train

    document = tiny_nlp.recipe(tmp_path, "sequence_classification", steps=4, trainer={"logging_steps": 1, "seed": 3})
    path = tiny_nlp.write(tmp_path / "r.yml", document)
    told: list[float] = []

    import paddlenlp.trainer as host

    class Listening(host.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            told.extend([logs["loss"]] if "loss" in (logs or {}) else [])

    from paddle_amp_plugin.nlp import trainer as ours

    build, kept = ours.build, []

    def building(*args, **kwargs):
        kept.append(build(*args, **kwargs))
        kept[-1].add_callback(Listening())
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours, "build", building)
        train(tiny_nlp.read(tmp_path, "sequence_classification", steps=4, trainer={"logging_steps": 1, "seed": 3}))
    losses = []
    with open_workload(path) as work:
        model = work.build_model()
        optimizer, schedule = work.build_optimizer(model)
        for batch in itertools.islice(work.train_batches(), 4):
            loss = work.loss(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()
            losses.append(float(loss))
    assert losses == pytest.approx(told, abs=2e-4)
