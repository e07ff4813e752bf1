"""A PaddleOCR checkpoint and its config as the subject of an export.

The host's own ``tools/eval.py`` builds everything (data pipeline, model, weights, post-processing, metric) and is taken
over where it would evaluate: so what is compared is what the host itself would have run, for every algorithm it knows.
"""

from __future__ import annotations

import copy
import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_amp_plugin import config as amp_config
from paddle_amp_plugin.config_overrides import texts_of
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts import paddleocr
from paddle_amp_plugin.hosts.paddleocr_args import check_sections, check_weights, is_amp_option
from paddle_amp_plugin.hosts.paddleocr_client import write_client_files
from paddle_amp_plugin.hosts.paddleocr_run import require_paddle, run_patched
from paddle_amp_plugin.hosts.paddleocr_tree import find_tree, put_first
from paddle_amp_plugin.hosts.patching import bound
from paddle_amp_plugin.messages import tr

if TYPE_CHECKING:
    from paddle_amp_plugin.export.exported import Array, Runner
    from paddle_amp_plugin.export.wanted import Wanted
    from paddle_amp_plugin.export.weights import Masters

BATCHES = 4  # of the evaluation set, for the comparison of outputs, the ranges and the calibration of INT8
KINDS = ("det", "rec", "cls")
#: Their exported form takes more than the image, or is several models.
UNSUPPORTED = ("Distillation", "SRN", "SAR", "RobustScanner", "CAN", "LaTeXOCR", "UniMERNet")


