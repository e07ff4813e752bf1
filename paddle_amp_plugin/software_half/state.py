"""What ``auto_cast`` currently asks for, as seen by the op wrappers, and the tracer that tells them.

Paddle's ``amp_guard`` writes level, dtype and lists into its C++ tracer. On a CPU the C++ side would act on
them in its own way (Paddle 3.3.1 casts half tensors back to FP32 there), so inside software half the AMP attributes
live here and the C++ tracer stays at O0. Everything else of the tracer is the real one.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle.base import core

from paddle_amp_plugin.op_rules import CastSettings, Rule, rule_of
from paddle_amp_plugin.software_half.support import unsupported_ops

_LEVEL_NAMES = {core.AmpLevel.O0: "O0", core.AmpLevel.OD: "OD", core.AmpLevel.O1: "O1", core.AmpLevel.O2: "O2"}
HALF = {"float16": paddle.float16, "bfloat16": paddle.bfloat16}


class CastState:
    """The settings in force and, for each op already met, its rule. One instance a process."""

    def __init__(self) -> None:
        self.level = core.AmpLevel.O0
        self.dtype_name = "float32"
        self.white: frozenset[str] = frozenset()
        self.black: frozenset[str] = frozenset()
        self.use_promote = True
        self.half: Any = None
        self.settings = CastSettings()
        self.rules: dict[str, Rule] = {}
        self._known: dict[CastSettings, dict[str, Rule]] = {}

    def refresh(self) -> None:
        """Recompute the settings after one of the tracer's AMP attributes changed."""
        level = _LEVEL_NAMES[self.level]
        if level == "O0" or self.dtype_name not in HALF:
            self.settings, self.half = CastSettings(), None
        else:
            self.half = HALF[self.dtype_name]
            self.settings = CastSettings(
                level=level,
                dtype=self.dtype_name,
                white=self.white,
                black=self.black,
                use_promote=self.use_promote,
                unsupported=unsupported_ops(self.dtype_name),
            )
        # An auto_cast block entered once a step must not relearn its rules each time.
        self.rules = self._known.setdefault(self.settings, {})

    def rule(self, op: str) -> Rule:
        """The rule for an op by its AMP name, remembered for as long as the settings stay."""
        rule = self.rules.get(op)
        if rule is None:
            rule = self.rules[op] = rule_of(op, self.settings)
        return rule


class _EmulatedPlace:
    """The CPU place, answering as a GPU of compute capability 8.0 or higher would."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def is_gpu_place(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __repr__(self) -> str:
        return f"software half on {self._real}"


class EmulatedTracer:
    """The real tracer but for its AMP attributes, which go to ``CastState``."""

    def __init__(self, real: Any, state: CastState) -> None:
        object.__setattr__(self, "_real", real)
        object.__setattr__(self, "_state", state)

    @property
    def _expected_place(self) -> Any:
        return _EmulatedPlace(self._real._expected_place)

    def _get_amp_op_list(self) -> tuple[set[str], set[str]]:
        return set(self._state.white), set(self._state.black)

    def _set_amp_op_list(self, white: Any, black: Any) -> None:
        self._state.white, self._state.black = frozenset(white), frozenset(black)
        self._state.refresh()

    def __getattr__(self, name: str) -> Any:
        if name in _STATE_ATTRIBUTES:
            return getattr(self._state, _STATE_ATTRIBUTES[name])
        return getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _STATE_ATTRIBUTES:
            setattr(self._state, _STATE_ATTRIBUTES[name], value)
            self._state.refresh()
        else:
            setattr(self._real, name, value)


_STATE_ATTRIBUTES = {"_amp_level": "level", "_amp_dtype": "dtype_name", "_use_promote": "use_promote"}

STATE = CastState()
