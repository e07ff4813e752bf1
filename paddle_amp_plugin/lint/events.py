"""What a function does with gradients, in order: backward, unscale, clip, step, update, clear; and on which branch.

Two events can happen in one run unless they stand on opposite arms of a condition. Conditions are compared as they
are written: ``if use_amp: …`` twice is the same condition, ``if not use_amp`` and ``scaler is None`` its opposite,
and what follows an arm that returns is the other arm.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.names import SCOPES, Function
from paddle_amp_plugin.lint.values import argument, end_of

Kind = Literal["scale", "backward", "unscale", "clip", "step", "update", "minimize", "optimizer", "clear"]
Arms = dict[str, bool]

_OF_SCALER: dict[str, Kind] = {
    "scale": "scale", "unscale_": "unscale", "step": "step", "update": "update", "minimize": "minimize",
}  # fmt: skip
_CLEARS = frozenset({"clear_grad", "clear_gradients", "clear_gradient", "zero_grad"})
_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_value_"})
_ENDS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True, eq=False)
class Event:
    """``who``: the scaler or the optimizer as written (``scaler.step(opt)``: "scaler"). ``on``: what it is given."""

    kind: Kind
    call: ast.Call
    who: str
    on: str = ""
    arms: Arms = field(default_factory=dict)
    loops: tuple[ast.AST, ...] = ()
    scaled: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Where the call ends: of ``scaler.scale(loss).backward()`` the scaling comes first."""
        return end_of(self.call)

    def with_(self, other: Event) -> bool:
        """Whether both can happen in one run."""
        return all(other.arms.get(key, arm) == arm for key, arm in self.arms.items())

    def before(self, other: Event) -> bool:
        return self.place < other.place


def events_of(module: Module, body: Iterable[ast.stmt]) -> list[Event]:
    """The events of one function's (or the module's) own statements, in the order of the code."""
    reader = _Reader(module)
    reader.block(list(body), {}, ())
    return sorted(reader.found, key=lambda event: event.place)


class _Reader:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.found: list[Event] = []

    def block(self, body: list[ast.stmt], arms: Arms, loops: tuple[ast.AST, ...]) -> None:
        for statement in body:
            if isinstance(statement, SCOPES):
                continue
            if isinstance(statement, ast.If):
                self._expressions([statement.test], arms, loops)
                key, arm = condition(statement.test)
                self.block(statement.body, {**arms, key: arm}, loops)
                self.block(statement.orelse, {**arms, key: not arm}, loops)
                if _leaves(statement.body):
                    arms = {**arms, key: not arm}
                elif statement.orelse and _leaves(statement.orelse):
                    arms = {**arms, key: arm}
            elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
                self._expressions([n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.expr)], arms, loops)
                self.block(statement.body, arms, (*loops, statement))
                self.block(statement.orelse, arms, loops)
            elif isinstance(statement, ast.Match):
                for case in statement.cases:
                    own = {f"case {other.pattern.lineno}": other is case for other in statement.cases}
                    self.block(case.body, {**arms, **own}, loops)
            else:
                self._plain(statement, arms, loops)

    def _plain(self, statement: ast.stmt, arms: Arms, loops: tuple[ast.AST, ...]) -> None:
        blocks = [
            b for name in ("body", "orelse", "finalbody") if isinstance(b := getattr(statement, name, None), list)
        ]
        handlers = [h.body for h in getattr(statement, "handlers", [])]
        if not blocks:
            self._expressions([statement], arms, loops)
            return
        for item in getattr(statement, "items", []):
            self._expressions([item.context_expr], arms, loops)
        for inner in [*blocks, *handlers]:
            self.block(inner, arms, loops)

    def _expressions(self, nodes: Iterable[ast.AST], arms: Arms, loops: tuple[ast.AST, ...]) -> None:
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Lambda):
                continue
            if isinstance(node, ast.Call):
                event = self._event(node, arms, loops)
                if event is not None:
                    self.found.append(event)
            waiting += ast.iter_child_nodes(node)

    def _event(self, call: ast.Call, arms: Arms, loops: tuple[ast.AST, ...]) -> Event | None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if _last(call.func) in _CLIPS:
            return Event("clip", call, "", arms=arms, loops=loops)
        if not isinstance(call.func, ast.Attribute):
            return None
        owner = call.func.value
        who = ast.unparse(owner)
        if name in _OF_SCALER and self.is_scaler(owner):
            on = ast.unparse(call.args[0]) if call.args else ""
            second = argument(call, 1, "scaled") if name == "minimize" else None
            return Event(_OF_SCALER[name], call, who, on, arms, loops, second is None or self.is_scaled(second))
        if name == "backward":
            return Event("backward", call, who, "", arms, loops, self.is_scaled(owner))
        if name in _CLEARS:
            return Event("clear", call, who, arms=arms, loops=loops)
        if name == "step" and not call.args and not call.keywords and self.is_optimizer(owner):
            return Event("optimizer", call, who, who, arms, loops)
        if name == "minimize" and self.is_optimizer(owner):
            loss = argument(call, 0, "loss")
            return Event("optimizer", call, who, who, arms, loops, loss is not None and self.is_scaled(loss))
        return None

    def is_scaler(self, node: ast.expr) -> bool:
        """By what it is assigned from, or by its name."""
        made = self._made(node)
        if made is not None and made.endswith(("GradScaler", "AmpScaler", "distributed_scaler")):
            return True
        return made is None and _last(node).lower().endswith("scaler")

    def is_optimizer(self, node: ast.expr) -> bool:
        made = self._made(node)
        if made is not None and made.startswith("paddle.optimizer.") and ".lr." not in made:
            return True
        name = _last(node).lower()
        return name in ("opt", "optim", "opt_d", "opt_g") or "optimizer" in name

    def _made(self, node: ast.expr) -> str | None:
        """The dotted path of the function or class whose result this is."""
        value = self.module.values.origin(node)
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
            value = self.module.values.attribute(value.attr, value) or value
        return self.module.names.dotted(value.func) if isinstance(value, ast.Call) else None

    def is_scaled(self, node: ast.expr) -> bool:
        """Whether this loss comes out of ``scaler.scale``."""
        value = self.module.values.origin(node)
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            return False
        return value.func.attr == "scale" and self.is_scaler(value.func.value)


def condition(test: ast.expr) -> tuple[str, bool]:
    """A condition as text, and whether it is that or its opposite: ``not x``, ``x is None`` are the opposite of x."""
    arm = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, arm = test.operand, not arm
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        constant, op = test.comparators[0].value, test.ops[0]
        if constant in (None, False) and isinstance(op, (ast.Is, ast.Eq)):
            return ast.unparse(test.left), not arm
        if constant in (None, False) and isinstance(op, (ast.IsNot, ast.NotEq)):
            return ast.unparse(test.left), arm
        if constant is True and isinstance(op, (ast.Is, ast.Eq)):
            return ast.unparse(test.left), arm
    return ast.unparse(test), arm


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], _ENDS)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def bodies(module: Module) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """The module's own statements, and each function's."""
    yield module.tree, module.tree.body
    functions: list[Function] = [*module.names.all(ast.FunctionDef), *module.names.all(ast.AsyncFunctionDef)]
    for function in functions:
        yield function, function.body
