"""AMP130 to AMP137: training steps with a GradScaler. What they say of Paddle is in ``words``; here is the finding."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from paddle_amp_plugin.lint.events import Event, bodies, events_of
from paddle_amp_plugin.lint.findings import Hit, Rule
from paddle_amp_plugin.lint.module import Module
from paddle_amp_plugin.lint.names import FUNCTIONS
from paddle_amp_plugin.lint.rules import steps_words as words
from paddle_amp_plugin.messages import tr

RULES = words.RULES

#: What ends a step's gradients.
_STEPS = ("step", "minimize", "optimizer")


def check(module: Module) -> Iterator[Hit]:
    if not module.is_paddle or "backward" not in module.text:
        return
    everything: list[Event] = []
    found = [(place, events_of(module, body)) for place, body in bodies(module)]
    for _, events in found:
        everything += events
    for place, events in found:
        if not events:
            continue
        yield from _optimizer_beside_scaler(events)
        yield from _clip_before_unscale(events)
        yield from _missing_clear(module, place, events, everything)
        yield from _mixed(events)
        yield from _missing_update(place, events, everything)
        yield from _unscaled_twice(events)
        yield from _cleared_too_early(events)
        yield from _not_scaled(events, everything)


def _hits(rule_events: Iterator[Event], rule: Rule, message: str, fix: str) -> Iterator[Hit]:
    seen: set[ast.Call] = set()
    for event in rule_events:
        if event.call not in seen:
            seen.add(event.call)
            yield Hit(rule, event.call, message.format(e=event), fix.format(e=event))


def _optimizer_beside_scaler(events: list[Event]) -> Iterator[Hit]:
    scaled = [e for e in events if e.kind == "backward" and e.scaled]
    plain = [e for e in events if e.kind == "backward" and not e.scaled]

    def found() -> Iterator[Event]:
        for event in events:
            if event.kind != "optimizer":
                continue
            before = [s for s in scaled if s.before(event) and s.with_(event)]
            # a later backward of another loss, as a second optimizer's
            own = [
                p
                for s in before[-1:]
                for p in plain
                if s.before(p) and p.before(event) and p.with_(event) and p.with_(s)
            ]
            if before and not own:
                yield event

    message = tr("`{e.who}` steps with gradients that are still scaled", "`{e.who}` 以仍处于缩放状态的梯度更新")
    yield from _hits(found(), words.OPTIMIZER, message, "`scaler.step({e.who}); scaler.update()`")


def _clip_before_unscale(events: list[Event]) -> Iterator[Hit]:
    def found() -> Iterator[Event]:
        for clip in (e for e in events if e.kind == "clip"):
            scaled = [e for e in events if e.kind == "backward" and e.scaled and e.before(clip) and e.with_(clip)]
            if not scaled:
                continue
            since = [e for e in events if scaled[-1].before(e) and e.before(clip) and e.with_(clip)]
            if not any(e.kind == "unscale" for e in since):
                yield clip

    message = tr("the gradients are clipped while they are scaled", "梯度在缩放状态下被裁剪")
    yield from _hits(
        found(),
        words.CLIP,
        message,
        tr("`scaler.unscale_(optimizer)` before it", "在其之前调用 `scaler.unscale_(optimizer)`"),
    )


def _missing_clear(module: Module, place: ast.AST, events: list[Event], everything: list[Event]) -> Iterator[Hit]:
    """In a loop with backward and step: no clearing in the function, nor in a function of this file that it calls."""
    clears = {id(e.call) for e in everything if e.kind == "clear"}
    if any(e.kind == "clear" for e in events) or (
        not isinstance(place, ast.Module) and _calls_clear(module, place, clears)
    ):
        return
    if isinstance(place, ast.Module) and clears:
        return

    def found() -> Iterator[Event]:
        for step in (e for e in events if e.kind in _STEPS):
            looped = [e for e in events if e.kind == "backward" and e.before(step) and e.with_(step)]
            inside = any(set(e.loops) & set(step.loops) for e in looped)
            if inside or (looped and not clears and _is_repeated(place)):
                yield step
                return

    message = tr("a step, and nothing clears the gradients", "执行了更新，但没有清除梯度")
    yield from _hits(
        found(),
        words.CLEAR,
        message,
        tr("`optimizer.clear_grad()` after the step", "更新之后调用 `optimizer.clear_grad()`"),
    )


def _is_repeated(place: ast.AST) -> bool:
    """Whether a function is one that a loop elsewhere calls, by its name."""
    return isinstance(place, FUNCTIONS) and re.search(r"(^|_)(step|train_(one_)?(batch|iter))$", place.name) is not None


def _calls_clear(module: Module, place: ast.AST, clears: set[int]) -> bool:
    called = {
        n.func.attr if isinstance(n.func, ast.Attribute) else n.func.id
        for n in ast.walk(place)
        if isinstance(n, ast.Call) and isinstance(n.func, (ast.Attribute, ast.Name))
    }
    if any("clear" in name or "zero_grad" in name for name in called):
        return True
    for other, body in bodies(module):
        named = getattr(other, "name", None) in called
        if named and any(id(n) in clears for statement in body for n in ast.walk(statement)):
            return True
    return False


def _mixed(events: list[Event]) -> Iterator[Hit]:
    def found() -> Iterator[Event]:
        for minimize in (e for e in events if e.kind == "minimize"):
            for event in events:
                same = event.kind in ("step", "update") and event.who == minimize.who and event.with_(minimize)
                if same and event.loops == minimize.loops:
                    yield event

    message = tr(
        "`{e.who}.{e.call.func.attr}` beside `minimize`, which does it already",
        "`minimize` 已包含 `{e.who}.{e.call.func.attr}`，此处重复",
    )
    yield from _hits(found(), words.MIXED, message, tr("keep one of the two forms", "只保留其中一种写法"))


def _missing_update(place: ast.AST, events: list[Event], everything: list[Event]) -> Iterator[Hit]:
    def found() -> Iterator[Event]:
        for step in (e for e in events if e.kind == "step"):
            here = [e for e in events if e.kind in ("update", "minimize") and e.who == step.who and e.with_(step)]
            # self.scaler may be updated by another method, a parameter by the caller
            elsewhere = any(e.kind == "update" and e not in events for e in everything)
            if not here and not elsewhere and (step.loops or _is_repeated(place)):
                yield step

    message = tr("`{e.who}.step` without `{e.who}.update`", "`{e.who}.step` 之后没有 `{e.who}.update`")
    yield from _hits(found(), words.UPDATE, message, "`{e.who}.update()`")


def _unscaled_twice(events: list[Event]) -> Iterator[Hit]:
    def found() -> Iterator[Event]:
        for event in (e for e in events if e.kind == "unscale"):
            for earlier in (
                e for e in events if e.before(event) and e.with_(event) and e.who == event.who and e.on == event.on
            ):
                if earlier.kind not in ("unscale", "step") or earlier.loops != event.loops:
                    continue
                between = [e for e in events if earlier.before(e) and e.before(event)]
                if not any(e.kind in ("update", "minimize", "backward") for e in between):
                    yield event

    message = tr(
        "`{e.on}` is unscaled a second time, or after its step", "`{e.on}` 被第二次取消缩放，或在更新之后取消缩放"
    )
    yield from _hits(
        found(),
        words.TWICE,
        message,
        tr("one `unscale_` between backward and step", "在 backward 与 step 之间只调用一次 `unscale_`"),
    )


def _cleared_too_early(events: list[Event]) -> Iterator[Hit]:
    def found() -> Iterator[Event]:
        for clear in (e for e in events if e.kind == "clear"):
            before = [e for e in events if e.before(clear) and e.with_(clear) and e.loops == clear.loops]
            after = [e for e in events if clear.before(e) and e.with_(clear) and e.loops == clear.loops]
            last = next((e for e in reversed(before) if e.kind in ("backward", *_STEPS, "clear")), None)
            following = next((e for e in after if e.kind in ("backward", *_STEPS)), None)
            if last is None or following is None or last.kind != "backward" or following.kind not in _STEPS:
                continue
            # of two optimizers each has its own gradients
            if clear.who == following.on and _always(clear, last) and _always(clear, following):
                yield clear

    message = tr("the gradients are cleared between backward and step", "梯度在 backward 与 step 之间被清除")
    yield from _hits(found(), words.EARLY, message, tr("clear after the step", "在更新之后清除"))


def _always(event: Event, other: Event) -> bool:
    return event.arms == other.arms


def _not_scaled(events: list[Event], everything: list[Event]) -> Iterator[Hit]:
    def found() -> Iterator[Event]:
        for step in (e for e in events if e.kind in ("step", "minimize")):
            backward = [e for e in events if e.kind == "backward" and e.before(step) and e.with_(step)]
            scales = [e for e in everything if e.kind == "scale"]
            if backward and not scales and not any(e.scaled for e in backward):
                yield backward[-1]

    message = tr("`{e.who}` is not scaled, but its gradients are unscaled", "`{e.who}` 未经缩放，但其梯度会被取消缩放")
    yield from _hits(found(), words.UNSCALED, message, "`scaler.scale({e.who}).backward()`")
