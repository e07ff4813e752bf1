"""The AMP settings of PaddleOCR and PaddleNLP under their own names, and names misspelt so that no one reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from paddle_amp_plugin.config_schema import DTYPE_WORDS, KEYS, LEVEL_WORDS
from paddle_amp_plugin.errors import Problem
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import letters, likeness, nearest, plain, show

Host = Literal["paddleocr", "paddlenlp"]

#: PaddleOCR, under ``Global`` (``tools/train.py``): its name -> our key. ``use_amp`` is the switch.
PADDLEOCR = {
    "use_amp": "enabled",
    "amp_level": "level",
    "amp_dtype": "dtype",
    "amp_custom_black_list": "custom_black_list",
    "amp_custom_white_list": "custom_white_list",
    "scale_loss": "init_loss_scaling",
    "use_dynamic_loss_scaling": "use_dynamic_loss_scaling",
}
#: PaddleNLP, top level (``TrainingArguments``): its name -> our key. ``fp16`` and ``bf16`` are the switches.
PADDLENLP = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp16_opt_level": "level",
    "scale_loss": "init_loss_scaling",
    "amp_custom_black_list": "custom_black_list",
    "amp_custom_white_list": "custom_white_list",
    "amp_master_grad": "master_grad",
}
#: Names of the hosts near enough to an AMP name to be taken for a slip, and read by the host.
INNOCENT = frozenset({"fp16_full_eval", "bf16_full_eval", "use_gpu", "use_npu", "use_xpu", "use_mlu", "use_gcu"})
#: Our keys that mean nothing else: under ``Global`` they were meant for the ``amp`` mapping.
OUR_OWN = frozenset(KEYS) - {"level", "dtype", "preset", "cpu", "monitor", "accumulate_steps", "ema"}


def names_of(host: Host) -> Mapping[str, str]:
    """The host's AMP names -> our keys."""
    return PADDLEOCR if host == "paddleocr" else PADDLENLP


def prefix_of(host: Host) -> str:
    """Where the host's AMP names stand in its file."""
    return "Global." if host == "paddleocr" else ""


def section_of(document: Mapping[str, Any], host: Host) -> Mapping[str, Any]:
    """The mapping in which the host's AMP names stand (empty if it is missing or no mapping)."""
    section = document.get("Global") if host == "paddleocr" else document
    return section if isinstance(section, Mapping) else {}


def is_amp_key(path: str) -> bool:
    """Whether the dotted ``path`` sets AMP in either host's file."""
    if path in ("amp", "Global.amp") or path in PADDLENLP:
        return True
    return path.startswith("Global.") and path[len("Global.") :] in PADDLEOCR


def misspellings(document: Mapping[str, Any], host: Host) -> Iterator[Problem]:
    """One Problem (AMP010) for each key that was surely meant to set AMP and that no one would read.

    The hosts accept unknown keys in silence, so ``use_apm: true`` would train in FP32 without a word.
    """
    for key, value in document.items():
        if isinstance(key, str) and key != "amp" and _means_amp(key, value):
            yield _misspelt(key, value, "amp")
        elif host == "paddleocr" and key in PADDLEOCR:
            yield _misspelt(str(key), value, f"Global.{key}")
        elif host == "paddlenlp" and key == "use_amp":  # PaddleOCR's switch in a PaddleNLP file
            yield _misspelt(key, value, "amp")
    prefix, known = prefix_of(host), names_of(host)
    for key, value in section_of(document, host).items():
        if not isinstance(key, str) or key == "amp" or key in known or key in INNOCENT:
            continue
        if prefix and _means_amp(key, value):
            yield _misspelt(prefix + key, value, "Global.amp")
        elif key in OUR_OWN:
            yield _misspelt(prefix + key, value, f"amp.{key}")
        elif near := _host_name_meant(key, known):
            yield _misspelt(prefix + key, value, prefix + near)


def _means_amp(key: str, value: object) -> bool:
    if letters(key) == "amp":
        return True
    near = likeness(key, "amp")
    if isinstance(value, Mapping):
        return near >= 0.6 and any(k in KEYS for k in value if isinstance(k, str))
    word = isinstance(value, str) and value.strip().lower() in {**LEVEL_WORDS, **DTYPE_WORDS}
    return near >= 0.8 and letters(key).startswith("a") and (isinstance(value, bool) or word)


def _host_name_meant(key: str, known: Mapping[str, str]) -> str:
    # short names have short neighbours (fp8, tf32, use_gpu): only one slip is forgiven in them
    near = nearest(key, known, cutoff=0.8)
    if near:
        return near
    return nearest(key, known, cutoff=0.5) if letters(key).startswith("amp") else ""


def _misspelt(path: str, value: object, meant: str) -> Problem:
    message = tr(
        "no one reads this key, so it would do nothing (value: {value})",
        "没有程序读取这个键，它不会起任何作用（其值：{value}）",
        value=show(value),
    )
    return Problem("AMP010", plain(path), message, value=value, allowed=meant, suggestion=meant)
