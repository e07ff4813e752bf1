"""What ``paddle-amp estimate`` found, as data, as a table and as a line of advice (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddle_amp_plugin.estimate.modes import PARTS, Mode, Parts
from paddle_amp_plugin.estimate.sizes import shown
from paddle_amp_plugin.messages import tr


@dataclass(frozen=True)
class Result:
    """The estimate of one config.

    ``columns``: (mode, its parts at ``samples``, the largest batch that fits or None without ``memory``), FP32 first;
    ``asked``: the mode the config trains in. ``same_ops``: whether the model runs the same ops at any size.
    ``measured_at``: the batch sizes that were run.
    """

    name: str
    samples: int
    accumulate_steps: int
    memory: int | None
    reserve: int
    asked: str
    columns: tuple[tuple[Mode, Parts, int | None], ...]
    measured_at: tuple[int, int]
    made_up: bool
    unknown_ops: tuple[str, ...] = ()
    same_ops: bool = True

    def column(self, name: str) -> tuple[Mode, Parts, int | None]:
        return next(c for c in self.columns if c[0].name == name)

    @property
    def fits(self) -> bool:
        """Whether the config's own mode fits into ``memory``; True without one."""
        return self.memory is None or self.column(self.asked)[1].total <= self.memory

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``: all sizes in bytes."""
        return {
            "config": self.name,
            "batch": self.samples,
            "accumulate_steps": self.accumulate_steps,
            "memory": self.memory,
            "reserve": self.reserve,
            "mode": self.asked,
            "fits": self.fits,
            "measured_at": list(self.measured_at),
            "made_up_data": self.made_up,
            "unknown_ops": list(self.unknown_ops),
            "same_ops": self.same_ops,
            "modes": {
                mode.name: {**parts.as_dict(), "dtype": mode.dtype, "largest_batch": largest}
                for mode, parts, largest in self.columns
            },
        }


def part_names() -> dict[str, str]:
    """What the parts are called, in the user's language."""
    return {
        "weights": tr("weights", "权重"),
        "masters": tr("FP32 masters", "FP32 主权重"),
        "gradients": tr("gradients", "梯度"),
        "states": tr("optimizer states", "优化器状态"),
        "copies": tr("average, copies", "平均与副本"),
        "batch": tr("batch", "批数据"),
        "activations": tr("activations", "激活"),
        "temporary": tr("temporary", "临时"),
        "reserve": tr("reserve", "预留"),
    }


def advice(result: Result) -> str:
    """Which part dominates in the config's mode, and what would help."""
    mode, parts, _ = result.column(result.asked)
    persistent = parts.weights + parts.masters + parts.gradients + parts.states + parts.copies
    groups = {
        "activations": parts.activations + parts.temporary,
        "persistent": persistent,
        "reserve": parts.reserve,
        "batch": parts.batch,
    }
    top = max(groups, key=lambda name: groups[name])
    share = round(100 * groups[top] / parts.total) if parts.total else 0
    if top == "activations":
        words = tr(
            "{m}: activations take {p} %: a smaller batch or recompute helps",
            "{m}：激活占 {p} %：可减小批大小或使用重计算",
            m=mode.name,
            p=share,
        )
    elif top == "persistent":
        words = tr(
            "{m}: weights, gradients and optimizer states take {p} %: a smaller batch saves little, an optimizer "
            "with fewer states or frozen layers do",
            "{m}：权重、梯度与优化器状态占 {p} %：减小批大小作用不大，可换用状态更少的优化器或冻结部分层",
            m=mode.name,
            p=share,
        )
    elif top == "reserve":
        words = tr(
            "{m}: the reserve takes {p} %: the model is small, the batch can grow",
            "{m}：预留占 {p} %：模型很小，可以增大批大小",
            m=mode.name,
            p=share,
        )
    else:
        words = tr(
            "{m}: the batch's own data take {p} %: smaller images or shorter texts",
            "{m}：批数据本身占 {p} %：可缩小图像或缩短文本",
            m=mode.name,
            p=share,
        )
    return words + _smaller_mode(result, mode, parts)


def _smaller_mode(result: Result, mode: Mode, parts: Parts) -> str:
    best = min(result.columns, key=lambda column: column[1].total)
    saved = parts.total - best[1].total
    if best[0] is mode or saved * 20 < parts.total:
        return ""
    return tr(
        "; {b} would save {s} ({p} %)",
        "；改用 {b} 可节省 {s}（{p} %）",
        b=best[0].name,
        s=shown(saved),
        p=round(100 * saved / parts.total),
    )


def peak_words(parts: Parts) -> str:
    """Where in a step the highest point is."""
    if parts.where == "step":
        return tr("optimizer.step", "optimizer.step")
    if parts.where == "gradients":
        return tr("adding up gradients", "累加梯度")
    place = f"{parts.layer}: {parts.op}" if parts.layer else parts.op
    if parts.where == "backward":
        return tr("backward of {p}", "{p} 的反向", p=place)
    return tr("forward of {p}", "{p} 的前向", p=place)


def rows(result: Result) -> list[tuple[str, ...]]:
    """The table, without its head: one row a part, then the total, the place and the largest batch."""
    names = part_names()
    columns = result.columns
    table = [(names[part], *(shown(getattr(p, part)) for _, p, _ in columns)) for part in PARTS]
    table.append((tr("total", "合计"), *(shown(p.total) for _, p, _ in columns)))
    table.append((tr("highest point", "峰值所在"), *(peak_words(p) for _, p, _ in columns)))
    if result.memory is not None:
        table.append((tr("largest batch", "最大批大小"), *(str(n) for _, _, n in columns)))
    return table
