"""How one training step of a host can be run again: its call of the model, and the way from the outputs to the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import paddle

from paddle_amp_plugin.messages import tr


class NoLoss(RuntimeError):
    """The loss is computed by the loop itself, out of the session's sight."""


@dataclass
class Recorded:
    """One call of the model. ``loss``: from outputs in FP32 to what the host's loss returned, once that is known."""

    call: Callable[[], Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any = None
    loss: Callable[[Any], Any] | None = None
    labels: Any = ()
    differentiated: bool = False
    share: float = 1.0

    @property
    def inputs(self) -> dict[str, Any]:
        """The whole batch, to look for what is not finite."""
        return {"input": list(self.args), "label": list(self.labels), **self.kwargs}

    def loss_called(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The host's loss object was called with the model's outputs first, as PaddleOCR does."""
        self.labels = (*args[1:], *kwargs.values())
        self.loss = lambda outputs: owner(outputs, *args[1:], **kwargs)

    def backward(self, loss: paddle.Tensor, share: float = 1.0) -> None:
        """Models of PaddleNLP return their loss: then it is among the outputs."""
        self.share = share
        outputs, self.outputs = self.outputs, None
        self.differentiated = True
        if self.loss is not None:
            return
        path = _path_to(loss, outputs)
        if path is not None:
            self.loss = lambda again: _at(again, path)

    def loss_of(self, outputs: Any) -> Any:
        """The loss again. Raises NoLoss if it cannot be computed."""
        if self.loss is None:
            raise NoLoss(tr("the training loop computes the loss itself", "损失由训练循环自行计算"))
        return self.loss(outputs)


def _path_to(wanted: paddle.Tensor, tree: Any) -> tuple[Any, ...] | None:
    if tree is wanted:
        return ()
    items: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    for key, value in items:
        rest = _path_to(wanted, value)
        if rest is not None:
            return (key, *rest)
    return None


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree
