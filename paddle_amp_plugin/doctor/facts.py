"""Gathers the facts: machine, wheels, hosts, driver, Paddle (in a child). Whatever fails is noted; nothing raises."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from paddle_amp_plugin import __version__
from paddle_amp_plugin.doctor.child import run_child
from paddle_amp_plugin.doctor.model import Driver, Facts, PaddleFacts

#: Importing Paddle takes seconds; a device that hangs must not hang the doctor.
PROBE_SECONDS = 120.0
NVIDIA_SMI_SECONDS = 30.0
HOSTS = ("paddleocr", "unstructured-paddleocr", "paddlex", "paddlenlp", "paddleformers", "paddleslim", "numpy")
_QUERY = ("name", "memory.total", "driver_version", "compute_cap")
_T = TypeVar("_T")


def gather() -> Facts:
    """The facts of this machine. Takes as long as importing Paddle."""
    failures: list[str] = []

    def attempt(name: str, look: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return look()
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}".splitlines()[0][:300])
            return otherwise

    nothing: dict[str, str] = {}
    return Facts(
        plugin=__version__,
        python=platform.python_version(),
        system=attempt("system", lambda: f"{platform.system()} {platform.release()} {platform.machine()}", ""),
        processor=attempt("processor", processor, ""),
        cores=os.cpu_count() or 0,
        wheels=attempt("wheels", paddle_wheels, nothing),
        hosts=attempt("hosts", lambda: versions(HOSTS), nothing),
        paddleocr=attempt("PaddleOCR", paddleocr_tree, ""),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        paddle=attempt("Paddle", probe_paddle, None),
        driver=attempt("nvidia-smi", nvidia_smi, None),
        failures=tuple(failures),
    )


def paddle_wheels() -> dict[str, str]:
    """Every distribution that brings ``paddle`` or a device plug-in of it: ``paddlepaddle``, ``paddlepaddle-gpu``, …"""
    found = {}
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name == "paddlepaddle" or name.startswith(("paddlepaddle-", "paddle-custom-")):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def paddleocr_tree() -> str:
    """Where a training tree of PaddleOCR was found, in words and without its path; "" for nowhere."""
    from paddle_amp_plugin.errors import AmpError
    from paddle_amp_plugin.hosts.paddleocr_tree import find_tree

    try:
        return find_tree().source
    except AmpError:
        return ""


def processor() -> str:
    """The CPU's name, as Linux knows it (``platform.processor()`` is empty there)."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def probe_paddle() -> PaddleFacts | None:
    """What a child that imports Paddle wrote down; None where there is no ``paddle`` at all."""
    import importlib.util

    if importlib.util.find_spec("paddle") is None:
        return None
    ended = run_child("paddle_amp_plugin.doctor.probe", seconds=PROBE_SECONDS)
    return read_probe(ended.found, ended.how, ended.last_line)


def read_probe(found: dict[str, object], how: str, last_line: str) -> PaddleFacts:
    """A child's findings as facts. ``how``: "" if it ended well."""
    values = {key: value for key, value in found.items() if key != "stage"}
    if how:
        at = found.get("stage", "import")
        values["crash"] = f"{how} ({at}){': ' + last_line if last_line else ''}"
    return TypeAdapter(PaddleFacts).validate_python(values)


def nvidia_smi() -> Driver | None:
    """NVIDIA's own view; None without ``nvidia-smi``. Drivers before 510 do not know ``compute_cap``."""
    fields: tuple[str, ...] = _QUERY
    done = _smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    if done is None:
        return None
    if done.returncode and "compute_cap" in done.stdout + done.stderr:
        fields = _QUERY[:-1]
        done = _smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    if done is None or done.returncode:
        said = (done.stdout + done.stderr).strip() if done is not None else ""
        return Driver(error=(said.splitlines() or ["nvidia-smi"])[0][:300])
    head = _smi()
    return read_smi(done.stdout, head.stdout if head is not None else "")


def _smi(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, errors="replace", timeout=NVIDIA_SMI_SECONDS
        )
    except FileNotFoundError:
        return None


def read_smi(rows: str, head: str) -> Driver:
    """The driver out of ``--query-gpu`` rows (name, memory, driver, capability) and the head of the plain table."""
    gpus, version = [], ""
    for row in filter(None, map(str.strip, rows.splitlines())):
        name, memory, version, *rest = (part.strip() for part in row.split(","))
        found = re.fullmatch(r"(\d+)\.(\d+)", rest[0]) if rest else None
        capability = (int(found[1]), int(found[2])) if found else None
        gpus.append((name, capability, int(memory) if memory.isdigit() else None))
    cuda = re.search(r"CUDA Version:\s*(\d+\.\d+)", head)
    return Driver(version=version, cuda=cuda[1] if cuda else "", gpus=tuple(gpus))
