"""Numbers and dtypes as they are written in code, and where a value comes from within its function and class."""

from __future__ import annotations

import ast

from paddle_amp_plugin.lint.names import Function, Names

HALF = frozenset({"float16", "bfloat16", "half", "fp16", "bf16"})
SINGLE = frozenset({"float32", "float", "fp32"})
#: numpy.finfo(...).min of the types that are wider than float16 in range.
_LOWEST = {"float32": -3.4028234663852886e38, "float64": -1.7976931348623157e308}
_DEPTH = 6


class Values:
    """Looks things up in one module's ``Names``."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._assigned: dict[ast.AST, dict[str, list[tuple[ast.AST, ast.expr]]]] = {}
        self._attributes: dict[ast.ClassDef, dict[str, list[ast.expr]]] = {}
        self._collect()

    def _collect(self) -> None:
        for node in self.names.all(ast.Assign, ast.AnnAssign):
            pairs: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                pairs = [(node.target, node.value)]
            for target, value in pairs:
                if isinstance(target, ast.Name):
                    place = self.names.function_of(node) or self.names.class_of(node) or self.names.tree
                    self._assigned.setdefault(place, {}).setdefault(target.id, []).append((node, value))
                elif attribute_of_self(target) is not None and (owner := self.names.class_of(node)) is not None:
                    name = attribute_of_self(target) or ""
                    self._attributes.setdefault(owner, {}).setdefault(name, []).append(value)

    def attribute(self, name: str, at: ast.AST) -> ast.expr | None:
        """What ``self.name`` is set to, if the class of ``at`` sets it in one place only (or in its body)."""
        owner = self.names.class_of(at)
        if owner is None:
            return None
        values = list(self._attributes.get(owner, {}).get(name, []))
        values += [value for _, value in self._assigned.get(owner, {}).get(name, [])]
        return values[0] if len(values) == 1 else None

    def origin(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """The expression that a local name was last assigned from (above, in the same function), else ``node``."""
        if not isinstance(node, ast.Name) or depth > _DEPTH:
            return node
        place = self.names.function_of(node)
        earlier = [
            value
            for statement, value in self._assigned.get(place or self.names.tree, {}).get(node.id, [])
            if end_of(statement) <= start_of(node)
        ]
        return self.origin(earlier[-1], depth + 1) if earlier else node

    def dtype(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """ "float16", "float32", …, if ``node`` is a dtype written out (a string, paddle's or numpy's name)."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value if node.value.replace("paddle.", "").isidentifier() else None
        path = self.names.dotted(node)
        if path is not None and path.split(".")[0] in ("paddle", "numpy"):
            return path.rpartition(".")[2].rstrip("_")
        if isinstance(node, ast.Name) and depth < _DEPTH:
            _, bound = self.names.bindings(node.id, node)
            if len(bound) == 1 and isinstance(bound[0], ast.expr):
                return self.dtype(bound[0], depth + 1)
        return None

    def number(self, node: ast.AST | None, depth: int = 0) -> float | None:
        """The value of a number that is written out, also behind a sign, a constant's name or ``self.name``."""
        if node is None or depth > _DEPTH:
            return None
        if isinstance(node, ast.Constant):
            return _as_float(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.number(node.operand, depth + 1)
            return None if inner is None else -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            return _combined(node.op, self.number(node.left, depth + 1), self.number(node.right, depth + 1))
        if isinstance(node, ast.Name):
            _, bound = self.names.bindings(node.id, node)
            return self.number(bound[0], depth + 1) if len(bound) == 1 and isinstance(bound[0], ast.expr) else None
        if isinstance(node, ast.Attribute):
            return self._number_behind(node, depth)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float" and node.args:
            return self.number(node.args[0], depth + 1)
        return None

    def _number_behind(self, node: ast.Attribute, depth: int) -> float | None:
        name = attribute_of_self(node)
        if name is not None:
            value = self.attribute(name, node)
            if isinstance(value, ast.Name) and (function := self.names.function_of(value)) is not None:
                return self.number(default_of(function, value.id), depth + 1)
            return self.number(value, depth + 1)
        if node.attr in ("min", "max") and isinstance(node.value, ast.Call):
            function_name = (self.names.dotted(node.value.func) or "").rpartition(".")[2]
            wide = self.dtype(node.value.args[0]) if function_name == "finfo" and node.value.args else None
            lowest = _LOWEST.get(wide or "")
            return None if lowest is None else lowest if node.attr == "min" else -lowest
        return None


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _combined(op: ast.operator, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    try:
        if isinstance(op, ast.Mult):
            return left * right
        if isinstance(op, ast.Pow):
            return _as_float(left**right)
        if isinstance(op, ast.Add):
            return left + right
        if isinstance(op, ast.Sub):
            return left - right
        if isinstance(op, ast.Div):
            return left / right
    except (OverflowError, ZeroDivisionError):
        return None
    return None


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of parameter ``name``, if it has one."""
    positional = [*function.args.posonlyargs, *function.args.args]
    for parameter, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        if parameter.arg == name:
            return default
    for parameter, keyword_default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if parameter.arg == name:
            return keyword_default
    return None


def attribute_of_self(node: ast.AST) -> str | None:
    """``name`` for ``self.name``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return None


def argument(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    """The argument at ``position`` (0-based) or called one of ``names``."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    if position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return None


def start_of(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def end_of(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0


__all__ = ["HALF", "SINGLE", "Values", "argument", "attribute_of_self", "default_of", "end_of", "start_of"]
