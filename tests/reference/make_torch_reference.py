"""Write ``torch_autocast.npz``: two small networks under PyTorch's CPU autocast, an independent implementation.

PyTorch runs real bfloat16 and float16 kernels on a CPU, with FP32 accumulation. A conv net and a transformer encoder
with fixed weights run forward, loss and backward in float32 and under ``torch.autocast("cpu", dtype)``. The test
(tests/software_half/test_torch_reference.py) runs the same weights through Paddle under software half.

Both sides must cast the same ops, so the networks are written in ops whose rule is the same in both frameworks, or with
the cast spelled out (``.float()``). PyTorch's CPU list of half ops holds conv and matmul; type promotion does the
rest; softmax, layer_norm, log_softmax and mean are on no CPU list and on Paddle's black list, hence ``.float()``
(https://pytorch.org/docs/stable/amp.html#cpu-op-specific-behavior). A bias is added by ``+``: float32 by
promotion in both. batch_norm takes half ``x`` and float32 statistics in both.

Usage (PyTorch 2.13.0+cpu, numpy 1.26; no GPU)::

    pip install torch --index-url https://download.pytorch.org/whl/cpu "numpy<2"
    python tests/reference/make_torch_reference.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

TARGET = Path(__file__).with_name("torch_autocast.npz")
DTYPES = ("float32", "bfloat16", "float16")
#: The loss is multiplied by this before backward, in both frameworks, so that no float16 gradient underflows.
LOSS_SCALE = 256.0
HEADS, WIDTH, LAYERS = 4, 32, 2


def weights() -> dict[str, dict[str, np.ndarray]]:
    """Fixed weights of both networks, layouts as Paddle has them (linear weights are [in, out])."""
    rng = np.random.default_rng(7)

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype("float32")

    def norm(name: str, width: int) -> dict[str, np.ndarray]:
        return {f"{name}_w": 1 + normal(width, scale=0.1), f"{name}_b": normal(width, scale=0.1)}

    conv = {
        "conv1": normal(8, 3, 3, 3, scale=0.3),
        **norm("bn1", 8),
        "conv2": normal(16, 8, 3, 3, scale=0.2),
        **norm("bn2", 16),
        "fc_w": normal(16, 5, scale=0.5),
        "fc_b": normal(5, scale=0.1),
    }
    encoder = {"embedding": normal(40, WIDTH, scale=1.0)}
    for i in range(LAYERS):
        for name in ("q", "k", "v", "o"):
            encoder[f"{name}{i}"] = normal(WIDTH, WIDTH, scale=0.3)
        encoder[f"ob{i}"] = normal(WIDTH, scale=0.1)
        encoder |= norm(f"ln_a{i}", WIDTH)
        encoder[f"up{i}"] = normal(WIDTH, 2 * WIDTH, scale=0.2)
        encoder[f"down{i}"] = normal(2 * WIDTH, WIDTH, scale=0.2)
        encoder[f"down_b{i}"] = normal(WIDTH, scale=0.1)
        encoder |= norm(f"ln_f{i}", WIDTH)
    encoder["fc_w"], encoder["fc_b"] = normal(WIDTH, 5, scale=0.5), normal(5, scale=0.1)
    return {"conv": conv, "encoder": encoder}


def inputs() -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(11)
    return {
        "conv": {"x": rng.standard_normal((4, 3, 16, 16)).astype("float32"), "label": rng.integers(0, 5, 4)},
        "encoder": {"x": rng.integers(0, 40, (4, 10)), "label": rng.integers(0, 5, 4)},
    }


def conv_net(p: dict[str, Any], x: Any) -> Any:
    import torch.nn.functional as F

    y = F.conv2d(x, p["conv1"], padding=1)
    y = F.relu(F.batch_norm(y, None, None, p["bn1_w"], p["bn1_b"], training=True, eps=1e-5))
    y = F.conv2d(y, p["conv2"], padding=1, stride=2)
    y = F.relu(F.batch_norm(y, None, None, p["bn2_w"], p["bn2_b"], training=True, eps=1e-5))
    y = F.avg_pool2d(y, 2)
    return y.float().mean((2, 3)) @ p["fc_w"] + p["fc_b"]


def encoder_net(p: dict[str, Any], ids: Any) -> Any:
    import torch
    import torch.nn.functional as F

    def split(y: Any) -> Any:
        return y.reshape(*y.shape[:2], HEADS, -1).transpose(1, 2)

    x = F.embedding(ids, p["embedding"])
    for i in range(LAYERS):
        q, k, v = (split(x @ p[f"{name}{i}"]) for name in ("q", "k", "v"))
        scores = (q * (WIDTH // HEADS) ** -0.5) @ k.transpose(2, 3)
        mixed = (torch.softmax(scores.float(), -1) @ v).transpose(1, 2).reshape(*x.shape)
        x = x + (mixed @ p[f"o{i}"] + p[f"ob{i}"])
        x = F.layer_norm(x.float(), (WIDTH,), p[f"ln_a{i}_w"], p[f"ln_a{i}_b"])
        y = F.gelu(x @ p[f"up{i}"]) @ p[f"down{i}"] + p[f"down_b{i}"]
        x = F.layer_norm((x + y).float(), (WIDTH,), p[f"ln_f{i}_w"], p[f"ln_f{i}_b"])
    return x.mean(1) @ p["fc_w"] + p["fc_b"]


def run(name: str, dtype: str) -> dict[str, np.ndarray]:
    """Outputs, loss and gradients of one network in one dtype, as float32 arrays."""
    import torch
    import torch.nn.functional as F

    net = {"conv": conv_net, "encoder": encoder_net}[name]
    p = {k: torch.tensor(v, requires_grad=True) for k, v in weights()[name].items()}
    data = {k: torch.tensor(v) for k, v in inputs()[name].items()}
    with torch.autocast("cpu", dtype=getattr(torch, dtype), enabled=dtype != "float32"):
        out = net(p, data["x"])
        loss = F.cross_entropy(out.float(), data["label"])
    (loss * LOSS_SCALE).backward()
    arrays = {"out": out.detach().float().numpy(), "loss": loss.detach().float().numpy()}
    return arrays | {f"grad.{k}": v.grad.float().numpy() / np.float32(LOSS_SCALE) for k, v in p.items()}


def reference() -> dict[str, np.ndarray]:
    """Everything the file holds: ``network/dtype/array``, ``network/weights/…``, ``network/inputs/…``."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    found: dict[str, np.ndarray] = {"torch_version": np.array(torch.__version__)}
    for name in ("conv", "encoder"):
        found |= {f"{name}/weights/{k}": v for k, v in weights()[name].items()}
        found |= {f"{name}/inputs/{k}": v for k, v in inputs()[name].items()}
        for dtype in DTYPES:
            found |= {f"{name}/{dtype}/{k}": v for k, v in run(name, dtype).items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=TARGET)
    args = parser.parse_args()
    np.savez_compressed(args.out, **reference())
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
