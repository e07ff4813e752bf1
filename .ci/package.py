"""Builds sdist and wheel, installs the wheel into an empty environment, tries it, uninstalls it: ``make package``.

Uses nothing but the standard library and pip. ``build/package`` is made anew; ``dist`` holds what was built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK, DIST = ROOT / "build" / "package", ROOT / "dist"
BUILD = ("build==1.3.0", "setuptools==80.9.0")


def run(*command: str | Path, **env: str) -> str:
    """What it prints; ends the script with all of it if it fails."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PADDLE"))}
    done = subprocess.run([*map(str, command)], cwd=WORK, env=clean | env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def check(what: str, holds: bool) -> None:
    if not holds:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def environment(name: str) -> Path:
    """A fresh virtual environment; returns its ``bin``."""
    venv.create(WORK / name, with_pip=True)
    return WORK / name / ("Scripts" if os.name == "nt" else "bin")


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def built() -> Path:
    """sdist and wheel in ``dist``; the wheel from the sdist is the one from the checkout."""
    tools = environment("tools")
    run(tools / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *BUILD)
    source = WORK / "source"  # a copy: building leaves build/ and *.egg-info behind
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "output", "train_data")
    shutil.copytree(ROOT, source, ignore=ignored)
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools / "python", "-m", "build", "--no-isolation", "--outdir", DIST, source)  # the wheel out of the sdist
    run(tools / "python", "-m", "build", "--no-isolation", "--wheel", "--outdir", WORK / "direct", source)
    (wheel,), (direct,), (sdist,) = DIST.glob("*.whl"), (WORK / "direct").glob("*.whl"), DIST.glob("*.tar.gz")
    check(f"{sdist.name} and {wheel.name} are built", True)
    check("the sdist builds the same wheel as the checkout", contents(wheel) == contents(direct))
    ours = {p.relative_to(ROOT).as_posix() for p in (ROOT / "paddle_amp_plugin").rglob("*.py")}
    check("every module is in it", ours == {name for name in contents(wheel) if name.endswith(".py")})
    return wheel


def site_of(python: Path) -> Path:
    return Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))


def try_it(wheel: Path) -> None:
    bin_ = environment("empty")
    python = bin_ / "python"
    site = site_of(python)
    before = {p.name for p in site.iterdir()} | {p.name for p in bin_.iterdir()}
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
    check("pip check finds nothing", run(python, "-m", "pip", "check").startswith("No broken"))
    command, module = run(bin_ / "paddle-amp", "version"), run(python, "-m", "paddle_amp_plugin", "version")
    check("paddle-amp and python -m paddle_amp_plugin agree", command == module)
    helps = run(bin_ / "paddle-amp", "--help"), run(python, "-m", "paddle_amp_plugin", "--help")
    check("so do their --help", helps[0] == helps[1] and "version" in helps[0])
    version = run(python, "-c", "from importlib import metadata; print(metadata.version('paddle-amp-plugin'))")
    check("the version is one", f"paddle-amp-plugin {version}" == command.split("\n")[0] and version in wheel.name)
    package = site / "paddle_amp_plugin"
    recipes = {p.relative_to(ROOT): p.read_bytes() for p in (ROOT / "configs").rglob("*.yml")}
    same = all((package / name).read_bytes() == data for name, data in recipes.items())
    check(f"all {len(recipes)} recipes are inside", bool(recipes) and same)
    check("py.typed is inside", (package / "py.typed").is_file())
    check("no test and no document is", not {"tests", "docs_site", "benchmarks"} & {p.name for p in site.iterdir()})
    config = WORK / "c.yml"
    config.write_text("amp: {levle: O2}\n", encoding="utf-8")
    code = "import sys; from paddle_amp_plugin.config import load_yaml, read_amp; read_amp(load_yaml(sys.argv[1]))"
    failed = subprocess.run([python, "-c", code, config], capture_output=True, text=True, cwd=WORK, check=False)
    check("a bad key is found", "did you mean: level" in failed.stderr or "您是不是想写" in failed.stderr)
    code = "import sys; print(type(sys.meta_path[0]).__module__)"
    started = run(python, "-c", code, PADDLE_AMP_PLUGIN="1")
    check("PADDLE_AMP_PLUGIN=1 works", started == "paddle_amp_plugin.activation")
    installed = set(run(python, "-m", "pip", "freeze").lower().split("\n"))
    run(python, "-m", "pip", "uninstall", "-y", "-q", "paddle-amp-plugin")
    after = {p.name for p in site.iterdir()} | {p.name for p in bin_.iterdir()}
    left = {name for name in after - before if "paddle" in name.lower()}
    check("uninstalling leaves nothing", left == set() and not package.exists() and len(installed) > 1)


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    try_it(built())


if __name__ == "__main__":
    main()
