"""Several trainings of PaddleOCR's trainer in one process, each as if it were a process of its own.

Importing Paddle and PaddleOCR takes longer than a tiny training. What one run could leave to the next is the names of
parameters, which start anew for each, and random states, which a resumed run has to restore anyway.

``python many.py JOBS``: JOBS is JSON, a list of ``[config, option, …]``. Prints ``=== N`` before a run and
``=== N code`` after it.
"""

from __future__ import annotations

import json
import logging
import sys
import zlib  # noqa: F401  (before Paddle 2.6, whose library hides Python's own)
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(jobs: list[list[str]]) -> None:
    import paddle
    from paddle.utils import unique_name

    from paddle_amp_plugin.errors import AmpError
    from paddle_amp_plugin.hosts.paddleocr_run import run_tool

    for number, (config, *options) in enumerate(jobs):
        print(f"=== {number}", flush=True)
        code = "0"
        paddle.seed(1234 + number)
        try:
            with unique_name.guard():
                arguments = ["-c", config, *(["-o", *options] if options else [])]
                run_tool("train", arguments, paddleocr_dir=None, instead_of=ROOT / "tools")
        except AmpError as error:
            print(error)
            code = error.code
        for handler in list(logging.getLogger("ppocr").handlers):
            if isinstance(handler, logging.FileHandler):
                logging.getLogger("ppocr").removeHandler(handler)
        print(f"=== {number} {code}", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
