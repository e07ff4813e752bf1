"""Every code: its planted defect is found at the right place, and the corrected code is not reported."""

from __future__ import annotations

import json

import pytest

from paddle_amp_plugin.lint import RULES
from paddle_amp_plugin.lint.findings import Text
from tests.lint.helpers import found, in_forward, names, places

#: Where the defect of a rule's own example stands: line and column, counted from 1, by hand.
PLACES = {
    "AMP101": (5, 18),
    "AMP102": (6, 20),
    "AMP103": (4, 7),
    "AMP104": (5, 18),
    "AMP105": (5, 20),
    "AMP106": (5, 18),
    "AMP107": (6, 22),
    "AMP110": (6, 50),
    "AMP111": (5, 51),
    "AMP120": (7, 16),
    "AMP121": (6, 16),
    "AMP122": (5, 47),
    "AMP130": (12, 9),
    "AMP131": (12, 9),
    "AMP132": (14, 9),
    "AMP133": (14, 9),
    "AMP134": (14, 9),
    "AMP135": (14, 9),
    "AMP136": (12, 9),
    "AMP137": (11, 9),
}


def test_every_rule_has_a_place():
    assert set(PLACES) == set(RULES) and list(RULES) == sorted(RULES)


@pytest.mark.parametrize("code", RULES)
def test_planted_defect(code):
    assert places(RULES[code].bad) == [(code, *PLACES[code])]


@pytest.mark.parametrize("code", RULES)
def test_corrected_code(code):
    assert places(RULES[code].good) == []


@pytest.mark.parametrize("code", RULES)
def test_words(code, monkeypatch):
    """Both languages say something, and not the same; a fix is suggested."""
    rule = RULES[code]
    for text in (rule.title, rule.why, rule.instead):
        assert isinstance(text, Text) and text.en and text.zh
        assert any("\u4e00" <= c <= "\u9fff" for c in text.zh) or text.en == text.zh or "`" in text.zh
    english = found(rule.bad)[0]
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    chinese = found(rule.bad)[0]
    assert english.fix and chinese.fix and english.message != chinese.message
    assert "{" not in json.dumps([english.message, english.fix, chinese.message, chinese.fix])


@pytest.mark.parametrize(
    "line",
    [
        "return x.astype('float16')",
        "return x.astype(dtype=paddle.bfloat16)",
        "return paddle.cast(x, dtype='float16')",
        "return x.cast('bfloat16')",
        "return x.bfloat16()",
        "return x.to('float16')",
        "return x.to('gpu:0', 'float16')",
        "return self.linear(x).astype(HALF)",
    ],
)
def test_casts(line):
    (finding,) = found("HALF = 'float16'\n" + in_forward(line))
    assert finding.code in ("AMP101", "AMP102", "AMP103", "AMP104") and finding.severity == "warning"


@pytest.mark.parametrize(
    "line",
    [
        "return x.astype('float32')",
        "return x.astype(y.dtype)",
        "return x.to(dtype=y.dtype)",
        "return x.to('gpu:0')",
        "return x.half",
        "return y.astype('float16') if x.dtype == paddle.float16 else y",
        "return flash_attention(x.astype('bfloat16'), y)",
        "return x.numpy().astype('float16')",
    ],
)
def test_casts_that_are_right(line):
    assert names(in_forward(line)) == []


def test_a_cast_after_a_question_for_the_dtype():
    body = ["if x.dtype == paddle.float16:", "    y = y.astype('float16')", "else:", "    y = y + 1", "return x + y"]
    assert names(in_forward(*body)) == []
    assert names(in_forward(*[line.replace("x.dtype == paddle.float16", "mask is None") for line in body])) == [
        "AMP101"
    ]


def test_casts_outside_of_models():
    """In code for exports and weights a half dtype is a choice; in a Layer made for inference it is a note."""
    code = "import paddle\ndef {name}(x):\n    return x.astype('float16')\n"
    assert names(code.format(name="train_batch")) == ["AMP101"]
    assert names(code.format(name="export_model")) == [] and names(code.format(name="merge_lora")) == []
    assert names(code.format(name="train_batch"), "tools/export_model.py") == []
    (finding,) = found(in_forward("return x.astype('float16')"), "deploy/net.py")
    assert finding.severity == "note"


def test_a_pylayer_decides_for_itself():
    code = in_forward("return x.astype('float16') + paddle.ones([1], 'float16')")
    assert names(code.replace("nn.Layer", "paddle.autograd.PyLayer")) == []


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (["return x + paddle.zeros([4], dtype='float32')"], ["AMP106"]),
        (["return paddle.concat([x, paddle.zeros([4])])"], ["AMP106"]),
        (["h = paddle.zeros([4])", "return self.cell(x, h)"], ["AMP106"]),
        (["h = paddle.zeros([4])", "return self.linear(x), h"], []),
        (["return x + paddle.zeros([4], dtype=x.dtype)"], []),
        (["return x + paddle.zeros_like(x)"], []),
        (["return paddle.arange(0, 4, dtype='float32') / 10000"], []),
        (["return x.shape[0] * paddle.ones([4])"], []),
        (["return x.astype('float32') + paddle.ones([4])"], []),
        (["with paddle.amp.auto_cast(enable=False):", "    return x + paddle.ones([4])"], []),
        (["return paddle.full([4], 0.5, 'bfloat16')"], ["AMP105"]),
    ],
)
def test_constants(lines, codes):
    assert names(in_forward(*lines)) == codes


