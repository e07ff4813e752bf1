"""An NLP recipe as a ``Workload``: PaddleNLP's own Trainer, without AMP, asked for its parts."""

from __future__ import annotations

import contextlib
import itertools
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paddle_amp_plugin.config import AmpConfig, read_amp
from paddle_amp_plugin.config_overrides import texts_of
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.workloads import read_through
from paddle_amp_plugin.nlp import recipe as recipes
from paddle_amp_plugin.nlp.recipe_schema import Recipe
from paddle_amp_plugin.nlp.rows import Row, read_rows

SEED = 42  # the host's own, for a recipe without trainer.seed
#: Rows that are tokenized: enough for the batches anybody looks at here.
ROWS = 4096
_SYNTHETIC_BATCHES = 8


@contextlib.contextmanager
def open_recipe(path: Path, options: Mapping[str, Any], *, synthetic: bool) -> Iterator[NlpWorkload]:
    """See ``hosts.workloads.open_workload``."""
    recipe = recipes.read(path, texts_of(options))
    settings = None if recipe.amp is None else read_amp({"amp": recipe.amp}, host="paddlenlp", source=str(path))
    with tempfile.TemporaryDirectory(prefix="paddle-amp-") as folder, _quiet():
        plain = recipe.model_copy(update={"amp": None, "trainer": {**recipe.trainer, "output_dir": folder}})
        yield NlpWorkload(path.stem, plain, settings, synthetic=synthetic)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PaddleNLP logs what it builds, and every seed."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)


