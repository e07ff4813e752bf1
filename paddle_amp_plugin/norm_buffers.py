"""Running statistics of BatchNorm layers, kept from being poisoned by a step that overflowed.

A forward pass that overflows writes inf or NaN into ``_mean`` and ``_variance`` before anybody can look at
the gradients. The step is skipped, but the statistics would stay, and every later evaluation would be NaN.
"""

from __future__ import annotations

import paddle

_EVERY = 20  # healthy steps between two copies: copying each time would cost two small kernels a layer


def norm_buffers(model: paddle.nn.Layer) -> list[paddle.Tensor]:
    """The running statistics of a model's norm layers.

    Paddle keeps ``_mean`` and ``_variance`` as parameters without a gradient; custom norms as buffers.
    """
    from paddle_amp_plugin.norms import is_norm_layer

    return [
        buffer
        for name, layer in model.named_sublayers(include_self=True)
        if is_norm_layer(layer, name)
        for buffer in (*layer._buffers.values(), *layer._parameters.values())
        if buffer is not None and buffer.stop_gradient and paddle.is_floating_point(buffer)
    ]


class NormBuffers:
    """Remembers the running statistics of a model's norm layers and puts the last finite ones back."""

    def __init__(self, model: paddle.nn.Layer) -> None:
        self._buffers = norm_buffers(model)
        self._copies: list[paddle.Tensor] | None = None
        self._healthy = 0
        self.repaired = 0
        self._copy()

    def _finite(self) -> bool:
        return all(bool(paddle.isfinite(buffer).all()) for buffer in self._buffers)

    def _copy(self) -> None:
        with paddle.no_grad():
            if self._finite():
                self._copies = [buffer.clone() for buffer in self._buffers]

    def remember(self) -> None:
        """After a healthy step."""
        if self._healthy % _EVERY == 0:
            self._copy()
        self._healthy += 1

    def anchor(self) -> None:
        """At a checkpoint: a run that goes on from it has this copy too, and no older one."""
        self._copy()
        self._healthy = 0

    def repair(self) -> None:
        """After a skipped step: whatever is not finite goes back to the last copy (at most 20 steps old)."""
        if self._copies is None:
            return
        with paddle.no_grad():
            for buffer, copy in zip(self._buffers, self._copies, strict=True):
                if not bool(paddle.isfinite(buffer).all()):
                    buffer.set_value(copy)
                    self.repaired += 1
