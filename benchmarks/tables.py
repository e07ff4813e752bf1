"""The result as Markdown, in English and in Chinese, and into the docs between their markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
Language = Literal["en", "zh"]
TITLES: dict[str, tuple[str, str]] = {
    "overhead": ("The plugin's step ÷ the same step by hand", "插件的一步 ÷ 手写的同一步"),
    "monitoring": ("A recorded step ÷ one that is not", "带监控的一步 ÷ 不带监控的一步"),
    "armed": ("A watched step ÷ a plain one", "被观察的一步 ÷ 普通的一步"),
    "half": ("Half precision ÷ FP32", "半精度 ÷ FP32"),
    "imports": ("Import, in a fresh process", "新进程中的导入"),
}
_HEAD = {
    "en": ("case", "ratio", "quartiles", "goal", "first (s)", "repeats"),
    "zh": ("项目", "比值", "四分位数", "目标", "前者（秒）", "重复次数"),
}
_EXTRA = {
    "own_ms": ("recording alone (ms)", "仅监控（毫秒）"),
    "own_share": ("share of a step", "占一步的比例"),
    "samples_per_second": ("samples/s", "样本/秒"),
    "peak_mib": ("peak memory (MiB)", "显存峰值（MiB）"),
}


def markdown(result: dict[str, Any], language: Language) -> str:
    """The machine, then one table a benchmark."""
    which = 0 if language == "en" else 1
    parts = [machine_line(result["machine"], language)]
    for name, titles in TITLES.items():
        rows = [row for row in result["rows"] if row["benchmark"] == name]
        if rows:
            parts.append(f"**{titles[which]}** (`{name}`)\n\n{_table(rows, language)}")
    return "\n\n".join(parts)


def machine_line(machine: dict[str, Any], language: Language) -> str:
    """When and on what, in one paragraph."""
    threads = ", ".join(f"{key}={value}" for key, value in machine["threads"].items())
    device = f", {machine['gpu']} (CUDA {machine['cuda']})" if "gpu" in machine else ""
    load = machine["load"][0] if machine["load"] else "?"
    facts = f"{machine['cpu']} × {machine['cores']}{device}, Paddle {machine['paddle']}, Python {machine['python']}"
    if language == "zh":
        return f"{machine['date']}，{facts}；{threads}；开始时的系统负载 {load}。"
    return f"{machine['date']}, {facts}; {threads}; load at the start {load}."


def _table(rows: Sequence[dict[str, Any]], language: Language) -> str:
    which = 0 if language == "en" else 1
    extra = [key for key in _EXTRA if any(key in row for row in rows)]
    head = list(_HEAD[language])
    if "milliseconds" in rows[0]:
        head[1] = "ms" if language == "en" else "毫秒"
        head.pop(4)
    head += [_EXTRA[key][which] for key in extra]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join([*_cells(row), *(_extra(key, row.get(key)) for key in extra)])} |" for row in rows]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    goal = row.get("goal")
    if "milliseconds" in row:
        found, places = row["milliseconds"], 2
        shown = "–" if goal is None else f"≤ {goal:g}"
    else:
        found = row["ratio"]
        places = 2 if found["median"] >= 1.1 else 3
        shown = "–" if goal is None else f"≤ {goal:.2f}"
    cells = [
        row["case"],
        f"{found['median']:.{places}f}",
        f"{found['q1']:.{places}f} – {found['q3']:.{places}f}",
        shown,
    ]
    if "milliseconds" not in row:
        cells.append(f"{row['seconds'][0]:.3f}")
    return [*cells, str(row["repeats"])]


def _extra(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return " → ".join("–" if x is None else f"{x:.0f}" for x in value)
    return f"{value:.2%}" if key == "own_share" else f"{value:.2f}"


def into(path: Path, text: str) -> None:
    """Replaces what stands between the markers of a page. Raises ValueError if it has none."""
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path}: no {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
