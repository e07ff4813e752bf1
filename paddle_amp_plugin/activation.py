"""Activation without a launcher: ``PADDLE_AMP_PLUGIN=1 python tools/train.py -c …`` in the user's own checkout.

``paddle_amp_plugin.pth``, installed beside the package, calls ``start`` in every Python that has the variable set, and
does nothing in any other. ``start`` only puts a finder first in ``sys.meta_path``; the hosts' patches are made, and all
that they import, when a host is imported. What a launcher does around a script (one message in place of a traceback,
its exit code, Ctrl-C, the commands to go on with) is done here at the interpreter's end.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "PADDLE_AMP_PLUGIN"
#: Top-level package of a host -> the module here that patches it.
HOSTS = {
    "ppocr": "paddleocr",
    "unstructured_paddleocr": "paddleocr",
    "paddlenlp": "paddlenlp",
    "paddleformers": "paddleformers",
}

_finder: Any = None


def wanted() -> bool:
    """Whether the environment asks for it."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "off", "no")


def start_if_wanted() -> None:
    """Called by ``paddle_amp_plugin.pth``."""
    if wanted():
        start()


def start() -> None:
    """From now on a host is patched when it is imported. A second call changes nothing."""
    global _finder
    if _finder is None:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)
        for package in HOSTS:
            if package in sys.modules:
                _finder.activate(package)


def stop() -> None:
    """A launcher takes over, or ``enable`` is undone: hosts that are patched are given back."""
    global _finder
    if _finder is not None:
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        _finder.give_back()
        _finder = None


class _Finder:
    """Finds nothing; sees which host is about to be imported."""

    def __init__(self) -> None:
        self._undo: dict[str, Callable[[], None]] = {}
        self._ending: _Ending | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in HOSTS and HOSTS[name] not in self._undo:
            self.activate(name)

    def activate(self, package: str) -> None:
        """Patches the host of ``package``: at once what is imported of it, the rest when it is."""
        import importlib

        name = HOSTS[package]
        if name in self._undo:
            return
        module = importlib.import_module(f"paddle_amp_plugin.hosts.{name}")
        self._undo[name] = module.unpatch
        self._ending = self._ending or _Ending()
        if name == "paddleocr":
            self._ending.check_arguments()
        controller = module.patch()
        if name == "paddleocr":
            self._ending.follow(controller)

    def give_back(self) -> None:
        if self._ending is not None:
            self._ending.close()
        while self._undo:
            self._undo.popitem()[1]()


class _Ending:
    """How the process ends, and what it says then."""

    def __init__(self) -> None:
        self._hook = sys.excepthook
        self._code: int | None = None
        self._controller: Any = None
        self._around: Any = None
        sys.excepthook = self.failed
        atexit.register(self.ended)

    def check_arguments(self) -> None:
        """What can be known of a PaddleOCR script before it loads anything. Raises AmpError."""
        from paddle_amp_plugin.hosts.paddleocr_args import parse, preflight
        from paddle_amp_plugin.hosts.paddleocr_run import TOOLS

        script = Path(sys.argv[0]) if sys.argv else Path()
        if script.stem in TOOLS and parse(sys.argv[1:]).config_path is not None:
            preflight(sys.argv[1:], training=script.stem == "train")

    def follow(self, controller: Any) -> None:
        """Ctrl-C reaches the host's loop, whatever its data sets swallow."""
        import threading

        from paddle_amp_plugin.hosts.paddleocr_run import interruptible

        self._controller = controller
        if threading.current_thread() is threading.main_thread():
            self._around = interruptible(controller)
            self._around.__enter__()

    def failed(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """In place of ``sys.excepthook``: ours are one message; whatever else happened is shown as ever."""
        from paddle_amp_plugin.cli.errors import INTERRUPTED, guarded, ours

        guard = getattr(self._controller, "guard", None)
        if guard is not None and guard.interrupted:  # Paddle may have made another error of it
            error = KeyboardInterrupt()
        if ours(error):
            self._code = guarded(lambda: _raise(error))
        else:
            self._code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
            self._hook(kind, error, trace)

    def ended(self) -> None:
        """Registered early, so it runs late: after what Paddle and the host have to do at the end."""
        controller, code = self._controller, self._code
        if code is None and controller is not None and controller.trained and controller.settings is not None:
            from paddle_amp_plugin.hosts.paddleocr_run import say_next, shown_folder

            say_next(controller, f"python {shown_folder(Path(sys.argv[0]).parent)}/")
        stop()
        if code not in (None, 1):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # the interpreter's own code for an uncaught exception is always 1

    def close(self) -> None:
        if self._around is not None:
            self._around.__exit__(None, None, None)
            self._around = None
        sys.excepthook = self._hook
        atexit.unregister(self.ended)


def _raise(error: BaseException) -> None:
    raise error
