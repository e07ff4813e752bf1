"""Runs that several tests look at, made once: each costs the imports of Paddle and of PaddleOCR."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hosts import tiny


@dataclass(frozen=True)
class Run:
    """A finished training: its folder, its config file, what it printed."""

    folder: Path
    config: Path
    text: str

    @property
    def output(self) -> Path:
        return self.folder / "out"


_HOST = ("ppocr", "tools", "unstructured_paddleocr")


@pytest.fixture(autouse=True)
def _no_host_in_this_process(monkeypatch):
    """Tests of other folders import the host, which puts its own tree on ``sys.path``."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "unstructured_paddleocr" not in p])
    for name in [n for n in sys.modules if n.split(".")[0] in _HOST]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny.make_data(folder)
    return folder


@pytest.fixture(scope="session")
def train(data, tmp_path_factory):
    """``train(name, **sections) -> Run``; asserts that it ended well."""

    def run(name: str, *options: str, command: tuple[str, ...] = (), epochs: int = 3, **sections) -> Run:
        folder = tmp_path_factory.mktemp(name)
        path = tiny.write(folder / "c.yml", tiny.config(data, folder / "out", epochs=epochs, **sections))
        if command:
            result = tiny.call([*command, "-c", str(path), *options], folder)
        else:
            result = tiny.tool("train", "-c", str(path), *options, cwd=folder)
        assert result.returncode == 0, result.stdout[-4000:]
        return Run(folder, path, result.stdout)

    return run


@pytest.fixture(scope="session")
def o1(train) -> Run:
    """``amp: true``: float16, O1."""
    return train("o1", amp=True)


@pytest.fixture(scope="session")
def o2(train) -> Run:
    return train("o2", amp={"level": "O2", "fp32_layers": ["head.*"]})
