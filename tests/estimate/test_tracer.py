"""What is traced: against sums done by hand, and against the allocator's own peak."""

import zlib  # noqa: F401  -- before paddle: 2.6.2's library exports symbols of an old zlib

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.estimate.allocator import Mark, in_use
from paddle_amp_plugin.estimate.lifetime import usage
from paddle_amp_plugin.estimate.measure import trace_step
from paddle_amp_plugin.estimate.modes import parts
from paddle_amp_plugin.estimate.plans import FP32
from paddle_amp_plugin.estimate.retention import Retention
from paddle_amp_plugin.estimate.tracer import Tracer
from tests.estimate.steps import WIDE, NetStep, three_layers

FLOAT = 4


@pytest.fixture
def retention():
    return Retention(paddle._C_ops.scale, paddle._C_ops.assign)


def trained(*shape):
    x = paddle.rand(shape) + 0.5
    x.stop_gradient = False
    return x


@pytest.mark.parametrize(
    ("name", "function", "inputs", "outputs", "other"),
    [  # what the formula of the gradient needs, and nothing else
        ("relu", lambda x: F.relu(x), (), (0,), 0),  # dy * (y > 0)
        ("sigmoid", lambda x: F.sigmoid(x), (), (0,), 0),  # dy * y * (1 - y)
        ("exp", lambda x: paddle.exp(x), (), (0,), 0),  # dy * y
        ("log", lambda x: paddle.log(x), (0,), (), 0),  # dy / x
        ("square", lambda x: paddle.square(x), (0,), (), 0),  # dy * 2 x
        ("softmax", lambda x: F.softmax(x), (), (0,), 0),
        ("scale", lambda x: x * 2.0, (), (), 0),  # dy * 2
        ("mean", lambda x: x.mean(), (), (), 0),  # the shape only
        ("layer_norm", lambda x: F.layer_norm(x, 6), (0,), (), 2 * 4 * FLOAT),  # x; a mean and a variance a row
    ],
)
def test_what_a_gradient_node_keeps(retention, name, function, inputs, outputs, other):
    kept = retention.ask(name, function, (trained(4, 6),), {})
    assert (kept.inputs, kept.outputs, kept.other_bytes) == (inputs, outputs, other)


def test_what_ops_with_two_inputs_keep(retention):
    x, y = trained(4, 6), trained(4, 6)
    assert retention.ask("multiply", lambda a, b: a * b, (x, y), {}).inputs == (0, 1)
    assert retention.ask("add", lambda a, b: a + b, (x, y), {}).inputs == ()
    assert retention.ask("matmul", lambda a, b: paddle.matmul(a, b), (x, trained(6, 3)), {}).inputs == (0, 1)
    with paddle.no_grad():
        assert retention.ask("multiply", lambda a, b: a * b, (x, y), {}).inputs == ()
    assert retention.unknown == []


def test_a_call_that_cannot_be_repeated_counts_in_full(retention):
    def once(x):
        raise RuntimeError("only once")

    kept = retention.ask("once", once, (trained(2), trained(3)), {})
    assert kept.inputs == (0, 1) and kept.outputs == (0,) and retention.unknown == ["once"]


def test_three_layers_by_hand():
    """At the end of the forward pass: the two sigmoids' results and the last layer's output, which Python holds."""
    samples = 1000
    a, b, c, d = WIDE
    step = NetStep(three_layers(), a)
    traced = trace_step(step)
    found = parts(traced, FP32, samples)
    weights = (a * b + b + b * c + c + c * d + d) * FLOAT
    assert found.weights == found.gradients == weights
    assert found.masters == found.states == 0
    assert found.batch == samples * a * FLOAT
    # The highest point is the gradient of the second Linear: the first sigmoid's result, the gradient that came, the
    # one it makes (sigmoid's gradients reuse the memory of what came), its new weight gradient, and the scalar loss.
    assert found.where == "backward" and found.layer == "2" and found.op in ("linear_v2", "matmul_v2")
    assert found.activations == samples * b * FLOAT + FLOAT
    assert found.temporary == (samples * (c + b) + b * c) * FLOAT
    end = usage(traced.at(samples)).timeline[len(traced.small.calls)]
    assert end == samples * (b + c) * FLOAT + FLOAT


def test_shared_weights_are_counted_once():
    class Tied(nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(F.relu(self.one(x)))

    found = parts(trace_step(NetStep(Tied(), 8)), FP32, 4)
    assert found.weights == found.gradients == (8 * 8 + 8 + 8) * FLOAT


def test_frozen_layers_have_neither_gradients_nor_states():
    model = three_layers()
    for parameter in model[0].parameters():
        parameter.stop_gradient = True
    a, b, c, d = WIDE
    found = parts(trace_step(NetStep(model, a, paddle.optimizer.Momentum)), FP32, 4)
    last = (b * c + c + c * d + d) * FLOAT
    assert found.gradients == last and found.states == last
    assert found.weights == last + (a * b + b) * FLOAT


@pytest.mark.parametrize(
    ("kind", "moments", "powers"),
    [("SGD", 0, 0), ("Momentum", 1, 0), ("Adagrad", 1, 0), ("Adam", 2, 2), ("AdamW", 2, 2), ("Lamb", 2, 2)],
)
def test_optimizer_states(kind, moments, powers):
    """Moments are as large as the weights; Adam's two powers of beta are one number each a parameter."""
    model = three_layers()
    found = parts(trace_step(NetStep(model, WIDE[0], getattr(paddle.optimizer, kind))), FP32, 4)
    assert found.states == moments * found.weights + powers * len(model.parameters()) * FLOAT


def test_what_the_step_itself_takes():
    """Clipping by norm makes a second set of gradients; with a small batch that is the highest point."""
    model = nn.Sequential(*(nn.Linear(300, 300) for _ in range(4)))
    clip = paddle.nn.ClipGradByNorm(1.0)
    found = parts(trace_step(NetStep(model, 300, grad_clip=clip)), FP32, 2)
    assert found.where == "step" and found.temporary == found.gradients and found.activations == 0


def _conv_net():
    return nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1, bias_attr=False),
        nn.BatchNorm2D(8),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(8, 16, 3, stride=2),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(16, 4),
    )


