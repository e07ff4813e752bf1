"""Shared test set-up: the plugin is imported before Paddle, as a user's run does."""

import os

import paddle_amp_plugin  # noqa: F401

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
