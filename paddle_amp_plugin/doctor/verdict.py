"""From the facts to the verdict, with reasons: can AMP help here, at which dtype and level? Pure; no words, no Paddle.

Codes: AMP250 Paddle is missing or cannot be imported, AMP251 the wheel does not fit the machine, AMP252 the driver or
no visible device, AMP253 no half precision on this device, AMP254 the config leaves AMP off, AMP255 the config's plan
is refused, AMP256 the self-test found something wrong, AMP257 the self-test crashed or did not end, AMP258
``paddle.amp`` lacks what is needed, AMP259 devices that are not alike. AMP041 and AMP226 are the run's own: its host is
not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from paddle_amp_plugin.doctor.model import CPU, GPU, Card, Facts, PaddleFacts, SelfTest, Wanted
from paddle_amp_plugin.doctor.wanted import by_default
from paddle_amp_plugin.plan_model import Plan

State = Literal["works", "emulated", "off", "broken"]
Weight = Literal["wrong", "off", "note", "good"]

#: First compute capability of each architecture (NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities").
ARCHITECTURES: tuple[tuple[tuple[int, int], str], ...] = (
    ((10, 0), "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 9), "Ada"),
    ((8, 0), "Ampere"),
    ((7, 5), "Turing"),
    ((7, 0), "Volta"),
    ((6, 0), "Pascal"),
    ((5, 0), "Maxwell"),
    ((0, 0), "Kepler"),
)
TENSOR_CORES_FROM = (7, 0)
#: Turing without Tensor Cores (TU116, TU117), which the capability, 7.5, does not show.
_NO_TENSOR_CORES = re.compile(r"\b(GTX 16\d\d|MX[45]50|(?:Quadro )?T(?:400|500|550|600|1000|1200|2000))\b")


@dataclass(frozen=True)
class Reason:
    """One reason. ``key`` is stable, like ``code`` ("" for what is simply so); ``values`` fill its words."""

    key: str
    weight: Weight
    code: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """``works``: real half precision; ``emulated``: software half; ``off``: FP32; ``broken``: something is wrong.

    ``dtype`` / ``detection_dtype``: what ``amp: true`` (or the config) computes in, "" if AMP would be off.
    """

    state: State
    reasons: tuple[Reason, ...]
    place: str = CPU
    level: str = ""
    dtype: str = ""
    detection_dtype: str = ""

    @property
    def exit_code(self) -> int:
        """0: AMP will work; 1: it will not."""
        return 0 if self.state in ("works", "emulated") else 1


def architecture(capability: tuple[int, int]) -> str:
    """The architecture of a compute capability: (8, 6) -> "Ampere"."""
    return next(name for first, name in ARCHITECTURES if capability >= first)


def has_tensor_cores(card: Card) -> bool | None:
    """Does the GPU have Tensor Cores? None for what is not NVIDIA's."""
    if card.kind != GPU or card.capability is None:
        return None
    return card.capability >= TENSOR_CORES_FROM and not _NO_TENSOR_CORES.search(card.name)


def judge(facts: Facts, wanted: Wanted | None = None, test: SelfTest | None = None) -> Verdict:
    """The verdict. ``wanted``: of a config, if one was given; ``test``: of the self-test, if it was made."""
    usual, rec, det = by_default(facts)
    card = _chosen(facts, wanted) if wanted is not None else usual
    plan = wanted.plan if wanted is not None else rec
    place = f"{card.kind}:{card.index}" if card.kind != CPU else CPU
    reasons = [
        *_paddle(facts),
        *_machine(facts),
        *(_config(facts, wanted) if wanted is not None else ()),
        *_device(facts, card, plan),
        *_reader(card, wanted),
        *_unlike(facts),
        *_tested(test),
    ]
    weights = {reason.weight for reason in reasons}
    if "wrong" in weights or "off" in weights:
        state: State = "broken" if "wrong" in weights else "off"
        return Verdict(state, _sorted(reasons), place)
    assert plan is not None
    detection = plan.dtype if wanted is not None else det.dtype
    state = "emulated" if plan.software_half else "works"
    return Verdict(state, _sorted(reasons), place, plan.level, plan.dtype, detection)


def _sorted(reasons: list[Reason]) -> tuple[Reason, ...]:
    order = {"wrong": 0, "off": 1, "good": 2, "note": 3}
    return tuple(sorted(reasons, key=lambda reason: order[reason.weight]))


def _chosen(facts: Facts, wanted: Wanted) -> Card:
    for card in facts.cards:
        if wanted.place == f"{card.kind}:{card.index}":
            return card
    return Card(0, CPU, "CPU")


def _paddle(facts: Facts) -> Iterator[Reason]:
    """Is there a Paddle that imports, and has it what the plugin calls?"""
    paddle = facts.paddle
    if paddle is None:
        yield Reason("no_paddle", "wrong", "AMP250")
    elif paddle.error:
        yield Reason("paddle_import", "wrong", "AMP250", {"error": paddle.error})
    elif paddle.crash:
        yield Reason("paddle_crash", "wrong", "AMP250", {"error": paddle.crash})
    elif paddle.missing:
        yield Reason("amp_lacks", "wrong", "AMP258", {"version": paddle.version, "names": ", ".join(paddle.missing)})


