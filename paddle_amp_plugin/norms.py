"""Which layers are normalization layers. Their parameters and buffers stay FP32 at every level, for both dtypes.

Why at all: a running variance below 6e-8 is 0 in float16 and a squared activation above 256 leaves its range;
bfloat16 keeps 8 bits of a mean. Why our own rule: ``paddle.amp.decorate`` keeps BatchNorm for both dtypes,
LayerNorm and InstanceNorm for float16 only, GroupNorm and users' own classes never (probed on 2.6.2 and 3.3.1).
"""

from __future__ import annotations

import re

import paddle

_NAMED = re.compile(r"norm|(^|_)[bgil]n(\d|_|$)|^grn$", re.IGNORECASE)
_NAME_IN_MODEL = re.compile(r"norm|(^|[._])(bn|ln|gn)\d*$", re.IGNORECASE)
_PADDLE_NAMES = (
    "_BatchNormBase",
    "BatchNorm",
    "SyncBatchNorm",
    "LayerNorm",
    "_InstanceNormBase",
    "GroupNorm",
    "RMSNorm",
    "LocalResponseNorm",
    "SpectralNorm",
)


def _paddle_classes() -> tuple[type, ...]:
    from paddle.nn.layer import norm

    return tuple(
        found
        for name in _PADDLE_NAMES
        if isinstance(found := getattr(norm, name, None), type) and issubclass(found, paddle.nn.Layer)
    )


def is_builtin_norm(layer: paddle.nn.Layer) -> bool:
    """Is it one of Paddle's own norm classes, or derived from one?"""
    return isinstance(layer, _paddle_classes())


def is_norm_layer(layer: paddle.nn.Layer, name: str = "") -> bool:
    """The rule, in order:

    1. a Paddle norm class or a class derived from one: yes;
    2. else only a layer that holds parameters or buffers itself, all of them vectors (at most one dimension
       is larger than 1: shapes [C], [1, C, 1, 1]), and has no sublayers with parameters, can be a norm;
    3. of those: yes if the name of its class, or of a base class below ``Layer``, or its own name in the model
       (``name``, dotted) says so: contains "norm", or is bn / ln / gn with an optional number.

    So ``ConvBNLayer`` and ``ConvNorm`` are not (they hold a convolution; their norm is found by itself), an
    ``RMSNorm`` or ``LayerNorm2d`` written by hand is, and so is a class of any name stored as ``self.norm1``.
    """
    if is_builtin_norm(layer):
        return True
    own = [t for t in (*layer._parameters.values(), *layer._buffers.values()) if t is not None]
    if not own or any(sum(size > 1 for size in t.shape) > 1 for t in own):
        return False
    if any(True for sub in layer.sublayers() for _ in sub._parameters.values()):
        return False
    classes = type(layer).__mro__[: type(layer).__mro__.index(paddle.nn.Layer)]
    if any(_NAMED.search(cls.__name__) for cls in classes):
        return True
    return bool(name) and bool(_NAME_IN_MODEL.search(name.rsplit(".", 1)[-1]))
