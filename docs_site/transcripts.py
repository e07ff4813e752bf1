"""Transcripts in the pages, run again: ``<!-- transcript: name -->`` before a ``console`` block.

Lines that begin with ``$ `` are commands, what follows is their output. They run in a temporary folder that has this
project's ``tools`` and ``configs``, in the language of the page. ``$ cat FILE`` is the other way round: what is shown
is written into FILE. A line ``…`` stands for any number of lines. What differs from machine to machine is made equal
on both sides by ``PATTERNS``.

``python -m docs_site.transcripts`` writes what the commands print now into the pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs_site import DOCS, LANGUAGES, ROOT

TIMEOUT = 300  # seconds
_BLOCK = re.compile(r"<!-- transcript: ([\w-]+) -->\n```console\n(.*?)\n```\n", re.DOTALL)
_PROGRAMS = {"paddle-amp": ["-m", "paddle_amp_plugin"], "python": []}

#: (pattern, what stands for it), applied to the shown and to the actual output.
PATTERNS = (
    (re.compile(r"\bPython 3\.\d+\.\d+"), "Python <version>"),
    (re.compile(r"^paddlepaddle(-gpu)? \S+$", re.MULTILINE), "paddlepaddle <version>"),
    (re.compile(r"^(paddlenlp|paddleformers|unstructured-paddleocr) \S+\n", re.MULTILINE), ""),  # a host may be missing
    (re.compile(r"(?<![\w.])/(?:[\w.+-]+/)*[\w.+-]+"), "<path>"),
    (re.compile(r"\b\d+(\.\d+)? ?(seconds|s|ms|秒|毫秒)(?![\w])"), "<time>"),
)


@dataclass(frozen=True)
class Transcript:
    """One marked block of one page."""

    page: Path
    name: str
    text: str

    @property
    def language(self) -> str:
        return "zh" if self.page.name == "README_zh.md" or self.page.parent.name == "zh" else "en"

    def steps(self) -> list[tuple[str, str]]:
        """(command, output as shown), in their order."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.split("\n"):
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
            else:
                raise ValueError(f"{self.page}: transcript {self.name} begins with output")
        return [(command, "\n".join(lines)) for command, lines in found]


def in_page(page: Path) -> list[Transcript]:
    return [Transcript(page, *match.groups()) for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def everywhere() -> list[Transcript]:
    """Of all pages of both languages and both READMEs."""
    pages = [ROOT / "README.md", ROOT / "README_zh.md"]
    pages += [page for language in LANGUAGES for page in sorted((DOCS / language).glob("*.md"))]
    return [transcript for page in pages for transcript in in_page(page)]


def run(transcript: Transcript) -> Iterator[tuple[str, str, str]]:
    """(command, output as shown, output now) of each command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("tools", "configs"):
            (folder / part).symlink_to(ROOT / part)
        for command, shown in transcript.steps():
            words = shlex.split(command)
            if words[0] == "cat":
                (folder / words[1]).write_text(shown + "\n", encoding="utf-8")
                continue
            yield command, shown, _output(words, folder, transcript.language).replace(name, "/home/me/work")


def _output(words: list[str], folder: Path, language: str) -> str:
    if words[0] not in _PROGRAMS:
        raise ValueError(f"a transcript can run {', '.join(_PROGRAMS)} and cat, not {words[0]}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE", "COLUMNS", "FORCE_COLOR"))}
    environment |= {"PADDLE_AMP_LANG": language, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    environment |= {"TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *_PROGRAMS[words[0]], *words[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=TIMEOUT,
        check=False,
    )
    return "\n".join(line.rstrip() for line in done.stdout.rstrip().split("\n"))


def normalised(text: str) -> str:
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text


def same(shown: str, now: str) -> bool:
    """Are the two outputs the same but for what ``PATTERNS`` and ``…`` allow?"""
    wanted = "\n".join(line.rstrip() for line in normalised(shown).split("\n"))
    parts = [re.escape(part) for part in re.split(r"(?m)^…\n?", wanted)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts), normalised(now) + "\n" * wanted.endswith("…")) is not None


def kept(text: str, page: Path) -> str:
    """``text`` with the transcripts as they stand in ``page`` now, by their names."""
    there = {t.name: t.text for t in in_page(page)} if page.is_file() else {}
    return _BLOCK.sub(lambda m: _block(m.group(1), there.get(m.group(1), m.group(2))), text)


def _block(name: str, text: str) -> str:
    return f"<!-- transcript: {name} -->\n```console\n{text}\n```\n"


def updated(transcript: Transcript) -> str:
    """The block's text with what the commands print now; outputs that are shown in part stay as they are."""
    now = {command: output for command, _, output in run(transcript)}
    lines = []
    for command, shown in transcript.steps():
        output = shown if "…" in shown.split("\n") else now.get(command, shown)
        lines += [f"$ {command}", *([output] if output else [])]
    return "\n".join(lines)


def main() -> None:
    for transcript in everywhere():
        text = transcript.page.read_text(encoding="utf-8")
        new = text.replace(_block(transcript.name, transcript.text), _block(transcript.name, updated(transcript)))
        transcript.page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
