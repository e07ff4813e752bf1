"""PaddleOCR's ``global_step`` is a local of its loop, ``global_step += 1`` after every batch: also after a skip.

The loop takes its start from ``pre_best_model_dict["global_step"]``, so it is handed a number that does not grow when
the step was skipped. What hangs on it (log lines, evaluations, a checkpoint's step) then counts updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class UpdateCount(int):
    """An int to which ``+ 1`` adds nothing if ``skipped()`` says that the step was skipped.

    ``n % k`` is never 0 right after a skip: what is due every k steps was done when the number was reached.
    """

    _skipped: Callable[[], bool]
    _held: bool

    def __new__(cls, value: int, skipped: Callable[[], bool], held: bool = False) -> UpdateCount:
        count = super().__new__(cls, value)
        count._skipped, count._held = skipped, held
        return count

    def __add__(self, other: int) -> UpdateCount:
        held = self._skipped()
        return UpdateCount(int(self) if held else int(self) + other, self._skipped, held)

    def __sub__(self, other: int) -> UpdateCount:
        return UpdateCount(int(self) - other, self._skipped, self._held)

    def __mod__(self, other: int) -> int:
        return -1 if self._held else int(self) % other

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class StartFacts(dict[str, Any]):
    """``pre_best_model_dict`` as the loop reads it: ``global_step`` can be asked for, but is no metric.

    (``best_model_dict.update(...)`` copies what is stored, and would print it with every best metric.)
    """

    def __init__(self, facts: Mapping[str, Any], skipped: Callable[[], bool]) -> None:
        stored = dict(facts)
        step = stored.pop("global_step", 0)
        super().__init__(stored)
        self._step = UpdateCount(int(step), skipped)

    def __contains__(self, key: object) -> bool:
        return key == "global_step" or super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        return self._step if key == "global_step" else super().__getitem__(key)
