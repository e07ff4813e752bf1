"""Training steps: order and branches."""

from __future__ import annotations

import pytest

from tests.lint.helpers import found, in_loop, names, places

SCALED = "scaler.scale(loss).backward()"
STEP = ("scaler.step(optimizer)", "scaler.update()")
CLEAR = "optimizer.clear_grad()"
CLIP = "paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ((SCALED, *STEP, CLEAR), []),
        ((CLEAR, SCALED, *STEP), []),
        (("scaled = scaler.scale(loss)", "scaled.backward()", "scaler.minimize(optimizer, scaled)", CLEAR), []),
        (("scaled = scaler.scale(loss)", "scaled.backward()", "optimizer.minimize(scaled)", CLEAR), ["AMP130"]),
        ((SCALED, "scaler.unscale_(optimizer)", "optimizer.step()", CLEAR), ["AMP130"]),
        (("loss.backward()", "optimizer.step()", CLEAR), []),
        (("loss.backward()", "optimizer.step()"), ["AMP132"]),
        ((SCALED, CLIP, *STEP, CLEAR), ["AMP131"]),
        ((SCALED, CLIP, "scaler.unscale_(optimizer)", *STEP, CLEAR), ["AMP131"]),
        ((SCALED, "scaler.unscale_(optimizer)", CLIP, *STEP, CLEAR), []),
        (("loss.backward()", CLIP, "optimizer.step()", CLEAR), []),
        ((SCALED, *STEP), ["AMP132"]),
        ((SCALED, STEP[0], CLEAR), ["AMP134"]),
        ((SCALED, "scaler.unscale_(optimizer)", "scaler.unscale_(optimizer)", *STEP, CLEAR), ["AMP135"]),
        ((SCALED, STEP[0], "scaler.unscale_(optimizer)", STEP[1], CLEAR), ["AMP135"]),
        ((SCALED, "scaler.unscale_(opt_a)", "scaler.unscale_(opt_b)", *STEP, CLEAR), []),
        ((SCALED, "scaler.minimize(optimizer, scaler.scale(loss))", "scaler.update()", CLEAR), ["AMP133"]),
        ((SCALED, CLEAR, *STEP), ["AMP136"]),
        (("loss.backward()", CLEAR, "optimizer.step()"), ["AMP136"]),
        (("loss.backward()", *STEP, CLEAR), ["AMP137"]),
        (("loss.backward()", "scaler.minimize(optimizer, loss)", CLEAR), ["AMP137"]),
    ],
)
def test_order(lines, codes):
    assert names(in_loop(*lines)) == codes


@pytest.mark.parametrize("test", ["use_amp", "scaler is not None", "scaler", "use_amp is True", "not plain"])
def test_each_branch_is_judged_by_itself(test):
    """PaddleOCR's own loop: with a scaler one way, without the other way."""
    lines = [f"if {test}:", f"    {SCALED}", *(f"    {s}" for s in STEP), "else:", "    loss.backward()"]
    assert names(in_loop(*lines, "    optimizer.step()", CLEAR)) == []
    two = [f"if {test}:", f"    {SCALED}", "else:", "    loss.backward()", f"if {test}:", *(f"    {s}" for s in STEP)]
    assert names(in_loop(*two, "else:", "    optimizer.step()", CLEAR)) == []
    wrong = [f"if {test}:", f"    {SCALED}", "else:", "    loss.backward()", "optimizer.step()", CLEAR]
    assert names(in_loop(*wrong)) == ["AMP130"]


def test_opposite_conditions():
    lines = [
        "if scaler is None:",
        "    loss.backward()",
        "    optimizer.step()",
        "    optimizer.clear_grad()",
        "    continue",
    ]
    assert names(in_loop(*lines, SCALED, *STEP, CLEAR)) == []


def test_accumulation():
    lines = [SCALED, "if (step + 1) % 4 == 0:", *(f"    {s}" for s in STEP), f"    {CLEAR}"]
    assert names(in_loop(*lines)) == []


def test_minimize_on_one_branch_and_step_on_the_other():
    lines = [
        "scaled = scaler.scale(loss)",
        "scaled.backward()",
        "if use_amp:",
        "    scaler.minimize(optimizer, scaled)",
        "else:",
        *(f"    {s}" for s in STEP),
        CLEAR,
    ]
    assert names(in_loop(*lines)) == []


def test_two_optimizers():
    """Each clears its own gradients; one of the other between backward and step is no mistake."""
    lines = [SCALED, "optimizer_d.clear_grad()", *STEP, CLEAR]
    assert names(in_loop(*lines)) == []


def test_scaler_by_what_it_is_made_from():
    code = in_loop("s.scale(loss).backward()", "o.step()", CLEAR, head=("s = paddle.amp.GradScaler()", OPTIMIZER))
    assert places(code) == [("AMP130", 10, 9)]
    assert names(code.replace("paddle.amp.GradScaler", "sklearn.Normalizer")) == []


OPTIMIZER = "o = paddle.optimizer.SGD(parameters=model.parameters())"


def test_the_scheduler_steps_too():
    assert names(in_loop("loss.backward()", "lr_scheduler.step()", "optimizer.step()", CLEAR)) == []


def test_self_scaler_in_methods():
    code = """
    import paddle

    class Trainer:
        def train_step(self, batch):
            self.scaler.scale(self.loss(batch)).backward()
            {step}
            self.optimizer.clear_grad()

        def after(self):
            {update}
    """
    assert names(code.format(step="self.scaler.step(self.optimizer)", update="self.scaler.update()")) == []
    assert names(code.format(step="self.scaler.step(self.optimizer)", update="pass")) == ["AMP134"]
    assert names(code.format(step="self.optimizer.step()", update="pass")) == ["AMP130"]


def test_clearing_in_a_helper():
    code = in_loop("loss.backward()", "optimizer.step()", "forget(optimizer)")
    assert names(code) == ["AMP132"]
    assert names(code + "def forget(optimizer):\n    optimizer.clear_grad()\n") == []
    assert names(code.replace("forget", "clear_gradients_of")) == []


def test_one_step_is_no_loop():
    assert names("import paddle\nloss.backward()\noptimizer.step()\n") == []
    assert names("import paddle\ndef check(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n") == []
    assert names("import paddle\ndef train_step(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n") == [
        "AMP132"
    ]


def test_pytorch_is_not_ours():
    code = in_loop(SCALED, "optimizer.step()", "optimizer.zero_grad()")
    assert names(code) == ["AMP130"] and names(code.replace("import paddle", "import torch")) == []


def test_messages_name_what_is_there():
    (finding,) = found(in_loop(SCALED, "optimizer.step()", CLEAR))
    assert (
        finding.message.startswith("`optimizer` steps") and finding.fix == "`scaler.step(optimizer); scaler.update()`"
    )


def test_match_and_try_and_with():
    lines = [
        "match use_amp:",
        "    case True:",
        f"        {SCALED}",
        *(f"        {s}" for s in STEP),
        "    case False:",
        "        loss.backward()",
        "        optimizer.step()",
        "try:",
        "    pass",
        "finally:",
        f"    {CLEAR}",
    ]
    assert names(in_loop(*lines)) == []
