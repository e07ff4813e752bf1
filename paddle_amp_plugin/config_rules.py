"""Rules between the keys of one config, keys that a host has no use for, and remarks that stop nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

from paddle_amp_plugin.config_schema import AmpSettings
from paddle_amp_plugin.errors import Problem
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.op_names import amp_name, known_ops
from paddle_amp_plugin.spelling import nearest, show

#: Below this a static scale leaves most small gradients at zero in float16.
LOW_STATIC_SCALE = 128.0


@dataclass(frozen=True)
class Note:
    """A remark about a config that stops nothing; ``str`` gives it in the user's language."""

    code: str
    en: str
    zh: str

    def __str__(self) -> str:
        return f"[{self.code}] {tr(self.en, self.zh)}"


@dataclass(frozen=True)
class Elsewhere:
    """A key that a host has no use for, or has under a name of its own: refused there, rather than ignored."""

    host: str
    key: str
    applies: Callable[[Any], bool]
    en: str
    zh: str
    suggestion: str = ""


ELSEWHERE = (
    Elsewhere(
        "paddlenlp",
        "accumulate_steps",
        lambda v: bool(v > 1),
        "the Trainer accumulates gradients by a setting of its own",
        "Trainer 使用自己的设置累积梯度",
        "gradient_accumulation_steps",
    ),
    Elsewhere(
        "paddlenlp",
        "ema.decay",
        lambda v: v is not None,
        "the average of the weights is kept in PaddleOCR's trainer only",
        "权重的滑动平均仅用于 PaddleOCR 的训练",
    ),
)


def cross_problems(settings: AmpSettings, path_of: Callable[[str], str], broken: Collection[str]) -> Iterator[Problem]:
    """What is wrong between valid values. Rules that need a key in ``broken`` are left out."""
    yield from _scale_order(settings, path_of, broken)
    if not {"custom_black_list", "custom_white_list"} & set(broken):
        yield from _both_lists(settings, path_of)
    if not {"level", "master_grad"} & set(broken) and settings.master_grad is True and settings.level != "O2":
        message = tr(
            "master_grad works at level O2 only (level is {level})",
            "master_grad 仅适用于 O2 级别（当前 level 为 {level}）",
            level=settings.level,
        )
        yield Problem("AMP008", path_of("master_grad"), message, True, "auto, false", "level: O2")
    if not {"dtype", "eval_dtype"} & set(broken):
        yield from _eval_dtype(settings, path_of)


def _scale_order(settings: AmpSettings, path_of: Callable[[str], str], broken: Collection[str]) -> Iterator[Problem]:
    keys = ("min_loss_scaling", "init_loss_scaling", "max_loss_scaling")
    known = [(k, float(v)) for k in keys if k not in broken and not isinstance(v := getattr(settings, k), str)]
    for (low, low_value), (high, high_value) in pairwise(known):
        if low_value <= high_value:
            continue
        message = tr(
            "{low} ({a}) is greater than {high} ({b})",
            "{low}({a})大于 {high}({b})",
            low=path_of(low),
            a=f"{low_value:g}",
            high=path_of(high),
            b=f"{high_value:g}",
        )
        order = "min_loss_scaling <= init_loss_scaling <= max_loss_scaling"
        yield Problem("AMP006", _written_one(settings, high, low, path_of), message, high_value, order)


def _written_one(settings: AmpSettings, first: str, second: str, path_of: Callable[[str], str]) -> str:
    """The path of whichever of the two keys the user wrote: the other is a default, and not at fault."""
    return path_of(first if first in settings.model_fields_set or second not in settings.model_fields_set else second)


def _both_lists(settings: AmpSettings, path_of: Callable[[str], str]) -> Iterator[Problem]:
    white, black = path_of("custom_white_list"), path_of("custom_black_list")
    for op in sorted(set(settings.custom_white_list) & set(settings.custom_black_list)):
        message = tr("{op} is also in {white}", "{op} 同时出现在 {white} 中", op=op, white=white)
        text = tr("each op in one list only", "每个算子只能出现在一个名单中")
        yield Problem("AMP007", black, message, op, text)