def export_checkpoint(
    weights: Path,
    config: Path,
    wanted: Wanted,
    *,
    options: dict[str, Any],
    convert_half: bool,
    paddleocr_dir: str | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """``paddle-amp export CKPT -c X.yml``: returns the record. Raises AmpError for what the user can put right."""
    check_weights("CKPT", str(weights))
    document = amp_config.load_yaml(str(config))
    amp_config.read_amp(document, host="paddleocr", overrides=options, source=str(config))
    check_sections(document, str(config))
    _check_kind(document["Architecture"])
    tree = find_tree(paddleocr_dir)
    require_paddle()
    from paddle_amp_plugin.export import pipeline
    from paddle_amp_plugin.export.weights import read_masters

    pipeline.require(wanted)
    file = weights if weights.suffix == ".pdparams" else weights.with_name(f"{weights.name}.pdparams")
    masters = read_masters(file, convert_half=convert_half)
    if masters.half:
        say(
            tr(
                "{n} half tensors of {f} were converted to float32: these are rounded values, not the masters",
                "{f} 中的 {n} 个半精度张量已转换为 float32：这些是舍入后的值，而非主权重",
                n=masters.half,
                f=file.name,
            )
        )
    made: dict[str, Any] = {}
    exporter = Exporter(file, lambda host: made.update(pipeline.export(host, wanted, say)), masters)
    before, level = list(sys.path), logging.root.manager.disable
    put_first(tree)
    exporter.patches.apply()
    logging.disable(logging.INFO)  # the host prints its whole config and each of its steps
    try:
        arguments = texts_of({key: value for key, value in options.items() if not is_amp_option(key)})
        run_patched(exporter, tree.script("eval"), ["-c", str(config), *(["-o", *arguments] if arguments else [])])
    finally:
        logging.disable(level)
        exporter.close()
        sys.path[:] = before
    return made


def _check_kind(architecture: dict[str, Any]) -> None:
    kind, algorithm = architecture.get("model_type"), architecture.get("algorithm")
    if kind not in KINDS or algorithm in UNSUPPORTED:
        raise AmpError(
            "AMP238",
            tr(
                "Architecture: {k}/{a} cannot be exported and verified: its exported form is several models, or takes "
                "more than the image",
                "Architecture：{k}/{a} 无法导出并验证：其导出形式为多个模型，或除图像外还需其他输入",
                k=kind,
                a=algorithm,
            ),
            hint=tr(
                "supported: {k}. The host's own export, without verification: tools/export_model.py",
                "支持：{k}。宿主自身的导出（不含验证）：tools/export_model.py",
                k=", ".join(KINDS),
            ),
        )


class Exporter(paddleocr.Controller):
    """The host's ``tools/eval.py`` without AMP, on these weights; where it evaluates, ``work`` is called instead."""

    def __init__(self, weights: Path, work: Callable[[Host], object], masters: Masters) -> None:
        super().__init__()
        self._weights, self._work, self._masters = weights, work, masters

    def merge_config(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        document, self._document = self._document, None
        merged = wrapped(*args, **kwargs)
        if document is None:
            return merged
        merged.pop("amp", None)
        self.settings = amp_config.AmpConfig()  # the patches that look at the data are wanted
        section = merged["Global"]
        self._adapt(section)
        section.update(pretrained_model=str(self._weights), checkpoints=None, distributed=False)
        return merged

    def preprocess(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        self.config, self.logger = result[0], result[2]
        self.logger.addFilter(self.guard)
        self._device = result[1]
        return result

    def evaluate(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        assert self.config is not None and self.logger is not None
        arguments = bound(wrapped, args, kwargs)
        self._work(Host(self.config, self._device, self.logger, arguments, wrapped, self._masters))
        return {}


class Host:
    """What PaddleOCR built, as ``export.pipeline.Subject``. ``arguments``: those of the host's ``eval``, by name."""

    transformer = False

    def __init__(
        self,
        config: dict[str, Any],
        device: Any,
        logger: logging.Logger,
        arguments: dict[str, Any],
        evaluate: Callable[..., Any],
        masters: Masters,
    ) -> None:
        self.config, self.device, self.logger, self.masters = config, device, logger, masters
        self.model = arguments["model"]
        self.kind = str(config["Architecture"]["model_type"])
        self._arguments, self._evaluate = arguments, evaluate
        self._extra = bool(arguments.get("extra_input"))
        self._batches = list(itertools.islice(iter(arguments["valid_dataloader"]), BATCHES))
        if not self._batches:
            raise AmpError(
                "AMP047",
                tr("Eval: the loader gives no batch", "Eval：数据加载器没有给出任何批次"),
                hint=tr("loader.batch_size_per_card, loader.drop_last", "loader.batch_size_per_card、loader.drop_last"),
            )

    def batches(self) -> Sequence[Sequence[Array]]:
        return [[batch[0].numpy()] for batch in self._batches]

    def forward(self, model: Any, batch: int) -> Any:
        import paddle

        with paddle.no_grad():
            return self._call(model, self._batches[batch])

    def _call(self, model: Any, batch: Sequence[Any]) -> Any:
        """As the host's loops call a model: the list of algorithms with further inputs is theirs."""
        return model(batch[0], data=list(batch[1:])) if self._extra else model(batch[0])

    def save(self, model: Any, folder: Path) -> None:
        from ppocr.utils import export_model  # type: ignore[import-not-found]

        export_model.export(copy.deepcopy(self.config), base_model=model, save_path=str(folder))

    def metric(self, runner: Runner | None) -> dict[str, float]:
        arguments = dict(self._arguments)
        if runner is not None:
            arguments["model"] = _stand_in(runner, self.forward(self.model, 0))
        found = self._evaluate(**arguments)
        self.model.eval()  # the host leaves it in training mode
        return {k: float(v) for k, v in found.items() if isinstance(v, int | float) and k != "fps"}

    def losses(self, steps: int) -> Iterator[Callable[[Any], Any]]:
        """Raises AmpError (AMP047) if the training data is missing."""
        from ppocr.data import build_dataloader  # type: ignore[import-not-found]
        from ppocr.losses import build_loss  # type: ignore[import-not-found]

        loss_class = build_loss(copy.deepcopy(self.config["Loss"]))
        loader = build_dataloader(self.config, "Train", self.device, self.logger)
        for batch in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), steps):
            yield lambda model, batch=batch: loss_class(self._call(model, batch), batch)["loss"]

    def again(self) -> Any:
        from ppocr.modeling.architectures import build_model  # type: ignore[import-not-found]

        model = build_model(copy.deepcopy(self.config["Architecture"]))
        model.set_state_dict(self.model.state_dict())
        return model

    def finish(self, folder: Path) -> dict[str, Any]:
        return write_client_files(folder, self.config, self._arguments["post_process_class"])


def _stand_in(runner: Runner, template: Any) -> Any:
    """A layer that gives the runner's outputs in the structure in which the model gives its own."""
    import paddle

    from paddle_amp_plugin.export.compare import packed

    class StandIn(paddle.nn.Layer):  # type: ignore[misc]
        def forward(self, images: Any, data: Any = None) -> Any:
            return packed(template, [paddle.to_tensor(value) for value in runner([images.numpy()])])

    return StandIn()
