"""A run as a real one would leave it: SVTR, 1,200 steps, a scale that searches, a layer that overflows and is pinned.

    python -m tests.report.fake_run FOLDER

The scale follows ``loss_scaling.LossScale`` itself; loss, norms and times are drawn from a seeded generator.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np

from paddle_amp_plugin.loss_scaling import LossScale, ScalingPolicy
from paddle_amp_plugin.monitor.events import StepEvent

POLICY = ScalingPolicy(init=65536.0, incr_every_n_steps=200)
CULPRIT = "backbone.blocks2.1.mlp.fc2"
OVERFLOW_AT = 704
YAML = f'amp:\n  fp32_layers: ["{CULPRIT}"]\n  init_loss_scaling: 2048'

PLAN = f"""# The precision settings of one run, resolved by paddle-amp-plugin.
enabled: true
off_reason: ''
device: {{kind: cpu, name: CPU, capability: null, float16: false, bfloat16: false}}
family: SVTR
level: O1
dtype: float16
dtype_reason: the device holds both; SVTR is known to train in float16
preset: safe
custom_white_list: []
custom_black_list: [batch_norm, layer_norm, softmax]
fp32_layers: []
use_loss_scaling: true
scaling: {{init: {POLICY.init}, dynamic: true, incr_ratio: 2.0, decr_ratio: 0.5, incr_every_n_steps: 200,
  decr_every_n_nan_or_inf: 1, minimum: 1.0, maximum: 16777216.0}}
master_weight: true
master_grad: false
on_collapse: pin
accumulate_steps: 1
eval_dtype: float32
software_half: true
"""


def events(steps: int = 1200, seed: int = 0, *, overflow: bool = True) -> list[StepEvent]:
    """The events. Gradients fit up to a scale of 8192 (4096 late); from ``OVERFLOW_AT`` on six steps fail anyway."""
    rng = np.random.default_rng(seed)
    scale = LossScale(POLICY)
    result = []
    for step in range(1, steps + 1):
        progress = step / steps
        loss = (12.0 * math.exp(-5.5 * progress) + 0.25) * float(np.exp(rng.normal(0.0, 0.12)))
        fits = 8192 if progress < 0.6 else 4096
        bad = scale.scale > fits or (overflow and OVERFLOW_AT <= step < OVERFLOW_AT + 6) or step == 333
        outcome = scale.advance(bad)
        norm = math.inf if bad else float(np.exp(rng.normal(0.7 - 1.2 * progress, 0.35)))
        warm = min(1.0, step / 60)
        result.append(
            StepEvent(
                step=step,
                loss=loss,
                losses={"loss_ctc": 0.7 * loss, "loss_nrtr": 0.3 * loss},
                loss_scale=outcome.old_scale,
                skipped=bad,
                grad_norm=norm,
                lr=5e-4 * warm * 0.5 * (1 + math.cos(math.pi * progress)),
                seconds=float(0.16 + 0.02 * rng.random()),
                samples=48,
                half_share=0.716,
                zero_grad_share=float(0.21 + 0.02 * rng.random()) if step == 1 or step % 50 == 0 else None,
                updates=scale.updates,
            )
        )
        if overflow and step == OVERFLOW_AT + 5:
            scale.load_state_dict({**scale.state_dict(), "scale": 2048.0})
    return result


def layers(seed: int = 1) -> list[dict[str, object]]:
    """Ranges of 60 layers at the step of the diagnosis; the culprit and what follows it are not finite."""
    rng = np.random.default_rng(seed)
    names = ["backbone.patch_embed.proj.0.conv", "backbone.patch_embed.proj.1.conv"]
    for stage in (1, 2, 3):
        for block in range(3):
            parts = ("norm1", "mixer.qkv", "mixer.proj", "norm2", "mlp.fc1", "mlp.fc2")
            names += [f"backbone.blocks{stage}.{block}.{part}" for part in parts]
    names += ["backbone.last_conv", "neck.encoder_reshape", "head.ctc_head.fc", "head.ctc_head.act"]
    rows: list[dict[str, object]] = []
    hit = names.index(CULPRIT)
    for order, name in enumerate(names):
        kind = "LayerNorm" if "norm" in name else "Conv2D" if "conv" in name else "Linear"
        value = float(np.exp(rng.normal(2.2, 1.0)))
        if name.endswith("mlp.fc1"):
            value *= 40
        grad = float(np.exp(rng.normal(-2.5, 1.6)))
        rows.append(
            {
                "name": name,
                "type": kind,
                "order": order,
                "out_absmax": "inf" if order == hit else "nan" if order == hit + 2 else value,
                "out_zero_share": round(float(rng.random() * 0.1), 4),
                "out_nonfinite": order in (hit, hit + 2),
                "grad_absmax": "nan" if order <= hit else grad,
                "grad_zero_share": None if order <= hit else round(float(rng.random() * 0.3), 4),
                "grad_nonfinite": order <= hit,
            }
        )
    return rows


def overflow() -> dict[str, object]:
    """A diagnosis as ``overflow-<step>.json`` holds it."""
    return {
        "step": OVERFLOW_AT + 5,
        "loss_scale": 64.0,
        "layers": layers(),
        "verdict": {
            "culprit": CULPRIT,
            "where": "forward",
            "cause_en": f"{CULPRIT} (Linear) gives 81234 in FP32, and float16 ends at 65504: its output is infinite.",
            "cause_zh": f"{CULPRIT}（Linear）在 FP32 下输出 81234，而 float16 上限为 65504：其输出变为无穷大。",
            "yaml": YAML,
            "not_amp": False,
        },
    }


def write(folder: Path, *, found: bool = True, steps: int = 1200) -> Path:
    """Writes the run's ``amp`` folder into ``folder``; returns ``folder``."""
    amp = folder / "amp"
    amp.mkdir(parents=True, exist_ok=True)
    lines = [event.to_json() for event in events(steps, overflow=found)]
    (amp / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (amp / "plan.yml").write_text(PLAN, encoding="utf-8")
    if found:
        data = json.dumps(overflow(), ensure_ascii=False)
        (amp / f"overflow-{OVERFLOW_AT + 5}.json").write_text(data, encoding="utf-8")
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]))
