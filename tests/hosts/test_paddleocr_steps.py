"""The host's step counter counts updates: its loop's own arithmetic, with skips in between."""

import json
import pickle

from paddle_amp_plugin.hosts.paddleocr_steps import StartFacts, UpdateCount


def loop(skips, start=0, *, print_every=3, evaluate=(0, 4)):
    """What PaddleOCR's loop does with its counter (``tools/program.py``, ``train``)."""
    now = {"skipped": False}
    best = {"acc": 0}
    pre = StartFacts({"acc": 0.5, "start_epoch": 2, "global_step": start}, lambda: now["skipped"])
    global_step = 0
    if "global_step" in pre:
        global_step = pre["global_step"]
    best.update(pre)
    printed, evaluated = [], []
    for skipped in skips:
        now["skipped"] = skipped
        global_step += 1
        if global_step > 0 and global_step % print_every == 0:
            printed.append(int(global_step))
        if global_step > evaluate[0] and (global_step - evaluate[0]) % evaluate[1] == 0:
            evaluated.append(int(global_step))
    return global_step, printed, evaluated, best


def test_without_skips_it_is_an_int() -> None:
    step, printed, evaluated, best = loop([False] * 9)
    assert (step, printed, evaluated) == (9, [3, 6, 9], [4, 8]) and best == {"acc": 0.5, "start_epoch": 2}


def test_skips_are_not_counted_and_nothing_is_done_twice() -> None:
    skips = [False] * 4 + [True] * 5 + [False, True, False]
    assert loop(skips)[:3] == (6, [3, 6], [4])


def test_it_goes_on_where_the_checkpoint_was() -> None:
    assert loop([False, True, False], start=7)[:3] == (9, [9], [8])


def test_offset_evaluations() -> None:
    assert loop([False] * 3 + [True] * 3 + [False] * 3, evaluate=(2, 2))[2] == [4, 6]


def test_a_file_holds_a_plain_number() -> None:
    step = UpdateCount(3, lambda: False) + 1
    assert type(pickle.loads(pickle.dumps(step, protocol=2))) is int and json.dumps(step) == "4" and f"{step}" == "4"
