"""One parsed file: which classes are Layers, what their ``forward`` reaches, which code is for inference only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePath

from paddle_amp_plugin.lint.findings import shortened, written
from paddle_amp_plugin.lint.names import FUNCTIONS, Function, Names
from paddle_amp_plugin.lint.values import HALF, Values, argument, attribute_of_self

#: Words in the names of what runs after training: a half dtype there is a choice.
_INFERENCE = re.compile(
    r"(?<![a-z])(export\w*|infer|inference|inferer|predict|predictor|deploy\w*|serv(e|er|ing)|quant\w*|ptq|qat|gptq|awq|"
    r"onnx\w*|experimental|kv ?cache|wint?[48]\w*|fp8\w*|int[48]\w*|a8w8\w*)(?![a-z])"
)
#: … of what moves weights about …
_WEIGHTS = re.compile(
    r"(?<![a-z])(merge|merger|mergekit|convert\w*|checkpoint\w*|ckpt\w*|save\w*|load\w*|restore\w*|recover\w*|"
    r"state dict|sharding io)(?![a-z])"
)
#: … and of functions that choose the next token.
_GENERATING = re.compile(r"(?<![a-z])(generate|generation|beam search|sample)(?![a-z])")
#: Gradients and updates: casts there are part of an optimizer.
_UPDATES = re.compile(r"(?<![a-z])(optimi[sz]er|clip|grad|gradient)(?![a-z])")
#: Bases whose ``forward`` is a pair of a forward and a backward written by hand.
_BY_HAND = frozenset({"PyLayer", "LegacyPyLayer", "EagerPyLayer", "Function"})


class Module:
    """Facts about one file that the rules share. ``path`` is shown to the user as it is."""

    def __init__(self, path: str, text: str, tree: ast.Module) -> None:
        self.path = path
        self.text = text
        self.tree = tree

    @cached_property
    def names(self) -> Names:
        return Names(self.tree)

    @cached_property
    def values(self) -> Values:
        return Values(self.names)

    @cached_property
    def calls(self) -> list[ast.Call]:
        return self.names.all(ast.Call)

    @cached_property
    def binops(self) -> list[ast.BinOp]:
        return self.names.all(ast.BinOp)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def code(self, node: ast.AST, longest: int = 48) -> str:
        """``node`` as the file has it, on one line, shortened in the middle."""
        line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if line != end or not 0 < line <= len(self.lines):
            return written(node, longest)
        place = slice(getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0))
        return shortened(self.lines[line - 1].encode()[place].decode("utf-8", "replace"), longest)

    @cached_property
    def is_paddle(self) -> bool:
        """Paddle's, or of a package built on it; a file of PyTorch's is none of our business."""
        return self.names.imports("paddle") or not self.names.imports("torch")

    @cached_property
    def uses_paddle(self) -> bool:
        return self.names.imports("paddle") or any("paddle" in line for line in self.lines[:60] if "import" in line)

    @cached_property
    def layers(self) -> set[ast.ClassDef]:
        """Classes derived from ``paddle.nn.Layer``, directly or through a class of this file; a class with ``forward``
        and a base from another file counts, too."""
        classes = self.names.all(ast.ClassDef)
        by_name = {c.name: c for c in classes}
        found: set[ast.ClassDef] = set()
        for _ in range(len(classes) + 1):
            more = {c for c in classes if c not in found and self._is_layer(c, by_name, found)}
            if not more:
                break
            found |= more
        return found

    def _is_layer(self, item: ast.ClassDef, by_name: dict[str, ast.ClassDef], found: set[ast.ClassDef]) -> bool:
        bases = [(self.names.dotted(b) or ast.unparse(b)).rpartition(".")[2] for b in item.bases]
        if _BY_HAND & set(bases):
            return False
        if any(by_name[b] in found for b in bases if b in by_name):
            return True
        if any(self.names.paddle_name(b) in ("Layer", "Sequential", "LayerList") for b in item.bases):
            return True
        foreign = [b for b in bases if b not in by_name and b not in ("object", "ABC")]
        return bool(foreign) and any(isinstance(s, FUNCTIONS) and s.name == "forward" for s in item.body)

    @cached_property
    def forward_reach(self) -> set[Function]:
        """``forward`` of every Layer, and the methods and functions of this file that it calls."""
        methods = {c: {s.name: s for s in c.body if isinstance(s, FUNCTIONS)} for c in self.layers}
        top = {s.name: s for s in self.tree.body if isinstance(s, FUNCTIONS)}
        waiting = [m["forward"] for m in methods.values() if "forward" in m]
        reached: set[Function] = set()
        while waiting:
            function = waiting.pop()
            if function in reached:
                continue
            reached.add(function)
            own = methods.get(self.names.class_of(function), {})  # type: ignore[arg-type]
            waiting += self._called(function, own, top)
        return reached

    @staticmethod
    def _called(function: Function, own: dict[str, Function], top: dict[str, Function]) -> Iterator[Function]:
        for node in ast.walk(function):
            if node is not function and isinstance(node, FUNCTIONS):
                yield node
            if not isinstance(node, ast.Call):
                continue
            if (method := attribute_of_self(node.func)) is not None and method in own:
                yield own[method]
            elif isinstance(node.func, ast.Name) and node.func.id in top:
                yield top[node.func.id]

    def in_forward(self, node: ast.AST) -> bool:
        return self.names.function_of(node) in self.forward_reach

    def in_layer(self, node: ast.AST) -> bool:
        return self.names.class_of(node) in self.layers

    def by_hand(self, node: ast.AST) -> bool:
        """Inside a ``PyLayer``, where dtypes are the author's own business."""
        owner = self.names.class_of(node)
        return owner is not None and any(
            (self.names.dotted(b) or ast.unparse(b)).rpartition(".")[2] in _BY_HAND for b in owner.bases
        )

    def after_training(self, node: ast.AST) -> bool:
        """Whether this is code for export, inference or quantisation, or moves weights about, by its names."""
        if self.generates(node) or self._path_after_training:
            return True
        names = [a.name for a in self.names.ancestors(node) if isinstance(a, (*FUNCTIONS, ast.ClassDef))]
        return any(_WEIGHTS.search(_words(name)) for name in names)

    def updates(self, node: ast.AST) -> bool:
        """Whether this is an optimizer's or a gradient clip's code, by its class or function outside of any Layer."""
        names = [a.name for a in self.names.ancestors(node) if isinstance(a, (*FUNCTIONS, ast.ClassDef))]
        return not self.in_layer(node) and any(_UPDATES.search(_words(name)) for name in names)

    def generates(self, node: ast.AST) -> bool:
        """Whether this is code for inference or for choosing the next token, by its functions' and classes' names."""
        for item in self.names.ancestors(node):
            if isinstance(item, (*FUNCTIONS, ast.ClassDef)):
                words = _words(item.name)
                if _INFERENCE.search(words) or (isinstance(item, FUNCTIONS) and _GENERATING.search(words)):
                    return True
        return False

    @cached_property
    def _path_after_training(self) -> bool:
        parts = [_words(part) for part in PurePath(self.path).with_suffix("").parts[-4:]]
        return any(_INFERENCE.search(part) or _WEIGHTS.search(part) for part in parts)

    def without_autocast(self, node: ast.AST) -> bool:
        """Inside ``with paddle.amp.auto_cast(False)``."""
        for item in self.names.ancestors(node):
            if not isinstance(item, (ast.With, ast.AsyncWith)):
                continue
            for entry in item.items:
                call = entry.context_expr
                if isinstance(call, ast.Call) and self._is_autocast(call):
                    enable = argument(call, 0, "enable")
                    if isinstance(enable, ast.Constant) and enable.value is False:
                        return True
        return False

    def _is_autocast(self, call: ast.Call) -> bool:
        return (self.names.paddle_name(call.func) or "") in ("auto_cast", "amp_guard", "autocast")

    def is_numpy(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is visibly numpy's: from a numpy function, from ``.numpy()``, or computed from such."""
        node = self.values.origin(node)
        if depth > 8:
            return False
        if isinstance(node, ast.Call):
            if self.names.is_numpy(node.func):
                return True
            if isinstance(node.func, ast.Attribute):
                return node.func.attr in ("numpy", "asnumpy") or self.is_numpy(node.func.value, depth + 1)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self.is_numpy(node.value, depth + 1)
        if isinstance(node, ast.BinOp):
            return self.is_numpy(node.left, depth + 1) or self.is_numpy(node.right, depth + 1)
        return False

    def asks_for_half(self, node: ast.AST) -> bool:
        """Whether a condition around ``node`` has compared a dtype with a half one: it follows its input."""
        child: ast.AST = node
        for item in self.names.ancestors(node):
            if isinstance(item, FUNCTIONS):
                return False
            if isinstance(item, (ast.If, ast.IfExp)) and child is not item.test and self._mentions_half(item.test):
                return True
            child = item
        return False

    def _mentions_half(self, test: ast.expr) -> bool:
        for compare in (n for n in ast.walk(test) if isinstance(n, ast.Compare)):
            for side in (compare.left, *compare.comparators):
                sides = side.elts if isinstance(side, (ast.Tuple, ast.List, ast.Set)) else [side]
                if any(self.values.dtype(one) in HALF for one in sides):
                    return True
        return False


def _words(name: str) -> str:
    """``LlamaForCausalLMInference`` -> ``llama_for_causal_lm_inference``, so that whole words can be looked for."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("_", " ").replace("-", " ")
