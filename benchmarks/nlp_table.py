"""The figures of the NLP recipes in the documents, from the kept runs of ``benchmarks.nlp_matrix``.

python -m benchmarks.nlp_table            # writes them between the marks
python -m benchmarks.nlp_table --check    # exit code 1 if a document says something else
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.nlp_matrix import BASELINE, MODES, PADDLE, PROJECT, RECIPES, RESULTS, load, read_json

Runs = Sequence[dict[str, Any]]
#: Column heads of the modes.
HEADS = {"fp32": "FP32", "o1-fp16": "O1 fp16", "o2-fp16": "O2 fp16", "o1-bf16": "O1 bf16"}
METRICS = {
    "en": {"test_accuracy": "accuracy", "test_f1": "F1 of whole names"},
    "zh": {"test_accuracy": "准确率", "test_f1": "实体 F1"},
}
METRIC_OF = {
    ("en", "ernie_mlm"): "accuracy on the hidden characters",
    ("zh", "ernie_mlm"): "被遮盖字符的准确率",
}
TABLE_HEAD = {
    "en": "| recipe | steps | metric | test rows | {modes} | CPU minutes (FP32 / O1 fp16) |",
    "zh": "| 配方 | 步数 | 指标 | 测试条数 | {modes} | CPU 分钟（FP32 / O1 fp16） |",
}
NOTE = {
    "en": "CPU minutes are those of all cores together, start and evaluations included. Each run had {cores} core(s) "
    "and {threads} thread(s), at a load of the machine of {low:.1f} to {high:.1f}. {seeds} {skips} Baseline on the "
    "same split: TF-IDF (one and two characters) with logistic regression, {score:.4f}. "
    "Paddle {paddle}, PaddleNLP {paddlenlp}, {dates}.",
    "zh": "CPU 分钟为所有核之和，包括启动与评估。每次训练使用 {cores} 个核、{threads} 个线程，"
    "机器负载 {low:.1f} 至 {high:.1f}。{seeds}{skips}"
    "同一划分上的基线：TF-IDF（单字与双字）加逻辑回归，{score:.4f}。"
    "Paddle {paddle}，PaddleNLP {paddlenlp}，{dates}。",
}
SENTIMENT = {
    "en": "In mixed precision (O1 float16), {minutes} CPU minutes with start and evaluations: **{amp:.4f}** of the "
    "{rows:,} held-out reviews right; in FP32, same seed: {fp32:.4f}; TF-IDF with logistic regression on the same "
    "split: {base:.4f}.",
    "zh": "混合精度（O1 float16）训练（含启动与评估共 {minutes} CPU 分钟）后，{rows:,} 条留出评论的准确率为 "
    "**{amp:.4f}**；FP32（同一随机种子）为 {fp32:.4f}；同一划分上 TF-IDF 加逻辑回归为 {base:.4f}。",
}
#: The same while only the FP32 run is kept.
SENTIMENT_FP32 = {
    "en": "In FP32, {minutes} CPU minutes with start and evaluations: **{fp32:.4f}** of the {rows:,} held-out reviews "
    "right; TF-IDF with logistic regression on the same split: {base:.4f}.",
    "zh": "FP32 训练（含启动与评估共 {minutes} CPU 分钟）后，{rows:,} 条留出评论的准确率为 **{fp32:.4f}**；"
    "同一划分上 TF-IDF 加逻辑回归为 {base:.4f}。",
}


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def by_mode(runs: Runs, recipe: str) -> dict[str, list[dict[str, Any]]]:
    """The runs of a recipe, by mode."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if run["recipe"] == recipe:
            found[run["mode"]].append(run)
    return found


def minutes(runs: Runs) -> str:
    """Mean CPU minutes of a run, evaluations included, rounded; "–" where there is no run."""
    return f"{mean([run['seconds']['cpu'] for run in runs]) / 60:.0f}" if runs else "–"


