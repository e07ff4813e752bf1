"""``accumulate_steps`` and ``ema`` in PaddleOCR's own loop: what is counted, scheduled, evaluated, saved."""

from __future__ import annotations

import re

import paddle
import pytest

from paddle_amp_plugin.monitor import read_events
from tests.checkpoint import ocr
from tests.hosts import tiny

DECAY = 0.6


def document(data, output, batch, **amp):
    """12 updates an epoch's worth of schedule: warm-up, then cosine; an evaluation every second update."""
    made = tiny.config(data, output, epochs=2, amp={"dtype": "float16", **amp})
    made["Global"].update(eval_batch_step=[0, 2], print_batch_step=1)
    made["Optimizer"]["lr"] = {"name": "Cosine", "learning_rate": 0.002, "warmup_epoch": 1}
    made["Train"]["loader"]["batch_size_per_card"] = batch
    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Batches of 16, and twice 8 accumulated: the same lines of text in the same order."""
    root = tmp_path_factory.mktemp("windows")
    data = root / "data"
    tiny.make_data(data)
    jobs = []
    for name, batch, amp in (("big", 16, {}), ("window", 8, {"accumulate_steps": 2, "ema": {"decay": DECAY}})):
        jobs.append([str(tiny.write(root / f"{name}.yml", document(data, root / name, batch, **amp)))])
    done = ocr.many(jobs, root)
    assert [one.code for one in done] == ["0", "0"], done[-1].text[-3000:]
    return root, *done


def steps_of(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"global_step: (\d+), ", text)]


def test_it_counts_schedules_and_evaluates_as_with_the_big_batch(both) -> None:
    root, big, window = both
    one, other = (read_events(root / name / "amp" / "events.jsonl") for name in ("big", "window"))
    assert [e.step for e in one] == [e.step for e in other] == [1, 2, 3, 4, 5, 6]
    assert [e.lr for e in one] == [e.lr for e in other] and len({e.lr for e in one}) > 3
    assert [e.samples for e in one] == [e.samples for e in other] == [16] * 6
    assert steps_of(big.text) == steps_of(window.text) == [1, 2, 3, 4, 5, 6]
    evaluations = [len(re.findall("cur metric, ", text)) for text in (big.text, window.text)]
    assert evaluations == [3, 3]
    for a, b in zip(one, other, strict=True):  # BatchNorm sees 8 lines in place of 16
        assert b.loss == pytest.approx(a.loss, rel=0.2)
    assert "accumulate_steps" in window.text and "ema.decay" in window.text and "6 steps, 6 updates" in window.text


def test_the_average_is_what_is_evaluated_and_what_is_offered(both) -> None:
    """``best_accuracy_ema`` by itself gives the metric that made it the best."""
    root, _, window = both
    path = root / "window" / "best_accuracy_ema"
    average, masters = (paddle.load(f"{p}.pdparams", return_numpy=True) for p in (path, str(path)[: -len("_ema")]))
    assert average.keys() == masters.keys() and any((average[name] != masters[name]).any() for name in average)
    commands = window.text[window.text.index("What to do next") :]
    assert commands.count(f"Global.pretrained_model={path}") == 3
    metrics = [line for line in window.text.splitlines() if "cur metric, " in line]
    epoch = re.findall(r"best metric, .*norm_edit_dis: ([\d.]+)", window.text)[-1]
    assert any(f"norm_edit_dis: {epoch}" in line for line in metrics)
    options = ["-o", f"Global.pretrained_model={path}"]
    done = tiny.tool("eval", "-c", str(root / "window.yml"), *options, cwd=root)
    assert done.returncode == 0 and f"norm_edit_dis:{epoch}" in done.stdout.replace(" ", ""), done.stdout[-2000:]
