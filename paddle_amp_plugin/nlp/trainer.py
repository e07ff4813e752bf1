"""PaddleNLP's Trainer, put together from a recipe. Imports Paddle and PaddleNLP."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.nlp.batches import BucketSampler, Features
from paddle_amp_plugin.nlp.models import set_learning_rates
from paddle_amp_plugin.nlp.recipe_schema import Recipe
from paddle_amp_plugin.nlp.rows import Row
from paddle_amp_plugin.nlp.tasks import Task


def require_host(recipe: Recipe) -> None:
    """Patches PaddleNLP for the ``amp`` key (not without one, nor for ``amp: false``) and imports it.

    Raises AmpError: AMP043 no Paddle, AMP226 no PaddleNLP, or one that does not import.
    """
    if importlib.util.find_spec("paddle") is None:
        text = tr("PaddlePaddle is not installed", "未安装 PaddlePaddle")
        raise AmpError("AMP043", text, hint='pip install "paddle-amp-plugin[cpu,nlp]"')
    if recipe.wants_amp:
        from paddle_amp_plugin.hosts import paddlenlp as host

        host.patch()
    try:
        import paddlenlp.trainer
        import paddlenlp.transformers  # noqa: F401
        from paddlenlp.utils.log import logger
    except ImportError as error:
        raise AmpError(
            "AMP226",
            tr("PaddleNLP cannot be imported: {e}", "无法导入 PaddleNLP：{e}", e=" ".join(str(error).split())[:300]),
            hint='pip install "paddle-amp-plugin[cpu,nlp]"' + tr(" (with its pins)", "（包含所需的版本限制）"),
        ) from error
    if os.environ.get("PADDLE_AMP_DEBUG", "") in ("", "0"):
        logger.set_level("INFO")  # at DEBUG the host lists its 150 arguments, three times


def training_arguments(recipe: Recipe, **more: Any) -> Any:
    """The host's ``TrainingArguments``; ``amp`` is passed as the recipe has it. Raises AmpError (AMP227)."""
    from paddlenlp.trainer import TrainingArguments

    # report_to: the host's own VisualDL writer hands booleans to VisualDL 2.5.3, which protobuf 5 and later refuse;
    # what a run writes for VisualDL comes from amp.monitor
    given = {"device": _device(), "report_to": "none", **recipe.trainer, **more}
    if recipe.wants_amp:
        given["amp"] = recipe.amp
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    try:
        return TrainingArguments(**{key: value for key, value in given.items() if key in known})
    except AmpError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        text = tr("PaddleNLP refuses the trainer section: {e}", "PaddleNLP 拒绝了 trainer 部分的设置：{e}", e=said)
        raise AmpError("AMP227", text) from error


def _device() -> str:
    """The host's default is "gpu", whatever there is."""
    import paddle

    return "gpu" if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() else "cpu"


def trainer_class() -> Any:
    """The host's Trainer with this package's order of batches and learning rates."""
    from paddlenlp.trainer import Trainer

    class RecipeTrainer(Trainer):  # type: ignore[misc]
        recipe: Recipe

        def _get_train_sampler(self) -> Any:
            if not self.recipe.data.bucket_by_length:
                return super()._get_train_sampler()
            single = self.args.world_size <= 1
            ranks = {} if single else {"num_replicas": self.args.dataset_world_size, "rank": self.args.dataset_rank}
            return BucketSampler(
                self.train_dataset,
                self.args.per_device_train_batch_size,
                seed=self.args.seed,
                drop_last=self.args.dataloader_drop_last,
                **ranks,
            )

        def create_optimizer(self, lr_scheduler: Any = None) -> Any:
            set_learning_rates(self.model, self.recipe)
            return super().create_optimizer(lr_scheduler)

    return RecipeTrainer


def build(
    recipe: Recipe,
    task: Task,
    model: Any,
    *,
    train: Features | None,
    evaluation: Features | None,
    rows: Sequence[Row],
    **more: Any,
) -> Any:
    """A Trainer for a recipe. ``rows`` are those of ``evaluation``; ``more`` replaces ``trainer`` arguments."""
    arguments = training_arguments(recipe, label_names=list(task.label_names), **more)
    trainer_type = trainer_class()
    trainer_type.recipe = recipe
    trainer = trainer_type(
        model=model,
        criterion=task.loss(),
        args=arguments,
        data_collator=task.collator(),
        train_dataset=train,
        eval_dataset=evaluation,
        tokenizer=task.tokenizer,
        compute_metrics=task.judge(evaluation, rows) if evaluation is not None else None,
        preprocess_logits_for_metrics=task.reduce,
    )
    return trainer