def table(runs: Runs, baseline: dict[str, Any], language: str) -> str:
    """The table of all recipes and modes, and what was measured beside it."""
    modes = " | ".join(HEADS[mode] for mode in MODES)
    lines = [TABLE_HEAD[language].format(modes=modes), "|" + "---|" * (5 + len(MODES))]
    for recipe in RECIPES:
        found = by_mode(runs, recipe)
        if not found:
            continue
        some = next(iter(found.values()))[0]
        metric = METRIC_OF.get((language, recipe), METRICS[language][some["metric"]])
        scores = [f"{mean([r['score'] for r in found[m]]):.4f}" if m in found else "–" for m in MODES]
        took = f"{minutes(found['fp32'])} / {minutes(found['o1-fp16'])}"
        cells = [f"`{recipe}`", str(some["steps"]), metric, f"{some['test_rows']:,}", *scores, took]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _note(runs, baseline, language)])


def _note(runs: Runs, baseline: dict[str, Any], language: str) -> str:
    machine = [run["machine"] for run in runs]
    loads = [load for m in machine for load in m["load"]]
    seeds = sorted({run["seed"] for run in runs})
    skipped = sum(run["skipped_steps"] for run in runs)
    steps = sum(run["steps"] for run in runs if run["mode"] != "fp32")
    dates = sorted({run["date"] for run in runs})
    said = {
        "en": (f"Seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}.", f"{skipped} of {steps:,} steps skipped."),
        "zh": (f"随机种子 {'、'.join(map(str, seeds))}。", f"{steps:,} 步中跳过 {skipped} 步。"),
    }[language]
    return NOTE[language].format(
        score=baseline["score"],
        seeds=said[0],
        skips=said[1],
        cores=" / ".join(map(str, sorted({m["cores"] for m in machine}))),
        threads=" / ".join(map(str, sorted({m["threads"] for m in machine}))),
        low=min(loads),
        high=max(loads),
        paddle=next(runs[0]["versions"][name] for name in PADDLE if name in runs[0]["versions"]),
        paddlenlp=runs[0]["versions"]["paddlenlp"],
        dates=dates[0] if len(dates) == 1 else f"{dates[0]} – {dates[-1]}",
    )


def sentiment(runs: Runs, baseline: dict[str, Any], language: str) -> str:
    """One sentence about the ERNIE fine-tune, for the README."""
    found = by_mode(runs, "ernie_sentiment")
    plain, amp = found["fp32"], found.get("o1-fp16", [])
    shown = amp or plain
    return (SENTIMENT if amp else SENTIMENT_FP32)[language].format(
        amp=mean([run["score"] for run in shown]),
        fp32=mean([run["score"] for run in plain]),
        base=baseline["score"],
        rows=shown[0]["test_rows"],
        minutes=minutes(shown),
    )


#: Document -> (language, what stands between its marks).
DOCUMENTS = {
    "docs/en/nlp-recipes.md": ("en", table),
    "docs/zh/nlp-recipes.md": ("zh", table),
    "README.md": ("en", sentiment),
    "README_zh.md": ("zh", sentiment),
}
BEGIN, END = "<!-- nlp-results: written by benchmarks/nlp_table.py -->", "<!-- nlp-results: end -->"


def filled(text: str, block: str) -> str:
    """``text`` with ``block`` between its marks. Raises ValueError if it does not have them once each."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError("the marks of the results must stand there once each")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{block}\n{END}{rest.partition(END)[2]}"


def wanted(root: Path = PROJECT, results: Path = RESULTS) -> dict[Path, str]:
    """Each document as it should be."""
    runs, baseline = load(results), read_json(results / f"{BASELINE}.json")
    out = {}
    for name, (language, make) in DOCUMENTS.items():
        path = root / name
        out[path] = filled(path.read_text(encoding="utf-8"), make(runs, baseline, language))
    return out


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [(path, text) for path, text in wanted().items() if path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        if not check:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(PROJECT)}: {'differs from the kept runs' if check else 'written'}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
