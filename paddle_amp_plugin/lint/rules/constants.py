"""AMP105 and AMP106: tensors made in ``forward`` in a dtype of their own."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from paddle_amp_plugin.lint.findings import Hit, Rule, Text
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.values import HALF, SINGLE, argument, attribute_of_self, start_of
from paddle_amp_plugin.messages import tr

HALF_CONSTANT = Rule(
    "AMP105",
    "warning",
    Text("a tensor made in half precision in `forward`", "在 `forward` 中以半精度创建张量"),
    Text(
        "It is half in FP32 runs and evaluation, too, where matmul, concat and stack refuse mixed dtypes, and float16 "
        "where the "
        "plan says bfloat16. float16 counts exactly only up to 2048, bfloat16 up to 256.",
        "它在 FP32 训练与评估中也是半精度，而 matmul、concat、stack 在那里拒绝混合的 dtype；计划使用 bfloat16 时它仍是"
        " float16。"
        "float16 只能精确计数到 2048，bfloat16 到 256。",
    ),
    Text(
        "Follow a tensor of the model: `paddle.zeros_like(x)`, or `dtype=x.dtype`.",
        "跟随模型中的张量：`paddle.zeros_like(x)`，或 `dtype=x.dtype`。",
    ),
    bad="""import paddle

class Cell(paddle.nn.Layer):
    def forward(self, x):
        return x + paddle.ones([4], dtype="float16")
""",
    good="""import paddle

class Cell(paddle.nn.Layer):
    def forward(self, x):
        return x + paddle.ones([4], dtype=x.dtype)
""",
)
FULL_CONSTANT = Rule(
    "AMP106",
    "note",
    Text("FP32 zeros or constants meet an activation in `forward`", "`forward` 中的 FP32 常量与激活值一起运算"),
    Text(
        "Outside the white list an op takes FP32 as soon as one of its inputs is FP32: everything from here to the "
        "next matmul or "
        "convolution runs in FP32, without a gain and with twice the memory. Without auto_cast on a half model, "
        "concat, stack and "
        "matmul refuse the mix. `paddle.zeros(shape)` is FP32 like `dtype='float32'`.",
        "白名单之外的算子只要有一个 FP32 输入就使用 FP32：从这里到下一个 matmul 或卷积都以 FP32 运行，没有收益，且占用"
        "两倍显存。"
        "半精度模型在没有 auto_cast 时，concat、stack、matmul 拒绝这种混合。`paddle.zeros(shape)` 与 `dtype='float32'`"
        " 一样是 FP32。",
    ),
    Text(
        "`dtype=x.dtype`, `paddle.zeros_like(x)`. Where FP32 is wanted (positions, angles, sums), say so: "
        "`# noqa: AMP106`.",
        "`dtype=x.dtype`、`paddle.zeros_like(x)`。若确实需要 FP32（位置、角度、求和），请写明 `# noqa: AMP106`。",
    ),
    bad="""import paddle

class Cell(paddle.nn.Layer):
    def forward(self, x):
        hidden = paddle.zeros([x.shape[0], 8], dtype="float32")
        return paddle.concat([x, hidden], axis=1)
""",
    good="""import paddle

class Cell(paddle.nn.Layer):
    def forward(self, x):
        hidden = paddle.zeros([x.shape[0], 8], dtype=x.dtype)
        return paddle.concat([x, hidden], axis=1)
