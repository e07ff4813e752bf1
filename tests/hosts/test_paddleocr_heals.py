"""PaddleOCR's trainer with one sabotaged layer: it finds the layer, keeps it in FP32, and learns."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from paddle_amp_plugin.monitor import read_events
from paddle_amp_plugin.plan import plan_from_yaml
from tests.hosts import tiny


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_one_sabotaged_layer(data, tmp_path, level):
    amp = {"level": level, "dtype": "float16"}
    config = tiny.write(tmp_path / "c.yml", tiny.config(data, tmp_path / "out", epochs=4, amp=amp))
    made = tiny.call([str(tiny.ROOT / "examples/sabotage.py"), "-c", str(config), "--out", "init"], tmp_path)
    assert made.returncode == 0, made.stdout[-3000:]
    layer = re.search(r"(\S+): weights times", made.stdout).group(1)
    result = tiny.tool("train", "-c", str(config), "-o", f"Global.pretrained_model={tmp_path / 'init'}", cwd=tmp_path)
    text = result.stdout
    assert result.returncode == 0, text[-4000:]
    assert layer in text and f'fp32_layers: ["{layer}"]' in text and "healed at step 4" in text
    assert "amp: 24 steps, 20 updates, 4 skipped, final loss scale 1024" in text, text[-2000:]
    folder = tmp_path / "out" / "amp"
    events = read_events(folder / "events.jsonl")
    values = [event.loss for event in events if not event.skipped]
    assert [event.step for event in events if event.skipped] == [1, 2, 3, 4]
    assert np.isfinite(values).all() and np.mean(values[-4:]) < 0.5 * values[0], values
    found = json.loads((folder / "overflow-4.json").read_text(encoding="utf-8"))["verdict"]
    assert found["culprit"] == layer and not found["not_amp"]
    assert plan_from_yaml((folder / "plan.yml").read_text(encoding="utf-8")).fp32_layers == (layer,)


def test_it_stops_if_told_to(data, tmp_path):
    amp = {"level": "O1", "dtype": "float16", "on_collapse": "stop"}
    config = tiny.write(tmp_path / "c.yml", tiny.config(data, tmp_path / "out", epochs=4, amp=amp))
    tiny.call([str(tiny.ROOT / "examples/sabotage.py"), "-c", str(config), "--out", "init"], tmp_path)
    result = tiny.tool("train", "-c", str(config), "-o", f"Global.pretrained_model={tmp_path / 'init'}", cwd=tmp_path)
    assert result.returncode == 3 and "AMP045" in result.stdout and "fp32_layers" in result.stdout
    assert (tmp_path / "out" / "amp" / "overflow-4.json").is_file() and "Traceback" not in result.stdout
