"""AMP110 and AMP111: attention masks made of a large number."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from paddle_amp_plugin.lint.findings import Hit, Rule, Severity, Text, written
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.names import FUNCTIONS
from paddle_amp_plugin.lint.values import argument
from paddle_amp_plugin.messages import tr

#: The largest finite float16 (IEEE 754 binary16): (2 - 2**-10) * 2**15.
FLOAT16_MAX = 65504.0
#: From here on a number in a mask is there to switch something off.
_MASKING = 1e4

BEYOND = Rule(
    "AMP110",
    "warning",
    Text("a mask value beyond float16", "掩码数值超出 float16 范围"),
    Text(
        "In float16 everything beyond 65504 is inf, so -1e9 is -inf. A row of scores in which everything is masked is "
        "then NaN after "
        "softmax, and so is its gradient; in FP32 it was about the average of the row. "
        "`paddle.full_like(x, -1e9)` of a float16 x raises ValueError. bfloat16 holds 1e9.",
        "在 float16 中超过 65504 的数都是 inf，因此 -1e9 即 -inf。若一行得分全部被掩盖，softmax 之后为 NaN，其梯度也是"
        "；在 FP32 中则约为该行的平均值。"
        "x 为 float16 时 `paddle.full_like(x, -1e9)` 抛出 ValueError。bfloat16 可以表示 1e9。",
    ),
    Text(
        "Put the lowest value of the dtype in the place of the score instead of adding to it: "
        "`scores.masked_fill(hidden, paddle.finfo(scores.dtype).min)`. It follows the dtype, and cannot overflow.",
        "不要相加，而是以该 dtype 的最小值替换得分：`scores.masked_fill(hidden, paddle.finfo(scores.dtype).min)`。它跟"
        "随 dtype，不会溢出。",
    ),
    bad="""import paddle
import paddle.nn.functional as F

class Attention(paddle.nn.Layer):
    def forward(self, scores, mask):
        return F.softmax(scores + (1.0 - mask) * -1e9)
""",
    good="""import paddle
import paddle.nn.functional as F

class Attention(paddle.nn.Layer):
    def forward(self, scores, mask):
        return F.softmax(scores.masked_fill(mask == 0, paddle.finfo(scores.dtype).min))
""",
)
NEAR = Rule(
    "AMP111",
    "note",
    Text("a mask value of -1e4", "掩码数值为 -1e4"),
    Text(
        "-1e4 fits float16, and its softmax is 0 beside any ordinary score: it works in most models. It is not -inf: "
        "a row in which "
        "everything is masked becomes about the average of all its positions, padding included, without any sign; and "
        "float16 near "
        "1e4 has steps of 8 (bfloat16 of 64), so the scores of such a row are rounded away. Seven such masks added up "
        "(-7e4) "
        "are -inf.",
        "-1e4 在 float16 范围之内，与普通得分相比其 softmax 为 0：在多数模型中有效。但它不是 -inf：若一行全部被掩盖，"
        "结果约为包括填充在内的"
        "所有位置的平均值，且没有任何提示；float16 在 1e4 附近的间隔为 8（bfloat16 为 64），该行的得分因此被舍入掉。七"
        "个这样的掩码相加"
        "（-7e4）即为 -inf。",
    ),
    BEYOND.instead,
    bad="""import paddle

class Model(paddle.nn.Layer):
    def forward(self, scores, attention_mask):
        attention_mask = (1.0 - attention_mask) * -10000.0
        return scores + attention_mask
""",
    good="""import paddle

class Model(paddle.nn.Layer):
    def forward(self, scores, attention_mask):
        return scores.masked_fill(attention_mask == 0, paddle.finfo(scores.dtype).min)
