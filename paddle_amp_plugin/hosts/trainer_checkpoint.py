"""Checkpoints of a Trainer: ``checkpoint-<step>`` appears whole, with ``amp.pdamp`` in it, and is resumed to the bit.

The host restores its random states only where a resume lies within an epoch, and then sets NumPy's to what it was
while the reader was some unknown number of batches ahead. Here the states of the epoch's start are kept as well: the
epoch's order and what a collator draws are those of the unbroken run, and dropout goes on where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_amp_plugin.checkpoint import read, world_size
from paddle_amp_plugin.file_set import recover
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.pdamp import Pdamp
from paddle_amp_plugin.rng import host_rng_state, set_rng_state

if TYPE_CHECKING:
    from paddle_amp_plugin.session import Session

#: ``<checkpoint folder>/amp.pdamp``.
NAME = "amp"
STATE = "trainer_state.json"


class TrainerCheckpoints:
    """Belongs to one ``TrainerRun``. ``module``: the host's ``trainer.trainer``."""

    def __init__(self, trainer: Any, module: Any, say: Callable[[str], None]) -> None:
        self._trainer, self._module, self._say = trainer, module, say
        self._epoch_start: dict[str, Any] = {}
        self._saved: Pdamp | None = None  # until the run is where it was
        self._begun = False

    # -- saving ----------------------------------------------------------------------------------------------

    def save(self, session: Session, call: Callable[[], Any]) -> Any:
        """The host's ``_save_checkpoint``, into a folder that becomes ``checkpoint-<step>`` when it is complete."""
        trainer = self._trainer
        if not trainer.args.should_save:
            return call()
        folder, name = Path(trainer.args.output_dir), f"checkpoint-{trainer.state.global_step}"
        former, rotate = trainer.state.best_model_checkpoint, trainer._rotate_checkpoints
        rotations: list[tuple[Any, Any]] = []
        trainer._rotate_checkpoints = lambda *args, **kwargs: rotations.append((args, kwargs))
        try:
            with session.checkpoints.write(folder, name, host=self._facts(), at=f"{name}/{NAME}") as staging:
                with _Redirected(self._module, folder, f"{staging.name}/{name}"):
                    result = call()
                if trainer.state.best_model_checkpoint not in (None, former):
                    trainer.state.best_model_checkpoint = str(folder / name)
                    trainer.state.save_to_json(str(staging / name / STATE))
        finally:
            del trainer._rotate_checkpoints
        for args, kwargs in rotations:
            rotate(*args, **kwargs)
        return result

    def _facts(self) -> dict[str, Any]:
        """``start``: random states of the epoch that a resumed run begins with, where that is not a new one."""
        trainer = self._trainer
        batches = len(trainer.callback_handler.train_dataloader)
        steps = max(batches // trainer.args.gradient_accumulation_steps, 1)
        step = trainer.state.global_step
        return {"global_step": step, "batches": batches, "start": self._epoch_start if step % steps else {}}

    # -- resuming --------------------------------------------------------------------------------------------

    def resume(self, session: Session, folder: Path) -> None:
        """Before the host loads anything from ``folder``: is it whole, and where does the run go on?

        Raises AmpError: AMP090 a file is damaged or missing, AMP092 / AMP093 the ``.pdamp`` itself.
        """
        self._begun = False
        self._saved = saved = read(folder / NAME, say=self._say)
        if saved is not None:
            session.checkpoints.resume(saved)
        elif folder.is_dir():
            self._say(
                tr(
                    "amp: resumed from a checkpoint of the host alone (no {n}.pdamp): the loss scale starts at {s}, "
                    "and amp's steps count from 1",
                    "amp：从宿主自身的检查点恢复（没有 {n}.pdamp）：loss scale 从 {s} 开始，amp 的步数从 1 计",
                    n=NAME,
                    s=f"{session.plan.scaling.init:g}",
                )
            )

    def epoch_begins(self) -> None:
        """The order of the epoch is about to be drawn."""
        saved, begun = self._saved, self._begun
        self._begun = True
        if begun or (saved is not None and not self._comes_back(saved)):
            self._saved = None
        elif saved is not None and saved.host.get("start"):
            set_rng_state(saved.host["start"], only=("python", "numpy"))
        elif saved is not None:
            set_rng_state(saved.rng)
            self._saved = None
        self._epoch_start = host_rng_state()

    def random_states(self, call: Callable[[], Any]) -> Any:
        """The host's ``_load_rng_state``, called once the batches that were trained on are read again."""
        saved, self._saved = self._saved, None
        if saved is None:
            return call()
        loader = self._trainer.callback_handler.train_dataloader
        # a reader in this process goes on drawing from where it is; one in processes of its own does not
        workers = int(getattr(loader, "num_workers", 0))
        set_rng_state(saved.rng, only=("python", "numpy", "paddle") if workers else ("paddle",))
        return None

    def _comes_back(self, saved: Pdamp) -> bool:
        """Whether the order of the data can be taken up again."""
        batches = len(self._trainer.callback_handler.train_dataloader)
        return saved.world_size == world_size() == 1 and saved.host.get("batches") == batches


def finish_interrupted(folder: Path) -> None:
    """Checkpoints below ``folder`` that a kill caught on their way to their places."""
    for ready in folder.glob(".checkpoint-*.ready") if folder.is_dir() else ():
        recover(folder, ready.name.removeprefix(".").removesuffix(".ready"))


def wanted_folder(value: Any, module: Any, output_dir: str) -> Path | None:
    """The checkpoint that ``train(resume_from_checkpoint=value)`` means: True is the last one of the output folder."""
    if isinstance(value, bool) and value:
        value = module.get_last_checkpoint(output_dir)
    return Path(value) if value else None


class _Redirected(logging.Filter):
    """While it is open the host's ``f"{PREFIX_CHECKPOINT_DIR}-{step}"`` leads to ``there``, relative to ``folder``.

    All else sees the name, and the host's log the folder where the files will be.
    """

    def __init__(self, module: Any, folder: Path, there: str) -> None:
        super().__init__()
        self._module, self._there = module, there
        self._folders = (str(folder / there), str(folder / Path(there).name))
        self._logger = getattr(module.logger, "logger", module.logger)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = str(record.msg).replace(*self._folders)
        return True

    def __enter__(self) -> None:
        self._name = self._module.PREFIX_CHECKPOINT_DIR
        self._module.PREFIX_CHECKPOINT_DIR = _name_that_leads(self._name, self._there.rpartition("-")[0])
        self._logger.addFilter(self)

    def __exit__(self, *failure: Any) -> None:
        self._module.PREFIX_CHECKPOINT_DIR = self._name
        self._logger.removeFilter(self)


def _name_that_leads(name: str, prefix: str) -> str:
    class Name(str):
        __slots__ = ()

        def __format__(self, spec: str) -> str:
            return prefix

    return Name(name)
