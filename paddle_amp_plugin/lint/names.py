"""What a name in a syntax tree stands for: imports, aliases and Python's scopes; nothing is imported or run.

``import paddle.nn.functional as F``, ``from paddle import cast as c``, ``F = paddle.nn.functional``: in each of them
``Names.dotted`` of ``F.softmax`` or ``c`` is the full dotted path. A name that is also bound to something else in
its scope (a parameter, a loop variable, another value) stands for nothing we know.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, TypeVar

Function = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: Nodes that have no place in the file: contexts and operators.
_WITHOUT_PLACE = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
_BINDING = frozenset(
    (ast.Name, ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.ExceptHandler)
)
#: How many aliases of aliases are followed.
_DEPTH = 4
Node = TypeVar("Node", bound=ast.AST)

#: What binds a name: an import's dotted path, an assigned expression, or something else (None).
Binding = str | ast.expr | None


class Names:
    """Parents, scopes and bindings of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parent: dict[ast.AST, ast.AST] = {}
        self._of_type: dict[type, list[Any]] = {}
        self._bound: dict[ast.AST, dict[str, list[Binding]]] = {}
        self._dotted: dict[ast.AST, str | None] = {}
        self._imported: list[str] = []
        self._walk(tree)

    def all(self, *kinds: type[Node]) -> list[Node]:
        """The nodes of these types, type by type, each in the order of the code (outer before inner)."""
        return [node for kind in kinds for node in self._of_type.get(kind, ())]

    def _walk(self, tree: ast.Module) -> None:
        # without recursion: generated code can be nested deeper than Python's own limit
        waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
        while waiting:
            node, scope = waiting.pop()
            kind = type(node)
            self._of_type.setdefault(kind, []).append(node)
            if kind in _BINDING:
                self._bind(node, scope)
            if kind in SCOPES:
                scope = node
                self._bound[node] = {}
                self._bind_parameters(node)
            children = []
            for name in node._fields:
                value = getattr(node, name, None)
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST) and not isinstance(child, _WITHOUT_PLACE):
                        self.parent[child] = node
                        children.append((child, scope))
            children.reverse()
            waiting += children

    def _bind(self, node: ast.AST, scope: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load) and not self._is_simple(node):
                self._add(scope, node.id, None)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                self._add(scope, name, alias.name if alias.asname else name)
                self._imported.append(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            self._imported.append(module)
            for alias in node.names:
                self._add(scope, alias.asname or alias.name, f"{module}.{alias.name}")
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self._add(scope, node.name, None)
        elif isinstance(node, ast.Assign):
            if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._add(scope, node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.target, ast.Name):
                self._add(scope, node.target.id, node.value)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self._add(scope, node.name, None)

    def _is_simple(self, name: ast.Name) -> bool:
        """Whether ``name = value`` or ``name: T = value`` already recorded this binding."""
        statement = self.parent[name]
        if isinstance(statement, ast.Assign):
            return len(statement.targets) == 1
        return isinstance(statement, ast.AnnAssign)

    def _bind_parameters(self, node: ast.AST) -> None:
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            for parameter in parameters(node.args):
                self._add(node, parameter.arg, None)

    def _add(self, scope: ast.AST, name: str, binding: Binding) -> None:
        self._bound.setdefault(scope, {}).setdefault(name, []).append(binding)

    def imports(self, package: str) -> bool:
        """Whether anything of ``package`` (or of a package whose name starts with it, as paddlenlp) is imported."""
        return any(name.lstrip(".").split(".")[0].startswith(package) for name in self._imported)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parent:
            node = self.parent[node]
            yield node

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function that ``node`` stands in (a function stands in the one around it)."""
        return next((a for a in self.ancestors(node) if isinstance(a, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class that ``node`` stands in."""
        return next((a for a in self.ancestors(node) if isinstance(a, ast.ClassDef)), None)

    def bindings(self, name: str, at: ast.AST) -> tuple[ast.AST | None, list[Binding]]:
        """The scope that ``name`` belongs to when read at ``at``, and everything it is bound to there."""
        inside = True
        for scope in self.ancestors(at):
            if not isinstance(scope, SCOPES):
                continue
            # a class's own names are not seen from inside its methods
            if (not isinstance(scope, ast.ClassDef) or inside) and name in self._bound[scope]:
                return scope, self._bound[scope][name]
            inside = False
        return None, []

    def dotted(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The full dotted path that a name or attribute stands for, if an import is at its root; else None."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        if node not in self._dotted:
            self._dotted[node] = self._resolve(node, depth)
        return self._dotted[node]

    def _resolve(self, node: ast.AST, depth: int) -> str | None:
        rest: list[str] = []
        while isinstance(node, ast.Attribute):
            rest.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or depth > _DEPTH:
            return None
        _, bound = self.bindings(node.id, node)
        paths = [b if isinstance(b, str) else self.dotted(b, depth + 1) if self._is_path(b) else None for b in bound]
        if not paths or None in paths:
            return None
        return ".".join([str(paths[0]), *reversed(rest)])

    @staticmethod
    def _is_path(binding: Binding) -> bool:
        return isinstance(binding, (ast.Name, ast.Attribute))

    def paddle_name(self, node: ast.AST | None) -> str | None:
        """The last part of a dotted path into ``paddle``: "softmax" for ``F.softmax``; None for anything else."""
        path = self.dotted(node)
        return path.rpartition(".")[2] if path is not None and path.startswith("paddle.") else None

    def is_numpy(self, node: ast.AST | None) -> bool:
        path = self.dotted(node)
        return path is not None and path.split(".")[0] == "numpy"


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter of a function, in the order of its signature."""
    rest = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]
