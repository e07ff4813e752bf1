"""The casting rules, against a table worked out by hand from Paddle's amp_utils.h."""

import itertools
import subprocess
import sys

import pytest

from paddle_amp_plugin.op_rules import (
    HALF_DTYPES,
    SAFE_BLACK_LIST,
    CastSettings,
    Rule,
    compute_dtype,
    is_cast_input,
    rule_of,
)

WHITE, BLACK = frozenset({"matmul_v2", "conv2d"}), frozenset({"softmax", "layer_norm"})
F32, INT = "float32", "int64"


def settings(level, dtype="float16", **changes):
    return CastSettings(level=level, dtype=dtype, white=WHITE, black=BLACK, **changes)


# op, level, use_promote, input dtypes ("half" stands for the AMP dtype) -> compute dtype
TABLE = [
    ("matmul_v2", "O1", True, [F32, F32], "half"),
    ("matmul_v2", "O1", True, ["half", F32], "half"),
    ("matmul_v2", "OD", True, [F32, F32], "half"),
    ("matmul_v2", "O2", True, [F32, F32], "half"),
    ("matmul_v2", "O0", True, [F32, F32], None),
    ("softmax", "O1", True, ["half"], F32),
    ("softmax", "O2", True, ["half"], F32),
    ("softmax", "O2", False, ["half"], F32),
    ("relu", "O1", True, ["half"], "half"),
    ("relu", "O1", True, [F32], F32),
    ("relu", "O2", True, [F32], F32),
    ("relu", "O2", False, [F32], "half"),
    ("relu", "O1", False, [F32], F32),  # use_promote is read at O2 only
    ("relu", "OD", True, ["half"], F32),
    ("relu", "OD", False, ["half"], F32),
    ("elementwise_add", "O1", True, ["half", "half"], "half"),
    ("elementwise_add", "O1", True, ["half", F32], F32),
    ("elementwise_add", "O2", False, ["half", F32], "half"),
    ("elementwise_add", "O1", True, [INT, INT], None),
    ("matmul_v2", "O1", True, ["float64", "float64"], None),
    ("gather", "O1", True, ["half", INT], "half"),
    ("batch_norm", "O1", True, ["half", F32, F32, F32, F32], "half"),
    ("batch_norm", "O1", True, [F32, F32, F32, F32, F32], F32),
    ("sync_batch_norm", "O2", True, ["half", F32, F32, F32, F32], "half"),
    ("instance_norm", "O1", True, ["half", F32, F32], F32),
    ("layer_norm", "O2", True, ["half", F32, F32], F32),
]


@pytest.mark.parametrize("dtype", HALF_DTYPES)
@pytest.mark.parametrize("op, level, use_promote, inputs, expected", TABLE)
def test_table(op, level, use_promote, inputs, expected, dtype):
    inputs = [dtype if d == "half" else d for d in inputs]
    expected = dtype if expected == "half" else expected
    assert compute_dtype(op, settings(level, dtype, use_promote=use_promote), inputs) == expected


def test_an_op_without_a_half_kernel_computes_in_float32():
    state = settings("O1", unsupported={"warpctc", "conv2d"})
    assert compute_dtype("warpctc", state, ["float16", "int32"]) == "float32"
    assert rule_of("conv2d", state) is Rule.FLOAT32  # the kernel's absence wins over the white list
    assert rule_of("conv2d", settings("O2", unsupported={"conv2d"}, use_promote=False)) is Rule.FLOAT32


def test_the_white_list_wins_over_the_black_list():
    """Paddle looks at the white list first (O1, OD, O2 with promotion) and at the black list only, without."""
    both = {"op"}
    assert rule_of("op", CastSettings("O1", "float16", both, both)) is Rule.HALF
    assert rule_of("op", CastSettings("O2", "float16", both, both)) is Rule.HALF
    assert rule_of("op", CastSettings("O2", "float16", both, both, use_promote=False)) is Rule.FLOAT32


@pytest.mark.parametrize("op", ["batch_norm", "layer_norm", "sync_batch_norm"])
def test_norm_parameters_are_left_alone(op):
    for dtype in HALF_DTYPES:
        assert [is_cast_input(op, i, dtype) for i in range(5)] == [True] + [False] * 4
    assert all(is_cast_input(op, i, "float32") for i in range(5))


def test_fused_layers_ignore_their_layer_norms():
    inputs = ["float16"] * 12
    inputs[3] = inputs[9] = "float32"
    assert compute_dtype("fused_attention", settings("O1"), inputs) == "float16"
    inputs[0] = "float32"
    assert compute_dtype("fused_attention", settings("O1"), inputs) == "float32"
    assert not is_cast_input("fused_attention", 3, "float16") and is_cast_input("fused_attention", 3, "bfloat16")


def test_safe_keeps_what_it_promises_in_float32_at_every_level():
    promised = """batch_norm sync_batch_norm layer_norm instance_norm group_norm rms_norm softmax log_softmax
    softmax_with_cross_entropy warpctc exp log mean reduce_mean reduce_sum p_norm frobenius_norm bce_loss
    sigmoid_cross_entropy_with_logits nll_loss kldiv_loss huber_loss""".split()
    assert set(promised) <= SAFE_BLACK_LIST
    for op, level, dtype in itertools.product(promised, ("OD", "O1", "O2"), HALF_DTYPES):
        for promote in (True, False):
            state = CastSettings(level, dtype, WHITE, SAFE_BLACK_LIST, promote)
            assert compute_dtype(op, state, [dtype]) == "float32"
    assert not SAFE_BLACK_LIST & {"matmul_v2", "conv2d", "relu", "elementwise_add", "sum"}


def test_safe_contains_paddles_own_o1_black_list():
    lists = pytest.importorskip("paddle.amp.amp_lists")
    assert lists.FP16_BLACK_LIST <= SAFE_BLACK_LIST


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="O3"):
        CastSettings("O3", "float16")
    with pytest.raises(ValueError, match="float64"):
        CastSettings("O1", "float64")


def test_the_pure_floor_imports_no_paddle():
    modules = "op_rules config plan loss_scaling errors messages".split()
    code = "import sys\n" + "\n".join(f"import paddle_amp_plugin.{m}" for m in modules)
    code += "\nassert not [m for m in sys.modules if m == 'paddle' or m.startswith('paddle.')]"
    subprocess.run([sys.executable, "-c", code], check=True)
