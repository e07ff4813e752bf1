"""``paddle-amp version``: what is installed, without importing it."""

from __future__ import annotations

import platform
from importlib import metadata

from paddle_amp_plugin import __version__
from paddle_amp_plugin.messages import tr

_PACKAGES = ("paddlepaddle", "paddlepaddle-gpu", "unstructured-paddleocr", "paddlenlp", "paddleformers")


def version_lines() -> list[str]:
    """One line an item: this package, Python, Paddle, the hosts found, the host versions that were tested."""
    lines = [f"paddle-amp-plugin {__version__}", f"Python {platform.python_version()}"]
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    lines += found or [tr("PaddlePaddle: not installed", "PaddlePaddle：未安装")]
    tested = ", ".join(
        ("PaddleOCR 2.10", "PaddleNLP 2.8.1 / 3.0.0b4", "PaddleFormers 1.2.0", "PaddlePaddle 2.6.2 / 3.3.1")
    )
    lines.append(tr("tested with: {t}", "已测试：{t}", t=tested))
    return lines
