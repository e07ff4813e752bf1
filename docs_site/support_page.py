"""``support.md``: host x Paddle, from ``.ci/run``, what the Makefile installs, and what the hosts claim."""

from __future__ import annotations

import re
from dataclasses import dataclass

from docs_site import ROOT, template

#: Package -> name of the host in ``supported_versions()``.
HOSTS = {"unstructured-paddleocr": "PaddleOCR", "paddlenlp": "PaddleNLP", "paddleformers": "PaddleFormers"}
_PIN = re.compile(r"^([\w.-]+)==(\S+?)\s*(?:;.*)?$")

_WORDS = {
    "en": {
        "host": "host",
        "tested": "tested: `make {t}`",
        "columns": "| command | in CI | Paddle | installed with it |",
        "in CI": "yes",
        "by hand": "by hand",
        "bracket": " ({b})",
        "comma": ", ",
    },
    "zh": {
        "host": "训练框架",
        "tested": "已测试：`make {t}`",
        "columns": "| 命令 | 在 CI 中 | Paddle | 一同安装 |",
        "in CI": "是",
        "by hand": "手动",
        "bracket": "（{b}）",
        "comma": "、",
    },
}


@dataclass(frozen=True)
class Environment:
    """What one ``make`` target runs in. ``pins``: package -> version. ``in_ci``: ``.ci/run`` runs it."""

    target: str
    pins: dict[str, str]
    in_ci: bool

    @property
    def paddle(self) -> str:
        return self.pins["paddlepaddle"]


def environments() -> list[Environment]:
    """Of every test target of the Makefile, in the order of the file."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ci = re.findall(r"^make ([\w-]+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    found = []
    for target, needs in re.findall(r"^(test[\w-]*): ((?:venv|\.venv[\w./-]*)(?: .*)?)$", makefile, re.MULTILINE):
        for need in needs.split():
            pins = _pins(makefile, need)
            if need == "venv" and any(".venv-client" in n for n in needs.split()):
                continue  # it only makes the models; what reads them is the subject
            if "paddlepaddle" in pins:
                found.append(Environment(target, pins, target in ci))
    return found


def _pins(makefile: str, need: str) -> dict[str, str]:
    """What the recipe of a stamp file installs, to the version, as far as it is pinned."""
    stem = need.removesuffix("/.done").removeprefix(".venv")
    start = r"\$\(VENV\)/\.done:" if need == "venv" else rf"(?:[^\n:]* )?{re.escape(need)}(?: [^\n:]*)?:"
    recipe = re.search(rf"^{start}[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE)
    if recipe is None:
        return {}
    text = recipe.group(1).replace("\\\n", " ")
    lines = [word for word in text.split() if "==" in word]
    for file in re.findall(r"requirements/[\w.]+\.txt", text):
        lines += (ROOT / file).read_text(encoding="utf-8").splitlines()
    if "-r $<" in text:
        lines += (ROOT / "requirements" / f"{stem.lstrip('-')}.txt").read_text(encoding="utf-8").splitlines()
    matches = filter(None, map(_PIN.match, lines))
    return {match.group(1).lower().replace("_", "-"): match.group(2) for match in matches}


def claimed() -> list[str]:
    """What the hosts say was tested, e.g. ``PaddleNLP 2.8.1 (Paddle 2.6.2)``."""
    from paddle_amp_plugin.hosts import paddleformers, paddlenlp, paddleocr

    return [text for host in (paddleocr, paddlenlp, paddleformers) for text in host.supported_versions()]


def python_versions() -> list[str]:
    """Of the classifiers in ``pyproject.toml``."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def render(language: str) -> str:
    """The whole page."""
    words, found = _WORDS[language], environments()
    text = template("support", language)
    for name, what in (
        ("@HOSTS@", _hosts(found, words)),
        ("@RUNS@", _runs(found, words)),
        ("@PYTHON@", words["comma"].join(python_versions())),
    ):
        text = text.replace(name, what)
    return text


def _hosts(found: list[Environment], words: dict[str, str]) -> str:
    paddles = sorted({e.paddle for e in found}, reverse=True)
    hosts = sorted({(p, e.pins[p]) for e in found for p in HOSTS if p in e.pins}, key=_order)
    head = " | ".join([words["host"], *(f"Paddle {p}" for p in paddles)])
    rows = [f"| {head} |", "|---" * (len(paddles) + 1) + "|"]
    for package, version in hosts:
        cells = [_cell(found, package, version, paddle, words) for paddle in paddles]
        rows.append(f"| {HOSTS[package]} {version} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _runs(found: list[Environment], words: dict[str, str]) -> str:
    rows = [words["columns"], "|---|---|---|---|"]
    for e in found:
        others = (*HOSTS, "paddleocr", "paddleslim", "paddle2onnx")
        with_it = ", ".join(f"{p} {e.pins[p]}" for p in others if p in e.pins)
        rows.append(f"| `make {e.target}` | {words['in CI' if e.in_ci else 'by hand']} | {e.paddle} | {with_it} |")
    return "\n".join(rows)


def _order(host: tuple[str, str]) -> tuple[int, list[int]]:
    return list(HOSTS).index(host[0]), [int(n) for n in re.findall(r"\d+", host[1])]


def _cell(found: list[Environment], package: str, version: str, paddle: str, words: dict[str, str]) -> str:
    runs = [e for e in found if e.paddle == paddle and e.pins.get(package) == version]
    if not runs:
        return "–"
    runs.sort(key=lambda e: not e.in_ci)
    by_hand = "" if runs[0].in_ci else words["bracket"].format(b=words["by hand"])
    return words["tested"].format(t=runs[0].target) + by_hand
