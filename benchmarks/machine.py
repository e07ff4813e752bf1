"""What was measured on, in one mapping: a ratio without its machine says nothing."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

from paddle_amp_plugin import __version__
from paddle_amp_plugin.doctor.facts import processor

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MKL_DEBUG_CPU_TYPE")


def describe(device: str) -> dict[str, Any]:
    """Date, CPU, cores, load, versions, thread settings; with a GPU its name and its CUDA."""
    import paddle

    found: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "plugin": __version__,
        "paddle": paddle.__version__,
        "python": platform.python_version(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
        "load": [round(x, 1) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "device": device,
    }
    if device == "gpu":
        found |= {"gpu": paddle.device.cuda.get_device_name(), "cuda": paddle.version.cuda()}
    return found
