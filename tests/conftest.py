"""Shared test set-up: the plugin is imported before Paddle, as a user's run does."""

import os
import sys

import pytest

import paddle_amp_plugin  # noqa: F401

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")


@pytest.fixture(autouse=True)
def _software_half_is_not_left_behind():
    """Whoever installs it takes it out again: what it leaves behind would change every test that follows."""
    before = _installed()
    yield
    if _installed() and not before:
        from paddle_amp_plugin import software_half

        while software_half.installed():
            software_half.uninstall()
        pytest.fail("this test left software half installed")


def _installed() -> bool:
    module = sys.modules.get("paddle_amp_plugin.software_half")
    return module is not None and module.installed()
