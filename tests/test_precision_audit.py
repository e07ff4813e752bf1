"""Precision audit: for each layer of each test model, the dtype of its parameters and the dtype it computes in.

Run with ``-s`` to read the tables. Under the preset ``safe`` norms, softmax, losses and reductions compute in FP32
at O1 and at O2, norms keep FP32 parameters for both dtypes, pins are FP32 throughout, and the rest is half.
"""

import contextlib
import sys
from collections import defaultdict
from pathlib import Path

import paddle
import pytest

from paddle_amp_plugin import autocast, software_half
from paddle_amp_plugin.config import read_amp
from paddle_amp_plugin.norms import is_norm_layer
from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST
from paddle_amp_plugin.plan import Device, make_plan

sys.path.insert(0, str(Path(__file__).resolve().parent / "reference"))

import models

CPU = Device(kind="cpu", name="CPU", capability=None, float16=False, bfloat16=False)
HALF_LAYERS = (paddle.nn.Linear, paddle.nn.Conv2D)
SETTINGS = [("O1", "float16"), ("O1", "bfloat16"), ("O2", "float16"), ("O2", "bfloat16")]
PINS = {"svtr": "backbone.patch_embed*", "bert": "net.bert.encoder.layers.0.*"}
NETWORKS = [name for name in models.NAMES if not name.startswith("op:")]


def plan_for(level, dtype, pins=()):
    settings = {"level": level, "dtype": dtype, "preset": "safe", "fp32_layers": list(pins)}
    return make_plan(read_amp({"amp": settings, "Global": {}}), CPU)


@contextlib.contextmanager
def layer_records(model, ops):
    """layer name -> the op records made inside that leaf layer."""
    found, hooks = defaultdict(list), []
    for name, layer in model.named_sublayers():
        if layer.sublayers():
            continue
        start = []
        hooks.append(layer.register_forward_pre_hook(lambda _l, _i, s=start: s.append(len(ops))))
        hooks.append(
            layer.register_forward_post_hook(lambda _l, _i, _o, n=name, s=start: found[n].extend(ops[s.pop() :]))
        )
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def short(dtype):
    return str(dtype).rsplit(".", 1)[-1].lower().replace("fp", "float").replace("bf16", "bfloat16")


def audit(name, level, dtype, pins=()):
    """(layer, its name, parameter dtypes, op records) for each leaf layer, and all op records of the forward."""
    paddle.seed(0)
    model, inputs = models.build(name)
    plan = plan_for(level, dtype, pins)
    autocast.decorate(plan, model, None)
    try:
        with software_half.record_ops() as ops, layer_records(model, ops) as by_layer, autocast.auto_cast(plan):
            model(*[paddle.to_tensor(x) for x in inputs])
    finally:
        autocast.unpin(model)
    rows = []
    for layer_name, layer in model.named_sublayers():
        if not layer.sublayers():
            own = [p for p in (*layer._parameters.values(), *layer._buffers.values()) if p is not None]
            dtypes = sorted({short(p.dtype) for p in own if paddle.is_floating_point(p)})
            rows.append((layer, layer_name, dtypes, by_layer[layer_name]))
    return rows, list(ops)


def print_table(title, rows):
    print(f"\n{title}")
    for layer, name, dtypes, records in rows:
        computed = ", ".join(dict.fromkeys(f"{r.op}:{r.compute_dtype}" for r in records))
        print(f"  {name:58s} {type(layer).__name__:22s} {'/'.join(dtypes) or '-':10s} {computed}")


@pytest.fixture(autouse=True)
def _emulated():
    with software_half.emulate():
        yield


@pytest.mark.parametrize("level, dtype", SETTINGS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer(name, level, dtype):
    if models.why_not(name):
        pytest.skip(models.why_not(name))
    rows, ops = audit(name, level, dtype)
    print_table(f"{name} {level} {dtype}", rows)
    norms = half = 0
    for layer, layer_name, dtypes, records in rows:
        if is_norm_layer(layer, layer_name):
            norms += 1
            assert dtypes in ([], ["float32"]), layer_name
            assert {r.compute_dtype for r in records} <= {"float32"}, layer_name
        elif isinstance(layer, HALF_LAYERS):
            half += 1
            assert dtypes == [dtype if level == "O2" else "float32"], layer_name
            products = [r for r in records if r.op in ("conv2d", "depthwise_conv2d", "linear_v2", "matmul_v2")]
            # A depth-wise convolution is on no white list: at O1 it follows its input.
            assert all(r.compute_dtype == dtype for r in products if r.op != "depthwise_conv2d"), layer_name
    assert half and (norms or name == "lstm_lm")
    # Wherever they stand, also outside any layer: what `safe` protects computes in FP32.
    protected = [r for r in ops if r.op in SAFE_BLACK_LIST]
    assert protected and {r.compute_dtype for r in protected} == {"float32"}
    assert any(r.compute_dtype == dtype for r in ops)


@pytest.mark.parametrize("level, dtype", SETTINGS)
@pytest.mark.parametrize("name", PINS)
def test_pinned_layers_are_float32_throughout(name, level, dtype):
    if models.why_not(name):
        pytest.skip(models.why_not(name))
    rows, _ = audit(name, level, dtype, [PINS[name]])
    prefix = PINS[name].rstrip("*.")
    pinned = [row for row in rows if row[1].startswith(prefix)]
    print_table(f"{name} {level} {dtype} with {PINS[name]} pinned", pinned)
    assert pinned
    for _, layer_name, dtypes, records in pinned:
        assert dtypes in ([], ["float32"]), layer_name
        assert {r.compute_dtype for r in records} <= {"float32"}, layer_name
    assert any(r.compute_dtype == dtype for row in rows for r in row[3] if row not in pinned)
