"""One of two processes with PaddleNLP's Trainer; what each has afterwards goes to a file."""

import json
import os
import sys
from pathlib import Path

import paddle_amp_plugin  # noqa: F401  (before Paddle)
from paddle_amp_plugin.hosts import paddlenlp

if __name__ == "__main__":
    folder, amp = Path(sys.argv[1]), json.loads(sys.argv[2])
    paddlenlp.patch()
    import paddle

    from tests.hosts import tiny_nlp

    model = tiny_nlp.bert()
    args = tiny_nlp.arguments(folder / "out", amp=amp, max_steps=6, save_strategy="steps", save_steps=3)
    trainer = tiny_nlp.trainer(folder / "out", model, args=args)
    trainer.train()
    session = trainer._paddle_amp_run.session
    result = {
        "wrapped": type(trainer.model_wrapped).__name__,
        "world": args.world_size,
        "steps": session.steps,
        "updates": session.updates,
        "scale": session.scaler.current_scale,
        "state": {name: value.tobytes().hex() for name, value in tiny_nlp.weights(trainer.model).items()},
    }
    rank = paddle.distributed.get_rank()
    (folder / f"rank{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    # Paddle's gloo aborts now and then while the interpreter ends, when the other process is gone first.
    paddle.distributed.barrier()
    os._exit(0)
