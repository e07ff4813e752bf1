"""Headless Chromium for tests: a page's document after its scripts ran, or a picture of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars""".split()


def chromium() -> str:
    """The browser's path; skips the test with the reason where there is none."""
    found = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    return found


def _run(profile: Path, *arguments: str) -> str:
    command = [chromium(), *_FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=15000", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, encoding="utf-8", errors="replace")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def document(address: str, profile: Path, width: int = 1280) -> str:
    """The document at ``address`` after its scripts ran. ``profile``: an empty folder."""
    return _run(profile, f"--window-size={width},1000", "--dump-dom", address)


def picture(address: str, profile: Path, target: Path, width: int, height: int) -> Path:
    """A screenshot of the top of the page."""
    _run(profile, f"--window-size={width},{height}", f"--screenshot={target}", address)
    return target
