"""A task so small that PaddleNLP's Trainer learns it in seconds: does a sequence begin with a low or a high word?"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

VOCABULARY, LENGTH = 40, 8
#: Tests that need the host skip where it is not installed.
needs_paddlenlp = pytest.mark.skipif(
    importlib.util.find_spec("paddlenlp") is None, reason="PaddleNLP is not installed in this environment"
)
needs_paddleformers = pytest.mark.skipif(
    importlib.util.find_spec("paddleformers") is None, reason="PaddleFormers is not installed in this environment"
)


class Words:
    """``size`` sequences of ``LENGTH`` word numbers with their label; the same for the same ``seed``."""

    def __init__(self, size: int = 64, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.ids = rng.integers(3, VOCABULARY, (size, LENGTH)).astype("int64")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.ids[index]
        return {"input_ids": ids, "labels": np.int64(ids[0] >= VOCABULARY // 2)}


def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    import paddle

    return {key: paddle.to_tensor(np.stack([item[key] for item in items])) for key in items[0]}


def accuracy(result: Any) -> dict[str, float]:
    """Fails loudly on predictions that are no FP32 numbers (bfloat16 arrives as uint16)."""
    logits = result.predictions[0] if isinstance(result.predictions, tuple) else result.predictions
    return {"acc": float((logits.argmax(-1) == result.label_ids.reshape(-1)).mean())}


def bert(*, dropout: float = 0.0, layers: int = 2, hidden: int = 32, seed: int = 1, **more: Any) -> Any:
    import paddle
    from paddlenlp.transformers import BertConfig, BertForSequenceClassification

    paddle.seed(seed)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=16,
        hidden_act="relu",
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=2,
        **more,
    )
    return BertForSequenceClassification(config)


def arguments(folder: Path, **changes: Any) -> Any:
    from paddlenlp.trainer import TrainingArguments

    values: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 8,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 16,
        "learning_rate": 2e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "report_to": [],
        "device": "cpu",
    }
    return TrainingArguments(**{**values, **changes})


def trainer(folder: Path, model: Any = None, *, cls: Any = None, loss_inside: bool = False, **changes: Any) -> Any:
    """A Trainer on ``Words``; what the host's ``Trainer`` takes by name goes to it, the rest to the arguments."""
    import paddle
    from paddlenlp.trainer import Trainer

    own = {
        key: changes.pop(key)
        for key in ("callbacks", "optimizers", "compute_metrics", "eval_dataset", "criterion", "train_dataset")
        if key in changes
    }
    values = {
        "criterion": None if loss_inside else paddle.nn.CrossEntropyLoss(),
        "train_dataset": Words(),
        "eval_dataset": Words(32, seed=9),
        "compute_metrics": accuracy,
        **own,
    }
    args = changes.pop("args", None) or arguments(folder, **changes)
    return (cls or Trainer)(model=model if model is not None else bert(), args=args, data_collator=collate, **values)


def weights(model: Any) -> dict[str, np.ndarray]:
    return {name: value.astype("float32").numpy() for name, value in model.state_dict().items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def losses(recorded: Any) -> list[float]:
    return [entry["loss"] for entry in recorded if "loss" in entry]


def recorder() -> Any:
    """A callback of the Trainer that keeps what it logs (``.logs``) and the scalers it is given (``.scalers``)."""
    from paddlenlp.trainer import TrainerCallback

    class Recorder(TrainerCallback):
        def __init__(self) -> None:
            self.logs: list[dict[str, Any]] = []
            self.scalers: list[Any] = []

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self.logs.append(dict(logs))

        def on_optimizer_end(self, args: Any, state: Any, control: Any, scaler: Any = None, **kwargs: Any) -> None:
            self.scalers.append(scaler)

    return Recorder()


@contextlib.contextmanager
def patched(module: Any) -> Iterator[Any]:
    """The host patched, and as it was before afterwards."""
    controller = module.patch()
    try:
        yield controller
    finally:
        module.unpatch()


def host_lines(text: str) -> str:
    """Output without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
