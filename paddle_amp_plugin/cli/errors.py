"""The one place where an exception becomes what a user reads and a process ends with."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

INTERRUPTED = 130
UNEXPECTED = 1


def guarded(action: Callable[[], object]) -> int:
    """Runs ``action``; returns the exit code. With ``PADDLE_AMP_DEBUG=1`` tracebacks are shown."""
    try:
        action()
        return 0
    except AmpError as error:
        return _say(str(error), error.exit_code, error)
    except KeyboardInterrupt as error:
        return _say(tr("stopped by Ctrl-C", "已被 Ctrl-C 终止"), INTERRUPTED, error)
    except SystemExit as error:
        return _exit_code(error)
    except Exception as error:  # whatever it is, it ends here
        return _say(describe(error), UNEXPECTED, error)


def ours(error: BaseException) -> bool:
    """Is it one message for the user, and no traceback: an AmpError (also as a reader process's text), or Ctrl-C?"""
    return isinstance(error, AmpError | KeyboardInterrupt) or _carried(error) is not None


def _carried(error: BaseException) -> str | None:
    """One of ours that a worker process of the DataLoader turned into text."""
    found = re.search(r"\[AMP\d{3}\].*", str(error), re.DOTALL)
    return found.group(0).strip() if found else None


def _say(text: str, code: int, error: BaseException) -> int:
    sys.stdout.flush()
    if os.environ.get("PADDLE_AMP_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    print(text, file=sys.stderr, flush=True)
    return code


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr, flush=True)
    return UNEXPECTED


def describe(error: BaseException) -> str:
    """One message for an exception that is not ours: what, where, and how to see more."""
    carried = _carried(error)
    if carried is not None:
        return carried
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.split(".")[0]
        return (
            "[AMP044] "
            + tr("the Python package {p} is missing", "缺少 Python 软件包 {p}", p=package)
            + f"\n    pip install {package}"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"[AMP053] {error.filename}: {error.strerror or error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Paddle puts a C++ call stack before the message and the place after it
    summary = next((line for line in lines if re.match(r"\w*Error:|\(\w+\) ", line)), lines[0] if lines else "")
    return (
        f"[AMP051] {type(error).__name__}: {summary}"
        + _place(error)
        + "\n    "
        + tr("set PADDLE_AMP_DEBUG=1 to see the traceback", "设置 PADDLE_AMP_DEBUG=1 可查看完整调用栈")
    )


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"\n    {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
