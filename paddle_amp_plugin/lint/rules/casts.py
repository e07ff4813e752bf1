"""AMP101 to AMP104 and AMP107: half precision written into the code by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paddle_amp_plugin.lint.findings import Hit, Rule, Severity, Text
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.values import HALF, argument
from paddle_amp_plugin.messages import tr

_WHY_CAST = Text(
    "auto_cast decides op by op; a tensor that is half already stays half in every op that is on no list, at any "
    "level, "
    "also in FP32 runs and when auto_cast is off, where ops such as matmul and concat refuse mixed dtypes. Values "
    "beyond "
    "65504 become inf in float16. The gradient is rounded to half on its way back through the cast, too.",
    "auto_cast 逐个算子决定精度；已经是半精度的张量在不属于任何名单的算子中保持半精度，与 level 无关，在 FP32 训练和关"
    "闭 auto_cast "
    "时也是如此，而 matmul、concat 等算子在那里拒绝混合的 dtype。超过 65504 的值在 float16 中变为 inf。梯度反向经过该"
    "转换时也被舍入为半精度。",
)
_INSTEAD_CAST = Text(
    "Leave the cast out and let auto_cast choose. Where two tensors must agree, follow one of them: "
    "`y.astype(x.dtype)`. A cast to float32 is fine.",
    "删去该转换，由 auto_cast 选择精度。若两个张量必须一致，请跟随其中之一：`y.astype(x.dtype)`。转换为 float32 没有问"
    "题。",
)

ASTYPE = Rule(
    "AMP101",
    "warning",
    Text("`.astype` to half precision", "用 `.astype` 转换为半精度"),
    _WHY_CAST,
    _INSTEAD_CAST,
    bad="""import paddle

class Head(paddle.nn.Layer):
    def forward(self, x):
        return x.astype("float16") * 2
""",
    good="""import paddle

class Head(paddle.nn.Layer):
    def forward(self, x):
        return x * 2
""",
)
CAST = Rule(
    "AMP102",
    "warning",
    Text("`cast` to half precision", "用 `cast` 转换为半精度"),
    _WHY_CAST,
    _INSTEAD_CAST,
    bad="""import paddle
from paddle import cast as to

class Head(paddle.nn.Layer):
    def forward(self, x, bias):
        return x + to(bias, paddle.float16)
""",
    good="""import paddle
from paddle import cast as to

class Head(paddle.nn.Layer):
    def forward(self, x, bias):
        return x + to(bias, x.dtype)
""",
)
_WHY_HALF = Text(
    "On a tensor it is a cast like AMP101. On a model it makes the parameters half: there are no FP32 masters, an "
    "update smaller than about 1/2000 of a weight is lost, and checkpoints are half.",
    "用于张量时与 AMP101 相同。用于模型时参数变为半精度：没有 FP32 主权重，小于权重约 1/2000 的更新会丢失，检查点也是"
    "半精度。",
)
METHOD = Rule(
    "AMP103",
    "warning",
    Text("`.half()`, `.float16()` or `.bfloat16()`", "使用了 `.half()`、`.float16()` 或 `.bfloat16()`"),
    Text(
        _WHY_HALF.en + " Paddle 2.6's tensors have no such methods.",
        _WHY_HALF.zh + "Paddle 2.6 的张量没有这些方法。",
    ),
    Text(
        "For a tensor: leave it out. For a model: "
        "`paddle.amp.decorate(models=model, optimizers=optimizer, level='O2')`, "
        "which keeps FP32 masters.",
        "张量：删去。模型：`paddle.amp.decorate(models=model, optimizers=optimizer, level='O2')`，它保留 FP32 主权重。",
    ),
    bad="""import paddle

model = paddle.nn.Linear(4, 4)
model.half()
""",
    good="""import paddle

model = paddle.nn.Linear(4, 4)
model = paddle.amp.decorate(models=model, level="O2", dtype="float16")
""",
)
TO = Rule(
    "AMP104",
    "warning",
    Text("`.to(dtype=…)` with half precision", "`.to(dtype=…)` 指定半精度"),
    _WHY_HALF,
    METHOD.instead,
    bad="""import paddle

class Head(paddle.nn.Layer):
    def forward(self, x):
        return x.to(dtype="bfloat16")
""",
    good="""import paddle

class Head(paddle.nn.Layer):
    def forward(self, x, y):
        return x.to(dtype=y.dtype)
""",
)
PARAMETER = Rule(
    "AMP107",
    "warning",
    Text("parameters created in half precision", "以半精度创建参数"),
    Text(
        "A parameter that is born half has no FP32 master unless the optimizer is told `multi_precision=True`: small "
        "updates are "
        "rounded away (1.0 + 1e-4 is 1.0 in float16). `set_default_dtype` does it to every layer built afterwards.",
        "以半精度创建的参数没有 FP32 主权重（除非优化器设置 `multi_precision=True`）：小的更新会被舍入掉（float16 中 "
        "1.0 + 1e-4 等于 1.0）。"
        "`set_default_dtype` 会影响此后创建的所有层。",
    ),
    Text(
        "Create in FP32 and let `paddle.amp.decorate` make the half copy.",
        "以 FP32 创建，由 `paddle.amp.decorate` 生成半精度副本。",
    ),
    bad="""import paddle

