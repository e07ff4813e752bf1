"""SIGKILL at 30 random moments of a session's saving, with Paddle's own files: the checkpoint stays whole.

Paddle is imported once, by a parent that forks a child for every kill.
"""

from __future__ import annotations

import subprocess
import sys

DRIVER = """
import zlib, os, random, signal, sys, time
from pathlib import Path
import numpy as np
import paddle
from paddle_amp_plugin.checkpoint_files import read
from paddle_amp_plugin.file_set import ready_folder, staging_folder
from tests.checkpoint.small import start

folder, rng, seen, inside = Path(sys.argv[1]), random.Random(4), set(), 0
run = start({"level": "O2", "dtype": "float16"})
with run.session.attach(run.model, None, run.optimizer):
    run.steps([0], bad=())
    run.save(folder)
    for _ in range(30):
        child = os.fork()
        if not child:
            while True:  # every checkpoint is of one step: its weights, moments and .pdamp say which
                run.session.steps += 1
                bias = run.optimizer._master_weights[run.model.fc.bias.name]
                for tensor in (bias, *run.optimizer._accumulators["moment1"].values()):
                    tensor.copy_(paddle.full_like(tensor, float(run.session.steps)), True)
                run.save(folder)
        time.sleep(rng.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        inside += ready_folder(folder, "latest").exists() or staging_folder(folder, "latest").exists()
        saved = read(folder / "latest", say=print)
        bias = paddle.load(str(folder / "latest.pdparams"))["fc.bias"].numpy()
        moments = paddle.load(str(folder / "latest.pdopt"))
        values = {float(v) for k, t in moments.items() if "_moment1_" in k for v in t.numpy().ravel()}
        if saved.step > 1:
            assert set(bias.tolist()) == values == {float(saved.step)}, (saved.step, bias, values)
        seen.add(saved.step)
        run.session.steps = max(run.session.steps, saved.step)
print("KILLED", len(seen), inside)
"""


def test_a_session_killed_while_saving(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        env={**__import__("os").environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PADDLE_AMP_LANG": "en"},
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    _, steps, inside = next(line for line in result.stdout.splitlines() if line.startswith("KILLED")).split()
    assert int(steps) > 10 and int(inside) > 5, result.stdout  # else the kills did not fall into the saving
