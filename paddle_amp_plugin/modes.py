"""What a host does between its training steps: evaluating, saving, exporting. Each sees other weights.

Evaluation is of what the run is to be judged by: the moving average of the weights where there is one, else the
weights; FP32 unless ``eval_dtype`` says otherwise. Saving is of the FP32 masters, always.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import paddle

from paddle_amp_plugin import autocast, moments
from paddle_amp_plugin.routing import ctrl_c_later, plain_call, routed_call
from paddle_amp_plugin.run_errors import refuse_non_finite

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan
    from paddle_amp_plugin.session import Session


class Modes:
    """Belongs to one session. ``current``: "train", "eval" (under ``cast``) or "float32" (no auto_cast)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.current = "train"
        self.cast: Plan = session.plan

    @contextlib.contextmanager
    def evaluation(self, model: paddle.nn.Layer | None = None) -> Iterator[None]:
        """Evaluation as the plan wants it, during training or (with ``model``) by itself.

        ``eval_dtype: float32``: FP32 weights, no auto_cast. Else under the plan's level and lists in that type,
        on the half weights if they are of that type, on the FP32 masters if not.
        """
        session = self._session
        dtype = str(session.plan.eval_dtype)
        if dtype == "float32":
            with self.float32() if session.model is not None else contextlib.nullcontext():
                yield
            return
        before, self.current, self.cast = (self.current, self.cast), "eval", self._cast_to(dtype)
        try:
            with contextlib.ExitStack() as stack:
                if session.model is None and model is not None:
                    if session.plan.software_half:
                        session.use_software_half()
                        stack.callback(session.close)
                    stack.enter_context(routed_call(autocast.inner(model), session.model_called))
                elif session.model is not None and dtype != session.plan.dtype:
                    stack.enter_context(autocast.float32_weights(session.model, session.optimizer))
                stack.enter_context(self._average())
                yield
        finally:
            self.current, self.cast = before

    def _cast_to(self, dtype: str) -> Plan:
        plan = self._session.plan
        return plan if dtype == plan.dtype else dataclasses.replace(plan, dtype=dtype)

    def _average(self) -> contextlib.AbstractContextManager[None]:
        average = self._session.average
        return average.in_place() if average is not None else contextlib.nullcontext()

    @contextlib.contextmanager
    def float32(self) -> Iterator[None]:
        """FP32 weights and no auto_cast, whatever ``eval_dtype`` says."""
        session = self._session
        assert session.model is not None
        before, self.current = self.current, "float32"
        try:
            with (
                autocast.float32_weights(session.model, session.optimizer),
                self._average(),
                autocast.no_auto_cast(),
            ):
                yield
        finally:
            self.current = before

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """The host saves inside it: weights are their FP32 masters, moments have the parameters' own names, and
        Ctrl-C waits until it is done.

        Raises AmpError (AMP046) when a weight is not finite: such weights are never written.
        """
        model, optimizer = self._session.model, self._session.optimizer
        if model is None:
            yield
            return
        with ctrl_c_later(), autocast.float32_weights(model, optimizer), moments.own_names(optimizer):
            refuse_non_finite(model)
            yield

    @contextlib.contextmanager
    def exporting(self) -> Iterator[None]:
        """The host traces or copies the model inside it: plain classes, FP32 weights, no auto_cast."""
        model = self._session.model
        if model is None:
            yield
            return
        with plain_call(model), autocast.unpinned(model), self.float32():
            yield
