"""Exports that several tests look at, made once: each costs the imports of Paddle and of a host."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import tiny


@dataclass(frozen=True)
class Exported:
    """A finished ``paddle-amp export``: its folder, its record, what it printed."""

    folder: Path
    text: str

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.folder / "export.json").read_text(encoding="utf-8"))


def paddle_amp_export(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``paddle-amp export …``, given more time than a tiny training: ONNX and INT8 have processes of their own."""
    return subprocess.run(
        [sys.executable, "-m", "paddle_amp_plugin", "export", *arguments],
        cwd=cwd,
        env=tiny.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Data, ``rec.yml``, ``det.yml`` and their weights, sharpened so that each image gives another answer."""
    folder = tmp_path_factory.mktemp("export")
    done = tiny.call(["-m", "tests.export.make_weights", str(folder)], folder)
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


def exported(made: Path, kind: str, *options: str) -> Exported:
    out = made / f"exported_{kind}"
    done = paddle_amp_export(str(made / kind), "-c", str(made / f"{kind}.yml"), "-o", str(out), *options, cwd=made)
    assert done.returncode == 0, done.stdout[-3000:]
    return Exported(out, done.stdout)


@pytest.fixture(scope="session")
def rec(made) -> Exported:
    return exported(made, "rec", "--onnx", "--int8", "ptq")


@pytest.fixture(scope="session")
def det(made) -> Exported:
    return exported(made, "det", "--onnx", "--int8", "qat", "--qat-steps", "2")
