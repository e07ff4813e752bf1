"""``paddle-amp rehearse``: will this config hold in mixed precision? A few steps beside FP32, and an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_amp_plugin.atomic import write_whole
from paddle_amp_plugin.cli.options import out_folder, overrides, page_language
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import language, tr

if TYPE_CHECKING:
    from paddle_amp_plugin.plan import Plan
    from paddle_amp_plugin.rehearsal.record import Rehearsal
    from paddle_amp_plugin.rehearsal.verdict import Verdict

PAGE = "rehearsal.html"
DIAGNOSIS = "diagnosis"  # a folder of its own: --out may be a run's, and that has diagnoses, too
FEWEST = 3


def rehearse(
    config: Path,
    *,
    options: Sequence[str],
    steps: int,
    synthetic: bool,
    out: Path | None,
    png: bool,
    lang: str | None,
    paddleocr_dir: str | None,
) -> bool:
    """Rehearses, prints the verdict, writes the page and ``rehearsal.json``; returns whether the config will hold.

    Raises AmpError: AMP260 for the arguments, AMP262 if the training data is missing, and what the workload raises.
    """
    if steps < FEWEST:
        raise AmpError("AMP260", tr("--steps {v}: {m} or more", "--steps {v}：应不小于 {m}", v=steps, m=FEWEST))
    given, chosen = overrides(options), page_language(lang)
    folder = out_folder(out, Path("output") / "rehearsal" / config.stem)
    from paddle_amp_plugin.hosts.workloads import no_data, open_workload

    with open_workload(config, given, paddleocr_dir=paddleocr_dir, synthetic=synthetic) as work:
        if work.missing is not None and not synthetic:
            raise no_data(work.missing)
        from paddle_amp_plugin.rehearsal.record import RECORD_FILE, to_json
        from paddle_amp_plugin.rehearsal.runner import rehearse as run
        from paddle_amp_plugin.rehearsal.verdict import as_dict, judge

        plan = _plan(work)
        _say(tr("{n}: {p} beside FP32", "{n}：{p} 与 FP32 并行", n=work.name, p=f"{plan.level} {plan.dtype}"))
        found = folder / DIAGNOSIS
        for stale in found.glob("overflow-*.json"):
            stale.unlink()
        record = run(work, plan, steps=steps, folder=found, synthetic=synthetic, progress=bar)
    verdict = judge(record)
    text = to_json(record, as_dict(verdict))
    _written(folder / RECORD_FILE, text)
    _pages(record, verdict, folder, png=png, lang=chosen)
    _tell(verdict, folder / PAGE)
    return verdict.holds


def _plan(work: Any) -> Plan:
    """The config's own plan; that of ``amp: true`` where it has none; on a CPU with software half, whatever it says."""
    import dataclasses

    from paddle_amp_plugin.hosts.workloads import plan_for

    settings = work.settings
    if settings is not None and settings.enabled and settings.cpu != "emulate":
        work.settings = settings.model_copy(update={"cpu": "emulate"})
    if settings is None or not settings.enabled:
        _say(tr("the config has no amp key that is on: rehearsing amp: true", "配置未启用 amp：按 amp: true 预演"))
    plan = plan_for(work, None if settings is None or settings.enabled else True)
    if not plan.enabled:
        raise AmpError("AMP016", plan.off_reason)
    return dataclasses.replace(plan, accumulate_steps=1)


def bar(items: Iterable[int], label: str) -> Iterable[int]:
    """A progress bar over the steps, on stderr; its line goes away when it is done."""
    from rich.console import Console
    from rich.progress import track

    return track(list(items), label, console=Console(stderr=True), transient=True)


def _pages(record: Rehearsal, verdict: Verdict, folder: Path, *, png: bool, lang: str) -> None:
    from paddle_amp_plugin.rehearsal.page import render, write_picture

    _written(folder / PAGE, render(record, verdict, lang))
    if png:
        target = (folder / PAGE).with_suffix(".png")
        write_whole(target, lambda path: write_picture(record, path, lang), code="AMP084", hint="--out")


def _written(target: Path, text: str) -> None:
    write_whole(target, lambda path: path.write_text(text, encoding="utf-8"), code="AMP084", hint="--out")


def _tell(verdict: Verdict, page: Path) -> None:
    own = language()
    _say(verdict.headline.of(own))
    for line in (*verdict.reasons, *verdict.remarks):
        print(f"  - {line.of(own)}")
    if verdict.yaml:
        if verdict.holds:
            print(tr("\nTo write into the config:", "\n可写入配置："))
        else:
            print(tr("\nWhat should hold instead:", "\n建议改为："))
        print(tr("\nor\n", "\n或\n").join(text.rstrip() for text in verdict.yaml))
    print(tr("\nreport: {p}", "\n报告：{p}", p=page))


def _say(text: str) -> None:
    print(f"rehearse: {text}", flush=True)
