"""AMP120 to AMP122: losses and quotients that half precision turns into inf."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from paddle_amp_plugin.lint.findings import Hit, Rule, Text
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.values import argument, attribute_of_self
from paddle_amp_plugin.messages import tr

#: At and below this a number is 0 in float16: half of the smallest subnormal, 2**-24 (ties go to even, which is 0).
FLOAT16_ZERO = 2.0**-25

BCE = Rule(
    "AMP120",
    "warning",
    Text("binary cross entropy of probabilities", "对概率计算二元交叉熵"),
    Text(
        "In float16 a sigmoid is exactly 1 from logit 8.32 on (in bfloat16 from 6.24), and exactly 0 below -17.4. "
        "Paddle's "
        "`binary_cross_entropy` then reports at most 100, and its gradient is divided by 1e-12: inf in float16. No "
        "loss scale helps.",
        "在 float16 中，logit 达到 8.32 时 sigmoid 就恰好是 1（bfloat16 为 6.24），低于 -17.4 时恰好是 0。此时 Paddle "
        "的 "
        "`binary_cross_entropy` 最多给出 100，而梯度要除以 1e-12：在 float16 中为 inf。任何损失缩放都无济于事。",
    ),
    Text(
        "`F.binary_cross_entropy_with_logits(logits, label)`, and no sigmoid before it. Where the probability itself "
        "is needed, "
        "compute it in FP32: `F.sigmoid(logits.astype('float32'))`.",
        "`F.binary_cross_entropy_with_logits(logits, label)`，其前不加 sigmoid。若需要概率本身，请以 FP32 计算："
        "`F.sigmoid(logits.astype('float32'))`。",
    ),
    bad="""import paddle.nn.functional as F
from paddle import nn

class Loss(nn.Layer):
    def forward(self, logits, label):
        pred = F.sigmoid(logits)
        return F.binary_cross_entropy(pred, label)
""",
    good="""import paddle.nn.functional as F
from paddle import nn

class Loss(nn.Layer):
    def forward(self, logits, label):
        return F.binary_cross_entropy_with_logits(logits, label)
""",
)
LOG = Rule(
    "AMP121",
    "warning",
    Text("logarithm of a softmax or sigmoid", "对 softmax 或 sigmoid 取对数"),
    Text(
        "In float16 a probability below 3e-8 is 0 and its logarithm -inf; from logit 8.32 on 1 - sigmoid is 0. "
        "Softmax and log compute "
        "in FP32 at O1, but not at O2 with Paddle's own lists; sigmoid is on no list at all.",
        "在 float16 中小于 3e-8 的概率为 0，其对数为 -inf；logit 达到 8.32 时 1 - sigmoid 为 0。softmax 与 log 在 O1 "
        "以 FP32 计算，"
        "在 O2 使用 Paddle 自带名单时则不然；sigmoid 不在任何名单中。",
    ),
    Text("`F.log_softmax(x)`, `F.log_sigmoid(x)`.", "`F.log_softmax(x)`、`F.log_sigmoid(x)`。"),
    bad="""import paddle
import paddle.nn.functional as F

class Loss(paddle.nn.Layer):
    def forward(self, x):
        return paddle.log(F.softmax(x, axis=-1))
""",
    good="""import paddle
import paddle.nn.functional as F

class Loss(paddle.nn.Layer):
    def forward(self, x):
        return F.log_softmax(x, axis=-1)
""",
)
EPSILON = Rule(
    "AMP122",
    "note",
    Text("an epsilon that is 0 in float16", "epsilon 在 float16 中为 0"),
    Text(
        "Everything up to 2**-25 (2.98e-8) is 0 in float16: `x + 1e-10` is x, and the quotient or logarithm that it "
        "should protect is "
        "inf. bfloat16 holds 1e-10.",
        "不超过 2**-25（2.98e-8）的数在 float16 中为 0：`x + 1e-10` 就是 x，它本应保护的商或对数为 inf。bfloat16 可以"
        "表示 1e-10。",
    ),
    Text(
        "Compute in FP32 (`x.astype('float32')`), or take an epsilon of 1e-6 or more.",
        "以 FP32 计算（`x.astype('float32')`），或使用不小于 1e-6 的 epsilon。",
    ),
    bad="""import paddle

