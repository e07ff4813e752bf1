"""The whole examination: facts, the config's plan, the self-test, the verdict. Paddle runs in children only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paddle_amp_plugin.doctor.child import Ended, run_child
from paddle_amp_plugin.doctor.facts import gather
from paddle_amp_plugin.doctor.model import CPU, Check, Facts, SelfTest, Wanted
from paddle_amp_plugin.doctor.verdict import Verdict, judge
from paddle_amp_plugin.doctor.wanted import Config, by_default

SELF_TEST_SECONDS = 180.0


@dataclass(frozen=True)
class Examination:
    """All that a report shows."""

    facts: Facts
    wanted: Wanted | None
    test: SelfTest | None
    verdict: Verdict


def examine(config: Config | None, *, self_test: bool, say: Callable[[str], None]) -> Examination:
    """Examines this machine. ``say`` is told the stage: "paddle", "self_test"."""
    say("paddle")
    facts = gather()
    wanted = config.wanted(facts) if config is not None else None
    test = None
    if self_test:
        say("self_test")
        test = tested(facts, wanted)
    return Examination(facts, wanted, test, judge(facts, wanted, test))


def tested(facts: Facts, wanted: Wanted | None) -> SelfTest:
    """Runs the self-test at what the config (or else ``amp: true``) comes to here, in a child."""
    if facts.paddle is None or not facts.paddle.imports or facts.paddle.missing:
        return SelfTest("skipped", error="paddle")
    card, plan, _ = by_default(facts)
    place = f"{card.kind}:{card.index}" if card.kind != CPU else CPU
    if wanted is not None and wanted.plan is not None and wanted.plan.enabled:
        plan, place = wanted.plan, wanted.place
    if not plan.enabled:
        return SelfTest("skipped", place, error="device")
    arguments = [place, plan.level, plan.dtype]
    ended = run_child("paddle_amp_plugin.doctor.self_test", arguments, seconds=SELF_TEST_SECONDS)
    return read_test(ended, *arguments)


def read_test(ended: Ended, place: str, level: str, dtype: str) -> SelfTest:
    """What a child found, as a result."""
    found = ended.found
    stage = str(found.get("stage", "start"))
    losses = tuple(float("nan") if loss is None else float(loss) for loss in found.get("losses", ()))
    checks = tuple(Check(**row) for row in found.get("checks", ()))
    error = str(found.get("error", ""))
    if ended.how:
        error = f"{ended.how}: {ended.last_line}" if ended.last_line else ended.how
    if ended.how == "timeout":
        return SelfTest("timeout", place, level, dtype, stage, losses, checks, error)
    if ended.how or error or stage != "done":
        return SelfTest("crashed", place, level, dtype, stage, losses, checks, error or "?")
    state = "passed" if all(check.ok for check in checks) else "failed"
    return SelfTest(state, place, level, dtype, stage, losses, checks)  # type: ignore[arg-type]