def test_constants_only_where_forward_comes_by():
    """``forward``, the methods and functions that it calls; not ``__init__`` and not what nobody calls."""
    code = """
    import paddle

    def helper(x):
        return x + paddle.ones([4])

    def other(x):
        return x + paddle.ones([4])

    class Model(paddle.nn.Layer):
        def __init__(self, x):
            self.start = x + paddle.ones([4])

        def forward(self, x):
            return self.inner(x)

        def inner(self, x):
            return helper(x) * paddle.ones([4])

        def unused(self, x):
            return x * paddle.ones([4])
    """
    assert places(code) == [("AMP106", 5, 16), ("AMP106", 18, 28)]


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (["return x.masked_fill(mask, -1e9)"], ["AMP110"]),
        (["return paddle.where(mask, x, -1e9)"], ["AMP110"]),
        (["low = paddle.to_tensor(-1e4)", "return paddle.where(mask, x, low)"], ["AMP111"]),
        (["x[mask == 0] = -1e9", "return x"], ["AMP110"]),
        (["return x - 1e9 * mask"], ["AMP110"]),
        (["x -= (1 - mask) * 1e9", "return x"], ["AMP110"]),
        (["return x + (mask - 1.0) * 1e9"], ["AMP110"]),
        (["return x + (mask - 1.0) * INF"], ["AMP110"]),
        (["return x + (mask - 1.0) * self.low"], ["AMP110"]),
        (["attn_mask = paddle.full([4], paddle.finfo(paddle.float32).min)", "return x + attn_mask"], ["AMP110"]),
        (["attn_mask = (1 - mask) * -65504.0", "return x + attn_mask"], ["AMP111"]),
        (["attn_mask = (1 - mask) * -65505.0", "return x + attn_mask"], ["AMP110"]),
        (["return x.masked_fill(mask, float('-inf'))"], []),
        (["return x.masked_fill(mask, paddle.finfo(x.dtype).min)"], []),
        (["return x.masked_fill(mask, -100.0)"], []),
        (["seconds = x * 1e9", "return seconds"], []),
        (["return x.masked_fill(mask, 0)"], []),
    ],
)
def test_masks(lines, codes):
    code = in_forward(*lines).replace("    def forward", "    low = 1e6\n    def forward")
    assert names("INF = 1e9\n" + code) == codes


def test_a_mask_of_numpy_is_data():
    assert names("import numpy as np\n" + in_forward("return np.ones([4, 4]) * -1e9 * (1 - np.eye(4))")) == []


def test_logits_of_a_generator_are_no_mask():
    code = in_forward("mask[:, 0] = -1e9", "return mask")
    assert names(code) == ["AMP110"]
    assert names(code.replace("forward", "adjust_logits_during_generation")) == []


@pytest.mark.parametrize(
    ("lines", "fix"),
    [
        (["return F.binary_cross_entropy(F.sigmoid(x), y)"], "`F.binary_cross_entropy_with_logits(x, y)`"),
        (["return F.binary_cross_entropy(x.sigmoid(), y)"], "`F.binary_cross_entropy_with_logits(x, y)`"),
        (["return F.binary_cross_entropy(input=nn.functional.sigmoid(x), label=y)"], "_with_logits(x, label=y)`"),
        (["p = self.act(x)", "return F.binary_cross_entropy(p, y)"], "`F.binary_cross_entropy_with_logits(x, y)`"),
        (["return F.binary_cross_entropy(x, y)"], "without the sigmoid"),
        (["return nn.BCELoss()(x, y)"], "BCEWithLogitsLoss"),
    ],
)
def test_bce(lines, fix):
    code = in_forward(*lines).replace(
        "    def forward", "    def __init__(self):\n        self.act = nn.Sigmoid()\n    def forward"
    )
    (finding,) = found(code)
    assert finding.code == "AMP120" and fix in finding.fix


def test_bce_in_fp32():
    assert names(in_forward("return F.binary_cross_entropy(F.sigmoid(x.astype('float32')), y)")) == []
    # in half the probability is 1 before it is cast
    assert names(in_forward("return F.binary_cross_entropy(F.sigmoid(x).astype('float32'), y)")) == ["AMP120"]


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("return F.softmax(x).log()", ["AMP121"]),
        ("return paddle.log(x.softmax())", ["AMP121"]),
        ("return paddle.log(F.sigmoid(x))", ["AMP121"]),
        ("return paddle.log(F.softmax(x.astype('float32')))", []),
        ("return F.log_softmax(x)", []),
        ("return paddle.log(x)", []),
        ("return x / (y + 1e-8)", ["AMP122"]),
        ("return paddle.sqrt(x.sum() + 1e-12)", ["AMP122"]),
        ("return (x.sum() + 1e-12).sqrt()", ["AMP122"]),
        ("return x / y.clip(min=1e-12)", ["AMP122"]),
        ("return paddle.log(paddle.clip(x, 1e-10))", ["AMP122"]),
        ("return x / (y + 2.9802322387695312e-08)", ["AMP122"]),  # 2**-25 is a tie and goes to 0
        ("return x / (y + 2.98023224e-08)", []),
        ("return x / (y.astype('float32') + 1e-8)", []),
        ("return x / (mask.sum() + 1e-8)", []),
        ("return x + 1e-8", []),
    ],
)
def test_log_and_epsilon(line, codes):
    assert names(in_forward(line)) == codes
