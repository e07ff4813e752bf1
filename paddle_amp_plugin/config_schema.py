"""The schema of the mapping under the ``amp`` key: types, ranges, defaults, and faults in plain words.

Every field is read by a function of ours (``PlainValidator``), so that a fault carries its code, both
languages and a suggestion; pydantic's own wording never reaches a user.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from paddle_amp_plugin.errors import Problem
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import nearest, show

#: Loss scales outside these bounds cannot work: below 2**-24 (the smallest float16) a loss near 1 is lost
#: again in float16; above 2**126 the inverse, by which gradients are unscaled, is no normal float32.
SMALLEST_SCALE = 2.0**-24
LARGEST_SCALE = 2.0**126
#: Paddle keeps step counts in 32-bit integers.
LARGEST_COUNT = 2**31 - 1

LEVEL_WORDS = {"o1": "O1", "o2": "O2", "od": "OD"}
DTYPE_WORDS = {
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}
TRUE_WORDS = frozenset({"true", "yes", "on", "y", "1", "enable", "enabled", "auto", "amp"})
FALSE_WORDS = frozenset({"false", "no", "off", "n", "0", "o0", "none", "fp32", "float32", "disable", "disabled"})

# "1e5" and "1.5E-3": YAML 1.1, and so PyYAML, reads a float only with a dot and a signed exponent, and hands
# these over as text. They can mean nothing but the number.
_EXPONENT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)[eE][+-]?\d+")
_OP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LAYER_PATTERN = re.compile(r".+")


def fault(code: str, en: str, zh: str, *, suggestion: str = "") -> PydanticCustomError:
    """What a reader raises: turned into a ``Problem`` by ``problems_of``."""
    return PydanticCustomError("amp", "amp", {"code": code, "en": en, "zh": zh, "suggestion": suggestion})


def exponent(value: object) -> object:
    """``1e-5`` as the number it means, where YAML 1.1 has made text of it; anything else as it is."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value.strip()) else value