""",
)
RULES = (HALF_CONSTANT, FULL_CONSTANT)

#: Creation function -> position of its ``dtype``.
_MAKERS = {
    "zeros": 1, "ones": 1, "empty": 1, "full": 2, "to_tensor": 1, "eye": 2, "rand": 1, "randn": 1, "arange": 3,
    "linspace": 3, "zeros_like": 1, "ones_like": 1, "full_like": 2, "empty_like": 1, "uniform": 1, "standard_normal": 1,
}  # fmt: skip
#: Without a dtype these are of the default dtype, float32, whatever the input.
_DEFAULTED = frozenset({"zeros", "ones", "empty", "rand", "randn"})
#: Of these, FP32 is right, or they follow their input: counts and angles need its precision.
_NOT_FULL = frozenset({"arange", "linspace", "eye"})
_MIXING = frozenset(
    """concat stack where maximum minimum add subtract multiply divide matmul bmm mm einsum dot scatter
    scatter_nd_add put_along_axis addmm lerp""".split()
)
_RECURRENT = re.compile(r"cell|rnn|lstm|gru", re.IGNORECASE)
#: Words in the names of sizes, masks, indices and factors.
_NOT_ACTIVATIONS = frozenset(
    """mask id ids idx index indices len length lengths size shape num nums label labels target targets position pos
    factor scale prob p rate ratio momentum weight weights bias keep dim dims head heads max min eps epsilon alpha
    beta gamma temperature theta step steps""".split()
)


def check(module: Module) -> Iterator[Hit]:
    """Only in a Layer's ``forward`` and what it calls; not under ``auto_cast(False)``."""
    if not module.uses_paddle:
        return
    for call in module.calls:
        name = module.names.paddle_name(call.func)
        if name not in _MAKERS or not module.in_forward(call) or module.by_hand(call):
            continue
        given = argument(call, _MAKERS[name], "dtype")
        dtype = module.values.dtype(given)
        if dtype in HALF:
            if not module.asks_for_half(call):
                yield _half(module, call, dtype)
        elif _is_full(name, given, dtype) and not module.without_autocast(call):
            met = _meets(module, call)
            if met is not None:
                yield _full(module, call, given, met)


def _is_full(name: str, given: ast.expr | None, dtype: str | None) -> bool:
    if name in _NOT_FULL:
        return False
    return dtype in SINGLE or (given is None and name in _DEFAULTED)


def _half(module: Module, call: ast.Call, dtype: str | None) -> Hit:
    message = tr(
        "{c} is {d} whatever its surroundings are",
        "{c} 总是 {d}，与上下文无关",
        c=f"`{module.code(call.func)}`",
        d=dtype,
    )
    fix = tr("`dtype=x.dtype` of the tensor that it meets", "使用与其运算的张量的 `dtype=x.dtype`")
    return Hit(HALF_CONSTANT, call, message, fix, "note" if module.after_training(call) else None)


def _full(module: Module, call: ast.Call, given: ast.expr | None, met: ast.expr) -> Hit:
    message = tr(
        "{c} is FP32 and makes what meets it ({m}) FP32",
        "{c} 是 FP32，使与其运算者（{m}）也变为 FP32",
        c=f"`{module.code(call.func)}`" + ("" if given is not None else tr(" without a dtype", "（未指定 dtype）")),
        m=f"`{module.code(met)}`",
    )
    fix = tr("`dtype={m}.dtype`", "`dtype={m}.dtype`", m=module.code(met)) if isinstance(met, ast.Name) else ""
    return Hit(
        FULL_CONSTANT, call, message, fix or tr("`dtype=` of the tensor that it meets", "使用与其运算的张量的 dtype")
    )


def _meets(module: Module, call: ast.Call) -> ast.expr | None:
    """The activation that the new tensor, or the name it is assigned to, is computed with; None if there is none."""
    parent = module.names.parent.get(call)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return _name_meets(module, parent.targets[0], call)
    return _mixed_with(module, call)


def _name_meets(module: Module, target: ast.Name, call: ast.Call) -> ast.expr | None:
    function = module.names.function_of(call)
    if function is None:
        return None
    uses = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Name)
        and n.id == target.id
        and isinstance(n.ctx, ast.Load)
        and start_of(n) > start_of(call)
    ]
    for use in uses:
        if module.values.origin(use) is call and (met := _mixed_with(module, use)) is not None:
            return met
    return None


