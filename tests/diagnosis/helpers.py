"""One armed step of a plain training loop, its diagnosis, and the same step again with the YAML pasted in."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paddle
import yaml

from paddle_amp_plugin import autocast
from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.diagnosis import Batch, Diagnosis, LayerWatch, Subject, diagnose, yaml_of
from paddle_amp_plugin.plan import Device, make_plan
from paddle_amp_plugin.scaler import LossScaler

CPU = Device(kind="cpu", name="CPU", capability=None, float16=False, bfloat16=False)


def load_models() -> Any:
    """``tests/reference/models.py``: real tiny networks of the hosts (it imports its neighbours by plain names)."""
    folder = str(Path(__file__).parents[1] / "reference")
    if folder not in sys.path:
        sys.path.append(folder)
    import models

    return models


def plan_of(**amp: Any) -> Any:
    """The plan of a YAML with these keys under ``amp``."""
    config = read_amp({"amp": {"level": "O1", "dtype": "float16", **amp}})
    assert config is not None
    return make_plan(config, CPU, family="")


@dataclasses.dataclass
class Case:
    """``build`` makes the same model each time; ``loss`` takes its outputs in FP32."""

    build: Callable[[], paddle.nn.Layer]
    inputs: list[Any]
    loss: Callable[[Any], Any]
    amp: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: Any = None
    scale: float | None = None
    rate: float | None = None
    optimizer: type = paddle.optimizer.SGD
    device: Device = CPU

    def prepared(self, **more: Any) -> tuple[Any, Any, Any, LossScaler]:
        plan = dataclasses.replace(plan_of(**{**self.amp, **more}), device=self.device)
        model = self.build()
        optimizer = self.optimizer(learning_rate=self.rate or 1e-9, parameters=model.parameters())
        autocast.decorate(plan, model, optimizer)
        scaler = LossScaler(plan.scaling, use_loss_scaling=plan.use_loss_scaling)
        if self.scale is not None:
            start = min(self.scale, plan.scaling.maximum, plan.scaling.init if "init_loss_scaling" in more else 1e30)
            scaler.set_init_loss_scaling(start)
        return plan, model, optimizer, scaler

    def step(self, plan: Any, model: Any, scaler: LossScaler) -> float:
        """Forward and scaled backward, as a session makes them."""
        with autocast.auto_cast(plan):
            outputs = model(*self.inputs)
        result = self.loss(autocast.to_float32(outputs))
        loss = result["loss"] if isinstance(result, dict) else result
        scaler.scale(loss).backward()
        return float(loss)

    def diagnose(self, **watch_arguments: Any) -> tuple[Diagnosis, float]:
        """The diagnosis of one armed step, and the step's loss; asserts that the diagnosis changed nothing."""
        plan, model, optimizer, scaler = self.prepared()
        with LayerWatch(model, **watch_arguments) as watch:
            loss = self.step(plan, model, scaler)
            watch.read_gradients()
        batch = Batch(lambda: model(*self.inputs), self.loss, inputs={"inputs": self.inputs, "labels": self.labels})
        before = snapshot(model, optimizer)
        found = diagnose(
            watch,
            Subject(model, plan, batch, scale=scaler.current_scale, optimizer=optimizer),
            step=7,
        )
        assert same(before, snapshot(model, optimizer)), "the diagnosis changed the run"
        assert all("forward" not in vars(layer) for layer in model.sublayers(include_self=True))
        scaler.step(optimizer)
        assert scaler._cache_found_inf == (not watch.finite)
        return found, loss

    def finite_with(self, found: Diagnosis) -> bool:
        """Whether the same step of a fresh model is finite once the YAML is pasted in."""
        pasted = yaml.safe_load(yaml_of(found))
        assert set(pasted) == {"amp"} and read_amp(pasted) is not None
        plan, model, optimizer, scaler = self.prepared(**pasted["amp"])
        self.step(plan, model, scaler)
        scaler.step(optimizer)
        return not scaler._cache_found_inf


def snapshot(model: Any, optimizer: Any) -> dict[str, bytes]:
    """Every bit a diagnosis must leave alone: weights, buffers, gradients, masters, random states."""
    bits = {n: t.numpy().tobytes() for n, t in model.state_dict().items()}
    bits |= {f"{n}@grad": p.grad.numpy().tobytes() for n, p in model.named_parameters() if p.grad is not None}
    bits |= {f"{n}@type": str(type(layer)).encode() for n, layer in model.named_sublayers(include_self=True)}
    bits |= {f"{n}@dtype": str(p.dtype).encode() for n, p in model.named_parameters()}
    masters = getattr(optimizer, "_master_weights", None) or {}
    bits |= {f"{n}@master": t.numpy().tobytes() for n, t in masters.items()}
    bits["rng"] = repr([s.current_seed() for s in paddle.get_rng_state()]).encode()
    return bits


def same(one: dict[str, bytes], other: dict[str, bytes]) -> bool:
    different = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    assert not different, different
    return True