class Norm(paddle.nn.Layer):
    def forward(self, x):
        return x / (x.sum(-1, keepdim=True) + 1e-10)
""",
    good="""import paddle

class Norm(paddle.nn.Layer):
    def forward(self, x):
        return x / (x.sum(-1, keepdim=True) + 1e-6)
""",
)
RULES = (BCE, LOG, EPSILON)

_FULL_PRECISION = re.compile(r"(^|_)(masks?|labels?|weights?|gt|valid|count|num)(_|$)", re.IGNORECASE)
_SAVED_BY_EPSILON = frozenset({"log", "sqrt", "rsqrt", "log2", "log10", "reciprocal", "divide"})


def check(module: Module) -> Iterator[Hit]:
    if not module.uses_paddle:
        return
    for call in module.calls:
        found = _bce(module, call) or _log(module, call) or _clip(module, call)
        if found is not None:
            yield found
    for node in module.binops:
        if isinstance(node.op, (ast.Add, ast.Sub)) and module.in_forward(node) and _is_guard(module, node):
            yield from _epsilon(module, node)


def _bce(module: Module, call: ast.Call) -> Hit | None:
    name = module.names.paddle_name(call.func)
    if name == "BCELoss":
        return _said_bce(module, call, None)
    if name != "binary_cross_entropy":
        return None
    value = argument(call, 0, "input")
    logits = None if value is None else _squashed(module, value, "sigmoid")
    if value is None or _is_float32(module, value if logits is None else logits):
        return None
    return _said_bce(module, call, logits)


def _said_bce(module: Module, call: ast.Call, logits: ast.expr | None) -> Hit:
    message = tr(
        "the loss of a probability: in float16 it is exactly 0 or 1 early, and the gradient inf",
        "对概率求损失：在 float16 中概率很早就恰好为 0 或 1，梯度为 inf",
    )
    if logits is None:
        fix = tr(
            "`binary_cross_entropy_with_logits` (`BCEWithLogitsLoss`) of the logits, without the sigmoid",
            "对 logits 使用 `binary_cross_entropy_with_logits`（`BCEWithLogitsLoss`），去掉 sigmoid",
        )
        return Hit(BCE, call, message, fix)
    rest = [module.code(a) for a in call.args[1:]]
    rest += [f"{k.arg}={module.code(k.value)}" for k in call.keywords if k.arg not in (None, "input")]
    fix = "`" + module.code(call.func) + f"_with_logits({', '.join([module.code(logits), *rest])})`"
    return Hit(BCE, call, message, fix)


def _squashed(module: Module, node: ast.expr, function: str) -> ast.expr | None:
    """The ``x`` of ``F.sigmoid(x)``, ``x.sigmoid()`` or ``self.act(x)`` with ``self.act = nn.Sigmoid()``; else None."""
    node = module.values.origin(node)
    if not isinstance(node, ast.Call):
        return None
    if module.names.paddle_name(node.func) == function:
        return argument(node, 0, "x")
    if isinstance(node.func, ast.Attribute) and node.func.attr == function and module.names.dotted(node.func) is None:
        return node.func.value if attribute_of_self(node.func) is None else argument(node, 0, "x")
    name = attribute_of_self(node.func)
    made = None if name is None else module.values.attribute(name, node)
    if isinstance(made, ast.Call) and module.names.paddle_name(made.func) == function.capitalize():
        return argument(node, 0, "x")
    if isinstance(node.func, ast.Attribute) and node.func.attr in (
        "reshape",
        "squeeze",
        "unsqueeze",
        "flatten",
        "astype",
    ):
        return _squashed(module, node.func.value, function)
    return None


def _is_float32(module: Module, node: ast.expr) -> bool:
    """Whether a value is visibly cast to FP32 where it stands."""
    node = module.values.origin(node)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("astype", "cast"):
        position = 1 if module.names.paddle_name(node.func) == "cast" else 0
        return module.values.dtype(argument(node, position, "dtype")) in ("float32", "float64")
    return any(_is_float32(module, a) for a in node.args[:1])


def _log(module: Module, call: ast.Call) -> Hit | None:
    value = argument(call, 0, "x") if module.names.paddle_name(call.func) == "log" else None
    if isinstance(call.func, ast.Attribute) and call.func.attr == "log" and not call.args:
        value = call.func.value
    if value is None:
        return None
    for function in ("softmax", "sigmoid"):
        inner = _squashed(module, value, function)
        if inner is not None and not _is_float32(module, inner):
            message = tr("log of {f}: -inf where {f} is 0", "{f} 的对数：{f} 为 0 处为 -inf", f=f"`{function}`")
            fix = f"`F.log_{function}({module.code(inner)}{_axis(module, value)})`"
            return Hit(LOG, call, message, fix, "note" if module.after_training(call) else None)
    return None


def _axis(module: Module, value: ast.expr) -> str:
    made = module.values.origin(value)
    axes = [k for k in made.keywords if k.arg == "axis"] if isinstance(made, ast.Call) else []
    return f", axis={module.code(axes[0].value)}" if axes else ""


def _clip(module: Module, call: ast.Call) -> Hit | None:
    if not module.in_forward(call):
        return None
    lowest = argument(call, 1, "min") if module.names.paddle_name(call.func) in ("clip", "clamp") else None
    tensor = argument(call, 0, "x")
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("clip", "clamp")
        and module.names.dotted(call.func) is None
    ):
        lowest, tensor = argument(call, 0, "min"), call.func.value
    if lowest is None or tensor is None or _is_full_precision(module, tensor):
        return None
    return next(_vanishing(module, lowest), None)


def _epsilon(module: Module, node: ast.BinOp) -> Iterator[Hit]:
    for small, other in ((node.right, node.left), (node.left, node.right)):
        if module.values.number(other) is None and not _is_full_precision(module, other):
            yield from _vanishing(module, small)


def _is_full_precision(module: Module, node: ast.expr) -> bool:
    """Visibly cast to FP32, numpy's, or by all its names made of parameters, labels and masks, which are FP32."""
    parts = [n for n in ast.walk(node) if isinstance(n, (ast.Call, ast.Name))]
    if module.is_numpy(node) or any(_is_float32(module, part) for part in parts):
        return True
    names = [n.id for n in parts if isinstance(n, ast.Name) and module.names.dotted(n) is None and n.id != "self"]
    return bool(names) and all(_FULL_PRECISION.search(name) for name in names)


