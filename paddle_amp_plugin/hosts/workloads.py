"""A user's own training, taken apart: model, loss, optimizer and batches, whatever the host.

``open_workload`` reads a PaddleOCR config or one of our NLP recipes and lets the host build everything as it would
for training. Nothing is trained, and nothing is written outside a temporary folder. Importing this imports no Paddle.

    with open_workload("configs/ocr_amp.yml", {"Global.seed": 1}) as work:
        model = work.build_model()
        optimizer, schedule = work.build_optimizer(model)
        for batch in work.train_batches():
            loss = work.loss(model, batch)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paddle_amp_plugin.config import AmpConfig, read_amp
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

if TYPE_CHECKING:
    from paddle_amp_plugin.plan_model import Plan

__all__ = ["Workload", "open_workload", "plan_for"]


class Workload(Protocol):
    """One config, built by its host. Usable while ``open_workload`` is open.

    ``name``: the config's file name without its ending. ``family``: ``model_type/algorithm`` as a plan takes it.
    ``host``: ``paddleocr`` or ``paddlenlp``. ``seed``: the config's own, from which model, order of the data and
    dropout follow. ``batch_size``: samples in a batch of the training loader, as the config has it.
    ``steps_per_epoch``: batches in one pass over the data. ``settings``: what the config's AMP keys say (None: it has
    none). ``missing``: why there are no training batches, or None.
    """

    name: str
    family: str
    host: str
    seed: int
    batch_size: int
    steps_per_epoch: int
    settings: AmpConfig | None
    missing: AmpError | None

    def build_model(self) -> Any:
        """A ``paddle.nn.Layer`` in training mode: the same FP32 weights at every call, the user's if the config names
        some (``pretrained_model``, ``checkpoints``), else initialised from ``seed``.
        """

    def build_criterion(self) -> Any:
        """The host's loss object; a call of its own for each model that is trained at the same time."""

    def loss(self, model: Any, batch: Any, criterion: Any = None) -> Any:
        """Forward pass and loss, as the host calls them: a scalar tensor. ``criterion``: one of its own if None."""

    def build_optimizer(self, model: Any) -> tuple[Any, Any]:
        """(optimizer, schedule): the host's own. ``schedule.step()`` is due after each update; None: constant LR."""

    def train_batches(self) -> Iterator[Any]:
        """The host's own loader, without end, the same batches at every call. One pass is open at a time.

        Raises ``missing`` if there are none.
        """

    def synthetic_batch(self, batch_size: int | None = None) -> Any:
        """A batch of made-up data of the right shapes and dtypes, through the host's own pipeline.

        Raises AmpError (AMP261) for a kind of model whose data cannot be made up.
        """

    def samples(self, batch: Any) -> int:
        """Samples (images, texts) in a batch."""

    def evaluate(self, model: Any) -> dict[str, float]:
        """The host's own evaluation of this model in FP32, on the config's evaluation data; {} if there is none."""


@contextlib.contextmanager
def open_workload(
    config: str | Path,
    options: Mapping[str, Any] | None = None,
    *,
    paddleocr_dir: str | None = None,
    synthetic: bool = False,
) -> Iterator[Workload]:
    """The workload of a config file, with ``options`` (dotted key -> value) laid over it.

    ``synthetic``: ``train_batches`` gives made-up data, whether or not the config's own is there. Raises AmpError for
    what the user can put right: the same as the host's ``tools/train.py`` does under this plugin.
    """
    from paddle_amp_plugin.hosts.paddleocr_run import require_paddle
    from paddle_amp_plugin.nlp.recipe import looks_nlp

    path, given = Path(config), dict(options or {})
    if looks_nlp(path):
        require_paddle()
        from paddle_amp_plugin.nlp.workload import open_recipe

        opened: Any = open_recipe(path, given, synthetic=synthetic)
    else:
        from paddle_amp_plugin.hosts.paddleocr_workload import open_config

        opened = open_config(path, given, paddleocr_dir=paddleocr_dir, synthetic=synthetic)
    with opened as work:
        yield work


def plan_for(work: Workload, amp: Any = None) -> Plan:
    """The plan of this workload on the device at hand.

    ``amp``: the value of an ``amp`` key that counts instead of the config's own; without either it is ``true``.
    Raises ConfigError for a bad ``amp``, AmpError (AMP016, AMP017) if the device cannot hold it.
    """
    from paddle_amp_plugin.device import current_device
    from paddle_amp_plugin.plan import make_plan

    settings = work.settings
    if amp is not None or settings is None:
        settings = read_amp({"amp": True if amp is None else amp}, source="amp")
    assert settings is not None  # an amp key that is there is never None
    return make_plan(settings, current_device(), family=work.family)


def read_through(loader: Any) -> Iterator[Any]:
    """One pass over a ``DataLoader`` whose reader thread ends with it.

    Paddle keeps the last iterator of the process alive, and its thread goes on drawing from NumPy's generator: the
    next pass would then not be a function of its seed.
    """
    try:
        yield from loader
    finally:
        module = sys.modules.get("paddle.io.dataloader.dataloader_iter")
        stop = getattr(getattr(module, "_loader", None), "_try_shutdown_all", None)
        if stop is not None:
            stop()


def no_synthetic(kind: str) -> AmpError:
    """AMP261: data of this kind cannot be made up."""
    return AmpError(
        "AMP261",
        tr("there is no synthetic data for {k}", "没有适用于 {k} 的合成数据", k=kind),
        hint=tr("it needs the config's own data set", "需要配置文件自己的数据集"),
    )


def no_data(missing: AmpError) -> AmpError:
    """AMP262: the same error, with the way round it."""
    return AmpError(
        "AMP262",
        missing.message,
        hint=tr(
            "without the data: --synthetic (made-up data of the same shapes; says less)",
            "没有数据时可用 --synthetic（形状相同的合成数据，结论较弱）",
        )
        + (f"\n    {missing.hint}" if missing.hint else ""),
    )
