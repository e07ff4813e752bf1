"""The version stands in one place, the command is one however it is started, and what is claimed as tested is."""

from __future__ import annotations

import re
from importlib import metadata

from docs_site import ROOT, support_page
from paddle_amp_plugin import __main__, __version__
from paddle_amp_plugin.cli import main as cli
from paddle_amp_plugin.cli.version import version_lines

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_version_stands_in_one_place():
    assert 'dynamic = ["version"]' in PROJECT and 'version = { attr = "paddle_amp_plugin.__version__" }' in PROJECT
    assert not re.search(r'^version = "', PROJECT, re.MULTILINE)
    written = {
        path.relative_to(ROOT).as_posix()
        for folder in ("paddle_amp_plugin", "docs_site", "tools")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(rf"""["']{re.escape(__version__)}["']""", path.read_text(encoding="utf-8"))
    }
    assert written == {"paddle_amp_plugin/__init__.py"}
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", __version__)
    assert metadata.version("paddle-amp-plugin") == __version__
    assert version_lines()[0] == f"paddle-amp-plugin {__version__}"


def test_the_changelog_knows_it():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text and __version__ in text


def test_both_ways_to_start_are_one():
    assert '[project.scripts]\npaddle-amp = "paddle_amp_plugin.cli.main:main"\n\n' in PROJECT
    assert __main__.main is cli.main


def test_what_hosts_claim_is_what_is_run():
    """Each version that ``supported_versions`` names has an environment that pins it, with the Paddle it names."""
    environments = support_page.environments()
    names = {name: package for package, name in support_page.HOSTS.items()}
    pinned = set()
    for claim in support_page.claimed():
        name, version, paddle = re.match(r"(\w+) (\S+)(?: \(Paddle (\S+)\))?", claim).groups()
        runs = [
            e
            for e in environments
            if (e.pins.get(names[name], "") + ".").startswith(version + ".") and paddle in (None, e.paddle)
        ]
        assert runs, f"no make target installs {claim}"
        pinned |= {(names[name], e.pins[names[name]]) for e in runs}
    everything = {(p, e.pins[p]) for e in environments for p in support_page.HOSTS if p in e.pins}
    assert pinned == everything, "a host's supported_versions() lacks a version that is tested"
    said = version_lines()[-1]
    wanted = {v.removesuffix(".0") for _, v in everything} | {e.paddle for e in environments}
    assert [v for v in wanted if v not in said] == []


def test_ci_runs_what_exists():
    targets = re.findall(r"^make ([\w-]+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"lint", "test", "test-convergence", "test-paddle26-core"} <= set(targets)
    assert [t for t in targets if not re.search(rf"^(?:[\w-]+ )*{t}(?: [\w-]+)*:", makefile, re.MULTILINE)] == []