def _vanishing(module: Module, node: ast.expr) -> Iterator[Hit]:
    number = module.values.number(node)
    if number is None or not 0 < abs(number) <= FLOAT16_ZERO or module.without_autocast(node):
        return
    shown = module.code(node) if isinstance(node, ast.Constant) else f"{module.code(node)} = {number:g}"
    message = tr("{v} is 0 in float16 and protects nothing", "{v} 在 float16 中为 0，起不到保护作用", v=shown)
    fix = tr("compute in FP32, or take 1e-6", "以 FP32 计算，或使用 1e-6")
    yield Hit(EPSILON, node, message, fix)


def _is_guard(module: Module, node: ast.BinOp) -> bool:
    """Whether the sum is a divisor, or what a logarithm or root is taken of, here or by the name it is assigned to."""
    parent = module.names.parent.get(node)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        name, function = parent.targets[0].id, module.names.function_of(node)
        uses = [] if function is None else [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
        return any(isinstance(u.ctx, ast.Load) and module.values.origin(u) is node and _guards(module, u) for u in uses)
    return _guards(module, node)


def _guards(module: Module, node: ast.expr) -> bool:
    parent = module.names.parent.get(node)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div):
        return parent.right is node
    if isinstance(parent, ast.Call) and node in parent.args:
        name = module.names.paddle_name(parent.func)
        return name in _SAVED_BY_EPSILON and (name != "divide" or parent.args.index(node) == 1)
    if isinstance(parent, ast.Attribute) and parent.attr in _SAVED_BY_EPSILON:
        return isinstance(module.names.parent.get(parent), ast.Call)
    return False
