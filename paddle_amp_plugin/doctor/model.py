"""What the doctor knows: machine, Paddle, driver, hosts, the config's wish, the self-test's result. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paddle_amp_plugin.plan_model import Device, Plan

#: AMD's, Baidu's and others' cards are devices too; these two words stand for NVIDIA's and for none.
GPU, CPU = "gpu", "cpu"


@dataclass(frozen=True)
class Card:
    """A device as Paddle sees it. ``float16`` / ``bfloat16``: does ``auto_cast`` cast to it there? ``memory``: MiB."""

    index: int
    kind: str
    name: str
    capability: tuple[int, int] | None = None
    float16: bool = False
    bfloat16: bool = False
    memory: int | None = None
    error: str = ""

    def device(self) -> Device:
        return Device(self.kind, self.name, self.capability, self.float16, self.bfloat16)


@dataclass(frozen=True)
class PaddleFacts:
    """What importing Paddle showed. ``error``: why it could not be imported; ``crash``: how the process ended.

    ``cuda``: the CUDA version it was built with, "" for none. ``amp``: function of ``paddle.amp`` -> its parameters;
    ``missing``: what the plugin needs and this Paddle has not.
    """

    version: str = ""
    commit: str = ""
    built: Literal["cpu", "cuda", "rocm", "xpu", "custom"] = "cpu"
    cuda: str = ""
    cudnn: str = ""
    error: str = ""
    crash: str = ""
    cards: tuple[Card, ...] = ()
    amp: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def imports(self) -> bool:
        return bool(self.version) and not self.error and not self.crash


@dataclass(frozen=True)
class Driver:
    """What ``nvidia-smi`` says: the driver, the newest CUDA it runs, each GPU as (name, capability, memory in MiB)."""

    version: str = ""
    cuda: str = ""
    gpus: tuple[tuple[str, tuple[int, int] | None, int | None], ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """Everything gathered. ``wheels``, ``hosts``: package -> version; ``failures``: probes that could not be made."""

    plugin: str = ""
    python: str = ""
    system: str = ""
    processor: str = ""
    cores: int = 0
    wheels: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    paddleocr: str = ""
    visible: str | None = None
    paddle: PaddleFacts | None = None
    driver: Driver | None = None
    failures: tuple[str, ...] = ()

    @property
    def cards(self) -> tuple[Card, ...]:
        """The devices besides the CPU that Paddle can use."""
        return tuple(card for card in self.paddle.cards if not card.error) if self.paddle is not None else ()


@dataclass(frozen=True)
class Wanted:
    """What a config asks for. ``key``: does it say anything of AMP? ``asked``: is it on there?

    ``place``: the device of the run ("cpu", "gpu:0"); ``absent``: the config names it and Paddle does not see it.
    ``fault``: (code, text) of why no plan is possible. ``workers``: PaddleOCR's reader processes, if it says.
    """

    source: str
    host: Literal["paddleocr", "nlp"]
    key: bool
    place: str
    asked: bool = False
    plan: Plan | None = None
    fault: tuple[str, str] | None = None
    absent: bool = False
    workers: int | None = None


@dataclass(frozen=True)
class Check:
    """One thing the self-test looked at: expected and seen, in short technical words."""

    name: str
    ok: bool
    seen: str


@dataclass(frozen=True)
class SelfTest:
    """``state``: passed, failed (a check), crashed, timeout, skipped. ``stage``: where it was when it ended."""

    state: Literal["passed", "failed", "crashed", "timeout", "skipped"]
    place: str = ""
    level: str = ""
    dtype: str = ""
    stage: str = ""
    losses: tuple[float, ...] = ()
    checks: tuple[Check, ...] = ()
    error: str = ""