def _machine(facts: Facts) -> Iterator[Reason]:
    """Do wheel, driver and devices fit together?"""
    paddle, driver = facts.paddle, facts.driver
    both = [name for name in facts.wheels if name == "paddlepaddle" or name.startswith("paddlepaddle-")]
    if len(both) > 1:
        yield Reason("two_wheels", "note", "AMP251", {"names": " + ".join(both)})
    if paddle is None:
        return
    broken = [card for card in paddle.cards if card.error]
    for card in broken:
        yield Reason("card_fails", "wrong", "AMP252", {"place": f"{card.kind}:{card.index}", "error": card.error})
    names = ", ".join(dict.fromkeys(name for name, _, _ in driver.gpus)) if driver is not None else ""
    if paddle.imports and paddle.built == "cpu" and names:
        yield Reason("cpu_wheel", "wrong", "AMP251", {"gpus": names, "version": paddle.version})
    if paddle.imports and paddle.built == "cuda" and not paddle.cards:
        yield _no_card(facts, paddle)
    if driver is not None and paddle.cuda and driver.cuda and _numbers(driver.cuda) < _numbers(paddle.cuda):
        values = {"driver": driver.version, "runs": driver.cuda, "cuda": paddle.cuda}
        yield Reason("driver_old", "note", "AMP252", values)


def _no_card(facts: Facts, paddle: PaddleFacts) -> Reason:
    """Why a CUDA build sees no GPU."""
    driver = facts.driver
    if driver is None:
        return Reason("no_driver", "wrong", "AMP252", {"version": paddle.version, "cuda": paddle.cuda})
    if driver.error:
        return Reason("driver_fails", "wrong", "AMP252", {"error": driver.error})
    if driver.gpus and facts.visible is not None and facts.visible.strip() in ("", "-1", "NoDevFiles"):
        return Reason("hidden", "wrong", "AMP252", {"value": facts.visible})
    return Reason("not_seen", "wrong", "AMP252", {"driver": driver.version, "runs": driver.cuda, "cuda": paddle.cuda})


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])


def _config(facts: Facts, wanted: Wanted) -> Iterator[Reason]:
    """Is the config's host here, does the config ask for AMP, and can its plan be made here?"""
    if wanted.host == "paddleocr" and not facts.paddleocr:
        yield Reason("no_paddleocr", "wrong", "AMP041", {"file": wanted.source})
    if wanted.host == "nlp" and "paddlenlp" not in facts.hosts:
        yield Reason("no_paddlenlp", "wrong", "AMP226", {"file": wanted.source})
    if wanted.absent:
        yield Reason("absent", "wrong", "AMP252", {"file": wanted.source, "place": wanted.place})
    elif wanted.fault is not None:
        code, text = wanted.fault
        yield Reason("plan_refused", "wrong", "AMP255", {"file": wanted.source, "code": code, "text": text})
    elif not wanted.key:
        yield Reason("no_key", "off", "AMP254", {"file": wanted.source})
    elif wanted.plan is not None and not wanted.plan.enabled and (not wanted.asked or wanted.place == CPU):
        yield Reason("config_off", "off", "AMP254", {"file": wanted.source, "why": wanted.plan.off_reason})


def _device(facts: Facts, card: Card, plan: Plan | None) -> Iterator[Reason]:
    """What the device the run takes can do."""
    if facts.paddle is None or not facts.paddle.imports:
        return
    if card.kind == CPU:
        if plan is not None and plan.enabled:
            key = "emulated_by_choice" if facts.cards else "emulated"
            yield Reason(key, "good" if not facts.cards else "note")
        return
    values = {"name": card.name, "place": f"{card.kind}:{card.index}"}
    if card.capability is not None:
        values |= {
            "capability": ".".join(map(str, card.capability)),
            "architecture": architecture(card.capability) if facts.paddle.built != "rocm" else "ROCm",
        }
    halves = [name for name in ("float16", "bfloat16") if getattr(card, name)]
    values["halves"] = ", ".join(halves)
    cores = has_tensor_cores(card) if facts.paddle.built != "rocm" else None
    if not halves:
        yield Reason("too_old" if card.capability else "no_half", "off", "AMP253", values)
    elif cores is None:
        yield Reason("as_paddle_says", "good", "", values)
    elif cores:
        yield Reason("tensor_cores", "good", "", values)
    else:
        yield Reason("no_tensor_cores", "note", "", values)
    if halves == ["float16"]:
        yield Reason("no_bfloat16", "note", "", values)


def _reader(card: Card, wanted: Wanted | None) -> Iterator[Reason]:
    """A GPU that waits for its data does not become faster by AMP."""
    if wanted is not None and wanted.workers == 0 and card.kind != CPU:
        yield Reason("reader", "note", "", {"file": wanted.source})


def _unlike(facts: Facts) -> Iterator[Reason]:
    """Several devices that would not compute alike in one distributed run."""
    able = {(card.float16, card.bfloat16) for card in facts.cards}
    if len(able) > 1:
        names = "; ".join(
            f"{card.kind}:{card.index} {card.name}: "
            + (", ".join(n for n in ("float16", "bfloat16") if getattr(card, n)) or "float32")
            for card in facts.cards
        )
        yield Reason("unlike", "note", "AMP259", {"names": names})


def _tested(test: SelfTest | None) -> Iterator[Reason]:
    if test is None or test.state == "skipped":
        return
    values = {"place": test.place, "level": test.level, "dtype": test.dtype, "stage": test.stage, "error": test.error}
    if test.state == "passed":
        yield Reason("test_passed", "good", "", values)
    elif test.state == "failed":
        failed = [f"{check.name}: {check.seen}" for check in test.checks if not check.ok]
        yield Reason("test_failed", "wrong", "AMP256", {**values, "checks": "; ".join(failed)})
    else:
        yield Reason(f"test_{test.state}", "wrong", "AMP257", values)
