"""What a resumed run says: where it goes on, and each setting that is not the checkpoint's (no Paddle import)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.pdamp import Pdamp
from paddle_amp_plugin.plan_file import plan_to_mapping

if TYPE_CHECKING:
    from paddle_amp_plugin.plan_model import Plan

_SETTINGS = (
    "level",
    "dtype",
    "preset",
    "custom_white_list",
    "custom_black_list",
    "fp32_layers",
    "master_grad",
    "on_collapse",
    "accumulate_steps",
    "ema_decay",
    "eval_dtype",
)
#: Fields that the key spells otherwise.
_SPELLING = {
    "ema_decay": "ema.decay",
    "init": "init_loss_scaling",
    "dynamic": "use_dynamic_loss_scaling",
    "minimum": "min_loss_scaling",
    "maximum": "max_loss_scaling",
}
SHOWN = 3  # names in a line


def first_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (tr(" and {n} more", " 等，另有 {n} 个", n=more) if more > 0 else "")


def resumed(saved: Pdamp) -> str:
    """Where the run goes on."""
    scale = saved.scaler.get("scale") if saved.use_loss_scaling else None
    return tr(
        "amp: resumed after step {s} ({u} updates, {k} skipped{scale}), saved at {l} in {d}",
        "amp：从第 {s} 步之后恢复（更新 {u} 次，跳过 {k} 次{scale}），保存时为 {l}，{d}",
        s=saved.step,
        u=saved.updates,
        k=saved.step - saved.updates,
        scale="" if scale is None else f", loss scale {scale:g}",
        l=saved.level,
        d=saved.dtype,
    )


def differences(saved: Pdamp, plan: Plan, *, world_size: int, paddle_version: str) -> list[str]:
    """One line for each setting of this run that is not the checkpoint's (the YAML's is the one that holds)."""
    now = plan_to_mapping(plan)
    lines = [
        _line(_SPELLING.get(name, name), saved.plan[name], now[name])
        for name in _SETTINGS
        if _differ(saved.plan, now, name)
    ]
    before, after = saved.plan.get("scaling"), now["scaling"]
    if saved.plan.get("use_loss_scaling") and now["use_loss_scaling"] and isinstance(before, dict):
        changed = [name for name in after if _differ(before, after, name)]
        lines += [_line(_SPELLING.get(name, name), before[name], after[name]) for name in changed]
    if saved.paddle != paddle_version:
        lines.append(
            tr(
                "amp: the checkpoint was written with Paddle {o}, this is {n}: the run goes on, not to the bit",
                "amp：该检查点由 Paddle {o} 写出，当前为 {n}：可继续训练，但不保证逐位一致",
                o=saved.paddle,
                n=paddle_version,
            )
        )
    if saved.world_size != world_size:
        lines.append(
            tr(
                "amp: the checkpoint was written by {o} process(es), now there are {n}: the order of the data is "
                "not that of an unbroken run",
                "amp：该检查点由 {o} 个进程写出，当前为 {n} 个：数据顺序与不中断的运行不同",
                o=saved.world_size,
                n=world_size,
            )
        )
    return lines


def no_moments(names: Sequence[str]) -> str:
    """The loaded optimizer state lacks these parameters."""
    return tr(
        "amp: the checkpoint has no optimizer state for {n} parameter(s) ({w}): theirs starts anew",
        "amp：检查点中缺少 {n} 个参数的优化器状态（{w}）：这些参数的状态重新开始",
        n=len(names),
        w=first_of(names),
    )


def _differ(before: dict[str, Any], now: dict[str, Any], name: str) -> bool:
    return name in before and before[name] != now[name]


def _line(name: str, before: Any, now: Any) -> str:
    if isinstance(before, list) and isinstance(now, list):
        gone, new = [x for x in before if x not in now], [x for x in now if x not in before]
        words = " ".join([*(f"+{x}" for x in new), *(f"-{x}" for x in gone)])
        return tr("amp: differs from the checkpoint: amp.{n}: {w}", "amp：与检查点不同：amp.{n}：{w}", n=name, w=words)
    return tr(
        "amp: differs from the checkpoint: amp.{n}: {o} -> {m}",
        "amp：与检查点不同：amp.{n}：{o} -> {m}",
        n=name,
        o=before,
        m=now,
    )
