"""Checkpoints of PaddleOCR's trainer: saved whole, with a ``.pdamp``; read with every fault said; resumed to the bit.

The host writes its files one after the other into their places, so a kill leaves halves of two checkpoints; here it
writes into a folder beside them (``file_set``). On resume the host forgets the best metric (``acc`` becomes 0, so
the next evaluation overwrites the best model), the step it was at, every random state, and where in the data it was;
all of that comes from the ``.pdamp``.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_amp_plugin.checkpoint_files import offered, read
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.file_set import recover
from paddle_amp_plugin.hosts.paddleocr_position import Position
from paddle_amp_plugin.hosts.patching import bound
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.pdamp import SUFFIX, Pdamp

if TYPE_CHECKING:
    from paddle_amp_plugin.hosts.paddleocr import Controller

#: The host's lines about single weights, one a weight; ours counts them.
_SINGLE = ("not in loaded params", "not in model", "not matched with loaded params", "The parameter type is float16")


class RunCheckpoints:
    """Belongs to one controller, whose patches call it. ``position``: where in the data the run is."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._reading = False
        self.position = Position(controller.say)

    # -- saving ----------------------------------------------------------------------------------------------

    def save(self, wrapped: Any, args: Any, kwargs: Any) -> Any:
        """The host's ``save_model``, into the folder that will replace the former checkpoint."""
        arguments = bound(wrapped, args, kwargs)
        extra = arguments.pop("kwargs", {})
        if extra.get("global_step") is not None:
            extra["global_step"] = int(extra["global_step"])  # a plain number for the host's pickle
        folder, prefix, session = Path(arguments["model_path"]), arguments["prefix"], self._controller.session
        if session is None or session.scaler is None:
            with contextlib.suppress(OSError):  # it would belong to a checkpoint that is about to go
                Path(f"{folder / prefix}{SUFFIX}").unlink()
            return wrapped(**arguments, **extra)
        host = {
            **self.position.facts(),
            "epoch": extra.get("epoch"),
            "global_step": extra.get("global_step"),
            "best": _numbers(extra.get("best_model_dict")),
        }
        with session.checkpoints.write(folder, prefix, host=host, also=("best_model/model",)) as staging:
            arguments["model_path"] = str(staging)
            arguments["logger"] = _Renaming(arguments["logger"], str(staging), str(folder))
            return wrapped(**arguments, **extra)

    # -- loading ---------------------------------------------------------------------------------------------

    def load(self, wrapped: Any, args: Any, kwargs: Any) -> Any:
        """The host's ``load_model``; then the session knows where it goes on."""
        arguments = bound(wrapped, args, kwargs)
        controller, prefix = self._controller, _checkpoint(arguments["config"], arguments["model_type"])
        session, optimizer = controller.session, arguments["optimizer"]
        if session is None:
            if prefix is not None:
                recover(prefix.parent, prefix.name)
            return wrapped(*args, **kwargs)
        resumes = controller.training and optimizer is not None and prefix is not None
        saved = read(prefix, say=controller.say, weights_only=not resumes) if prefix is not None else None
        with self.reading(arguments["model"]):
            result = wrapped(*args, **kwargs)
        if prefix is not None and isinstance(result, dict):
            result.update(_best(saved, prefix))
        if resumes:
            self._resume(saved, prefix, result)
        return result

    def _resume(self, saved: Pdamp | None, prefix: Path | None, result: dict[str, Any]) -> None:
        controller = self._controller
        if saved is None:
            controller.say(
                tr(
                    "amp: resumed from a checkpoint of PaddleOCR alone (no .pdamp): the loss scale starts at {s}, "
                    "steps count from 1, the order of the data starts anew",
                    "amp：从 PaddleOCR 自身的检查点恢复（没有 .pdamp）：loss scale 从 {s} 开始，"
                    "步数从 1 计，数据顺序重新开始",
                    s=f"{controller.plan.scaling.init:g}",
                )
            )
            return
        controller.session.checkpoints.resume(saved, prefix)
        self.position.resume(saved)
        if self.position.inside_epoch:
            result["start_epoch"] = saved.host["epoch"]

    def load_pretrained(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """The host's ``load_pretrained_params``, also for a distillation's teacher."""
        if self._controller.session is None:
            return wrapped(*args, **kwargs)
        arguments = bound(wrapped, args, kwargs)
        path = str(arguments["path"])
        if "://" not in path:
            prefix = _prefix(path)
            read(prefix, say=self._controller.say, weights_only=True)
        with self.reading(arguments["model"]):
            return wrapped(*args, **kwargs)

    @contextlib.contextmanager
    def reading(self, model: Any) -> Iterator[None]:
        """While it is open, ``paddle.load`` gives FP32 weights and says what does not fit ``model``.

        Raises AmpError: AMP094 nothing fits, AMP096 / AMP097 weights / an optimizer's state that cannot be read.
        """
        import paddle

        if self._reading:  # pretrained weights are read inside load_model
            yield
            return
        original, self._reading = paddle.load, True

        def load(path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                state = original(path, *args, **kwargs)
            except Exception as error:
                raise _unreadable(str(path), error) from None
            return self._weights(state, str(path), model) if str(path).endswith(".pdparams") else state

        logger, quiet = self._controller.logger, _Quiet()
        paddle.load = load
        if logger is not None:
            logger.addFilter(quiet)
        try:
            yield
        finally:
            paddle.load, self._reading = original, False
            if logger is not None:
                logger.removeFilter(quiet)

    def _weights(self, state: Any, path: str, model: Any) -> Any:
        from paddle_amp_plugin import weights

        if not isinstance(state, Mapping):
            raise _unreadable(path, TypeError(tr("it holds no state dict", "其中没有 state dict")))
        loaded = weights.Loaded(os.path.basename(path))
        state = weights.float32_state(state, loaded)
        weights.compare(state, model, loaded)
        for line in loaded.lines():
            self._controller.say(line)
        return state


class _Renaming(logging.LoggerAdapter):  # type: ignore[type-arg]
    """The host's logger, with the folder a file will be in instead of the one it is written to."""

    def __init__(self, logger: Any, old: str, new: str) -> None:
        super().__init__(logger, {})
        self._old, self._new = old, new

    def process(self, msg: Any, kwargs: Any) -> Any:
        return str(msg).replace(self._old, self._new), kwargs


class _Quiet(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not any(words in text for words in _SINGLE)


def _checkpoint(config: Mapping[str, Any], model_type: str) -> Path | None:
    """The prefix of the checkpoint to resume from; key information extraction has it with its backbone."""
    architecture = config.get("Architecture") or {}
    path = config["Global"].get("checkpoints")
    if model_type == "kie" and architecture.get("algorithm") != "SDMGR":
        path = (architecture.get("Backbone") or {}).get("checkpoints")
    return _prefix(str(path)) if path else None


def _prefix(path: str) -> Path:
    return Path(path.removesuffix(".pdparams").rstrip("/\\"))


def _best(saved: Pdamp | None, prefix: Path) -> dict[str, Any]:
    """What the host forgets: the best metrics and the step. From the ``.pdamp``, else from the host's ``.states``."""
    if saved is not None:
        facts: Mapping[str, Any] = {"best_model_dict": saved.host.get("best"), **saved.host}
    else:
        facts = _states(Path(f"{prefix}.states"))
    best = _numbers(facts.get("best_model_dict"))
    for name in ("start_epoch", "is_float16", "global_step"):
        best.pop(name, None)
    step = facts.get("global_step")
    if isinstance(step, int) and step >= 0:
        best["global_step"] = step
    return best


def _numbers(values: Any) -> dict[str, Any]:
    """The finite numbers of a mapping, as Python's own."""
    if not isinstance(values, Mapping):
        return {}
    found: dict[str, Any] = {}
    for name, value in values.items():
        number = value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value
        if isinstance(number, bool | int):
            found[str(name)] = number
        elif isinstance(number, float) and math.isfinite(number):
            found[str(name)] = float(number)
    return found


class _PlainUnpickler(pickle.Unpickler):
    """Plain values and NumPy's scalars only: a ``.states`` that names anything else is not read."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "scalar"),
            ("numpy._core.multiarray", "scalar"),
        ):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


def _states(path: Path) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            found = _PlainUnpickler(file, encoding="latin1").load()
    except Exception:  # missing, damaged or foreign: the host itself reads it, and says so
        return {}
    return found if isinstance(found, Mapping) else {}


def _unreadable(path: str, error: Exception) -> AmpError:
    reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    optimizer = path.endswith(".pdopt")
    return AmpError(
        "AMP097" if optimizer else "AMP096",
        tr("cannot read {f}: {e}", "无法读取 {f}：{e}", f=path, e=reason),
        hint=offered(Path(os.path.splitext(path)[0])),
    )
