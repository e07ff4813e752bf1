"""A PaddleOCR config as a ``Workload``: the host's own ``tools/train.py``, stopped where it would train.

Everything up to there is the host's: the number of classes from the dictionary, the branches of a multi-head, a
distillation's teachers, pretrained weights. How the model is called (``model(images)``, ``model(images, data=…)``,
``model(batch)``, …) is asked of the host's loop as well: it is given a model that only writes down what it is called
with. No list of algorithms is copied.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddle_amp_plugin import config as amp_config
from paddle_amp_plugin.config_overrides import texts_of
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts import paddleocr
from paddle_amp_plugin.hosts.paddleocr_args import check_sections, is_amp_option, preflight
from paddle_amp_plugin.hosts.paddleocr_run import interruptible, require_paddle, run_patched
from paddle_amp_plugin.hosts.paddleocr_tree import find_tree, put_first
from paddle_amp_plugin.hosts.patching import bound
from paddle_amp_plugin.hosts.workloads import read_through
from paddle_amp_plugin.messages import tr

#: The schedule's length of an epoch where the data is not there to be counted.
UNKNOWN_STEPS = 100
SEED = 1024  # the host's own, for a config without Global.seed
#: What the host's evaluation calls these (``tools/eval.py``); for all others it is ``Architecture.model_type``.
_EVAL_NAMES = {"CAN": "can", "LaTeXOCR": "latexocr", "UniMERNet": "unimernet"}


@contextlib.contextmanager
def open_config(
    path: Path, options: Mapping[str, Any], *, paddleocr_dir: str | None, synthetic: bool
) -> Iterator[OcrWorkload]:
    """See ``workloads.open_workload``."""
    arguments = ["-c", str(path), *(["-o", *texts_of(options)] if options else [])]
    preflight(arguments, training=False)
    check_sections(amp_config.load_yaml(str(path)), str(path))
    tree = find_tree(paddleocr_dir)
    require_paddle()
    before, level = list(sys.path), logging.root.manager.disable
    with tempfile.TemporaryDirectory(prefix="paddle-amp-") as folder:
        builder = Builder(Path(folder), synthetic=synthetic)
        put_first(tree)
        builder.patches.apply()
        logging.disable(logging.INFO)  # the host prints its whole config and each of its steps
        try:
            with interruptible(builder):
                with unique_names():
                    run_patched(builder, tree.script("train"), arguments)
                yield builder.workload(path.stem)
        finally:
            logging.disable(level)
            builder.close()
            sys.path[:] = before


def unique_names() -> Any:
    """A generator of names of its own: some layers name their parameters, and in a process a name is free once only."""
    import paddle

    return paddle.utils.unique_name.guard()


class Builder(paddleocr.Controller):
    """The host's ``tools/train.py`` without AMP, in ``folder``; where it would train, what it built is kept."""

    def __init__(self, folder: Path, *, synthetic: bool) -> None:
        super().__init__()
        self.folder, self.synthetic = folder, synthetic
        self.amp: amp_config.AmpConfig | None = None
        self.built: dict[str, Any] = {}
        self.missing: AmpError | None = None
        self.device: Any = None
        self.called: Called | None = None
        self.random: Any = None
        self._open = True

    def merge_config(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        arguments = bound(wrapped, args, kwargs)
        options = arguments["opts"] or {}
        document, self._document = self._document, None
        if document is None:
            return wrapped(*args, **kwargs)
        self.amp = amp_config.read_amp(document, host="paddleocr", overrides=options, source=self._source)
        merged = wrapped(arguments["config"], {k: v for k, v in options.items() if not is_amp_option(k)})
        merged.pop("amp", None)
        self.settings = amp_config.AmpConfig()  # the patches that look at the data are wanted
        section = merged["Global"]
        self._adapt(section)
        weights = section.get("checkpoints") or section.get("pretrained_model")
        own = {"distributed": False, "use_sync_bn": False, "to_static": False, "save_model_dir": str(self.folder)}
        section.update(own, checkpoints=None, pretrained_model=weights, cal_metric_during_train=False)
        return merged

    def preprocess(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        self.config, self.device, self.logger = result[0], result[1], result[2]
        self.logger.addFilter(self.guard)
        return result

    def build_dataloader(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """While the host builds: the training loader if its data is there, and no evaluation loader yet."""
        if not self._open:
            return super().build_dataloader(wrapped, instance, args, kwargs)
        if bound(wrapped, args, kwargs)["mode"] != "Train" or self.synthetic:
            return _NoLoader()
        try:
            return super().build_dataloader(wrapped, instance, args, kwargs)
        except AmpError as error:
            self.missing = error
        except Exception as error:  # a data set that this tree does not have, a label file it cannot read
            text = tr("Train.dataset: PaddleOCR cannot read it: {e}", "Train.dataset：PaddleOCR 无法读取：{e}", e=error)
            self.missing = AmpError("AMP047", text)
        return _NoLoader()

    def train(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        from paddle_amp_plugin.rng import rng_state

        arguments = bound(wrapped, args, kwargs)
        self.built, self._open = arguments, False
        self.random = rng_state()  # where the host's loop would go on drawing
        self.called = how_called(wrapped, arguments)
        return None

    def workload(self, name: str) -> OcrWorkload:
        if not self.built:  # the host said on its logger why, and returned
            raise AmpError(
                "AMP047",
                tr("Train: the loader gives no batch", "Train：数据加载器没有给出任何批次"),
                hint=tr("fewer samples than loader.batch_size_per_card", "样本数少于 loader.batch_size_per_card"),
            )
        return OcrWorkload(name, self)


class _NoLoader:
    """Stands in the host's hands for a loader that is not there (yet)."""

    class dataset:
        need_reset = False

    def __len__(self) -> int:
        return UNKNOWN_STEPS


class OcrWorkload:
    """See ``workloads.Workload``."""

    host = "paddleocr"

    def __init__(self, name: str, builder: Builder) -> None:
        assert builder.config is not None
        self.name, self.config, self._builder = name, builder.config, builder
        architecture = self.config["Architecture"]
        self.kind = str(architecture.get("model_type", ""))
        self.family = f"{self.kind}/{architecture.get('algorithm', '')}"
        self.seed = int(self.config["Global"].get("seed", SEED))
        train = self.config["Train"]
        self.batch_size = int(train.get("sampler", {}).get("first_bs", train["loader"]["batch_size_per_card"]))
        self.steps_per_epoch = len(builder.built["train_dataloader"])
        self.settings, self.missing = builder.amp, builder.missing
        self._optimizer_config = copy.deepcopy(self.config["Optimizer"])
        self._first: Any = builder.built["model"]
        self._weights = builder.folder / "initial.pdparams"
        self._own_criterion: Any = None
        import paddle

        paddle.save(self._first.state_dict(), str(self._weights))  # on disk: memory is what some of this measures

    def build_model(self) -> Any:
        import paddle

        if self._first is not None:
            model, self._first = self._first, None
            self._builder.built["model"] = self._builder.built["optimizer"] = None
        else:
            from ppocr.modeling.architectures import build_model  # type: ignore[import-not-found]

            with unique_names():
                model = build_model(copy.deepcopy(self.config["Architecture"]))
            model.set_state_dict(paddle.load(str(self._weights)))
        model.train()
        self._seed()
        return model

    def _seed(self) -> None:
        from paddle_amp_plugin.rng import set_rng_state

        set_rng_state(self._builder.random)

    def build_criterion(self) -> Any:
        from ppocr.losses import build_loss  # type: ignore[import-not-found]

        return build_loss(copy.deepcopy(self.config["Loss"]))

    def loss(self, model: Any, batch: Any, criterion: Any = None) -> Any:
        if criterion is None:
            criterion = self._own_criterion = self._own_criterion or self.build_criterion()
        assert self._builder.called is not None
        return criterion(self._builder.called(model, batch), batch)["loss"]

    def build_optimizer(self, model: Any) -> tuple[Any, Any]:
        from ppocr.optimizer import build_optimizer  # type: ignore[import-not-found]

        optimizer, schedule = build_optimizer(
            copy.deepcopy(self._optimizer_config),
            epochs=self.config["Global"]["epoch_num"],
            step_each_epoch=self.steps_per_epoch,
            model=model,
        )
        return optimizer, None if isinstance(schedule, float) else schedule

    def train_batches(self) -> Iterator[Any]:
        if self._builder.synthetic:
            yield from self._synthetic_batches(None)
        if self.missing is not None:
            raise self.missing
        self._seed()
        yield from self._batches(self.config, self.seed)

    def _batches(self, config: dict[str, Any], seed: int) -> Iterator[Any]:
        from ppocr.data import build_dataloader  # type: ignore[import-not-found]

        for epoch in range(1_000_000):
            loader = build_dataloader(config, "Train", self._builder.device, self._builder.logger, seed + epoch)
            yield from read_through(loader)

    def synthetic_batch(self, batch_size: int | None = None) -> Any:
        return next(self._synthetic_batches(batch_size))

    def _synthetic_batches(self, batch_size: int | None) -> Iterator[Any]:
        from paddle_amp_plugin.hosts.paddleocr_synthetic import with_synthetic_data

        folder = self._builder.folder / f"synthetic-{batch_size or self.batch_size}"
        characters = getattr(self._builder.built["post_process_class"], "character", ())
        config = with_synthetic_data(self.config, folder, batch_size or self.batch_size, characters)
        self._seed()
        return self._batches(config, self.seed)

    def samples(self, batch: Any) -> int:
        return int(batch[0].shape[0])

    def evaluate(self, model: Any) -> dict[str, float]:
        """Raises AmpError (AMP047) if the evaluation data is not there."""
        if not self.config.get("Eval"):
            return {}
        import tools.program  # type: ignore[import-not-found]
        from ppocr.data import build_dataloader

        built = self._builder.built
        loader = build_dataloader(self.config, "Eval", self._builder.device, self._builder.logger)
        algorithm = self.config["Architecture"].get("algorithm")
        assert self._builder.called is not None
        built["eval_class"].reset()
        found = tools.program.eval(
            model,
            loader,
            built["post_process_class"],
            built["eval_class"],
            _EVAL_NAMES.get(algorithm, self.kind),
            extra_input=self._builder.called.extra_input,
        )
        model.train()
        return {k: float(v) for k, v in found.items() if isinstance(v, int | float) and k != "fps"}


class _Seen(Exception):
    """The host's loop has called the model."""


class Called:
    """How the host's loop calls its model with a batch: which of its parts go where.

    ``arguments`` / ``keywords``: a place of the batch, a (start, stop) slice of it, or None for the batch itself.
    """

    def __init__(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.arguments, self.keywords = arguments, keywords

    @property
    def extra_input(self) -> bool:
        """Does the model get the labels, too (``data=``)?"""
        return "data" in self.keywords

    def __call__(self, model: Any, batch: Any) -> Any:
        keywords = {name: _part(batch, place) for name, place in self.keywords.items()}
        return model(*(_part(batch, place) for place in self.arguments), **keywords)


def _part(batch: Any, place: Any) -> Any:
    if place is None:
        return batch
    return batch[slice(*place)] if isinstance(place, tuple) else batch[place]


def how_called(train: Any, arguments: Mapping[str, Any]) -> Called:
    """Asks the host's ``program.train`` by running it up to its first call of the model.

    Raises AmpError (AMP263) if it does not come that far.
    """
    batch = [_Part(place) for place in range(32)]
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    class Listening:
        def train(self) -> None: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            seen.append((args, kwargs))
            raise _Seen

    class OneBatch(_NoLoader):
        def __iter__(self) -> Iterator[Any]:
            yield batch

    stand_ins = {"model": Listening(), "train_dataloader": OneBatch(), "valid_dataloader": OneBatch(), "scaler": None}
    try:
        train(**{**arguments, **stand_ins, "pre_best_model_dict": {}})
    except _Seen:
        args, kwargs = seen[0]
        return Called(tuple(_place(a, batch) for a in args), {k: _place(v, batch) for k, v in kwargs.items()})
    except Exception as error:
        raise AmpError(
            "AMP263",
            tr(
                "PaddleOCR's training loop could not be followed: {e}",
                "无法解析 PaddleOCR 的训练循环：{e}",
                e=f"{type(error).__name__}: {error}",
            ),
        ) from error
    text = tr("PaddleOCR's training loop never called the model", "PaddleOCR 的训练循环没有调用模型")
    raise AmpError("AMP263", text)


class _Part:
    """One tensor of the batch that the host's loop is given."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __len__(self) -> int:
        return 1


def _place(value: Any, batch: list[_Part]) -> Any:
    if value is batch:
        return None
    if isinstance(value, _Part):
        return value.place
    places = [part.place for part in value]
    assert places == list(range(places[0], places[-1] + 1)), "not a slice of the batch"
    return places[0], None if places[-1] == len(batch) - 1 else places[-1] + 1
