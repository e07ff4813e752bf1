"""Where it is measured: a CPU under software half, or a GPU."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any


class Target:
    """``kind``: "cpu" or "gpu". On a GPU every reading of the clock waits for the device first."""

    def __init__(self, kind: str) -> None:
        import paddle

        self.kind = kind
        if kind == "gpu" and not (paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count()):
            raise SystemExit("--device gpu: this Paddle sees no GPU / 当前 Paddle 没有可用的 GPU (paddle-amp doctor)")
        paddle.device.set_device(kind)

    @property
    def clock(self) -> str:
        """On a CPU the process's own CPU time, which others on a shared machine do not change."""
        return "cpu" if self.kind == "cpu" else "wall"

    def emulation(self) -> AbstractContextManager[Any]:
        """Half precision where the device has none."""
        from paddle_amp_plugin import software_half

        return software_half.emulate() if self.kind == "cpu" else contextlib.nullcontext()

    def finish(self) -> None:
        if self.kind == "gpu":
            import paddle

            paddle.device.synchronize()

    def forget_peak(self) -> None:
        """The next ``peak`` counts from here."""
        import paddle

        if self.kind == "gpu":
            paddle.device.cuda.empty_cache()
            if hasattr(paddle.device.cuda, "reset_max_memory_allocated"):
                paddle.device.cuda.reset_max_memory_allocated()

    def peak(self) -> float | None:
        """MiB of device memory that tensors took at most; None on a CPU."""
        import paddle

        return paddle.device.cuda.max_memory_allocated() / 2**20 if self.kind == "gpu" else None