""",
)
RULES = (BEYOND, NEAR)

_MASKLIKE = re.compile(r"mask|bias|attn|attention|score|logit|pad|excluded|prob|sim|neg", re.IGNORECASE)


def check(module: Module) -> Iterator[Hit]:
    """Numbers in ``masked_fill``, ``where``, ``full``, padding, products and assignments to parts of a tensor."""
    if not module.uses_paddle:
        return
    for call in module.calls:
        value = _filled(module, call)
        if value is not None:
            yield from _judged(module, value, call)
    for product in module.binops:
        value = _multiplied(module, product)
        if value is not None:
            yield from _judged(module, value, product)
    for node in module.names.all(ast.Assign):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            number = module.values.number(node.value)
            holder = node.targets[0].value
            if number is not None and number < 0 and module.in_layer(node) and not module.is_numpy(holder):
                yield from _judged(module, node.value, node)


def _judged(module: Module, value: ast.expr, place: ast.AST) -> Iterator[Hit]:
    number = module.values.number(value)
    if number is None or not math.isfinite(number) or abs(number) < _MASKING:
        return
    if module.by_hand(place) or module.without_autocast(place) or module.generates(place):
        return
    shown = module.code(value)
    if not _is_written_out(value):
        shown += f" = {number:g}"
    fix = "`scores.masked_fill(hidden, paddle.finfo(scores.dtype).min)`"
    if abs(number) > FLOAT16_MAX:
        sign = "-inf" if number < 0 else "inf"
        message = tr("{v} is {i} in float16", "{v} 在 float16 中是 {i}", v=shown, i=sign)
        message += tr("; a row that is masked in full becomes NaN", "；整行被掩盖时结果为 NaN")
        severity: Severity | None = None if module.in_forward(place) and not module.after_training(place) else "note"
        yield Hit(BEYOND, value, message, fix, severity)
    else:
        message = tr(
            "{v} fits float16 but is not -inf: a row that is masked in full becomes an average",
            "{v} 在 float16 范围内但不是 -inf：整行被掩盖时结果为平均值",
            v=shown,
        )
        yield Hit(NEAR, value, message, fix)


def _is_written_out(node: ast.expr) -> bool:
    return not any(isinstance(n, (ast.Name, ast.Attribute)) for n in ast.walk(node))


def _filled(module: Module, call: ast.Call) -> ast.expr | None:
    """The number that a call puts into a tensor."""
    name = module.names.paddle_name(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) and module.names.dotted(call.func) is None else None
    local = call.func.id if isinstance(call.func, ast.Name) and name is None else None
    if name in ("masked_fill", "masked_fill_") or local == "masked_fill":
        return argument(call, 2, "value")
    if method in ("masked_fill", "masked_fill_"):
        return argument(call, 1, "value")
    if name == "where":
        return next((a for a in _arms(module, call) if module.values.number(a) is not None), None)
    if name in ("full", "full_like"):
        value = argument(call, 1, "fill_value")
        number = module.values.number(value)
        return value if number is not None and number < 0 and _is_for_a_mask(module, call) else None
    if name is not None and name.lower().startswith(("pad", "constantpad")):
        value = argument(call, 99, "value")
        number = module.values.number(value)
        return value if number is not None and number < 0 else None
    return None


def _arms(module: Module, call: ast.Call) -> list[ast.expr]:
    """What ``where`` chooses from; ``to_tensor(-1e9)``, or a name for it, counts as its number."""
    arms = []
    for arm in (argument(call, 1, "x"), argument(call, 2, "y")):
        made = None if arm is None else module.values.origin(arm)
        if isinstance(made, ast.Call) and made.args and module.names.paddle_name(made.func) == "to_tensor":
            arms.append(made.args[0])
        elif arm is not None:
            arms.append(arm)
    return arms


def _multiplied(module: Module, product: ast.BinOp) -> ast.expr | None:
    """The number in ``(1 - mask) * -1e9``, ``(mask - 1) * 1e9``, ``scores - 1e9 * mask``."""
    if not isinstance(product.op, ast.Mult) or module.names.function_of(product) is None:
        return None
    for number_side, other in ((product.left, product.right), (product.right, product.left)):
        number = module.values.number(number_side)
        if number is None or module.values.number(other) is not None or abs(number) < _MASKING:
            continue
        if module.is_numpy(other) or not (number < 0 or _is_negative(module, product, other)):
            return None
        return number_side if _looks_like_a_mask(module, product, other) else None
    return None


def _is_negative(module: Module, product: ast.BinOp, other: ast.expr) -> bool:
    """Whether a positive number makes something negative here: ``(m - 1) * c``, ``s - c * m``, ``-m * c``."""
    if isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.USub):
        return True
    if isinstance(other, ast.BinOp) and isinstance(other.op, ast.Sub) and module.values.number(other.right) == 1.0:
        return True
    parent = module.names.parent.get(product)
    if isinstance(parent, ast.AugAssign):
        return isinstance(parent.op, ast.Sub)
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.USub)
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub) and parent.right is product


def _looks_like_a_mask(module: Module, product: ast.BinOp, other: ast.expr) -> bool:
    """By what is multiplied (a comparison, ``1 - m``, a name), or by the name that the statement assigns to."""
    for node in ast.walk(other):
        if isinstance(node, ast.Compare):
            return True
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if _MASKLIKE.search(name):
            return True
    return _is_for_a_mask(module, product) or module.in_forward(product)


def _is_for_a_mask(module: Module, node: ast.AST) -> bool:
    """By the name that the statement assigns to, or the function's."""
    for item in module.names.ancestors(node):
        if isinstance(item, (ast.Assign, ast.AugAssign)):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(_MASKLIKE.search(written(t)) for t in targets):
                return True
        if isinstance(item, FUNCTIONS):
            return "mask" in item.name.lower()
    return False
