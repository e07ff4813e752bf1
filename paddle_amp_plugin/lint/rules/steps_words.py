"""The words and examples of AMP130 to AMP137.

What they say of ``paddle.amp.GradScaler`` was run on Paddle 2.6.2 and 3.3.1: ``step`` does not update the scale, a
second ``step`` or ``unscale_`` before ``update`` raises RuntimeError, ``minimize`` is unscale, step and update.
"""

from __future__ import annotations

from paddle_amp_plugin.lint.findings import Rule, Text

_SETUP = """import paddle

model = paddle.nn.Linear(4, 1)
optimizer = paddle.optimizer.Adam(parameters=model.parameters())
scaler = paddle.amp.GradScaler()

def train(loader):
    for x in loader:
        with paddle.amp.auto_cast():
            loss = model(x).mean()
"""
_GOOD = (
    _SETUP
    + """        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        paddle.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
"""
)
_MINIMIZE = (
    _SETUP
    + """        scaled = scaler.scale(loss)
        scaled.backward()
        scaler.minimize(optimizer, scaled)
        optimizer.clear_grad()
"""
)

OPTIMIZER = Rule(
    "AMP130",
    "warning",
    Text("`optimizer.step()` beside a scaler", "有 scaler 却调用 `optimizer.step()`"),
    Text(
        "After `scaler.scale(loss).backward()` every gradient is too large by the loss scale (65536 at first, say). "
        "`scaler.step` divides "
        "them and leaves the step out when one is not finite; `optimizer.step()` does neither: SGD's step is 65536 "
        "times too long, "
        "Adam's epsilon and clipping mean something else, and one inf makes the weights NaN.",
        "`scaler.scale(loss).backward()` 之后，所有梯度都被放大了损失缩放倍数（例如最初为 65536）。`scaler.step` 会除"
        "回去，并在梯度非有限时"
        "跳过该步；`optimizer.step()` 两者都不做：SGD 的步长变为 65536 倍，Adam 的 epsilon 与裁剪失去原意，一个 inf 就"
        "使权重变为 NaN。",
    ),
    Text("`scaler.step(optimizer)`, then `scaler.update()`.", "`scaler.step(optimizer)`，然后 `scaler.update()`。"),
    bad=_SETUP
    + """        scaler.scale(loss).backward()
        optimizer.step()
        optimizer.clear_grad()
""",
    good=_GOOD,
)
CLIP = Rule(
    "AMP131",
    "warning",
    Text("gradients clipped before they are unscaled", "在取消缩放之前裁剪梯度"),
    Text(
        "The norm is of the scaled gradients: a gradient of 0.01 at scale 65536 counts as 655, is clipped to 1.0, and "
        "is 1.5e-5 after "
        "unscaling. `grad_clip=` of the optimizer's constructor is applied within its step, after unscaling, and is "
        "right.",
        "此时的范数属于放大后的梯度：缩放为 65536 时，0.01 的梯度被当作 655，裁剪为 1.0，取消缩放后只剩 1.5e-5。优化器"
        "构造函数的 "
        "`grad_clip=` 在更新时、取消缩放之后才生效，是正确的。",
    ),
    Text(
        "`scaler.unscale_(optimizer)` before the clip, or `grad_clip=` of the optimizer.",
        "在裁剪之前调用 `scaler.unscale_(optimizer)`，或使用优化器的 `grad_clip=`。",
    ),
    bad=_GOOD.replace("        scaler.unscale_(optimizer)\n", ""),
    good=_GOOD,
)
CLEAR = Rule(
    "AMP132",
    "warning",
    Text("no `clear_grad` in a training loop", "训练循环中没有 `clear_grad`"),
    Text(
        "Paddle adds new gradients to the old ones. Without a scaler each step then uses the sum of all batches. With "
        "one, the old ones have been unscaled already and hardly count, until the first overflow: from then on every "
        "gradient stays inf, each later step is skipped, and the scale halves to nothing.",
        "Paddle 将新的梯度累加到旧的梯度上。没有 scaler 时，每一步使用此前所有批次之和。有 scaler 时，旧的梯度已取消"
        "缩放，几乎不起作用，直到第一次溢出：此后所有梯度一直是 inf，每一步都被跳过，缩放不断减半直至消失。",
    ),
    Text(
        "`optimizer.clear_grad()` after each step (also after a skipped one).",
        "每次更新之后（包括被跳过的更新）调用 `optimizer.clear_grad()`。",
    ),
    bad=_GOOD.replace("        optimizer.clear_grad()\n", ""),
    good=_GOOD,
)
MIXED = Rule(
    "AMP133",
    "warning",
    Text("`scaler.minimize` mixed with `step` or `update`", "`scaler.minimize` 与 `step`、`update` 混用"),
    Text(
        "`scaler.minimize(optimizer, scaled)` unscales, steps and updates the scale. Another `step` moves the weights "
        "a second time, in "
        "silence; another `update` counts the step twice, so the scale grows twice as fast.",
        "`scaler.minimize(optimizer, scaled)` 包含取消缩放、更新权重与更新缩放。再调用 `step` 会悄悄地再次更新权重；再"
        "调用 `update` "
        "会将该步计两次，缩放的增长快一倍。",
    ),
    Text(
        "Either `scaler.minimize(optimizer, scaled)`, or `scaler.step(optimizer); scaler.update()`.",
        "要么 `scaler.minimize(optimizer, scaled)`，要么 `scaler.step(optimizer); scaler.update()`。",
    ),
    bad=_MINIMIZE.replace(
        "        optimizer.clear_grad()\n", "        scaler.step(optimizer)\n        optimizer.clear_grad()\n"
    ),
    good=_MINIMIZE,
)
UPDATE = Rule(
    "AMP134",
    "warning",
    Text("`scaler.step` without `scaler.update`", "`scaler.step` 之后没有 `scaler.update`"),
    Text(
        "`scaler.step` does not update the scale (Paddle 2.6.2 and 3.3.1). Without `update` the next `step` raises "
        '"step() has already been called since the last update()" (the next `unscale_` something alike), and a scale '
        "that is too high never falls.",
        "`scaler.step` 不更新缩放（Paddle 2.6.2 与 3.3.1）。没有 `update`，下一次 `step` 会抛出 "
        "“step() has already been called since the last update()”（下一次 `unscale_` 亦然），过高的缩放也不会下降。",
    ),
    Text(
        "`scaler.update()` after `scaler.step(optimizer)`.", "在 `scaler.step(optimizer)` 之后调用 `scaler.update()`。"
    ),
    bad=_GOOD.replace("        scaler.update()\n", ""),
    good=_GOOD,
)
TWICE = Rule(
    "AMP135",
    "warning",
    Text("`unscale_` twice, or after `step`", "`unscale_` 调用两次或在 `step` 之后"),
    Text(
        'Paddle refuses it: "unscale_() has already been called on this optimizer since the last update()", or "'
        "unscale_() is being "
        'called after step()". `step` and `minimize` unscale by themselves when nobody has.',
        "Paddle 会拒绝：“unscale_() has already been called on this optimizer since the last update()” 或 “unscale_() "
        "is being called after "
        "step()”。若此前没有取消缩放，`step` 与 `minimize` 会自行处理。",
    ),
    Text(
        "One `scaler.unscale_(optimizer)` an update, before the clip.",
        "每次更新只调用一次 `scaler.unscale_(optimizer)`，位于裁剪之前。",
    ),
    bad=_GOOD.replace("        scaler.step", "        scaler.unscale_(optimizer)\n        scaler.step"),
    good=_GOOD,
)
EARLY = Rule(
    "AMP136",
    "warning",
    Text("gradients cleared between backward and step", "在 backward 与 step 之间清除梯度"),
    Text(
        "The step finds no gradients: the model does not learn, and a scaler, which found nothing non-finite, lets "
        "its scale grow.",
        "更新时已没有梯度：模型不会学习，而 scaler 没有发现非有限值，会让缩放继续增长。",
    ),
    Text("backward, step, update, then `clear_grad`.", "先 backward、step、update，然后 `clear_grad`。"),
    bad=_SETUP
    + """        scaler.scale(loss).backward()
        optimizer.clear_grad()
        scaler.step(optimizer)
        scaler.update()
""",
    good=_GOOD,
)
UNSCALED = Rule(
    "AMP137",
    "warning",
    Text("a loss that is not scaled, stepped by a scaler", "未缩放的损失由 scaler 更新"),
    Text(
        "`scaler.step` and `scaler.minimize` divide the gradients by the scale. If the loss was never multiplied by "
        "it, they become too small "
        "by that factor, and float16 gradients still underflow.",
        "`scaler.step` 与 `scaler.minimize` 会将梯度除以缩放值。若损失从未乘以它，梯度就会按该倍数变小，float16 梯度也"
        "仍会下溢。",
    ),
    Text("`scaler.scale(loss).backward()`.", "`scaler.scale(loss).backward()`。"),
    bad=_GOOD.replace("scaler.scale(loss).backward()", "loss.backward()"),
    good=_GOOD,
)
RULES = (OPTIMIZER, CLIP, CLEAR, MIXED, UPDATE, TWICE, EARLY, UNSCALED)