class NlpWorkload:
    """See ``hosts.workloads.Workload``. Batches are mappings name -> int64 tensor."""

    host = "paddlenlp"

    def __init__(self, name: str, recipe: Recipe, settings: AmpConfig | None, *, synthetic: bool) -> None:
        from paddle_amp_plugin.nlp.models import load_tokenizer
        from paddle_amp_plugin.nlp.tasks import task_of
        from paddle_amp_plugin.nlp.trainer import require_host

        require_host(recipe)
        self.name, self.recipe, self.settings = name, recipe, settings
        self.family = f"nlp/{recipe.task}"
        self.seed = int(recipe.trainer.get("seed", SEED))
        self.batch_size = int(recipe.trainer.get("per_device_train_batch_size", 8))
        self.missing: AmpError | None = None
        self._task = task_of(recipe, load_tokenizer(recipe))
        self._synthetic = synthetic
        rows = self._rows()
        self.steps_per_epoch = max(1, -(-len(rows) // self.batch_size))
        self._trainer = self._build_trainer(rows[:ROWS])
        self._own_criterion: Any = None

    def _rows(self) -> list[Row]:
        if self._synthetic:
            return self._made_up(self.batch_size * _SYNTHETIC_BATCHES)
        try:
            return read_rows(self.recipe, "train", limit=self.recipe.data.train_rows)
        except AmpError as error:
            self.missing = error
            return self._made_up(self.batch_size * _SYNTHETIC_BATCHES)

    def _build_trainer(self, rows: Sequence[Row]) -> Any:
        import paddle

        from paddle_amp_plugin.nlp.trainer import build

        features = self._task.features(rows, evaluation=False)
        # the host casts and wraps the model it is given; ours come later
        return build(self.recipe, self._task, paddle.nn.Linear(1, 1), train=features, evaluation=None, rows=[])

    def build_model(self) -> Any:
        from paddle_amp_plugin.nlp.models import load_model

        self._seed()  # a new head gets its weights now
        model = load_model(self.recipe, self._task.head, self._task.tokenizer)
        model.train()
        self._seed()
        return model

    def _seed(self) -> None:
        from paddlenlp.trainer import set_seed  # type: ignore[import-untyped]

        set_seed(seed=self.seed)

    def build_criterion(self) -> Any:
        return self._task.loss()

    def loss(self, model: Any, batch: Any, criterion: Any = None) -> Any:
        if criterion is None:
            criterion = self._own_criterion = self._own_criterion or self.build_criterion()
        self._trainer.criterion = criterion
        return self._trainer.compute_loss(model, dict(batch))

    def build_optimizer(self, model: Any) -> tuple[Any, Any]:
        trainer = self._trainer
        trainer.model, trainer.optimizer, trainer.lr_scheduler = model, None, None
        epochs = float(self.recipe.trainer.get("num_train_epochs", 3))
        steps = int(self.recipe.trainer.get("max_steps", 0) or 0)
        trainer.create_optimizer_and_scheduler(
            num_training_steps=steps if steps > 0 else int(epochs * self.steps_per_epoch)
        )
        return trainer.optimizer, trainer.lr_scheduler

    def train_batches(self) -> Iterator[Any]:
        if self.missing is not None:
            raise self.missing
        self._seed()
        yield from self._batches(self._trainer)

    @staticmethod
    def _batches(trainer: Any) -> Iterator[Any]:
        loader = trainer.get_train_dataloader()
        for epoch in itertools.count():
            if hasattr(loader.batch_sampler, "set_epoch"):
                loader.batch_sampler.set_epoch(epoch)
            yield from read_through(loader)

    def synthetic_batch(self, batch_size: int | None = None) -> Any:
        size = batch_size or self.batch_size
        self._seed()
        return self._task.collator()(self._task.features(self._made_up(size), evaluation=False).features[:size])

    def _made_up(self, count: int) -> list[Row]:
        """Rows of tokens drawn from the vocabulary, as long as the recipe allows."""
        random = np.random.default_rng(self.seed)
        tokenizer, data = self._task.tokenizer, self.recipe.data
        special, size = set(tokenizer.all_special_ids), len(tokenizer)

        def tokens(length: int) -> list[str]:
            ids = [int(i) for i in random.integers(0, size, length) if int(i) not in special]
            found = [str(t).replace("▁", "").replace("##", "") for t in tokenizer.convert_ids_to_tokens(ids)]
            return [t for t in found if t.strip()] or ["0"]

        return [_row(self.recipe.task, tokens, data.max_seq_length, len(data.labels), i) for i in range(count)]

    def samples(self, batch: Any) -> int:
        return int(batch["input_ids"].shape[0])

    def evaluate(self, model: Any) -> dict[str, float]:
        """Raises AmpError (AMP219) if the evaluation data is not there."""
        if self.recipe.data.eval is None:
            return {}
        rows = read_rows(self.recipe, "eval", limit=self.recipe.data.eval_rows)
        features = self._task.features(rows, evaluation=True).sorted_by_length()
        trainer = self._trainer
        trainer.model = trainer.model_wrapped = model
        trainer.criterion = self.build_criterion()
        trainer.compute_metrics = self._task.judge(features, rows)
        found = trainer.evaluate(features, metric_key_prefix="eval")
        model.train()
        ours = {k.removeprefix("eval_"): v for k, v in found.items() if k.startswith("eval_")}
        speed = ("runtime", "samples_per_second", "steps_per_second", "ppl")
        return {k: float(v) for k, v in ours.items() if isinstance(v, int | float) and k not in speed}


def _row(task: str, tokens: Any, longest: int, labels: int, index: int) -> Row:
    if task == "sentence_pair":
        return {
            "text": "".join(tokens(longest // 2)),
            "text_pair": "".join(tokens(longest // 2)),
            "label": index % labels,
        }
    if task == "token_classification":
        words = tokens(longest)
        return {"tokens": words, "labels": [i % labels for i in range(len(words))]}
    if task == "question_answering":
        context = "".join(tokens(longest))
        question = "".join(tokens(8))
        return {"id": str(index), "context": context, "question": question, "answers": [(context[:1], 0)]}
    row: Row = {"text": "".join(tokens(longest))}
    return row if task == "masked_lm" else {**row, "label": index % labels}
