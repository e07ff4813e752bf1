"""Patches on a host's functions: registered, applied when the module is imported, listable, reversible.

A host's files are never edited. A :class:`Patch` names a function of a module and a wrapper for it; a
:class:`PatchSet` applies all of a host's patches. Modules that are imported already are patched at once, the
others the moment they are imported (``wrapt`` post-import hooks). What a host copied by ``from x import f``
before the patch has its own entry in the registry; applying twice wraps once; ``restore`` puts the originals
back. Whether a function can be patched is decided by its parameters, not by a version string.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import wrapt

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True)
class Patch:
    """One function of a host and what is put around it.

    ``module`` and ``name`` say where (``name`` may be dotted: ``Class.method``); ``wrapper`` is called as
    ``wrapper(wrapped, instance, args, kwargs)``; ``parameters`` are those the function must have. A patch
    that is not ``required`` is left out in silence where the module lacks the name.
    """

    module: str
    name: str
    wrapper: Wrapper
    why: str
    parameters: tuple[str, ...] = ()
    required: bool = True

    @property
    def target(self) -> str:
        """``module:name``."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Extension:
    """One object of a host that is changed in place: ``change(object)`` does it and returns the undoing."""

    module: str
    name: str
    change: Callable[[Any], Callable[[], None]]
    why: str

    @property
    def target(self) -> str:
        """``module:name``."""
        return f"{self.module}:{self.name}"


class PatchSet:
    """The patches of one host. ``active`` between ``apply`` and ``restore``."""

    def __init__(self, host: str, patches: Sequence[Patch | Extension]) -> None:
        self.host = host
        self.patches = tuple(patches)
        self.active = False
        self._undo: list[tuple[Any, str, Any, bool, Any]] = []
        self._changed: dict[Extension, Callable[[], None]] = {}
        self._hooked: set[str] = set()

    def apply(self) -> None:
        """Patches what is imported now and what will be. Doing it twice changes nothing."""
        if self.active:
            return
        self.active = True
        for module in dict.fromkeys(patch.module for patch in self.patches):
            if module in self._hooked and module in sys.modules:
                self._patch_module(sys.modules[module])
            elif module not in self._hooked:
                # wrapt has no way to take a hook back, so the hook itself asks whether it is still wanted
                self._hooked.add(module)
                wrapt.register_post_import_hook(self._patch_module, module)

    def restore(self) -> None:
        """Puts every original back, last patched first. Doing it twice changes nothing."""
        self.active = False
        while self._undo:
            owner, attribute, original, was_own, placed = self._undo.pop()
            if vars(owner).get(attribute) is not placed:
                continue  # somebody patched over it; taking ours out from below would take theirs away
            if was_own:
                setattr(owner, attribute, original)
            else:
                delattr(owner, attribute)
        while self._changed:
            self._changed.popitem()[1]()

    def listing(self) -> list[tuple[str, str, str]]:
        """For ``--show-patches``: (target, state, why) in the order of the registry."""
        placed = {id(p[4]) for p in self._undo}
        rows = []
        for patch in self.patches:
            module = sys.modules.get(patch.module)
            if module is None:
                state = tr("when imported", "导入时")
            else:
                found = _find(module, patch.name)
                current = vars(found[0]).get(found[1]) if found else None
                state = (
                    tr("absent", "不存在")
                    if found is None
                    else tr("patched", "已打补丁")
                    if id(current) in placed or patch in self._changed
                    else tr("not patched", "未打补丁")
                )
            rows.append((patch.target, state, patch.why))
        return rows

    def _patch_module(self, module: Any) -> None:
        if not self.active:
            return
        for patch in self.patches:
            if patch.module == module.__name__ and isinstance(patch, Extension):
                self._extend(module, patch)
            elif patch.module == module.__name__:
                self._patch_one(module, patch)

    def _extend(self, module: Any, extension: Extension) -> None:
        found = _find(module, extension.name)
        if found is None:
            raise _unknown(self.host, extension, tr("it does not exist", "该对象不存在"))
        if extension not in self._changed:
            self._changed[extension] = extension.change(getattr(*found))

    def _patch_one(self, module: Any, patch: Patch) -> None:
        found = _find(module, patch.name)
        if found is None:
            if patch.required:
                raise _unknown(self.host, patch, tr("it does not exist", "该函数不存在"))
            return
        owner, attribute = found
        current = inspect.getattr_static(owner, attribute)
        original = current
        while isinstance(original, _Placed):
            if original._self_owner is self:
                # Ours already: either patched before, or a copy made by "from x import f" after x was patched.
                if id(current) not in {id(entry[4]) for entry in self._undo if entry[0] is owner}:
                    self._undo.append((owner, attribute, original.__wrapped__, True, vars(owner)[attribute]))
                return
            original = original.__wrapped__
        missing = _missing_parameters(original, patch.parameters)
        if missing:
            raise _unknown(self.host, patch, tr("it has no parameter {m}", "它没有参数 {m}", m=", ".join(missing)))
        was_own = attribute in vars(owner)
        stored = vars(owner).get(attribute, original)
        placed = _Placed(stored, patch.wrapper)
        placed._self_owner = self
        setattr(owner, attribute, placed)
        self._undo.append((owner, attribute, stored, was_own, placed))


class _Placed(wrapt.FunctionWrapper):
    """A wrapper of ours; ``_self_owner`` is the PatchSet that placed it."""

    _self_owner: Any = None


def _find(module: Any, name: str) -> tuple[Any, str] | None:
    """The owner (module or class) and the attribute that ``name`` means, or None."""
    owner = module
    *path, attribute = name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
        if owner is None:
            return None
    return (owner, attribute) if hasattr(owner, attribute) else None


def _missing_parameters(function: Any, wanted: Sequence[str]) -> list[str]:
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return list(wanted)
    return [name for name in wanted if name not in known]


def _unknown(host: str, patch: Patch | Extension, reason: str) -> AmpError:
    return AmpError(
        "AMP040",
        tr(
            "this version of {h} is not supported: {t} was looked for, and {r}",
            "不支持此版本的 {h}：查找了 {t}，但{r}",
            h=host,
            t=patch.target,
            r=reason,
        ),
        hint=tr("supported versions: see `paddle-amp version`", "支持的版本：见 `paddle-amp version`"),
    )


def bound(wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The call's arguments by name, defaults included, whichever way they were passed."""
    arguments = inspect.signature(wrapped).bind(*args, **kwargs)
    arguments.apply_defaults()
    return dict(arguments.arguments)