class Scale(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.gamma = self.create_parameter([4], dtype="float16")
""",
    good="""import paddle

class Scale(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.gamma = self.create_parameter([4])
""",
)
RULES = (ASTYPE, CAST, METHOD, TO, PARAMETER)

_METHODS = frozenset({"half", "float16", "bfloat16"})


def check(module: Module) -> Iterator[Hit]:
    """Casts written out; numpy's arrays, and code that has asked for its input's dtype, are left out."""
    if not module.uses_paddle:
        return
    for call in module.calls:
        found = _cast(module, call) or _parameter(module, call)
        if found is None or module.by_hand(call) or module.asks_for_half(call) or _for_a_kernel(module, call):
            continue
        yield found


def _for_a_kernel(module: Module, call: ast.Call) -> bool:
    """Whether the cast stands in an argument of a flash attention, which takes half precision only."""
    outer = (a.func for a in module.names.ancestors(call) if isinstance(a, ast.Call))
    return any("flash" in module.code(function).lower() for function in outer)


def _cast(module: Module, call: ast.Call) -> Hit | None:
    function = call.func
    if module.names.paddle_name(function) == "cast":
        return _hit(module, CAST, call, argument(call, 0, "x"), argument(call, 1, "dtype"))
    if not isinstance(function, ast.Attribute) or module.names.dotted(function) is not None:
        return None
    tensor = function.value
    if function.attr in _METHODS and not call.args and not call.keywords:
        return _said(module, METHOD, call, tensor, function.attr)
    if function.attr == "astype":
        return _hit(module, ASTYPE, call, tensor, argument(call, 0, "dtype"))
    if function.attr == "cast":
        return _hit(module, CAST, call, tensor, argument(call, 0, "dtype"))
    if function.attr == "to":
        dtypes = [*call.args[:2], *(k.value for k in call.keywords if k.arg == "dtype")]
        half = next((d for d in dtypes if module.values.dtype(d) in HALF), None)
        return None if half is None else _hit(module, TO, call, tensor, half)
    return None


def _hit(module: Module, rule: Rule, call: ast.Call, tensor: ast.expr | None, dtype: ast.expr | None) -> Hit | None:
    if module.names.is_numpy(dtype) and not module.in_forward(call):
        return None  # np.float16 is what arrays are cast to
    name = module.values.dtype(dtype)
    return _said(module, rule, call, tensor, name) if name in HALF and tensor is not None else None


def _said(module: Module, rule: Rule, call: ast.Call, tensor: ast.expr, dtype: str) -> Hit | None:
    if module.is_numpy(tensor) or module.updates(call) or (module.after_training(call) and not module.in_layer(call)):
        return None
    dtype = "float16" if dtype == "half" else dtype
    message = tr("{t} is cast to {d} by hand", "{t} 被手工转换为 {d}", t=f"`{module.code(tensor)}`", d=dtype)
    severity: Severity | None = None
    if module.after_training(call):
        severity = "note"
        message += tr(" (in inference code, by its name)", "（按名称属于推理代码）")
    fix = tr(
        "leave the cast out, or follow another tensor: `.astype(other.dtype)`",
        "删去转换，或跟随另一张量：`.astype(other.dtype)`",
    )
    if rule in (METHOD, TO) and not module.in_forward(call):
        fix = tr(
            "a model: `paddle.amp.decorate(…, level='O2')`; a tensor: leave the cast out",
            "模型：`paddle.amp.decorate(…, level='O2')`；张量：删去转换",
        )
    return Hit(rule, _place(call), message, fix, severity)


def _place(call: ast.Call) -> ast.AST:
    """From ``.astype`` on: the receiver may begin lines earlier."""
    if not isinstance(call.func, ast.Attribute):
        return call
    end = call.func
    mark = ast.Name(id=end.attr, ctx=ast.Load())
    mark.lineno = end.end_lineno or end.lineno
    mark.col_offset = (end.end_col_offset or 0) - len(end.attr.encode())
    mark.end_lineno, mark.end_col_offset = call.end_lineno, call.end_col_offset
    return mark


def _parameter(module: Module, call: ast.Call) -> Hit | None:
    name = module.names.paddle_name(call.func)
    if name is None and isinstance(call.func, ast.Attribute) and call.func.attr == "create_parameter":
        name = "create_parameter"
    if name == "set_default_dtype":
        dtype = module.values.dtype(argument(call, 0, "d"))
    elif name == "create_parameter":
        dtype = module.values.dtype(argument(call, 2 if module.names.paddle_name(call.func) is None else 1, "dtype"))
    else:
        return None
    if dtype not in HALF or module.after_training(call):
        return None
    message = tr("{f} makes {d} parameters", "{f} 创建 {d} 参数", f=f"`{module.code(call.func)}`", d=dtype)
    fix = tr(
        "create in FP32; `paddle.amp.decorate` makes the half copy",
        "以 FP32 创建；半精度副本由 `paddle.amp.decorate` 生成",
    )
    return Hit(PARAMETER, call, message, fix)
