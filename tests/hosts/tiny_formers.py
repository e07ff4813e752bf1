"""PaddleFormers' Trainer with a small encoder of one's own (it has no BERT): the task of ``tiny_nlp``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.hosts import tiny_nlp


def encoder(*, dropout: float = 0.0, seed: int = 1, hidden: int = 32) -> Any:
    import paddle
    import paddleformers.trainer  # noqa: F401  it replaces methods of Paddle's own encoder, for those made after it

    class Encoder(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.words = paddle.nn.Embedding(tiny_nlp.VOCABULARY, hidden)
            self.places = paddle.nn.Embedding(tiny_nlp.LENGTH, hidden)
            block = paddle.nn.TransformerEncoderLayer(hidden, 2, 2 * hidden, dropout=dropout, activation="relu")
            self.encoder = paddle.nn.TransformerEncoder(block, 2)
            self.classifier = paddle.nn.Linear(hidden, 2)

        def forward(self, input_ids: Any) -> Any:
            places = paddle.arange(input_ids.shape[1])
            return self.classifier(self.encoder(self.words(input_ids) + self.places(places))[:, 0])

    paddle.seed(seed)
    return Encoder()


def arguments(folder: Path, **changes: Any) -> Any:
    from paddleformers.trainer import TrainingArguments

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


def trainer(folder: Path, model: Any = None, *, cls: Any = None, **changes: Any) -> Any:
    import paddle
    from paddleformers.trainer import Trainer

    own = {key: changes.pop(key) for key in ("callbacks", "optimizers", "train_dataset") if key in changes}
    values = {
        "criterion": paddle.nn.CrossEntropyLoss(),
        "train_dataset": tiny_nlp.Words(),
        "eval_dataset": tiny_nlp.Words(32, seed=9),
        "compute_metrics": tiny_nlp.accuracy,
        "data_collator": tiny_nlp.collate,
        **own,
    }
    args = changes.pop("args", None) or arguments(folder, **changes)
    return (cls or Trainer)(model=model if model is not None else encoder(), args=args, **values)


def recorder() -> Any:
    from paddleformers.trainer import TrainerCallback

    class Recorder(TrainerCallback):
        def __init__(self) -> None:
            self.logs: list[dict[str, Any]] = []

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self.logs.append(dict(logs))

    return Recorder()
