"""The stored PyTorch reference is what its generator writes (needs PyTorch, not Paddle)."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import make_torch_reference as generator

#: Another CPU may sum in another order: float32 noise, or a half value on the other side of a rounding boundary.
ALLOWED = {"float32": 1e-5, "bfloat16": 4 * 2.0**-8, "float16": 4 * 2.0**-11}


def test_regeneration() -> None:
    pytest.importorskip("torch", reason="PyTorch is only needed to write the reference anew")
    with np.load(generator.TARGET) as file:
        stored = {k: file[k] for k in file.files if k != "torch_version"}
    fresh = generator.reference()
    assert str(fresh.pop("torch_version"))
    assert fresh.keys() == stored.keys()
    for key, value in stored.items():
        network, kind, name = key.split("/")
        if kind in ("weights", "inputs"):
            assert np.array_equal(fresh[key], value), key
        else:
            scale = np.linalg.norm(stored[f"{network}/float32/{name}"])
            assert np.linalg.norm(fresh[key] - value) <= ALLOWED[kind] * scale, key
