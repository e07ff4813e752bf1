"""Five training steps and one overflow, with the real session, on the device that is there. Run as a child.

``python -m paddle_amp_plugin.doctor.self_test FILE PLACE LEVEL DTYPE``. The network is small (convolution, BatchNorm,
linear; 16 images of 8 x 8) and its sizes are multiples of 8, so that Tensor Cores take it. What is checked: losses
finite and falling; convolution and linear in half, BatchNorm in FP32; weights learned in FP32; an overflow that is
skipped, changes no weight, and halves the loss scale.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from paddle_amp_plugin.doctor.child import Findings

STEPS = 5
#: A batch times this leaves float16 (65504) in the first convolution; bfloat16 is left only by infinity.
BEYOND = {"float16": 1e6, "bfloat16": math.inf}


def main(path: str, place: str, level: str, dtype: str) -> None:
    found = Findings(path)
    try:
        run(found.put, place, level, dtype)
    except Exception as error:
        found.put(error=f"{type(error).__name__}: {error}".strip().splitlines()[0][:300])


def run(put: Callable[..., None], place: str, level: str, dtype: str) -> None:
    """The test; ``put`` gets the stage, the losses and the checks as they come."""
    put(stage="import")
    import paddle

    from paddle_amp_plugin.session import Session

    put(stage="build")
    paddle.device.set_device(place)
    plan = _plan(level, dtype)
    model, optimizer, batch, labels = _network(paddle)
    session = Session(plan)
    dtypes = _watched(model)
    checks: list[dict[str, Any]] = []
    losses: list[float] = []

    def check(name: str, ok: bool, seen: object) -> None:
        checks.append({"name": name, "ok": bool(ok), "seen": str(seen)})
        put(checks=checks)

    def step(images: Any) -> float:
        loss = paddle.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return float(loss)

    with session.attach(model, None, optimizer):
        for number in range(1, STEPS + 1):
            put(stage=f"step {number}")
            losses.append(step(batch))
            put(losses=[loss if math.isfinite(loss) else None for loss in losses])
        finite = all(map(math.isfinite, losses))
        check("losses", finite and losses[-1] < losses[0], " ".join(f"{loss:.4g}" for loss in losses))
        check("updates", session.updates == STEPS, f"{session.updates}/{STEPS}")
        _check_dtypes(paddle, check, dtypes, model, optimizer, level, dtype)
        put(stage="overflow")
        _check_overflow(check, session, model, lambda: step(batch * BEYOND[dtype]))
    put(stage="done")


def _plan(level: str, dtype: str) -> Any:
    from paddle_amp_plugin.config import read_amp
    from paddle_amp_plugin.device import current_device
    from paddle_amp_plugin.plan import make_plan

    settings = read_amp({"amp": {"level": level, "dtype": dtype}})
    assert settings is not None
    return make_plan(settings, current_device())


def _network(paddle: Any) -> tuple[Any, Any, Any, Any]:
    """(model, optimizer, images [16, 8, 8, 8], labels [16]); the same on every machine.

    Without biases: at O1 an FP32 bias is added to the half product, and the layer's output is FP32.
    """
    import numpy as np

    paddle.seed(0)
    layers = paddle.nn
    model = layers.Sequential(
        layers.Conv2D(8, 16, 3, padding=1, bias_attr=False),
        layers.BatchNorm2D(16),
        layers.ReLU(),
        layers.Flatten(),
        layers.Linear(1024, 8, bias_attr=False),
    )
    optimizer = paddle.optimizer.Adam(learning_rate=0.01, parameters=model.parameters())
    rng = np.random.default_rng(0)
    images = paddle.to_tensor(rng.normal(size=(16, 8, 8, 8)).astype("float32"))
    return model, optimizer, images, paddle.to_tensor(np.arange(16) % 8)


def _watched(model: Any) -> dict[str, str]:
    """Class of a layer -> dtype of its last output, filled while the model runs."""
    seen: dict[str, str] = {}

    def hook(layer: Any, inputs: Any, output: Any) -> None:
        seen[type(layer).__name__] = str(output.dtype).rpartition(".")[2]

    for layer in model:
        layer.register_forward_post_hook(hook)
    return seen


def _check_dtypes(
    paddle: Any, check: Callable[..., None], dtypes: dict[str, str], model: Any, optimizer: Any, level: str, dtype: str
) -> None:
    half = {name: dtypes.get(name, "-") for name in ("Conv2D", "Linear")}
    check("half", set(half.values()) == {dtype}, ", ".join(f"{k} {v}" for k, v in half.items()))
    norm = model[1]
    kept = [norm.weight.dtype, norm._mean.dtype, norm._variance.dtype]
    seen = dtypes.get("BatchNorm2D", "-")
    check("batch_norm", seen == "float32" and set(kept) == {paddle.float32}, f"BatchNorm2D {seen}")
    matrices = [model[0].weight, model[4].weight]
    if level == "O2":
        masters = [optimizer._master_weights.get(weight.name) for weight in matrices]
        ok = all(m is not None and m.dtype == paddle.float32 for m in masters)
        ok = ok and all(str(w.dtype).endswith(dtype) for w in matrices)
        check("masters", ok, ", ".join("-" if m is None else str(m.dtype).rpartition(".")[2] for m in masters))
    else:
        check(
            "weights",
            all(weight.dtype == paddle.float32 for weight in matrices),
            ", ".join(str(weight.dtype).rpartition(".")[2] for weight in matrices),
        )


def _check_overflow(check: Callable[..., None], session: Any, model: Any, overflow: Callable[[], float]) -> None:
    import numpy as np

    scaler = session.scaler
    learned = [p for p in model.parameters() if not p.stop_gradient]  # BatchNorm's statistics are parameters too
    scale, before = scaler.current_scale, [p.astype("float32").numpy().copy() for p in learned]
    loss = overflow()
    same = all(np.array_equal(a, p.astype("float32").numpy()) for a, p in zip(before, learned, strict=True))
    check("skipped", session.skips == 1 and same, f"{session.skips} skipped, loss {loss:g}, weights kept: {same}")
    statistics = all(np.isfinite(value.numpy()).all() for value in (model[1]._mean, model[1]._variance))
    check("statistics", statistics, "BatchNorm statistics finite" if statistics else "not finite")
    if scaler.use_loss_scaling:
        now = scaler.current_scale
        check("scale", now == scale * scaler.policy.decr_ratio, f"{scale:g} -> {now:g}")


if __name__ == "__main__":
    main(*sys.argv[1:5])
