"""Single ops and short formulas, each a test model of its own: ``build("op:<name>")`` in ``models.py``.

Each entry gets ``h``, the half result of a white-listed matmul, ``f``, a float32 tensor, and ``w``, a float32 weight
matrix, all 4 × 6 but for ``w`` (6 × 6); ``image``s are 4-D views of them. So each op meets half inputs, float32
inputs and mixtures.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


def image(x: Any) -> Any:
    return x.reshape([1, 4, 2, 3])


def ids() -> Any:
    return paddle.full([3], 1, "int64")


def mask(x: Any) -> Any:
    return x > 0


ENTRIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    # operators of Tensor, with numbers and reflected
    "add_mixed": lambda h, f, w: h + f,
    "add_half": lambda h, f, w: h + h,
    "add_number": lambda h, f, w: h + 1.5,
    "reflected_sub": lambda h, f, w: 2.0 - h,
    "mul_number": lambda h, f, w: 3 * h,
    "div_mixed": lambda h, f, w: h / (f + 3.0),
    "reflected_div": lambda h, f, w: 1.0 / h,
    "reflected_pow": lambda h, f, w: 2.0**h,
    "neg": lambda h, f, w: -h,
    "matmul_operator": lambda h, f, w: f @ w,
    "compare": lambda h, f, w: paddle.cast(h > f, "float32"),
    "remainder": lambda h, f, w: h % 2.0,
    "maximum": lambda h, f, w: paddle.maximum(h, f),
    "minimum_half": lambda h, f, w: paddle.minimum(h, h),
    # views and movers
    "getitem": lambda h, f, w: h[:, 1:3],
    "getitem_int": lambda h, f, w: h[0],
    "getitem_step": lambda h, f, w: h[:, ::2],
    "getitem_none": lambda h, f, w: h[:, None],
    "clone": lambda h, f, w: h.clone(),
    "transpose": lambda h, f, w: h.transpose([1, 0]),
    "reshape": lambda h, f, w: h.reshape([2, -1]),
    "flatten": lambda h, f, w: h.flatten(),
    "squeeze": lambda h, f, w: h.unsqueeze(0).squeeze(0),
    "split": lambda h, f, w: paddle.split(h, 2, axis=1),
    "chunk": lambda h, f, w: paddle.chunk(h, 3, axis=1),
    "unbind": lambda h, f, w: paddle.unbind(h),
    "unstack": lambda h, f, w: paddle.unstack(h),
    "concat_mixed": lambda h, f, w: paddle.concat([h, f]),
    "concat_half": lambda h, f, w: paddle.concat([h, h]),
    "stack_mixed": lambda h, f, w: paddle.stack([h, f]),
    "expand": lambda h, f, w: h.unsqueeze(0).expand([3, 4, 6]),
    "expand_as": lambda h, f, w: h[:1].expand_as(f),
    "tile": lambda h, f, w: paddle.tile(h, [2, 1]),
    "flip": lambda h, f, w: paddle.flip(h, [0]),
    "roll": lambda h, f, w: paddle.roll(h, 1, 0),
    "gather": lambda h, f, w: paddle.gather(h, ids()),
    "index_select": lambda h, f, w: paddle.index_select(h, ids()),
    "gather_nd": lambda h, f, w: paddle.gather_nd(h, ids().reshape([3, 1])),
    "take_along_axis": lambda h, f, w: paddle.take_along_axis(h, paddle.full([4, 1], 1, "int64"), 1),
    "scatter": lambda h, f, w: paddle.scatter(h, ids(), f[:3]),
    "pad": lambda h, f, w: F.pad(image(h), [1, 1, 1, 1]),
    "where": lambda h, f, w: paddle.where(mask(f), h, f),
    "masked_select": lambda h, f, w: paddle.masked_select(h, mask(f)),
    "tril": lambda h, f, w: paddle.tril(h),
    "cast_then_add": lambda h, f, w: h.astype("float32") + h,
    # products
    "einsum": lambda h, f, w: paddle.einsum("bi,ij->bj", f, w),
    "bmm": lambda h, f, w: paddle.bmm(h.unsqueeze(0), w.unsqueeze(0)),
    "bmm_half": lambda h, f, w: paddle.bmm(h.reshape([1, 4, 6]), h.reshape([1, 6, 4])),
    "mm": lambda h, f, w: paddle.mm(f, w),
    "mv": lambda h, f, w: paddle.mv(f, w[0]),
    "addmm": lambda h, f, w: paddle.addmm(f, f, w),
    "dot": lambda h, f, w: paddle.dot(h, f),
    "outer": lambda h, f, w: paddle.outer(h[0], f[0]),
    "linear_no_bias": lambda h, f, w: F.linear(f, w),
    "linear_bias": lambda h, f, w: F.linear(f, w, w[0]),
    "conv1d": lambda h, f, w: F.conv1d(f.reshape([1, 4, 6]), w.reshape([3, 4, 3])),
    "conv2d_bias": lambda h, f, w: F.conv2d(image(f), w[:4].reshape([6, 4, 1, 1]), w[0]),
    "conv2d_groups": lambda h, f, w: F.conv2d(image(f), w[:2].reshape([6, 2, 1, 1]), groups=2),
    "conv3d": lambda h, f, w: F.conv3d(f.reshape([1, 2, 2, 2, 3]), w[:2].reshape([6, 2, 1, 1, 1])),
    "conv2d_transpose": lambda h, f, w: F.conv2d_transpose(image(f), w[:4].reshape([4, 6, 1, 1])),
    "embedding": lambda h, f, w: F.embedding(ids(), w),
    # activations
    **{
        name: (lambda h, f, w, name=name: getattr(F, name)(h))
        for name in "relu relu6 gelu sigmoid tanh silu swish mish elu selu celu leaky_relu hardswish hardsigmoid "
        "hardtanh softplus softsign log_sigmoid tanhshrink softshrink hardshrink softmax log_softmax".split()
    },
    "prelu": lambda h, f, w: F.prelu(h, w[0, :1]),
    "glu": lambda h, f, w: F.glu(h),
    "dropout": lambda h, f, w: F.dropout(h, 0.5),
    # maths
    **{
        name: (lambda h, f, w, name=name: getattr(paddle, name)(h))
        for name in "abs exp expm1 log log1p log2 log10 sqrt rsqrt square reciprocal sin cos tan asin acos atan sinh "
        "cosh erf floor ceil round sign isnan isfinite sum mean max min prod logsumexp cumsum argmax".split()
    },
    "clip": lambda h, f, w: paddle.clip(h, -1.0, 1.0),
    "norm": lambda h, f, w: paddle.norm(h),
    "norm_axis": lambda h, f, w: paddle.norm(h, axis=1),
    "cumprod": lambda h, f, w: paddle.cumprod(h, dim=0),
    "topk": lambda h, f, w: paddle.topk(h, 2),
    "sort": lambda h, f, w: paddle.sort(h),
    "lerp": lambda h, f, w: paddle.lerp(h, f, 0.5),
    "amax": lambda h, f, w: paddle.amax(h, axis=0),
    "add_n": lambda h, f, w: paddle.add_n([h, f]),
    "scale": lambda h, f, w: paddle.scale(h, 2.0, 1.0),
    # norms, pools, resizing
    "batch_norm": lambda h, f, w: F.batch_norm(image(h), w[0, :4], w[1, :4] + 9, w[2, :4], w[3, :4]),
    "layer_norm": lambda h, f, w: F.layer_norm(h, [6], w[0], w[1]),
    "instance_norm": lambda h, f, w: F.instance_norm(image(h), weight=w[0, :4], bias=w[1, :4]),
    "normalize": lambda h, f, w: F.normalize(h),
    "avg_pool2d": lambda h, f, w: F.avg_pool2d(image(h), 2, 1),
    "max_pool2d": lambda h, f, w: F.max_pool2d(image(h), 2, 1),
    "max_pool2d_mask": lambda h, f, w: F.max_pool2d(image(f), 2, 1, return_mask=True),
    "adaptive_avg_pool2d": lambda h, f, w: F.adaptive_avg_pool2d(image(h), 1),
    "adaptive_max_pool2d": lambda h, f, w: F.adaptive_max_pool2d(image(h), 1),
    "interpolate_nearest": lambda h, f, w: F.interpolate(image(h), size=[4, 6]),
    "interpolate_bilinear": lambda h, f, w: F.interpolate(image(h), size=[4, 6], mode="bilinear"),
    "interpolate_bicubic": lambda h, f, w: F.interpolate(image(h), size=[4, 6], mode="bicubic"),
    "pixel_shuffle": lambda h, f, w: F.pixel_shuffle(image(h), 2),
    "grid_sample": lambda h, f, w: F.grid_sample(image(h), f.reshape([1, 2, 6, 2])),
    "unfold": lambda h, f, w: F.unfold(image(h), 2),
    # losses
    "cross_entropy": lambda h, f, w: F.cross_entropy(h, paddle.full([4, 1], 1, "int64")),
    "cross_entropy_soft": lambda h, f, w: F.cross_entropy(h, F.softmax(f), soft_label=True),
    "nll_loss": lambda h, f, w: F.nll_loss(h, paddle.full([4], 1, "int64")),
    "mse_loss": lambda h, f, w: F.mse_loss(h, f),
    "l1_loss": lambda h, f, w: F.l1_loss(h, f),
    "smooth_l1_loss": lambda h, f, w: F.smooth_l1_loss(h, f),
    "bce": lambda h, f, w: F.binary_cross_entropy(F.sigmoid(h), F.sigmoid(f)),
    "bce_with_logits": lambda h, f, w: F.binary_cross_entropy_with_logits(h, F.sigmoid(f)),
    "kl_div": lambda h, f, w: F.kl_div(h, F.softmax(f)),
    "cosine_similarity": lambda h, f, w: F.cosine_similarity(h, f),
    "label_smooth": lambda h, f, w: F.label_smooth(h),
    "attention": lambda h, f, w: F.scaled_dot_product_attention(*[h.reshape([1, 4, 2, 3])] * 3),
}

#: What exists or runs differently in static mode; for the comparison with eager mode only.
EAGER_ENTRIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "div_number": lambda h, f, w: h / 2.0,
    "floordiv_number": lambda h, f, w: h // 2.0,
    "pow_number": lambda h, f, w: h**2,
    "pow_half": lambda h, f, w: h**0.5,
    "pow_tensor": lambda h, f, w: h**f,
    "T": lambda h, f, w: h.T,
    "iadd": lambda h, f, w: operator.iadd(h, f),
    "imul_number": lambda h, f, w: operator.imul(h, 2.0),
    "setitem": lambda h, f, w: operator.setitem(h.detach(), 0, f[0]),
    "index_tensor": lambda h, f, w: h[ids()],
    "index_lists": lambda h, f, w: h[[0, 1], [1, 2]],
    "index_mask": lambda h, f, w: h[mask(f)],
    "assign": lambda h, f, w: paddle.assign(h),
    "group_norm": lambda h, f, w: nn.GroupNorm(2, 4)(image(h)),
    "legacy_activation": lambda h, f, w: paddle.base.dygraph_utils._append_activation_in_dygraph(h, "relu"),
}


class OpModel(nn.Layer):
    """One entry as a model: ``x`` (4 × 6, float32) -> entry(matmul of x and w, x, w)."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.entry = ENTRIES.get(name) or EAGER_ENTRIES[name]
        self.w = self.create_parameter([6, 6])

    def forward(self, x: Any) -> Any:
        return self.entry(paddle.matmul(x, self.w), x, self.w)


def build(name: str) -> tuple[nn.Layer, list[np.ndarray]]:
    return OpModel(name), [np.random.default_rng(3).standard_normal((4, 6)).astype("float32")]
