"""PaddleFormers' Trainer, the successor of PaddleNLP's: see ``trainer.py``, which they share."""

from __future__ import annotations

from paddle_amp_plugin.hosts.trainer import Controller, HostModule, TrainerHost

_module = HostModule(TrainerHost("PaddleFormers", "paddleformers", averages_gradients=True))
patch, unpatch, detect = _module.patch, _module.unpatch, _module.installed


def supported_versions() -> tuple[str, ...]:
    """What was tested. Other versions work if their functions have the parameters that the patches need."""
    return ("PaddleFormers 1.2.0 (Paddle 3.3.1)",)


__all__ = ["Controller", "detect", "patch", "supported_versions", "unpatch"]
