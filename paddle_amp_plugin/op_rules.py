"""Which dtype an op computes in under ``paddle.amp.auto_cast``: a pure function, no tensor in it.

The rules are those of Paddle's eager AMP (``paddle/fluid/imperative/amp_utils.h``, ``GetAmpDestDtype`` and
``GetPromoteType``, Paddle 2.6 to 3.3). Op names are the AMP lists' own (``matmul_v2``,
``elementwise_add``, ``reduce_sum``), not those of the Python API. Dtypes are written ``float16``, ``bfloat16``,
``float32``, ``float64``, ``int64``, …
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

HALF_DTYPES = ("float16", "bfloat16")
LEVELS = ("O0", "OD", "O1", "O2")

#: Norms: inputs other than ``x`` (scale, bias, running statistics) are left as they are, and only ``x``
#: decides a promotion (amp_utils.h, ``GetPromoteType`` and ``AmpAutoCast``).
ONLY_X_DECIDES = frozenset({"batch_norm", "layer_norm", "sync_batch_norm", "moving_average_abs_max_scale"})
ONLY_X_IS_CAST = frozenset({"batch_norm", "layer_norm", "sync_batch_norm", "weight_only_linear"})
#: Positions of the inputs that do not decide a promotion in float16: the LayerNorm scales and biases
#: inside the two fused layers (amp_utils.h).
FUSED_LAYER_NORM_INPUTS = {
    "fused_attention": frozenset({3, 4, 9, 10}),
    "fused_feedforward": frozenset({7, 8, 9, 10}),
}

NORM_OPS = frozenset(
    {
        "batch_norm",
        "sync_batch_norm",
        "layer_norm",
        "instance_norm",
        "group_norm",
        "rms_norm",
        "fused_rms_norm_ext",
        "fast_rms_norm",
        "fused_bias_residual_layernorm",
        "fused_bias_dropout_residual_layer_norm",
        "fused_batch_norm_act",
        "fused_bn_add_activation",
        "skip_layernorm",
        "data_norm",
        "lrn",
        "norm",
        "p_norm",
        "pnorm",  # Paddle's own spelling in FP16_BLACK_LIST; no op has that name, so p_norm escapes it
        "frobenius_norm",
        "l1_norm",
        "squared_l2_norm",
        "renorm",
        "spectral_norm",
        "clip_by_norm",
        "dist",
    }
)
#: Ops whose half result is the first output only: the statistics beside it stay FP32 on a GPU too, and the
#: caches beside it are no values.
FIRST_OUTPUT_ONLY = NORM_OPS | {"rnn", "einsum"}
SOFTMAX_OPS = frozenset(
    {
        "softmax",
        "log_softmax",
        "softmin",
        "softplus",
        "gumbel_softmax",
        "logsigmoid",
        "logsumexp",
        "logcumsumexp",
        "sequence_softmax",
        "fused_softmax_mask",
        "fused_softmax_mask_upper_triangle",
    }
)
LOSS_OPS = frozenset(
    {
        "softmax_with_cross_entropy",
        "c_softmax_with_cross_entropy",
        "c_softmax_with_multi_label_cross_entropy",
        "sigmoid_cross_entropy_with_logits",
        "cross_entropy",
        "cross_entropy2",
        "margin_cross_entropy",
        "bce_loss",
        "nll_loss",
        "log_loss",
        "kldiv_loss",
        "huber_loss",
        "hinge_loss",
        "hsigmoid_loss",
        "hierarchical_sigmoid",  # what hsigmoid_loss is called in the lists
        "triplet_margin_loss",
        "identity_loss",
        "warpctc",
        "warprnnt",
        "ctc_align",
        "edit_distance",
    }
)
RANGE_OPS = frozenset(
    {
        "exp",
        "expm1",
        "log",
        "log10",
        "log1p",
        "log2",
        "logit",
        "pow",
        "elementwise_pow",
        "square",
        "rsqrt",
        "reciprocal",
        "tan",
        "acos",
        "asin",
        "sinh",
        "cosh",
        "atanh",
        "tanh_shrink",
        "erfinv",
        "lgamma",
        "digamma",
    }
)
REDUCTION_OPS = frozenset(
    {
        "mean",
        "reduce_mean",
        "reduce_sum",
        "reduce_prod",
        "nanmedian",
        "cumsum",
        "cumprod",
    }
)

#: What the preset ``safe`` keeps in FP32 at O1 and at O2: Paddle's O1 black list (amp_lists.py, which O2
#: drops), the norms and losses that list forgets, and the reductions.
SAFE_BLACK_LIST = NORM_OPS | SOFTMAX_OPS | LOSS_OPS | RANGE_OPS | REDUCTION_OPS


class Rule(Enum):
    """What the lists say of an op, before its inputs are looked at."""

    UNTOUCHED = "untouched"  # level O0: no cast
    HALF = "half"
    FLOAT32 = "float32"
    PROMOTE = "promote"  # half unless an input that counts is float32


@dataclass(frozen=True)
class CastSettings:
    """The state of one ``auto_cast`` block, as Paddle's tracer holds it.

    ``unsupported`` are the ops without a kernel for ``dtype`` on the device: they compute in float32.
    ``use_promote`` is read at O2 only. Raises ``ValueError`` for an unknown level or dtype.
    """

    level: str = "O0"
    dtype: str = "float32"
    white: Collection[str] = frozenset()
    black: Collection[str] = frozenset()
    use_promote: bool = True
    unsupported: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"level is one of {', '.join(LEVELS)}, not {self.level!r}")
        if self.level != "O0" and self.dtype not in HALF_DTYPES:
            raise ValueError(f"dtype is one of {', '.join(HALF_DTYPES)} at level {self.level}, not {self.dtype!r}")


def rule_of(op: str, settings: CastSettings) -> Rule:
    """The rule for ``op``: what can be said without its inputs (``GetAmpDestDtype``)."""
    if settings.level == "O0":
        return Rule.UNTOUCHED
    if settings.level == "O2" and not settings.use_promote:
        rule = Rule.FLOAT32 if op in settings.black else Rule.HALF
    elif op in settings.white:
        rule = Rule.HALF
    elif op in settings.black or settings.level == "OD":
        rule = Rule.FLOAT32
    else:
        rule = Rule.PROMOTE
    if rule is not Rule.FLOAT32 and op in settings.unsupported:
        return Rule.FLOAT32
    return rule


def _deciding(op: str, dtype: str, input_dtypes: Sequence[str]) -> Sequence[str]:
    if op in ONLY_X_DECIDES:
        return input_dtypes[:1]
    if dtype == "float16" and op in FUSED_LAYER_NORM_INPUTS:
        skipped = FUSED_LAYER_NORM_INPUTS[op]
        return [d for i, d in enumerate(input_dtypes) if i not in skipped]
    return input_dtypes


def compute_dtype(op: str, settings: CastSettings, input_dtypes: Sequence[str]) -> str | None:
    """The dtype ``op``'s floating inputs are brought to, or None where nothing is cast.

    ``input_dtypes``: dtypes of the tensor inputs in the op's own order. None: level O0, or no input that
    AMP casts (float32, float16, bfloat16); integers, bool and float64 are never touched.
    """
    rule = rule_of(op, settings)
    if rule is Rule.UNTOUCHED or not any(castable(d) for d in input_dtypes):
        return None
    if rule is Rule.PROMOTE:
        return "float32" if "float32" in _deciding(op, settings.dtype, input_dtypes) else settings.dtype
    return "float32" if rule is Rule.FLOAT32 else settings.dtype


def castable(dtype: str) -> bool:
    """Whether AMP may cast a tensor of this dtype (``NeedCast``)."""
    return dtype == "float32" or dtype in HALF_DTYPES


def is_cast_input(op: str, position: int, target: str) -> bool:
    """Whether the tensor input at ``position`` (0 is ``x``) is cast when ``op`` computes in ``target``.

    The inputs of a norm beside ``x`` stay as they are when ``x`` goes to half (``AmpAutoCast``).
    """
    if target not in HALF_DTYPES:
        return True
    if op in ONLY_X_IS_CAST:
        return position == 0
    if target == "float16" and op in FUSED_LAYER_NORM_INPUTS:
        return position not in FUSED_LAYER_NORM_INPUTS[op]
    return True
