"""Names are resolved as Python does: aliases, shadowing, scopes; by what they stand for, not by how they look."""

from __future__ import annotations

import pytest

from tests.lint.helpers import names


@pytest.mark.parametrize(
    "code",
    [
        "import paddle as p\nclass A(p.nn.Layer):\n    def forward(self, x):\n        return p.cast(x, 'float16')",
        "from paddle import cast, nn\nclass A(nn.Layer):\n    def forward(self, x):\n        return cast(x, 'float16')",
        "from paddle.nn import Layer as L\nimport paddle\nclass A(L):\n    def forward(self, x):\n"
        "        to = paddle.cast\n        return to(x, 'float16')",
        "import paddle.tensor\nclass A:\n    def run(self, x):\n        return paddle.tensor.cast(x, paddle.float16)",
        "def f(x):\n    import paddle\n    return paddle.cast(x, 'float16')",
        "try:\n    import paddle\nexcept ImportError:\n    import paddle\n"
        "def f(x):\n    return paddle.cast(x, 'float16')",
        "import paddle\nclass A:\n    cast = None\n    def f(self, x):\n        return paddle.cast(x, 'float16')",
    ],
)
def test_aliases(code):
    assert names(code) == ["AMP102"]


@pytest.mark.parametrize(
    "code",
    [
        "import paddle\nfrom mylib import cast\ndef f(x):\n    return cast(x, 'float16')",
        "import paddle\ndef cast(x, d):\n    return x\ndef f(x):\n    return cast(x, 'float16')",
        "from paddle import cast\ndef f(x, cast):\n    return cast(x, 'float16')",
        "from paddle import cast\ncast = print\ndef f(x):\n    return cast(x, 'float16')",
        "from paddle import cast\ndef f(x):\n    for cast in x:\n        cast(x, 'float16')",
        "import torch\ndef f(x):\n    return x.half()",
        "import numpy as np\nimport paddle\ndef f(x):\n    return np.asarray(x).astype('float16')",
        "import paddle\nimport numpy as np\ndef f(x):\n    return x.astype(np.float16)",
    ],
)
def test_what_only_looks_like_it(code):
    assert names(code) == []


def test_layers_by_inheritance():
    """Through classes of the file, and from elsewhere if there is a ``forward``."""
    body = "\n    def forward(self, x):\n        return x + paddle.ones([4])\n"
    start = "import paddle\nfrom paddle.nn import Layer\nfrom ppocr.base import Base\n"
    assert names(start + "class A(Layer):\n    pass\nclass B(A):" + body) == ["AMP106"]
    assert names(start + "class B(Base):" + body) == ["AMP106"]
    assert names(start + "class B:" + body) == []
    assert names(start + "class B(object):" + body) == []


def test_a_cycle_of_aliases_ends():
    """``F`` stands for nothing that is known; its ``cast`` is a method of something."""
    assert names("import paddle\na = b\nb = a\nF = F\ndef f(x):\n    return a.b(F.cast('float16'), b)") == ["AMP102"]
