"""Machines that are not here, as the doctor would see them: name, compute capability, what ``auto_cast`` casts to."""

from __future__ import annotations

import dataclasses

from paddle_amp_plugin.doctor.model import Card, Driver, Facts, PaddleFacts

#: name -> (card, float16, bfloat16). Capabilities: developer.nvidia.com/cuda-gpus.
CARDS = {
    "P100": Card(0, "gpu", "Tesla P100-PCIE-16GB", (6, 0), False, False, 16280),
    "P4": Card(0, "gpu", "Tesla P4", (6, 1), False, False, 7611),
    "V100": Card(0, "gpu", "Tesla V100-SXM2-16GB", (7, 0), True, False, 16160),
    "T4": Card(0, "gpu", "Tesla T4", (7, 5), True, False, 15109),
    "GTX1660": Card(0, "gpu", "NVIDIA GeForce GTX 1660 Ti", (7, 5), True, False, 5944),
    "A100": Card(0, "gpu", "NVIDIA A100-SXM4-40GB", (8, 0), True, True, 40536),
    "A10": Card(0, "gpu", "NVIDIA A10", (8, 6), True, True, 22731),
    "RTX4090": Card(0, "gpu", "NVIDIA GeForce RTX 4090", (8, 9), True, True, 24217),
    "H100": Card(0, "gpu", "NVIDIA H100 80GB HBM3", (9, 0), True, True, 81559),
    "B200": Card(0, "gpu", "NVIDIA B200", (10, 0), True, True, 183359),
    "XPU2": Card(0, "xpu", "XPU", None, True, False),
    "XPU3": Card(0, "xpu", "XPU", None, True, True),
    "XPU1": Card(0, "xpu", "XPU", None, False, False),
    "NPU": Card(0, "npu", "NPU", None, True, True),
}
BUILD = {"gpu": "cuda", "xpu": "xpu", "npu": "custom"}
AMP = {"auto_cast": ("enable", "level", "dtype"), "decorate": ("models",), "GradScaler": ("enable",)}
BASE = Facts(
    plugin="0.1.0",
    python="3.11.7",
    system="Linux",
    wheels={"paddlepaddle-gpu": "3.3.1"},
    hosts={"paddlenlp": "3.0.0b4"},
    paddleocr="the current folder",
    paddle=PaddleFacts("3.3.1", "abc", "cuda", "12.6", "9.5", amp=AMP),
    driver=Driver("560.35", "12.6"),
)


def machine(*names: str) -> Facts:
    """A machine with these cards and the Paddle and driver that fit them; without cards a CPU build."""
    cards = tuple(dataclasses.replace(CARDS[name], index=index) for index, name in enumerate(names))
    kind = cards[0].kind if cards else "cpu"
    cuda = "12.6" if kind == "gpu" else ""
    paddle = dataclasses.replace(BASE.paddle, built=BUILD.get(kind, "cpu"), cuda=cuda, cards=cards)
    gpus = tuple((card.name, card.capability, card.memory) for card in cards if card.kind == "gpu")
    return dataclasses.replace(BASE, paddle=paddle, driver=Driver("560.35", "12.6", gpus) if gpus else None)


def with_paddle(facts: Facts, **changes: object) -> Facts:
    """The same machine with another Paddle."""
    return dataclasses.replace(facts, paddle=dataclasses.replace(facts.paddle, **changes))
