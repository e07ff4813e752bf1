"""A ``paddle.amp.GradScaler`` that follows :class:`~paddle_amp_plugin.loss_scaling.LossScale`.

What differs from Paddle's own, and why (all probed on Paddle 2.6.2 and 3.3.1):

* the scale has a floor and a ceiling; Paddle's halves down to exactly 0 and never comes back;
* it never switches itself off. Paddle's ``scale()`` does, for good, when the global amp dtype is not float16,
  and that global is left behind by every ``auto_cast`` (a bf16 evaluation inside an fp16 run is enough);
* a skip is counted and reported with static scaling too, and nothing is written with a bare ``print``;
* gradients moved to ``param.main_grad`` (``master_grad``) are the ones that are tested and unscaled;
* without loss scaling (bfloat16) gradients are still tested, and a step that is not finite is skipped;
* a state file restores the value and the counters; the policy stays the one of the config.

The attributes that hosts read (``_scale``, ``_found_inf``, ``_cache_found_inf``, ``_incr_count``, …) are kept.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops
from paddle.amp.grad_scaler import OptimizerState

from paddle_amp_plugin.loss_scaling import LossScale, Outcome, ScalingPolicy
from paddle_amp_plugin.messages import tr

logger = logging.getLogger("paddle_amp_plugin")


def _fresh_state() -> dict[str, OptimizerState]:
    return {"state": OptimizerState.INIT}


def _flag(value: bool) -> paddle.Tensor:
    """A bool tensor of shape [1] on the current device."""
    return paddle.to_tensor(np.array([value], dtype=np.bool_))


def optimizer_parameters(optimizer: Any) -> list[paddle.Tensor]:
    """Every parameter an optimizer updates, of all its groups, in order."""
    groups = getattr(optimizer, "_param_groups", None) or []
    if groups and isinstance(groups[0], dict):
        return [parameter for group in groups for parameter in group["params"]]
    return list(getattr(optimizer, "_parameter_list", None) or groups)


def gradient(parameter: paddle.Tensor) -> paddle.Tensor | None:
    """The gradient the optimizer will use: ``main_grad`` (FP32) where it exists, else ``grad``."""
    main = getattr(parameter, "main_grad", None)
    return main if main is not None else parameter._grad_ivar()


def gradients_finite(optimizer: Any) -> bool:
    """Whether every gradient that the optimizer would use is finite (as it is now: scaled or not)."""
    found = (g for g in map(gradient, optimizer_parameters(optimizer)) if g is not None and g._is_initialized())
    return all(bool(paddle.isfinite(g.astype("float32")).all()) for g in found)


class LossScaler(paddle.amp.GradScaler):
    """The loss scaler of one run.

    ``policy`` may be a :class:`ScalingPolicy` or a running :class:`LossScale`. With ``use_loss_scaling`` false
    (bfloat16) losses and gradients are not multiplied, but finiteness is tested and skips are counted.

    ``on_outcome`` is called after every update with the :class:`Outcome`.
    """

    def __init__(
        self,
        policy: ScalingPolicy | LossScale,
        *,
        use_loss_scaling: bool = True,
        on_outcome: Callable[[Outcome], None] | None = None,
    ) -> None:
        # The base class decides by the device whether it is enabled (never on a CPU), so it is told not to be,
        # and every attribute it would have set is set below, in the same words on both Paddle versions.
        super().__init__(enable=False)
        self.loss_scale = policy if isinstance(policy, LossScale) else LossScale(policy)
        self.use_loss_scaling = use_loss_scaling
        self.on_outcome = on_outcome
        self.last_outcome: Outcome | None = None
        self._pending: bool | None = None
        self._enable = True
        self._optimizer_states: dict[int, dict[str, OptimizerState]] = defaultdict(_fresh_state)
        self._found_inf = _flag(False)
        self._temp_found_inf_value_false = _flag(False)
        self._remember(None)
        self._follow()

    @property
    def policy(self) -> ScalingPolicy:
        """The policy being followed (immutable)."""
        return self.loss_scale.policy

    def _remember(self, found: bool | None) -> None:
        # Paddle 2.6.2 spells the attribute with an f too many; hosts written for it read that name.
        self._cache_found_inf = self._cache_founf_inf = found

    def _follow(self) -> None:
        """Copies the state machine's numbers to where Paddle keeps them."""
        policy = self.policy
        self._use_dynamic_loss_scaling = self.use_loss_scaling and policy.dynamic
        self._init_loss_scaling = policy.init if self.use_loss_scaling else 1.0
        self._incr_ratio = policy.incr_ratio
        self._decr_ratio = policy.decr_ratio
        self._incr_every_n_steps = policy.incr_every_n_steps
        self._decr_every_n_nan_or_inf = policy.decr_every_n_nan_or_inf
        self._incr_count = self.loss_scale.good_steps
        self._decr_count = self.loss_scale.bad_steps
        scale = self.current_scale
        if getattr(self, "_scale_value", None) != scale or self._scale is None:
            self._scale = paddle.to_tensor(np.array([scale], dtype=np.float32))
            self._scale_value = scale

    @property
    def current_scale(self) -> float:
        """The number a loss is multiplied by now (1.0 without loss scaling)."""
        return float(self.loss_scale.scale) if self.use_loss_scaling else 1.0

    def scale(self, var: paddle.Tensor) -> paddle.Tensor:
        """``var`` times the scale, in FP32 whatever ``auto_cast`` is around (a half loss would overflow)."""
        if not self._enable or not self.use_loss_scaling:
            return var
        if var.dtype in (paddle.float16, paddle.bfloat16):
            var = var.astype("float32")
        with _no_auto_cast():
            return var * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients by the scale ahead of ``step`` (to clip or look at them)."""
        self._unscale(optimizer)  # Paddle's calls its grandparent's, past any subclass

    def _unscale(self, optimizer: Any) -> None:
        """Divides the gradients by the scale, once, and records whether one of them is not finite.

        Raises RuntimeError when called twice between updates, as Paddle's does.
        """
        if not self._enable:
            return
        state = self._optimizer_states[id(optimizer)]
        if state["state"] is OptimizerState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["state"] is OptimizerState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        gradients = [g for g in map(gradient, optimizer_parameters(optimizer)) if g is not None]
        self._found_inf = self._check_and_unscale(gradients)
        state["state"] = OptimizerState.UNSCALED

    def _check_and_unscale(self, gradients: Iterable[paddle.Tensor]) -> paddle.Tensor:
        """Unscales in place; returns a bool tensor of shape [1]: is any element not finite?"""
        by_dtype: dict[Any, list[paddle.Tensor]] = defaultdict(list)
        for tensor in gradients:
            by_dtype[tensor.dtype].append(tensor)
        found = self._temp_found_inf_value_false
        for tensors in by_dtype.values():
            _, flag = _C_ops.check_finite_and_unscale_(tensors, self._scale)
            found = paddle.logical_or(found, flag)
        if self.current_scale < 1.0:
            # Dividing by less than one can itself leave the range, and Paddle's CPU kernel looks before it
            # divides. From one upwards it cannot happen, so a healthy run never pays for this.
            for tensors in by_dtype.values():
                for tensor in tensors:
                    finite = paddle.isfinite(tensor.astype("float32")).all()
                    found = paddle.logical_or(found, paddle.logical_not(finite).reshape([1]))
        return found

    def _apply(self, optimizer: Any, update: Callable[[], Any], otherwise: Any = None) -> Any:
        """Runs ``update`` unless the gradients are not finite; remembers which it was."""
        state = self._optimizer_states[id(optimizer)]
        if state["state"] is OptimizerState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["state"] is OptimizerState.INIT:
            self._unscale(optimizer)
        found = bool(self._found_inf)
        if hasattr(optimizer, "_set_auxiliary_var"):
            optimizer._set_auxiliary_var("found_inf", found)
        result = otherwise if found else update()
        self._remember(found)
        self._pending = found or bool(self._pending)
        state["state"] = OptimizerState.STEPPED
        return result

    def step(self, optimizer: Any) -> None:
        """``optimizer.step()`` if every gradient is finite, else nothing (a skip).

        With static scaling the skip is counted here, since Paddle asks for no ``update()`` then.
        """
        if not self._enable:
            optimizer.step()
            return
        self._apply(optimizer, optimizer.step)
        if not self._use_dynamic_loss_scaling:
            self._update()

    def update(self) -> None:
        """Moves the scale on after ``step``; without a step before it, does nothing."""
        if self._enable and self._pending is not None:
            self._update()

    def minimize(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.minimize(...)`` if every gradient is finite, then ``update``."""
        if not self._enable:
            return optimizer.minimize(*args, **kwargs)
        result = self._apply(optimizer, lambda: optimizer.minimize(*args, **kwargs), (None, None))
        self._update()
        return result

    def _update(self) -> None:
        self.last_outcome = self.loss_scale.advance(bool(self._pending))
        self._pending = None
        self._optimizer_states = defaultdict(_fresh_state)
        self._follow()
        if self.on_outcome is not None:
            self.on_outcome(self.last_outcome)

    def restore(self, scale: float) -> None:
        """Goes on at ``scale``, with skips in a row counted anew (after a layer was pinned, or a calibration)."""
        self.loss_scale.restore(scale)
        self._follow()

    def without_scaling(self) -> None:
        """From here on nothing is multiplied; gradients are still tested, and what is not finite is skipped."""
        self.use_loss_scaling = False
        self.restore(self.policy.init)

    def set_init_loss_scaling(self, new_init_loss_scaling: float) -> None:
        """Starts again from another scale; the other counters start again too."""
        new = float(new_init_loss_scaling)
        low, high = min(self.policy.minimum, new), max(self.policy.maximum, new)
        self.loss_scale = LossScale(dataclasses.replace(self.policy, init=new, minimum=low, maximum=high))
        self._follow()

    def set_incr_ratio(self, new_incr_ratio: float) -> None:
        assert new_incr_ratio > 1.0, "The new_incr_ratio must be > 1.0."
        self._change_policy(incr_ratio=new_incr_ratio)

    def set_decr_ratio(self, new_decr_ratio: float) -> None:
        assert new_decr_ratio < 1.0, "The new_decr_ratio must be < 1.0."
        self._change_policy(decr_ratio=new_decr_ratio)

    def set_incr_every_n_steps(self, new_incr_every_n_steps: int) -> None:
        self._change_policy(incr_every_n_steps=new_incr_every_n_steps)

    def set_decr_every_n_nan_or_inf(self, new_decr_every_n_nan_or_inf: int) -> None:
        self._change_policy(decr_every_n_nan_or_inf=new_decr_every_n_nan_or_inf)

    def _change_policy(self, **changes: Any) -> None:
        state = self.loss_scale.state_dict()
        self.loss_scale = LossScale(dataclasses.replace(self.policy, **changes))
        self.loss_scale.load_state_dict(state)
        self._follow()

    def state_dict(self) -> dict[str, Any]:
        """Paddle's keys (so that Paddle can load it) and, under ``paddle_amp``, the state machine's own."""
        return {
            "scale": self._scale.numpy(),
            "incr_ratio": self._incr_ratio,
            "decr_ratio": self._decr_ratio,
            "incr_every_n_steps": self._incr_every_n_steps,
            "decr_every_n_nan_or_inf": self._decr_every_n_nan_or_inf,
            "incr_count": self._incr_count,
            "decr_count": self._decr_count,
            "use_dynamic_loss_scaling": self._use_dynamic_loss_scaling,
            "paddle_amp": self.loss_scale.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes value and counters; the policy stays the config's. An empty state starts fresh, with a line."""
        if not state_dict:
            logger.info(
                tr(
                    "the saved loss scaler is empty (it was switched off when it was saved): starting fresh at {scale}",
                    "保存的 loss scaler 状态为空（保存时处于关闭状态）：从 {scale} 重新开始",
                    scale=self.current_scale,
                )
            )
            return
        self.loss_scale.load_state_dict(state_dict.get("paddle_amp") or state_dict)
        self._follow()


def _no_auto_cast() -> Any:
    from paddle_amp_plugin.autocast import no_auto_cast

    return no_auto_cast()
