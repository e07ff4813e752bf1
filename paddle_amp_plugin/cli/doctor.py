"""``paddle-amp doctor``: can AMP help on this machine, and what would this config do?"""

from __future__ import annotations

import json
import os

from rich.console import Console

from paddle_amp_plugin.doctor.examine import Examination, examine
from paddle_amp_plugin.doctor.report import show, to_json
from paddle_amp_plugin.doctor.wanted import Config
from paddle_amp_plugin.messages import tr


def doctor(config: str | None, *, as_json: bool, self_test: bool) -> int:
    """Prints the examination; returns 0 if AMP will work and 1 if not.

    Raises AmpError and ConfigError for a config that cannot be read, before anything is examined.
    """
    if as_json:
        os.environ["PADDLE_AMP_LANG"] = "en"  # who reads an issue need not read the reporter's language
    read = Config(config) if config is not None else None
    found = _examine(read, self_test)
    if as_json:
        print(json.dumps(to_json(found), ensure_ascii=False, indent=1))
    else:
        show(found, Console())
    return found.verdict.exit_code


def _examine(config: Config | None, self_test: bool) -> Examination:
    """With a moving line on stderr, where that is a terminal: importing Paddle takes seconds."""
    console = Console(stderr=True)
    stages = {
        "paddle": tr("importing Paddle", "正在导入 Paddle"),
        "self_test": tr("self-test: five steps", "自检：训练五步"),
    }
    with console.status(tr("looking around", "正在检查")) as status:
        return examine(config, self_test=self_test, say=lambda stage: status.update(stages[stage]))
