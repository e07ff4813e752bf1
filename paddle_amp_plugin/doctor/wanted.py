"""What a config would do here: its plan on the device its run would take. Pure: no Paddle is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paddle_amp_plugin.config import AmpConfig, load_yaml, read_amp
from paddle_amp_plugin.doctor.model import CPU, GPU, Card, Facts, Wanted
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.paddleocr_args import preflight, value
from paddle_amp_plugin.hosts.trainer_args import refuse_beyond
from paddle_amp_plugin.nlp import recipe as recipes
from paddle_amp_plugin.plan import Plan, make_plan

#: PaddleOCR's switches, in the order its ``program.preprocess`` asks them.
OCR_SWITCHES = ("xpu", "npu", "mlu", "gcu")
NO_CARD = Card(0, CPU, "CPU")


class Config:
    """A config file that was read: its AMP settings, the device it asks for, its model family.

    Raises what the run itself would say of the file: AmpError and ConfigError, before Paddle is imported.
    """

    def __init__(self, path: str) -> None:
        self.source = Path(path).name
        self.nlp = recipes.looks_nlp(path)
        self.beyond: Mapping[str, Any] = {}
        self.workers: int | None = None
        if self.nlp:
            recipe = recipes.read(path)
            self.settings = read_amp({"amp": recipe.amp}, host="paddlenlp") if recipe.amp is not None else None
            self.beyond = recipe.trainer
            self.family = f"nlp/{recipe.task}"
            self.place = str(recipe.trainer.get("device") or "")
        else:
            self.settings = preflight(["-c", path], training=False)
            document = load_yaml(path)
            architecture = _section(document, "Architecture")
            self.family = f"{architecture.get('model_type', '')}/{architecture.get('algorithm', '')}"
            self.place = ocr_place(_section(document, "Global"))
            workers = value(document, {}, "Train.loader.num_workers")
            self.workers = workers if isinstance(workers, int) else None

    def wanted(self, facts: Facts) -> Wanted:
        """The plan that the run would print, or why there would be none."""
        card = card_at(self.place, facts)
        host: Any = "nlp" if self.nlp else "paddleocr"
        place = f"{card.kind}:{card.index}" if card.kind != CPU else CPU
        if self._absent(card):
            return Wanted(self.source, host, self.settings is not None, self.place, absent=True)
        if self.settings is None:
            return Wanted(self.source, host, False, place)
        asked = self.settings.enabled
        try:
            if asked and self.nlp:
                refuse_beyond(SimpleNamespace(**self.beyond))
            plan = make_plan(self.settings, card.device(), family=self.family)
        except AmpError as error:
            text = f"{error.message}. {error.hint}" if error.hint else error.message
            return Wanted(self.source, host, True, place, asked, fault=(error.code, text))
        return Wanted(self.source, host, True, place, asked, plan=plan, workers=self.workers)

    def _absent(self, card: Card) -> bool:
        """A PaddleOCR config that asks for a GPU trains without one too (our launcher sees to it); no other does."""
        kind = self.place.partition(":")[0]
        return kind not in ("", card.kind) and not (kind == GPU and not self.nlp)


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = document.get(name)
    return section if isinstance(section, Mapping) else {}


def ocr_place(section: Mapping[str, Any]) -> str:
    """The device that PaddleOCR's ``Global`` asks for; "" for the GPU if there is one."""
    for kind in OCR_SWITCHES:
        if section.get(f"use_{kind}"):
            return kind
    return CPU if section.get("use_gpu") is False else ""


def card_at(place: str, facts: Facts) -> Card:
    """The device a run takes that asks for ``place`` ("" or "gpu": a GPU, on a machine without one the CPU)."""
    kind, _, number = place.partition(":")
    cards = [card for card in facts.cards if card.kind == (kind or GPU)]
    wanted = [card for card in cards if card.index == int(number)] if number.isdigit() else cards
    return wanted[0] if wanted else NO_CARD


def by_default(facts: Facts) -> tuple[Card, Plan, Plan]:
    """Without a config: the device a run would take, and what ``amp: true`` means there (recognition, detection)."""
    card = next(iter(facts.cards), NO_CARD)
    settings = read_amp({"amp": True})
    assert isinstance(settings, AmpConfig)
    rec, det = (make_plan(settings, card.device(), family=family) for family in ("rec/", "det/"))
    return card, rec, det
