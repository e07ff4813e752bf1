"""What the two languages must have in common, and what every page must keep. Pure: files in, sentences out."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from docs_site import DOCS, ROOT

_FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_CJK = r"[\u3400-\u9fff]"
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"^(?:\$ |pip |python |make |paddle-amp |visualdl |cd |git |PADDLE_\w+=)")

#: Half-width marks that Chinese text does not use between Chinese characters (GB/T 15834), and what it uses.
_FULL_WIDTH = {",": "，", ":": "：", ";": "；", "!": "！", "?": "？", "(": "（", ")": "）"}


def pairs() -> list[tuple[Path, Path]]:
    """(English, Chinese) of every page that both languages have, and of the READMEs."""
    names = sorted(p.name for p in (DOCS / "en").glob("*.md") if (DOCS / "zh" / p.name).is_file())
    pages = [(DOCS / "en" / name, DOCS / "zh" / name) for name in names]
    return [(ROOT / "README.md", ROOT / "README_zh.md"), *pages]


def unpaired() -> list[str]:
    """Files that one language has and the other has not."""
    trees = {
        lang: {p.relative_to(DOCS / lang) for p in (DOCS / lang).rglob("*") if p.is_file()} for lang in ("en", "zh")
    }
    wrong = [f"docs/zh/{name} is missing (docs/en/{name} is there)" for name in sorted(trees["en"] - trees["zh"])]
    return wrong + [
        f"docs/en/{name} is missing (docs/zh/{name} is there)" for name in sorted(trees["zh"] - trees["en"])
    ]


def prose(text: str) -> str:
    """The text without its code blocks (their place stays: line numbers are those of the file)."""
    return _FENCE.sub(lambda m: "\n" * m.group().count("\n"), text)


def headings(text: str) -> list[tuple[int, str]]:
    """(level, text) of every heading."""
    return [(len(m.group(1)), m.group(2)) for m in re.finditer(r"^(#{1,6}) (.+)$", prose(text), re.MULTILINE)]


def slug(heading: str) -> str:
    """The anchor that GitHub and this project's mkdocs give a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """(language of the block, its commands without comments and without what a translator may change)."""
    return [(m.group(3).strip(), _commands(m.group(4))) for m in _FENCE.finditer(text)]


def _commands(block: str) -> list[str]:
    found = []
    for line in block.splitlines():
        bare = re.sub(r"\s+#.*$", "", line.strip()).replace("PADDLE_AMP_LANG=zh ", "")
        if _COMMAND.match(bare):
            # a placeholder may be translated: whatever holds a Chinese character, an upper-case word, or an ellipsis
            words = [w for w in bare.split() if not re.search(_CJK + r"|…", w) and not re.fullmatch(r"[A-Z_]+", w)]
            found.append(" ".join(words))
    return found


def differences(english: Path, chinese: Path) -> list[str]:
    """Headings and code blocks that the two do not share, in words."""
    en, zh = (path.read_text(encoding="utf-8") for path in (english, chinese))
    name = f"{english.relative_to(ROOT)} and {chinese.relative_to(ROOT)}"
    levels = [[level for level, _ in headings(text)] for text in (en, zh)]
    if levels[0] != levels[1]:
        return [f"{name}: headings differ (levels {levels[0]} and {levels[1]})"]
    if len(blocks(en)) != len(blocks(zh)):
        return [f"{name}: {len(blocks(en))} code blocks and {len(blocks(zh))}"]
    wrong = []
    for number, (one, other) in enumerate(zip(blocks(en), blocks(zh), strict=True), start=1):
        if one[0] != other[0]:
            wrong.append(f"{name}: code block {number} is {one[0] or 'plain'} and {other[0] or 'plain'}")
        elif one[1] != other[1]:
            only = Counter(one[1]) - Counter(other[1]), Counter(other[1]) - Counter(one[1])
            wrong.append(f"{name}: code block {number} has other commands: {list(only[0])} and {list(only[1])}")
    return wrong


def anchors(path: Path) -> set[str]:
    """Of all headings (repeated ones numbered as GitHub does) and of all ``<a id>``."""
    text = path.read_text(encoding="utf-8")
    found, seen = set(re.findall(r'<a id="([^"]+)">', text)), Counter[str]()
    for _, heading in headings(text):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def broken_links(path: Path) -> list[str]:
    """Relative links to files or anchors that are not there."""
    wrong = []
    for target in _LINK.findall(prose(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            wrong.append(f"{path.relative_to(ROOT)}: no such file: {target}")
        elif anchor and anchor not in anchors(file):
            wrong.append(f"{path.relative_to(ROOT)}: no such heading: {target}")
    return wrong


def _without_code(text: str) -> str:
    """Prose, and of code blocks the comments: line numbers are those of the file."""
    return _FENCE.sub(lambda m: "\n".join(_comment(line) for line in m.group().split("\n")), text)


def _comment(line: str) -> str:
    found = re.search(r"(?:^|\s)#\s(.*)", line)
    return found.group(1) if found else ""


def half_width(text: str) -> list[str]:
    """Half-width punctuation beside Chinese; code and links are left alone, comments in code are not."""
    wrong = []
    for number, line in enumerate(_without_code(text).splitlines(), start=1):
        bare = re.sub(r"\]\([^)]*\)", "]", re.sub(r"(`+).*?\1|<[^>]*>", "`", line))
        for mark, instead in _FULL_WIDTH.items():
            m = re.escape(mark)
            found = re.search(rf"{_CJK}{m}|{m}{_CJK}|{_CJK} {m} ?{_CJK}", bare)
            if found:
                wrong.append(f"{number}: {found.group()!r} has {mark} for {instead}")
    return wrong