def _mixed_with(module: Module, node: ast.expr) -> ast.expr | None:
    """The other operand of the arithmetic or the joining call that ``node`` is an operand of."""
    parent = module.names.parent.get(node)
    if isinstance(parent, ast.BinOp) and not isinstance(parent.op, (ast.FloorDiv, ast.Mod)):
        others = [parent.left if parent.right is node else parent.right]
    elif isinstance(parent, (ast.List, ast.Tuple)):
        outer = module.names.parent.get(parent)
        if not isinstance(outer, ast.Call) or module.names.paddle_name(outer.func) not in ("concat", "stack"):
            return None
        others = [e for e in parent.elts if e is not node]
    elif isinstance(parent, ast.Call) and node in parent.args:
        others = _with_arguments(module, parent, node)
    else:
        return None
    return next((o for o in others if _is_activation(module, o)), None)


def _with_arguments(module: Module, call: ast.Call, node: ast.expr) -> list[ast.expr]:
    """What ``node`` is computed with as an argument of an op, or as the state of a recurrent cell."""
    name = module.names.paddle_name(call.func)
    if name == "where":
        return [] if call.args.index(node) == 0 else [a for a in call.args[1:] if a is not node]
    if name in _MIXING or _RECURRENT.search(attribute_of_self(call.func) or ""):
        return [a for a in call.args if a is not node]
    return []


def _is_activation(module: Module, node: ast.expr) -> bool:
    """Whether a value may be half under auto_cast: no number, shape or parameter, and not visibly FP32."""
    node = module.values.origin(node)
    if isinstance(node, (ast.Constant, ast.Compare, ast.BoolOp, ast.List, ast.Tuple, ast.JoinedStr)):
        return False
    if attribute_of_self(node) is not None or module.values.number(node) is not None:
        return False
    if isinstance(node, ast.BinOp):
        return any(_is_activation(module, side) for side in (node.left, node.right)) and not any(
            _is_full_precision(module, side) for side in (node.left, node.right)
        )
    if isinstance(node, ast.UnaryOp):
        return _is_activation(module, node.operand)
    if isinstance(node, ast.Subscript):
        shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return not shape and _is_activation(module, node.value)
    if isinstance(node, ast.Attribute):
        return node.attr == "T" and _is_activation(module, node.value)
    if isinstance(node, ast.Call):
        return _call_may_be_half(module, node)
    return isinstance(node, ast.Name) and _is_parameter(module, node)


def _call_may_be_half(module: Module, call: ast.Call) -> bool:
    if _is_full_precision(module, call):
        return False
    if attribute_of_self(call.func) is not None:
        return True  # a sublayer, or a method of ours
    name = module.names.paddle_name(call.func)
    if name is not None:
        return name not in _MAKERS and any(_is_activation(module, a) for a in call.args)
    if isinstance(call.func, ast.Name) and call.func.id not in dir(builtins):
        return any(_is_activation(module, a) for a in call.args)
    return isinstance(call.func, ast.Attribute) and _is_activation(module, call.func.value)


def _is_full_precision(module: Module, node: ast.expr) -> bool:
    """Visibly FP32 or an integer: a creation function's result, or something cast."""
    node = module.values.origin(node)
    if not isinstance(node, ast.Call):
        return False
    if module.names.paddle_name(node.func) in {
        *_MAKERS,
        "cast",
        "randint",
        "randperm",
        "tril",
        "triu",
        "one_hot",
        "argmax",
    }:
        return True
    return isinstance(node.func, ast.Attribute) and node.func.attr in (
        "astype",
        "cast",
        "argmax",
        "numpy",
        "item",
        "size",
    )


def _is_parameter(module: Module, name: ast.Name) -> bool:
    """A parameter of the function that is not visibly a size, a mask, an index or a length."""
    _, bound = module.names.bindings(name.id, name)
    words = name.id.lower()
    return None in bound and not any(w in _NOT_ACTIVATIONS or w.endswith("mask") for w in words.split("_"))
