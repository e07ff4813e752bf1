"""A checkpoint that Paddle 2.6.2 wrote (``make_paddle26.py``), read by whichever Paddle this is."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.checkpoint_files import read
from tests.checkpoint.small import resumed

FOLDER = Path(__file__).with_name("paddle26")


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_checkpoint_of_paddle_2_6_goes_on(tmp_path, level):
    for path in FOLDER.iterdir():
        shutil.copy(path, tmp_path)
    host = read(tmp_path / "latest", say=print).host
    run = resumed(tmp_path / "latest", {"level": level, "dtype": "float16"})
    mask = paddle.nn.functional.dropout(paddle.ones([40]), 0.5).numpy()
    assert mask.tolist() == host["mask"]  # both versions draw the same numbers from one seed
    with run.session.saving():
        found = {name: value.numpy().ravel().tolist() for name, value in run.model.state_dict().items()}
    assert found == host["weights"]
    assert (run.session.steps, run.session.skips, run.session.scaler.current_scale) == (4, 1, 512.0)
    lines = [line for line in run.lines.said if "2.6.2" in line]
    assert len(lines) == (0 if paddle.__version__ == "2.6.2" else 1)
    seen = {}
    with run.session.attach(run.model, None, run.optimizer):
        make = run.optimizer._create_accumulators

        def look(*args):
            made = make(*args)
            for name, moment in run.optimizer._accumulators["moment1"].items():
                seen.setdefault(name.removesuffix("_fp32_master_0"), moment.numpy().ravel().tolist())
            return made

        run.optimizer._create_accumulators = look
        run.steps([4], bad=())
    assert seen == host["moments"] and run.session.updates == 4
    assert all(np.isfinite(value.numpy()).all() for value in run.model.state_dict().values())
