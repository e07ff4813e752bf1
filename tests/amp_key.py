"""What the tests of the amp key share: its defaults, and reading a document."""

from __future__ import annotations

import pytest

from paddle_amp_plugin.config import AmpConfig, read_amp
from paddle_amp_plugin.config_schema import KEYS
from paddle_amp_plugin.errors import ConfigError

DEFAULTS = {
    "level": "O1",
    "dtype": "auto",
    "preset": "safe",
    "custom_black_list": (),
    "custom_white_list": (),
    "fp32_layers": (),
    "init_loss_scaling": 1024.0,
    "use_dynamic_loss_scaling": True,
    "incr_ratio": 2.0,
    "decr_ratio": 0.5,
    "incr_every_n_steps": 1000,
    "decr_every_n_nan_or_inf": 1,
    "min_loss_scaling": 1.0,
    "max_loss_scaling": 16777216.0,
    "master_grad": "auto",
    "on_collapse": "pin",
    "accumulate_steps": 1,
    "ema": {"decay": None},
    "eval_dtype": "float32",
    "cpu": "emulate",
    "monitor": {"visualdl": True, "every_n_steps": 1},
}


def read(document, **more) -> AmpConfig:
    config = read_amp(document, **more)
    assert config is not None
    return config


def values(config: AmpConfig) -> dict:
    return {key: value for key, value in config.model_dump().items() if key in KEYS}


def changed(config: AmpConfig) -> dict:
    return {key: value for key, value in values(config).items() if value != DEFAULTS[key]}


def problems(document, **more) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        read_amp(document, **more)
    return [(p.code, p.path) for p in caught.value.problems]