class ConvStep(NetStep):
    def batch(self, size):
        return [paddle.randn([size, 3, 32, 32]), paddle.randint(0, 4, [size])]

    def loss(self, batch):
        return F.cross_entropy(self.model(batch[0]), batch[1])


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embedding, self.encoder = nn.Embedding(50, 16), nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1)
        self.lstm, self.head = nn.LSTM(16, 8), nn.Linear(8, 4)

    def forward(self, ids):
        x = self.encoder(self.embedding(ids))
        y, _ = self.lstm(x)
        return self.head(y[:, -1])


class AttentionStep(NetStep):
    def batch(self, size):
        return [paddle.randint(0, 50, [size, 12])]


@pytest.mark.parametrize("kind", ["conv", "attention"])
@pytest.mark.parametrize("samples", [3, 16, 40])
def test_against_the_allocator(kind, samples):
    """Estimated from 2 and 4 samples; the truth is the count of real steps."""
    adam = paddle.optimizer.Adam
    step = ConvStep(_conv_net(), 0, adam) if kind == "conv" else AttentionStep(Attention(), 0, adam)
    outside = in_use()  # of other tests
    step.loss(step.batch(2)).backward()
    step.optimizer.step()
    step.optimizer.clear_grad()
    outside -= sum(p.size * FLOAT for p in step.model.parameters())
    outside -= sum(b.size * FLOAT for b in step.model.buffers())
    batch = step.batch(samples)
    before, mark = in_use(), Mark()
    for _ in range(2):
        step.loss(batch).backward()
        step.optimizer.step()
        step.optimizer.clear_grad()
    measured = before + mark.rise() - outside
    del batch
    assert parts(trace_step(step), FP32, samples).total == pytest.approx(measured, rel=0.01)


def test_accumulating_gradients_takes_nothing_more():
    """Gradients stay from step to step anyway (``clear_grad`` sets them to zero)."""
    step = ConvStep(_conv_net(), 0, paddle.optimizer.Momentum)
    traced = trace_step(step)
    batch, rises = step.batch(8), []
    for passes in (1, 4):
        mark = Mark()
        for _ in range(passes):
            step.loss(batch).backward()
        step.optimizer.step()
        step.optimizer.clear_grad()
        rises.append(mark.rise())
    found = parts(traced, FP32, 8)
    assert rises[0] == pytest.approx(found.activations + found.temporary, rel=0.01)
    assert rises[1] == pytest.approx(rises[0], rel=0.001)


def test_a_trace_changes_nothing():
    """The functions of Paddle are the same objects afterwards, and the loss is the one without a trace."""
    step = NetStep(three_layers(), 8)
    before = (paddle._C_ops.relu, paddle.Tensor.__add__, paddle.Tensor._getitem_dygraph, F.activation._C_ops.sigmoid)
    batch = step.batch(4)
    plain = float(step.loss(batch))
    losses = []
    Tracer(step.model).trace(4, batch, lambda: losses.append(step.loss(batch)) or losses[0])
    assert float(losses[0]) == plain
    after = (paddle._C_ops.relu, paddle.Tensor.__add__, paddle.Tensor._getitem_dygraph, F.activation._C_ops.sigmoid)
    assert all(a is b for a, b in zip(before, after, strict=True))


def test_a_trace_is_removed_after_an_error():
    before = paddle._C_ops.relu
    step = NetStep(three_layers(), 8)

    def fails():
        step.model(paddle.randn([2, 8]))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Tracer(step.model).trace(2, [], fails)
    assert paddle._C_ops.relu is before


def test_a_model_that_loops_over_its_samples():
    """Its ops are not the same at two batch sizes; its totals are still a line."""

    class Loops(nn.Layer):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 64), nn.Linear(64, 64)

        def forward(self, x):
            return self.head(paddle.stack([F.sigmoid(row) for row in self.body(x)]))

    step = NetStep(Loops(), 8)
    traced = trace_step(step)
    assert not traced.same_ops
    samples = 50
    batch = step.batch(samples)
    before, mark = in_use(), Mark()
    step.loss(batch).backward()
    rise = mark.rise()
    found = parts(traced, FP32, samples)
    assert found.activations + found.temporary == pytest.approx(rise, rel=0.1) and before


def test_a_loss_without_a_gradient_is_refused():
    class Constant(NetStep):
        def loss(self, batch):
            return self.model(batch[0]).detach().mean() + paddle.to_tensor(1.0, stop_gradient=False)

    with pytest.raises(AmpError) as caught:
        trace_step(Constant(nn.Linear(2, 2), 2))
    assert caught.value.code == "AMP286"
