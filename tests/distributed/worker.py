"""One of two processes: the batch of one of them overflows; what each has afterwards goes to a file."""

import json
import logging
import os
import sys
from pathlib import Path

import numpy as np
import paddle

import paddle_amp_plugin  # noqa: F401  (before Paddle)
from paddle_amp_plugin.monitor import Monitor
from paddle_amp_plugin.session import Session
from tests.faults.helpers import Loss, plan_of
from tests.test_dtype_auto import Beyond


def main(folder: Path, amp: dict, steps: int, faulty_from: int) -> None:
    paddle.distributed.init_parallel_env()
    rank = paddle.distributed.get_rank()
    paddle.seed(5)
    model = Beyond()
    optimizer = paddle.optimizer.SGD(0.5, parameters=model.parameters())
    lines = []
    logger = logging.getLogger("worker")
    logger.setLevel(logging.INFO)
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    session = Session(plan_of(**amp), logger=logger, folder=folder / "amp" if rank == 0 else None)
    session.watch(Monitor(folder / "amp", visualdl=False, say=lines.append, rank=rank, policy=session.plan.scaling))
    session.prepare(model, optimizer)
    parallel = paddle.DataParallel(model)
    loss = Loss(lambda out, y: ((out - y) ** 2).mean())
    scales, weights, windows = [], [], session.plan.accumulate_steps
    with session.attach(parallel, loss, optimizer):
        for step in range(steps):
            value = 2000.0 if rank == 1 and step >= faulty_from else 0.5 + rank + 0.25 * (step % windows)
            x = paddle.to_tensor(np.full((8, 4), value, "float32"))
            out = parallel(x)
            loss(out, paddle.to_tensor(np.full((8, 1), 0.3, "float32"))).backward()
            optimizer.step()
            optimizer.clear_grad()
            scales.append(session.scaler.current_scale)
            weights.append(float(np.abs(model.last.weight.astype("float32").numpy()).sum()))
    result = {
        "rank": rank,
        "steps": session.steps,
        "skips": session.skips,
        "scales": scales,
        "weights": weights,
        "pins": list(session.plan.fp32_layers),
        "dtype": session.plan.dtype,
        "lines": lines,
        "state": {k: v.astype("float32").numpy().tobytes().hex() for k, v in model.state_dict().items()},
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    # Paddle's gloo aborts now and then while the interpreter ends, when the other process is gone first.
    paddle.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
