"""Automatic mixed precision for PaddleOCR and PaddleNLP that is right, visible and recoverable.

Nothing heavy is imported here: no Paddle, no host.
"""

# Paddle 2.6.2's library exports the symbols of an old zlib. If it is loaded before Python's own zlib module,
# the first decompression in the process ends in a segmentation fault; so zlib comes before everything.
import zlib  # noqa: F401  isort: skip

__version__ = "0.1.0"

__all__ = ["__version__", "disable", "enable"]


def enable(config: object = True) -> None:
    """Mixed precision for PaddleOCR, PaddleNLP and PaddleFormers in this process, from Python.

    What ``PADDLE_AMP_PLUGIN=1`` does from outside. To be called before the training starts, best before the host is
    imported. ``config``: a value of the ``amp`` key (``True``, ``"O2"``, ``{"level": "O2", …}``), or the path of a YAML
    that has one. It holds for host configs that do not ask for AMP; one that does has the last word.

    Raises ``AmpError`` for a file that cannot be read, and as its subclass ``ConfigError`` with everything that
    is wrong in the value.
    """
    from paddle_amp_plugin import activation
    from paddle_amp_plugin import config as configs

    if isinstance(config, str) and config.endswith((".yml", ".yaml")):
        config = configs.load_yaml(config).get("amp", True)
    configs.fall_back_to(config)
    activation.start()


def disable() -> None:
    """Undoes ``enable``: the hosts' functions are their own again."""
    from paddle_amp_plugin import activation
    from paddle_amp_plugin import config as configs

    configs.fall_back_to(None)
    activation.stop()
