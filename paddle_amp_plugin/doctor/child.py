"""A module of this package run as a child process, with a time limit, its findings in a file it keeps up to date."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Of what a crashed child wrote to stderr, so much of the last line is kept.
LINE = 300


@dataclass(frozen=True)
class Ended:
    """``found``: what it had written; ``how``: "" if it ended with 0, else in short ("SIGSEGV", "timeout")."""

    found: dict[str, Any] = field(default_factory=dict)
    how: str = ""
    last_line: str = ""


class Findings:
    """The child's side: a dict that is on disk, whole, after every ``put``."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._values: dict[str, Any] = {}

    def put(self, **values: Any) -> None:
        self._values.update(values)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._values), encoding="utf-8")
        os.replace(part, self._path)


def run_child(module: str, arguments: Sequence[str] = (), *, seconds: float) -> Ended:
    """Runs ``python -m module FILE arguments…``; never raises for what the child does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", module, str(path), *arguments]
        try:
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=seconds)
            how, errors = _how(done.returncode), done.stderr
        except subprocess.TimeoutExpired as late:
            how, errors = "timeout", late.stderr or b""
        except OSError as error:
            how, errors = error.strerror or type(error).__name__, b""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
    return Ended(found, how, _last_line(errors) if how else "")


def _how(code: int) -> str:
    """The end of a process in one word. A shell or a handler reports a signal as 128 + its number."""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        return signal.Signals(number).name if number else f"exit code {code}" if code else ""
    except ValueError:
        return f"exit code {code}"


def _last_line(errors: bytes) -> str:
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines()]
    told = [line for line in lines if line and not set(line) <= set("-=*")]
    wanted = [line for line in told if "Error" in line]  # Paddle writes stacks and dates around it
    return (wanted or told or [""])[-1][:LINE]
