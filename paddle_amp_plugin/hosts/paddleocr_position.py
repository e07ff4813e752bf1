"""Where in the data a run of PaddleOCR's trainer is, and back to there.

An epoch is one iteration of the training loader. At the end of one, random states and the sampler's count of epochs
say all. Within an epoch (a best model is saved after an evaluation in the middle) the reader is ahead of the
training by an unknown number of batches, so there the random states of the epoch's start and the number of batches
trained on are kept: on resume they are read again, unused, and the reader is where it was.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.pdamp import Pdamp

#: From so many batches on, reading them again shows a progress bar.
BAR_FROM = 20


class Position:
    """Follows the training loaders of one run (``watch``). ``say`` gets the few lines there are to say."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._batch = self._batches = self._epochs = self._workers = 0
        self._start: dict[str, Any] = {}
        self._saved: Pdamp | None = None
        self._ahead: Callable[[int], None] | None = None

    # -- saving ----------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """For the ``.pdamp``: ``batch`` of ``batches`` in this epoch; ``epochs`` that the sampler had begun before
        the one that a resumed run starts with; ``start``: random states at the epoch's start, if within it."""
        facts = {"batch": self._batch, "batches": self._batches, "workers": self._workers, "epochs": self._epochs}
        if self._batch < self._batches:
            facts.update(epochs=self._epochs - 1, start=self._start)
        return facts

    # -- resuming --------------------------------------------------------------------------------------------

    def resume(self, saved: Pdamp) -> None:
        """The next iteration of a training loader goes on where ``saved`` was written."""
        self._saved = saved

    @property
    def inside_epoch(self) -> bool:
        """Whether the run goes on within an epoch."""
        host = self._saved.host if self._saved is not None else {}
        return "start" in host and self._same_world() and isinstance(host.get("epoch"), int)

    def _same_world(self) -> bool:
        return self._saved is not None and self._saved.world_size == _world()

    def begin(self) -> None:
        """The host's loop is about to start."""
        from paddle_amp_plugin.rng import set_rng_state

        saved = self._saved
        if saved is None or not self._same_world():
            return
        if _world() > 1:
            self._say(
                tr(
                    "amp: the random states of {n} processes are not kept: not to the bit what an unbroken run gives",
                    "amp：不保存 {n} 个进程的随机状态：结果与不中断的运行并非逐位一致",
                    n=_world(),
                )
            )
            return
        try:
            lost = set_rng_state(saved.rng)
        except ValueError as error:
            raise AmpError("AMP092", tr("the .pdamp is damaged: {e}", ".pdamp 已损坏：{e}", e=error)) from None
        if lost:
            self._say(
                tr(
                    "amp: this Paddle cannot restore the checkpoint's random state (dropout): the run goes on, not to "
                    "the bit",
                    "amp：当前 Paddle 无法恢复检查点中的随机状态（dropout）：可继续训练，但不保证逐位一致",
                )
            )

    def watch(self, loader: Any, ahead: Callable[[int], None] | None = None) -> Any:
        """The same loader; its iterations are followed. ``ahead`` is told before each batch how many are left."""
        self._ahead = ahead
        base, position, begun = type(loader), self, [0]

        def __iter__(self: Any) -> Iterator[Any]:
            return position._epoch(self, base, begun)

        loader.__class__ = type(base.__name__, (base,), {"__iter__": __iter__, "__module__": base.__module__})
        return loader

    def _epoch(self, loader: Any, base: Any, begun: list[int]) -> Iterator[Any]:
        from paddle_amp_plugin.rng import host_rng_state, set_rng_state

        saved, self._saved = self._saved, None
        again = 0
        if saved is not None and self._comes_back(saved, loader):
            if not (self._complete(saved) and loader.dataset.need_reset):
                begun[0] = self._sampler_back(loader, int(saved.host["epochs"]))
            if not self._complete(saved):
                again = int(saved.host["batch"])
                if _world() == 1:
                    set_rng_state(saved.host["start"], only=("python", "numpy"))
        begun[0] += 1
        self._epochs, self._batches, self._batch = begun[0], len(loader), 0
        self._workers = int(getattr(loader, "num_workers", 0))
        self._start = host_rng_state()
        batches = base.__iter__(loader)
        if again and saved is not None:
            self._read_again(batches, again)
            # a reader in this process goes on drawing from where it is; one in processes of its own does not
            only = ("python", "numpy", "paddle") if self._workers else ("paddle",)
            if _world() == 1:
                set_rng_state(saved.rng, only=only)
        for batch in batches:
            if self._ahead is not None:
                self._ahead(_trained_on(len(loader)) - self._batch)
            self._batch += 1
            yield batch

    @staticmethod
    def _complete(saved: Pdamp) -> bool:
        return "start" not in saved.host

    def _comes_back(self, saved: Pdamp, loader: Any) -> bool:
        """Whether the order of the data can be taken up again."""
        if saved.world_size != _world() or not isinstance(saved.host.get("epochs"), int):
            return False
        before = saved.host.get("batches")
        if before != len(loader):
            self._say(
                tr(
                    "amp: an epoch had {o} batches when the checkpoint was saved, now it has {n} (other data or batch "
                    "size): the epoch starts with its first batch, in an order of its own",
                    "amp：保存检查点时每个 epoch 有 {o} 个批次，现在为 {n} 个（数据或批大小不同）：本 epoch 从首个批次"
                    "开始，数据顺序不同",
                    o=before,
                    n=len(loader),
                )
            )
            return False
        return True

    @staticmethod
    def _sampler_back(loader: Any, epochs: int) -> int:
        """Brings the sampler to where it was after ``epochs`` iterations, which it may count, or shuffle on from."""
        import paddle

        from paddle_amp_plugin.rng import host_rng_state, set_rng_state

        sampler = loader.batch_sampler
        if isinstance(sampler, paddle.io.DistributedBatchSampler):
            sampler.set_epoch(epochs)
            return epochs
        before = host_rng_state()
        for _ in range(epochs):
            next(iter(sampler), None)
        set_rng_state(before, only=("python", "numpy"))
        return epochs

    def _read_again(self, batches: Iterator[Any], count: int) -> None:
        from rich.progress import track

        self._say(
            tr(
                "amp: going on within an epoch, after batch {n} of {m}: reading those again",
                "amp：在 epoch 中途继续，位于第 {n} / {m} 个批次之后：重新读取这些批次",
                n=count,
                m=self._batches,
            )
        )
        what = tr("reading again", "重新读取")
        for _ in track(range(count), description=what, disable=count < BAR_FROM, transient=True):
            next(batches, None)
            self._batch += 1


def _trained_on(batches: int) -> int:
    """PaddleOCR leaves the last batch of an epoch out on Windows."""
    return batches - 1 if platform.system() == "Windows" else batches


def _world() -> int:
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
