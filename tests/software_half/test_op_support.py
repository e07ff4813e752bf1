"""``op_support.json`` against the installed Paddle: the names are read out of its library again."""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import json
import sys
from pathlib import Path

import paddle
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "reference"))

import make_op_support  # noqa: E402

TABLE = json.loads((ROOT / "paddle_amp_plugin" / "op_support.json").read_text(encoding="utf-8"))
MAJOR = paddle.__version__.split(".")[0]


def test_every_function_has_the_amp_name_paddle_gives_it() -> None:
    stored = {**TABLE["amp_names"], **TABLE[f"amp_names_{MAJOR}"]}
    names = make_op_support.dump()["amp_names"]
    assert len(names) > 400
    assert {n: (a, stored.get(n, n)) for n, a in names.items() if stored.get(n, n) != a} == {}


def test_every_op_of_the_amp_lists_is_reachable_or_known_to_be_dead() -> None:
    """Each name in Paddle's own lists is the AMP name of a function, but for names Paddle itself no longer uses."""
    from paddle.amp import amp_lists

    names = set(make_op_support.dump()["amp_names"].values())
    lists = {n for v in vars(amp_lists).values() if isinstance(v, set) for n in v}
    dead = set(
        "cross_entropy cross_entropy2 hsigmoid_loss lookup_table matmul mul pnorm softmin triplet_margin_loss "
        "c_softmax_with_cross_entropy fused_gemm_epilogue fake_quantize_dequantize_abs_max "
        "fake_quantize_dequantize_moving_average_abs_max".split()
    )
    assert lists - names - dead == set()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_well_known_ops(dtype: str) -> None:
    without = TABLE[f"no_{dtype}"]
    assert without == sorted(set(without))
    assert {"warpctc", "rnn", "grid_sampler"} <= set(without)
    assert not {"conv2d", "matmul_v2", "batch_norm", "layer_norm", "elementwise_add", "softmax"} & set(without)
