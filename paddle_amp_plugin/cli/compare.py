"""``paddle-amp compare``: FP32 and mixed precision measured on the user's own training, and the verdict in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_amp_plugin.atomic import write_whole
from paddle_amp_plugin.cli.options import out_folder, overrides, page_language
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import language, tr

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = "compare.html"
FEWEST_STEPS = 4


def compare(
    config: Path,
    *,
    options: Sequence[str],
    steps: int,
    seeds: int,
    modes: str,
    synthetic: bool,
    metric: bool,
    out: Path | None,
    png: bool,
    lang: str | None,
    paddleocr_dir: str | None,
) -> None:
    """Runs every mode with every seed, prints the verdict, writes the page and ``compare.json``.

    Raises AmpError: AMP260 for the arguments, AMP262 missing data, AMP264 nothing could be trained, and what the
    workload raises.
    """
    if steps < FEWEST_STEPS or seeds < 1:
        text = tr(
            "--steps {s} --seeds {k}: at least 4 and 1", "--steps {s} --seeds {k}：至少为 4 与 1", s=steps, k=seeds
        )
        raise AmpError("AMP260", text)
    from paddle_amp_plugin.comparison import record as records
    from paddle_amp_plugin.comparison.page import render, write_picture
    from paddle_amp_plugin.comparison.runner import compare as run
    from paddle_amp_plugin.comparison.verdict import as_dict, judge

    wanted, given, chosen = records.parse_modes(modes), overrides(options), page_language(lang)
    folder = out_folder(out, Path("output") / "compare" / config.stem)
    key, first = _seed_of(config, given)
    with _bar(len(wanted) * seeds * steps) as told:
        found = run(
            config,
            given,
            modes=wanted,
            steps=steps,
            seeds=tuple(first + number for number in range(seeds)),
            seed_key=key,
            synthetic=synthetic,
            metric=metric and not synthetic,
            paddleocr_dir=paddleocr_dir,
            told=told,
        )
    verdict = judge(found)
    _written(folder / records.RECORD_FILE, records.to_json(found, as_dict(verdict)))
    _written(folder / PAGE, render(found, verdict, chosen))
    if png:
        target = (folder / PAGE).with_suffix(".png")
        write_whole(target, lambda path: write_picture(found, path, chosen), code="AMP084", hint="--out")
    own = language()
    print(f"compare: {verdict.headline.of(own)}")
    for line in verdict.lines:
        print(f"  - {line.of(own)}")
    print(tr("\nreport: {p}", "\n报告：{p}", p=folder / PAGE))


def _seed_of(config: Path, given: dict[str, Any]) -> tuple[str, int]:
    """(the key a config's seed stands under, the first seed: the config's own)."""
    from paddle_amp_plugin.config import load_yaml
    from paddle_amp_plugin.hosts.paddleocr_args import value
    from paddle_amp_plugin.nlp import recipe

    nlp = recipe.looks_nlp(config)
    key = "trainer.seed" if nlp else "Global.seed"
    document = recipe.load(config) if nlp else load_yaml(config)
    found = value(document, given, key)
    return key, found if isinstance(found, int) else 1


def _written(target: Path, text: str) -> None:
    write_whole(target, lambda path: path.write_text(text, encoding="utf-8"), code="AMP084", hint="--out")


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str, int], None]]:
    """A progress bar over all steps of all trainings, on stderr; it names the one that runs."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(tr("starting", "正在启动"), total=total)

        def told(label: str, step: int) -> None:
            progress.update(task, advance=1, description=label)

        yield told
