"""A FP32 trace rewritten for O1, O2 and OD runs the ops in the dtypes in which software half really runs them."""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import paddle
import pytest
from paddle import _C_ops

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
sys.path.insert(0, str(REFERENCE))

import models  # noqa: E402

from paddle_amp_plugin import autocast, software_half  # noqa: E402
from paddle_amp_plugin.config import read_amp  # noqa: E402
from paddle_amp_plugin.estimate import plans  # noqa: E402
from paddle_amp_plugin.estimate.observed import observe  # noqa: E402
from paddle_amp_plugin.estimate.policy import FLOATS, Policy, Seen, apply, cast_by_amp, match  # noqa: E402
from paddle_amp_plugin.estimate.tracer import Tracer  # noqa: E402
from paddle_amp_plugin.op_rules import CastSettings, compute_dtype  # noqa: E402
from paddle_amp_plugin.plan import make_plan  # noqa: E402

AMPS = [
    {"level": "O1", "dtype": "float16"},
    {"level": "O1", "dtype": "bfloat16", "preset": "fast"},
    {"level": "O2", "dtype": "float16"},
    {"level": "O2", "dtype": "bfloat16", "preset": "fast"},
    {"level": "OD", "dtype": "float16"},
]


def total(out):
    tensors = [out] if isinstance(out, paddle.Tensor) else list(out.values() if isinstance(out, dict) else out)
    return sum(total(t) if not isinstance(t, paddle.Tensor) else t.astype("float32").mean() for t in tensors)


def traced(name):
    model, arrays = models.build(name)
    batch = [paddle.to_tensor(a) for a in arrays]
    return model, batch, Tracer(model).trace(2, batch, lambda: total(model(*batch)))


def rewritten(trace, policy):
    """(op, dtypes of its floating results) of every op of the model with a floating input, casts left out."""
    new = apply(trace, policy)
    return [
        (new.calls[n].op, tuple(d for v in new.calls[n].outputs if (d := new.values[v].dtype) in FLOATS))
        for n in cast_by_amp(new)
    ]


#: Models that cast to a half dtype in their own code, by the dtype of another tensor (the attention mask, in the
#: dtype of the weights and then of the scores). In a FP32 trace such a cast is none: no rule can tell it.
CAST_THEMSELVES = {"bert", "ernie"}


@contextlib.contextmanager
def own_casts(model):
    """The casts to half that are called for inside ``model``'s forward."""
    cast, found = _C_ops.cast, []

    def spy(x, dtype, *rest):
        if any(half in str(dtype).lower() for half in ("float16", "fp16", "bf16")):
            found.append(str(dtype))
        return cast(x, dtype, *rest)

    def begin(*_):
        _C_ops.cast = spy

    def end(*_):
        _C_ops.cast = cast

    hooks = [model.register_forward_pre_hook(begin), model.register_forward_post_hook(end)]
    try:
        yield found
    finally:
        end()
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("name", models.NAMES)
def test_dtypes_are_those_of_software_half(name):
    """Op by op: with what was seen; by the rules alone; and where the model casts itself, rule by rule."""
    reason = models.why_not(name)
    if reason:
        pytest.skip(reason)
    model, batch, trace = traced(name)
    assert model.training
    numbers = cast_by_amp(trace)
    for amp in AMPS:
        plan = make_plan(read_amp({"amp": amp}, source="test"), plans.ANY_GPU)
        other, _ = models.build(name)
        policy = plans.mode_of(plan, other).policy
        with own_casts(other) as casts:
            seen = observe(plan, other, lambda model=other: total(model(*batch)))
        seen = [s for s in seen if any(d in FLOATS for d in s.inputs)]
        real = [(s.op, s.floats()) for s in seen]
        assert [trace.calls[n].op for n in numbers] == [s.op for s in seen], amp
        matched = match(trace, seen)
        assert sorted(matched) == numbers, amp
        assert rewritten(trace, replace(policy, seen=matched)) == real, amp
        for s in seen:
            assert s.compute == compute_dtype(s.op, policy.settings, s.inputs), (amp, s)
        assert bool(casts) == (name in CAST_THEMSELVES), (amp, casts)
        if not casts:
            assert rewritten(trace, policy) == real, amp


def test_what_one_side_does_not_have_is_left_out():
    trace = traced("op:" + next(iter(models.op_zoo.ENTRIES)))[2]
    ops = [trace.calls[n].op for n in cast_by_amp(trace)]
    seen = [Seen(op, ("float32",), "float32", ("float32",)) for op in ["never", *ops, "never"]]
    assert sorted(match(trace, seen)) == cast_by_amp(trace)
    assert all(s.op != "never" for s in match(trace, seen).values())


def test_weights_masters_gradients_and_states_are_those_of_a_real_step():
    """One step at O2 under software half, and what its tensors weigh."""
    from paddle_amp_plugin.estimate.measure import state_bytes, trace_step
    from paddle_amp_plugin.estimate.modes import parts
    from paddle_amp_plugin.estimate.retention import size_of
    from tests.estimate.steps import NetStep, three_layers

    def net():
        model = three_layers()
        model.add_sublayer("norm", paddle.nn.BatchNorm1D(4))
        return model

    step = NetStep(net(), 8, paddle.optimizer.AdamW)
    plan = make_plan(read_amp({"amp": {"level": "O2", "dtype": "float16"}}, source="test"), plans.ANY_GPU)
    found = parts(trace_step(step), plans.mode_of(plan, step.model), 4)
    with software_half.emulate():
        real = NetStep(net(), 8, paddle.optimizer.AdamW)
        autocast.decorate(plan, real.model, real.optimizer)
        with autocast.auto_cast(plan):
            out = real.model(real.batch(4)[0])
        out.astype("float32").mean().backward()
        real.optimizer.step()
        parameters = {id(p): p for p in [*real.model.parameters(), *real.model.buffers()]}.values()
        assert found.weights == sum(map(size_of, parameters))
        assert found.masters == sum(size_of(m) for m in real.optimizer._master_weights.values())
        assert found.gradients == sum(size_of(p.grad) for p in parameters if p.grad is not None)
        assert found.states == state_bytes(real.optimizer)
        autocast.unpin(real.model)


def test_level_o0_is_the_trace_itself():
    trace = traced("op:" + next(iter(models.op_zoo.ENTRIES)))[2]
    assert apply(trace, Policy(CastSettings())) is trace