def float32(value: float) -> float:
    """``value`` as Paddle's scaler holds it (a float32); infinite if it is too large for one."""
    try:
        return cast(float, struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _number(value: object) -> float:
    if isinstance(value, str):
        text = value.strip()
        if _EXPONENT.fullmatch(text):
            return float(text)
        try:
            float(text)
        except ValueError:
            raise fault("AMP002", "not a number", "不是数字") from None
        raise fault("AMP002", "text, not a number", "是文本而不是数字", suggestion=text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fault("AMP002", "not a number", "不是数字")
    try:
        return float(value)
    except OverflowError:
        raise fault("AMP004", "too large", "数值过大") from None


def number(
    above: float | None = None, below: float | None = None, least: float = -math.inf, most: float = math.inf
) -> Callable[[object], float]:
    """A reader of finite numbers: ``above < x < below`` and ``least <= x <= most``, judged as float32."""

    def read(value: object) -> float:
        x = _number(value)
        if not math.isfinite(x):
            raise fault("AMP004", "not a finite number", "不是有限数")
        held = float32(x)
        too_small = held < least or (above is not None and held <= above)
        too_large = held > most or (below is not None and held >= below)
        if too_small or too_large:
            raise fault("AMP004", "too small" if too_small else "too large", "数值过小" if too_small else "数值过大")
        return x

    return read


def number_or_auto(read: Callable[[object], float]) -> Callable[[object], float | str]:
    """A reader of the word ``auto``, or of what ``read`` reads."""

    def read_either(value: object) -> float | str:
        if isinstance(value, str) and value.strip().lower() == "auto":
            return "auto"
        try:
            return read(value)
        except PydanticCustomError as error:
            context = error.context or {}
            if isinstance(value, str) and context["code"] == "AMP002" and not context["suggestion"]:
                raise fault("AMP002", "not a number", "不是数字", suggestion=nearest(value, ["auto"])) from None
            raise

    return read_either


def count(value: object) -> int:
    """A reader of whole numbers from 1 to ``LARGEST_COUNT``; ``1000.0`` and ``1e3`` are whole."""
    if isinstance(value, int) and not isinstance(value, bool):
        whole = value
    else:
        x = _number(value)
        if not math.isfinite(x):
            raise fault("AMP004", "not a finite number", "不是有限数")
        if x != int(x):
            raise fault("AMP002", "not a whole number", "不是整数", suggestion=str(max(1, round(x))))
        whole = int(x)
    if whole < 1:
        raise fault("AMP004", "too small", "数值过小", suggestion="1")
    if whole > LARGEST_COUNT:
        raise fault("AMP004", "too large", "数值过大")
    return whole


def flag(value: object) -> bool:
    """A reader of true and false. Words and numbers are refused: ``"false"`` is true to Python."""
    if isinstance(value, bool):
        return value
    raise fault("AMP002", "neither true nor false", "既不是 true 也不是 false", suggestion=flag_meant(value))


def flag_meant(value: object) -> str:
    """``true`` or ``false`` if ``value`` is a usual way of saying so, else ""."""
    if isinstance(value, str):
        word = value.strip().lower()
        return "true" if word in TRUE_WORDS else "false" if word in FALSE_WORDS else ""
    if isinstance(value, int | float) and value in (0, 1):
        return "true" if value else "false"
    return ""


def choice(words: Mapping[str, str]) -> Callable[[object], str]:
    """A reader of one word out of ``words`` (lower-case spelling -> the name kept)."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            # 1, 2 and PyYAML's octal 01, 02: the letter O typed as a zero, or left out
            meant = f"o{value}" if value in (1, 2) and not isinstance(value, bool) else ""
            raise fault("AMP002", "not a word", "不是单词", suggestion=words.get(meant, ""))
        kept = words.get(value.strip().lower())
        if kept is None:
            raise fault("AMP003", "unknown word", "未知的取值", suggestion=_word_meant(value, words))
        return kept

    return read


def _word_meant(value: str, words: Mapping[str, str]) -> str:
    near = nearest(value.replace("0", "o") if "o1" in words else value, words)
    return words[near] if near else ""


def flag_or_auto(value: object) -> bool | str:
    """A reader of true, false and ``auto``."""
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    if isinstance(value, str) and not flag_meant(value):
        raise fault("AMP003", "unknown word", "未知的取值", suggestion=nearest(value, ["auto", "true", "false"]))
    return flag(value)


def cpu_word(value: object) -> str:
    """A reader of ``cpu``. Unquoted ``off`` reaches us as False: YAML 1.1 says so."""
    if value is False:
        return "off"
    return choice({"emulate": "emulate", "off": "off", "error": "error"})(value)


def names(pattern: re.Pattern[str]) -> Callable[[object], tuple[str, ...]]:
    """A reader of lists of names, in the order written, without repetitions."""

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            meant = "[" + ", ".join(map(show, value.replace(",", " ").split()[:4])) + "]"
            raise fault("AMP002", "one text, not a list", "是单个文本而不是列表", suggestion=meant)
        if not isinstance(value, list | tuple):
            raise fault("AMP002", "not a list", "不是列表", suggestion="[]" if value is None else "")
        for position, entry in enumerate(value):
            if not isinstance(entry, str) or not pattern.fullmatch(entry.strip()) or not entry.isprintable():
                en, zh = (
                    f"entry {position + 1}, {show(entry)}, is not a name",
                    f"第 {position + 1} 项 {show(entry)} 不是名称",
                )
                raise fault("AMP012", en, zh)
        return tuple(dict.fromkeys(entry.strip() for entry in value))

    return read


_scale = number(least=SMALLEST_SCALE, most=LARGEST_SCALE)
Scale = Annotated[float, PlainValidator(_scale)]
Count = Annotated[int, PlainValidator(count)]
Flag = Annotated[bool, PlainValidator(flag)]
OpNames = Annotated[tuple[str, ...], PlainValidator(names(_OP_NAME))]


class MonitorSettings(BaseModel):
    """``amp.monitor``: what is recorded, and at which steps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    visualdl: Flag = True
    every_n_steps: Count = 1


_decay = number(above=0.0, below=1.0)


def decay_or_off(value: object) -> float | None:
    """A reader of a decay, 0 < x < 1, or of nothing (null, false: no average is kept)."""
    if value is None or value is False:
        return None
    return _decay(value)


class EmaSettings(BaseModel):
    """``amp.ema``: an exponential moving average of the FP32 weights, which is what is evaluated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decay: Annotated[float | None, PlainValidator(decay_or_off)] = None


class AmpSettings(BaseModel):
    """The mapping under ``amp``. Values are normalised: ``o1`` -> ``O1``, ``fp16`` -> ``float16``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: Annotated[Literal["O1", "O2", "OD"], PlainValidator(choice(LEVEL_WORDS))] = "O1"
    dtype: Annotated[
        Literal["auto", "float16", "bfloat16"], PlainValidator(choice({"auto": "auto", **DTYPE_WORDS}))
    ] = "auto"
    preset: Annotated[Literal["safe", "fast"], PlainValidator(choice({"safe": "safe", "fast": "fast"}))] = "safe"
    custom_black_list: OpNames = ()
    custom_white_list: OpNames = ()
    fp32_layers: Annotated[tuple[str, ...], PlainValidator(names(_LAYER_PATTERN))] = ()
    init_loss_scaling: Annotated[float | Literal["auto"], PlainValidator(number_or_auto(_scale))] = 1024.0
    use_dynamic_loss_scaling: Flag = True
    incr_ratio: Annotated[float, PlainValidator(number(above=1.0, most=LARGEST_SCALE))] = 2.0
    decr_ratio: Annotated[float, PlainValidator(number(above=0.0, below=1.0))] = 0.5
    incr_every_n_steps: Count = 1000
    decr_every_n_nan_or_inf: Count = 1
    min_loss_scaling: Scale = 1.0
    max_loss_scaling: Scale = 16777216.0
    master_grad: Annotated[bool | Literal["auto"], PlainValidator(flag_or_auto)] = "auto"
    on_collapse: Annotated[
        Literal["pin", "fp32", "stop"], PlainValidator(choice({"pin": "pin", "fp32": "fp32", "stop": "stop"}))
    ] = "pin"
    accumulate_steps: Count = 1
    ema: EmaSettings = Field(default_factory=EmaSettings)
    eval_dtype: Annotated[
        Literal["float32", "float16", "bfloat16"],
        PlainValidator(choice({"float32": "float32", "fp32": "float32", **DTYPE_WORDS})),
    ] = "float32"
    cpu: Annotated[Literal["emulate", "off", "error"], PlainValidator(cpu_word)] = "emulate"
    monitor: MonitorSettings = Field(default_factory=MonitorSettings)


_FLAG = ("true, false", "true、false")
_COUNT = (f"a whole number from 1 to {LARGEST_COUNT}", f"1 到 {LARGEST_COUNT} 之间的整数")
_SCALE = ("a number from 2**-24 to 2**126", "2**-24 到 2**126 之间的数")
_OPS = (
    "a list of op names as Paddle's AMP lists spell them, e.g. [matmul_v2, conv2d]",
    "算子名称列表，写法与 Paddle 的 AMP 名单一致，例如 [matmul_v2, conv2d]",
)
#: Dotted key -> what is allowed, in English and Chinese.
ALLOWED: Mapping[str, tuple[str, str]] = {
    "level": ("O1, O2, OD", "O1、O2、OD"),
    "dtype": ("auto, float16, bfloat16", "auto、float16、bfloat16"),
    "preset": ("safe, fast", "safe、fast"),
    "custom_black_list": _OPS,
    "custom_white_list": _OPS,
    "fp32_layers": (
        'a list of layer name patterns, e.g. ["backbone.conv1", "head.*"]',
        '层名称模式的列表，例如 ["backbone.conv1", "head.*"]',
    ),
    "init_loss_scaling": (f"{_SCALE[0]}, or auto", f"{_SCALE[1]}，或 auto"),
    "use_dynamic_loss_scaling": _FLAG,
    "incr_ratio": ("a number greater than 1 (as float32)", "大于 1 的数（按 float32 计）"),
    "decr_ratio": ("a number greater than 0 and less than 1 (as float32)", "大于 0 且小于 1 的数（按 float32 计）"),
    "incr_every_n_steps": _COUNT,
    "decr_every_n_nan_or_inf": _COUNT,
    "min_loss_scaling": _SCALE,
    "max_loss_scaling": _SCALE,
    "master_grad": ("auto, true, false", "auto、true、false"),
    "on_collapse": ("pin, fp32, stop", "pin、fp32、stop"),
    "accumulate_steps": _COUNT,
    "eval_dtype": ("float32, float16, bfloat16", "float32、float16、bfloat16"),
    "cpu": ("emulate, off, error", "emulate、off、error"),
    "ema": ("a mapping with the key decay, e.g. {decay: 0.999}", "包含键 decay 的映射，例如 {decay: 0.999}"),
    "ema.decay": (
        "a number greater than 0 and less than 1 (as float32), or null for none",
        "大于 0 且小于 1 的数（按 float32 计），或 null（不使用）",
    ),
    "monitor": (
        "a mapping with the keys visualdl and every_n_steps",
        "包含键 visualdl 与 every_n_steps 的映射",
    ),
    "monitor.visualdl": _FLAG,
    "monitor.every_n_steps": _COUNT,
}
#: The keys of the mapping itself, and those of the mappings within it.
KEYS = tuple(AmpSettings.model_fields)
NESTED: Mapping[str, tuple[str, ...]] = {
    "ema": tuple(EmaSettings.model_fields),
    "monitor": tuple(MonitorSettings.model_fields),
}


def allowed(key: str) -> str:
    """What the dotted ``key`` (without ``amp.``) may hold, in the user's language."""
    return tr(*ALLOWED[key]) if key in ALLOWED else ""


def problems_of(error: ValidationError, path_of: Callable[[str], str]) -> Iterable[tuple[str, Problem]]:
    """Each fault in ``error`` as (dotted key, Problem); ``path_of`` gives the key as the user spelled it."""
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"][:2])
        yield key, _problem(key, path_of(key), item["type"], item.get("ctx", {}), item["input"])


def _problem(key: str, path: str, kind: str, context: Mapping[str, Any], value: object) -> Problem:
    if kind == "extra_forbidden":
        return unknown_key(key, path, value)
    if kind == "amp":
        code, said, suggestion = context["code"], tr(context["en"], context["zh"]), context["suggestion"]
    else:  # the only one left of pydantic's own: `monitor` or `ema` is no mapping
        code, said, suggestion = "AMP002", tr("not a mapping", "不是映射"), ""
    message = tr("{said} (found: {value})", "{said}（实际值：{value}）", said=said, value=show(value))
    return Problem(code, path, message, value=value, allowed=allowed(key), suggestion=suggestion)


def problem_of(key: str, path: str, value: object, error: PydanticCustomError) -> Problem:
    """The Problem of one value that a reader refused."""
    return _problem(key, path, "amp", error.context or {}, value)


def unknown_key(key: str, path: str, value: object) -> Problem:
    """The Problem of a key that the schema does not have."""
    parent, _, name = key.rpartition(".")
    candidates = NESTED.get(parent, KEYS)
    near = nearest(name, candidates)
    if not near and name.lower() in ("enable", "enabled", "use_amp", "use", "on", "off"):
        near = "amp: true / amp: false"
    message = tr("unknown key (value: {value})", "未知的键（其值：{value}）", value=show(value))
    return Problem("AMP001", path, message, value=value, allowed=", ".join(candidates), suggestion=near)
