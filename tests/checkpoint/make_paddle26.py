"""Writes ``paddle26/``: a checkpoint of Paddle 2.6.2 for ``test_paddle_versions.py``. Run it with that version.

``python -m tests.checkpoint.make_paddle26``. What a reader has to find is in the ``host`` of its ``.pdamp``.
"""

from __future__ import annotations

import zlib  # noqa: F401  (before Paddle 2.6)
from pathlib import Path

import numpy as np
import paddle

from paddle_amp_plugin.rng import paddle_rng_state
from tests.checkpoint.small import start

FOLDER = Path(__file__).with_name("paddle26")


def numbers(values) -> list[float]:
    return [float(value) for value in np.asarray(values).ravel()]


def main() -> None:
    assert paddle.__version__ == "2.6.2"
    run = start({"level": "O2", "dtype": "float16"})
    with run.session.attach(run.model, None, run.optimizer):
        run.steps(range(4))
        with run.session.saving():
            weights = {name: numbers(value.numpy()) for name, value in run.model.state_dict().items()}
        moments = {name: numbers(a.numpy()) for name, a in run.optimizer._accumulators["moment1"].items()}
        moments = {name.removesuffix("_fp32_master_0"): value for name, value in moments.items()}
        paddle_rng_state()
        state = paddle.framework.core.default_cpu_generator().get_state()
        mask = numbers(paddle.nn.functional.dropout(paddle.ones([40]), 0.5).numpy())
        paddle.framework.core.default_cpu_generator().set_state(state)
        run.save(FOLDER, weights=weights, moments=moments, mask=mask)


if __name__ == "__main__":
    main()
