"""What ends a run: a collapsed loss scale, a weight that is not finite. Exit code 3, the last checkpoint is kept."""

from __future__ import annotations

import paddle

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.loss_scaling import Outcome
from paddle_amp_plugin.messages import tr

EXIT_COLLAPSED = 3


def collapsed(half: str, outcome: Outcome, *, steps: int, skips: int, diagnosis: str = "", yaml: str = "") -> AmpError:
    """AMP045: the scale cannot help any more. ``half``: the dtype of the run; ``diagnosis``: in words, if known."""
    message = tr(
        "the loss scale has collapsed: step {step} was skipped, the scale is {scale:g} and cannot help any more "
        "({skips} of {step} steps skipped)",
        "loss scale 已崩溃：第 {step} 步被跳过，当前 scale 为 {scale:g}，已无法再起作用"
        "（共 {step} 步，跳过 {skips} 步）",
        step=steps,
        skips=skips,
        scale=outcome.new_scale,
    )
    advice = tr(
        "the weights are those of the last good step and the last checkpoint is kept. Try, one at a time: {first}"
        'amp.fp32_layers: ["head.*"] (the part that overflows); '
        "a larger amp.init_loss_scaling if gradients were too small, a smaller one if the first steps overflowed; "
        "a lower Optimizer.lr.learning_rate (train with amp: false for a moment: if that is not finite either, "
        "it is not an AMP problem)",
        "权重仍为最后一次有效更新的值，上一个检查点已保留。请逐项尝试：{first}"
        'amp.fp32_layers: ["head.*"]（把溢出的部分固定为 FP32）；'
        "梯度过小时增大 amp.init_loss_scaling，最初几步就溢出时减小它；"
        "降低 Optimizer.lr.learning_rate（可先用 amp: false 训练片刻：若仍非有限值，则不是 AMP 的问题）",
        first="amp.dtype: bfloat16; " if half == "float16" else "",
    )
    if diagnosis and yaml:
        advice = tr(
            "the weights are those of the last good step and the last checkpoint is kept. Write:\n{yaml}",
            "权重仍为最后一次有效更新的值，上一个检查点已保留。请写：\n{yaml}",
            yaml=yaml,
        )
    text = f"{message}\n    {diagnosis}" if diagnosis else message
    return AmpError("AMP045", text, hint=advice, exit_code=EXIT_COLLAPSED)


def not_an_amp_problem(diagnosis: str, *, steps: int, skips: int, file: str = "") -> AmpError:
    """AMP054: FP32 fails as well, so there is nothing that mixed precision could do about it."""
    hint = tr(
        "{skips} of {step} steps were skipped; the weights are those of the last good step and the last checkpoint "
        "is kept{file}",
        "共 {step} 步，跳过 {skips} 步；权重仍为最后一次有效更新的值，上一个检查点已保留{file}",
        skips=skips,
        step=steps,
        file=tr(". Details: {f}", "。详情：{f}", f=file) if file else "",
    )
    return AmpError("AMP054", diagnosis, hint=hint, exit_code=EXIT_COLLAPSED)


def refuse_non_finite(model: paddle.nn.Layer) -> None:
    """Raises AMP046 if a parameter or buffer of ``model`` is not finite: such weights are never written."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not tensor._is_initialized() or not paddle.is_floating_point(tensor):
            continue
        if not bool(paddle.isfinite(tensor).all()):
            raise AmpError(
                "AMP046",
                tr(
                    "the weight {n} is not finite any more; nothing was saved, the last checkpoint is kept",
                    "权重 {n} 已出现非有限值；本次未保存，上一个检查点已保留",
                    n=name,
                ),
                hint=tr(
                    "lower the learning rate; if amp: false ends like this too, it is not an AMP problem",
                    "请降低学习率；若 amp: false 也如此，则不是 AMP 的问题",
                ),
                exit_code=EXIT_COLLAPSED,
            )
