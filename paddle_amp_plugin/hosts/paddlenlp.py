"""PaddleNLP's Trainer: see ``trainer.py``, which it shares with PaddleFormers."""

from __future__ import annotations

from paddle_amp_plugin.hosts.trainer import Controller, HostModule, TrainerHost

_module = HostModule(TrainerHost("PaddleNLP", "paddlenlp"))
patch, unpatch, detect = _module.patch, _module.unpatch, _module.installed


def supported_versions() -> tuple[str, ...]:
    """What was tested. Other versions work if their functions have the parameters that the patches need."""
    return ("PaddleNLP 2.8.1 (Paddle 2.6.2)", "PaddleNLP 3.0.0b4 (Paddle 3.3.1)")


__all__ = ["Controller", "detect", "patch", "supported_versions", "unpatch"]