def _eval_dtype(settings: AmpSettings, path_of: Callable[[str], str]) -> Iterator[Problem]:
    if settings.dtype == "auto" or settings.eval_dtype in ("float32", settings.dtype):
        return
    message = tr(
        "evaluation in {e}, but training in {d}",
        "评估使用 {e}，训练却使用 {d}",
        e=settings.eval_dtype,
        d=settings.dtype,
    )
    yield Problem(
        "AMP015", path_of("eval_dtype"), message, settings.eval_dtype, f"float32, {settings.dtype}", "float32"
    )


def elsewhere_problems(
    settings: AmpSettings, path_of: Callable[[str], str], broken: Collection[str], host: str
) -> Iterator[Problem]:
    """Valid values that mean nothing to this host (AMP013)."""
    for row in ELSEWHERE:
        value = attrgetter(row.key)(settings)
        if row.host == host and row.key not in broken and row.applies(value):
            message = tr("{what} (found: {v})", "{what}（实际值：{v}）", what=tr(row.en, row.zh), v=show(value))
            yield Problem("AMP013", path_of(row.key), message, value, suggestion=row.suggestion)


def notes_of(settings: AmpSettings, written: Mapping[str, str]) -> Iterator[Note]:
    """Remarks on a valid config. ``written``: dotted key -> the path under which the user wrote it."""
    yield from _unknown_ops(settings, written)
    scaling = [key for key in written if key in _SCALING_KEYS]
    if settings.dtype == "bfloat16":
        if scaling:
            paths = ", ".join(written[key] for key in scaling)
            yield Note(
                "AMP021",
                f"bfloat16 needs no loss scaling, so this has no effect: {paths}",
                f"bfloat16 不需要 loss scaling，以下设置不起作用：{paths}",
            )
        return
    init = settings.init_loss_scaling
    if not settings.use_dynamic_loss_scaling and not isinstance(init, str) and init < LOW_STATIC_SCALE:
        low = f"{LOW_STATIC_SCALE:g}"
        yield Note(
            "AMP020",
            f"a static loss scale of {init:g} is low: below {low} small float16 gradients become zero and "
            "training may stall without a message; use_dynamic_loss_scaling: true, or init_loss_scaling: 1024",
            f"静态 loss scale {init:g} 过低：低于 {low} 时，较小的 float16 梯度会变成零，训练可能无声停滞；"
            "建议 use_dynamic_loss_scaling: true，或 init_loss_scaling: 1024",
        )


def _unknown_ops(settings: AmpSettings, written: Mapping[str, str]) -> Iterator[Note]:
    """Op names that Paddle's lists are never asked about. Not an error: a user may have ops of their own."""
    known = known_ops()
    for key in ("custom_white_list", "custom_black_list"):
        for op in getattr(settings, key) if key in written else ():
            if op in known:
                continue
            forward = [name for name in known if not name.endswith("_")]  # the lists hold no in-place names
            meant = amp_name(op) if amp_name(op) in known else nearest(op, forward, 0.8)
            yield Note(
                "AMP023",
                f"{written[key]}: Paddle's AMP lists know no op {op}, so it has no effect"
                + (f"; did you mean {meant}?" if meant else ""),
                f"{written[key]}:Paddle 的 AMP 名单中没有算子 {op}，不会起作用"
                + (f"；您是不是想写 {meant}?" if meant else ""),
            )


_SCALING_KEYS = (
    "init_loss_scaling",
    "use_dynamic_loss_scaling",
    "incr_ratio",
    "decr_ratio",
    "incr_every_n_steps",
    "decr_every_n_nan_or_inf",
    "min_loss_scaling",
    "max_loss_scaling",
)
