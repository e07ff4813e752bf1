"""Software half against PyTorch's CPU autocast: the same weights, the same casts, an independent implementation.

How near the two must be. Both round the same values at the same places (nearest even, FP32 accumulation), so they
differ only where a sum taken in another order lands on the other side of a rounding boundary, and, in float16, where
PyTorch's CPU kernels round partial sums. Each half op then adds an error of about one unit roundoff ``u`` (2**-8 for
bfloat16, 2**-11 for float16) relative to its result. Errors of ``n`` ops in a row add up like a random walk:
``sqrt(n) * u``, with ``n`` the half roundings on the longest way forward and back (``DEPTH``). Measured: at most
0.35 u in bfloat16 (most tensors are equal to the bit) and 2 u in float16, while both are 1 to 30 u away from FP32.
"""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import sys
from functools import cache
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))

import make_torch_reference as generator  # noqa: E402

from paddle_amp_plugin import software_half  # noqa: E402

NETWORKS = ("conv", "encoder")
HALF = ("bfloat16", "float16")
ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
#: Half roundings on the longest way from the input to a gradient: inputs and results of half ops, forward and back.
#: conv: (x, conv, bn, relu, conv, bn, relu, pool); encoder, per layer: (x, q, scaled q, scores, probabilities, mixed,
#: up, gelu).
DEPTH = {"conv": 2 * 8, "encoder": 2 * 2 * 8}


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(REFERENCE / "torch_autocast.npz") as file:
        return {k: file[k] for k in file.files}


def part(prefix: str) -> dict[str, np.ndarray]:
    return {k[len(prefix) :]: v for k, v in stored().items() if k.startswith(prefix)}


def conv_net(p, x):
    """The twin of ``make_torch_reference.conv_net``."""

    def norm(y, name, width):
        mean, variance = paddle.zeros([width]), paddle.ones([width])
        return F.batch_norm(y, mean, variance, p[f"{name}_w"], p[f"{name}_b"], training=True, epsilon=1e-5)

    y = F.conv2d(x, p["conv1"], padding=1)
    y = F.relu(norm(y, "bn1", 8))
    y = F.conv2d(y, p["conv2"], padding=1, stride=2)
    y = F.relu(norm(y, "bn2", 16))
    y = F.avg_pool2d(y, 2)
    return paddle.matmul(y.mean([2, 3]), p["fc_w"]) + p["fc_b"]


def encoder_net(p, ids):
    """The twin of ``make_torch_reference.encoder_net``; softmax, layer_norm and mean are FP32 by Paddle's lists."""
    width, heads = generator.WIDTH, generator.HEADS

    def split(y):
        return y.reshape([*y.shape[:2], heads, width // heads]).transpose([0, 2, 1, 3])

    def norm(y, name):
        return F.layer_norm(y, [width], p[f"{name}_w"], p[f"{name}_b"])

    x = F.embedding(ids, p["embedding"])
    for i in range(generator.LAYERS):
        q, k, v = (split(paddle.matmul(x, p[f"{name}{i}"])) for name in ("q", "k", "v"))
        scores = paddle.matmul(q * (width // heads) ** -0.5, k, transpose_y=True)
        mixed = paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3]).reshape(x.shape)
        x = norm(x + (paddle.matmul(mixed, p[f"o{i}"]) + p[f"ob{i}"]), f"ln_a{i}")
        y = paddle.matmul(F.gelu(paddle.matmul(x, p[f"up{i}"])), p[f"down{i}"]) + p[f"down_b{i}"]
        x = norm(x + y, f"ln_f{i}")
    return paddle.matmul(x.mean(1), p["fc_w"]) + p["fc_b"]


@cache
def run(name: str, dtype: str) -> dict[str, np.ndarray]:
    """What ``make_torch_reference.run`` returns, from Paddle."""
    net = {"conv": conv_net, "encoder": encoder_net}[name]
    p = {k: paddle.to_tensor(v, stop_gradient=False) for k, v in part(f"{name}/weights/").items()}
    data = {k: paddle.to_tensor(v) for k, v in part(f"{name}/inputs/").items()}
    with software_half.emulate():
        with paddle.amp.auto_cast(enable=dtype != "float32", level="O1", dtype=dtype if dtype in HALF else "float16"):
            out = net(p, data["x"])
            loss = F.cross_entropy(out, data["label"])
        (loss * generator.LOSS_SCALE).backward()
    arrays = {"out": out.astype("float32").numpy(), "loss": loss.numpy()}
    return arrays | {f"grad.{k}": v.grad.numpy() / np.float32(generator.LOSS_SCALE) for k, v in p.items()}


def distances(a: dict[str, np.ndarray], b: dict[str, np.ndarray], scale: dict[str, np.ndarray]) -> dict[str, float]:
    """Relative distance of each array in the Euclidean norm."""
    assert a.keys() == b.keys() == scale.keys()
    return {k: float(np.linalg.norm(a[k] - b[k]) / np.linalg.norm(scale[k])) for k in a}


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_agrees(name: str) -> None:
    """A guard for the mapping of weights and ops: without AMP both frameworks compute the same."""
    theirs = part(f"{name}/float32/")
    far = {k: d for k, d in distances(run(name, "float32"), theirs, theirs).items() if not d <= 1e-4}
    assert not far


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", NETWORKS)
def test_half_agrees(name: str, dtype: str) -> None:
    """Forward, loss and every gradient, within the rounding that the module's docstring derives."""
    allowed = np.sqrt(DEPTH[name]) * ROUNDOFF[dtype]
    apart = distances(run(name, dtype), part(f"{name}/{dtype}/"), part(f"{name}/float32/"))
    far = {k: f"{d / ROUNDOFF[dtype]:.1f} u" for k, d in apart.items() if not d <= allowed}
    assert not far


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", NETWORKS)
def test_half_is_as_far_from_float32_as_pytorch_is(name: str, dtype: str) -> None:
    """So that nobody passes by computing in FP32: each tensor is off by as much as PyTorch's, within a factor of 2."""
    exact = part(f"{name}/float32/")
    ours = distances(run(name, dtype), exact, exact)
    theirs = distances(part(f"{name}/{dtype}/"), exact, exact)
    tensors = [k for k in exact if exact[k].size > 1]
    assert not {k: (ours[k], theirs[k]) for k in tensors if not theirs[k] / 2 <= ours[k] <= theirs[k] * 2}
    assert min(ours[k] for k in tensors) > ROUNDOFF[dtype] / 8
    assert max(ours[k] for k in tensors) > ROUNDOFF[dtype]
