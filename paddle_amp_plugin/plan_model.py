"""What a plan is: the precision settings of one run on one device, resolved. No tensor, no Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paddle_amp_plugin.config_rules import Note
from paddle_amp_plugin.config_schema import MonitorSettings
from paddle_amp_plugin.config_spellings import Source
from paddle_amp_plugin.loss_scaling import ScalingPolicy
from paddle_amp_plugin.messages import tr

#: Op names shown in a row of the table; the file has all of them.
NAMES_SHOWN = 3


@dataclass(frozen=True)
class Device:
    """Where the run computes. ``capability``: (major, minor) of a CUDA device, else None.

    ``float16`` / ``bfloat16``: whether the device computes in it natively; on a CPU software half does not
    need them.
    """

    kind: str
    name: str
    capability: tuple[int, int] | None
    float16: bool
    bfloat16: bool


@dataclass(frozen=True)
class Row:
    """One line of the plan's table: the setting, its value, where it came from, and why (or "")."""

    key: str
    value: str
    source_text: str
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """The resolved settings of one run.

    With ``enabled`` false the level is ``O0``, every dtype ``float32``, and ``off_reason`` says why. ``whys``:
    key -> the reason of a value that was not simply taken over. The lists are final: preset included.
    """

    enabled: bool
    off_reason: str
    device: Device
    family: str
    level: Literal["O0", "OD", "O1", "O2"]
    dtype: Literal["float16", "bfloat16", "float32"]
    dtype_reason: str
    preset: Literal["safe", "fast"]
    custom_white_list: tuple[str, ...]
    custom_black_list: tuple[str, ...]
    fp32_layers: tuple[str, ...]
    use_loss_scaling: bool
    scaling: ScalingPolicy
    calibrate: bool
    master_weight: bool
    master_grad: bool
    on_collapse: Literal["pin", "fp32", "stop"]
    accumulate_steps: int
    eval_dtype: Literal["float32", "float16", "bfloat16"]
    cpu: Literal["emulate", "off", "error"]
    software_half: bool
    monitor: MonitorSettings
    whys: Mapping[str, str]
    sources: Mapping[str, Source]
    notes: tuple[Note, ...]
    ema_decay: float | None = None  # of the moving average of the FP32 weights; None: there is none
    probe: bool = False  # dtype auto chose float16: the first batches are asked whether it holds them

    def rows(self) -> list[Row]:
        """The plan as table rows, in the order of the ``amp`` key; texts in the user's language."""
        device = f"{self.device.kind}: {self.device.name}" if self.device.name else self.device.kind
        rows = [self._row("enabled", self.enabled, self.off_reason), Row("device", device, "")]
        if self.family:
            rows.append(Row("family", self.family, ""))
        if not self.enabled:
            return [*rows, *self._loop_rows()] if self.changes_the_loop else rows
        rows += [self._row("level", self.level), self._row("dtype", self.dtype, self.dtype_reason)]
        if self.software_half:
            rows.append(self._row("software_half", True, self.whys.get("software_half", "")))
        for key in ("preset", "custom_black_list", "custom_white_list", "fp32_layers"):
            rows.append(self._row(key, getattr(self, key)))
        rows += self._scaling_rows()
        rows.append(Row("master_weight", _shown(self.master_weight), "", self.whys.get("master_weight", "")))
        for key in ("master_grad", "on_collapse"):
            rows.append(self._row(key, getattr(self, key)))
        rows += self._loop_rows()
        for key in ("eval_dtype", "cpu"):
            rows.append(self._row(key, getattr(self, key)))
        rows.append(self._row("monitor.visualdl", self.monitor.visualdl))
        rows.append(self._row("monitor.every_n_steps", self.monitor.every_n_steps))
        return rows

    @property
    def changes_the_loop(self) -> bool:
        """Whether it asks for more than precision: gradient accumulation, an average of the weights."""
        return self.accumulate_steps > 1 or self.ema_decay is not None

    def _loop_rows(self) -> list[Row]:
        rows = [self._row("accumulate_steps", self.accumulate_steps)]
        return rows if self.ema_decay is None else [*rows, self._row("ema.decay", self.ema_decay)]

    def _row(self, key: str, value: object, why: str = "") -> Row:
        return Row(key, _shown(value), source_text(self.sources.get(key), key), why or self.whys.get(key, ""))

    def _scaling_rows(self) -> list[Row]:
        if not self.use_loss_scaling:
            return [Row("use_loss_scaling", _shown(False), "", self.whys.get("use_loss_scaling", ""))]
        policy = self.scaling
        rows = [
            self._row("init_loss_scaling", "auto" if self.calibrate else policy.init),
            self._row("use_dynamic_loss_scaling", policy.dynamic),
        ]
        if policy.dynamic:
            for key in ("incr_ratio", "decr_ratio", "incr_every_n_steps", "decr_every_n_nan_or_inf"):
                rows.append(self._row(key, getattr(policy, key)))
            rows.append(self._row("min_loss_scaling", policy.minimum))
            rows.append(self._row("max_loss_scaling", policy.maximum))
        return rows


def source_text(source: Source | None, key: str) -> str:
    """Where a value came from, short, in the user's language; "" where it follows from other settings."""
    if source is None:
        return ""
    if source.kind == "default":
        return tr("default", "默认")
    if source.kind == "preset":
        return tr("preset {p}", "预设 {p}", p=source.spelling)
    if source.kind == "yaml":
        plain = source.spelling in (f"amp.{key}", "amp") if key == "enabled" else source.spelling == f"amp.{key}"
        return "YAML" if plain else f"YAML {source.spelling}"
    if source.kind == "host":
        return tr("host {s}", "宿主 {s}", s=source.spelling)
    return source.spelling


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, tuple):
        if not value:
            return "[]"
        head = ", ".join(map(str, value[:NAMES_SHOWN]))
        more = len(value) - NAMES_SHOWN
        return head if more <= 0 else tr("{h} and {n} more", "{h} 等，另有 {n} 个", h=head, n=more)
    return str(value)
