"""Runs one real training step on the CPU and writes down what it did: a ``Trace``.

Every op function of Paddle is wrapped while the step runs. Nothing is changed in what is computed.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import paddle
from paddle import _C_ops, _legacy_C_ops

from paddle_amp_plugin.estimate.allocator import Mark, in_use
from paddle_amp_plugin.estimate.retention import NOTHING, Retention, size_of, tensors_in
from paddle_amp_plugin.estimate.trace_model import NEVER, BackwardStep, Call, Kind, Trace, Value
from paddle_amp_plugin.software_half.installer import linear_is_one_op, swap
from paddle_amp_plugin.software_half.ops import is_tensor, wrap_linear
from paddle_amp_plugin.software_half.optimizers import OPTIMIZER_OPS
from paddle_amp_plugin.software_half.records import dtype_name
from paddle_amp_plugin.software_half.support import amp_name
from paddle_amp_plugin.software_half.tensor_methods import OPERATORS, index_ops, name_with_number

#: Functions of ``_C_ops`` that are called for something else than tensors to compute with.
_NO_OPS = frozenset("print run_program pylayer share_data share_data_ assign_out_ memcpy_d2h memcpy_h2d".split())


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """What others left behind is freed before and not within: it would count as this step's."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Tracer:
    """Collects the calls of one step of ``model``; used once."""

    def __init__(self, model: paddle.nn.Layer) -> None:
        self._model = model
        self._retention = Retention(_C_ops.scale, _C_ops.assign)
        self._values: list[Value] = []
        self._known: dict[int, tuple[Any, int]] = {}  # id(tensor) -> (weak reference, position)
        self._held: dict[int, int] = {}  # position -> Python objects for it
        self._at: dict[int, int] = {}  # address -> number of the storage last seen there
        self._storages: list[tuple[int, int, int]] = []  # address, bytes, the last value on it
        self._calls: list[Call] = []
        self._backward: list[BackwardStep] = []
        self._phase = "off"
        self._busy = False
        self._layers: list[str] = []
        self._mark: Mark | None = None
        self._start = self._entry = self._peak = 0

    # -- the step ----------------------------------------------------------------------------------------

    def trace(self, batch_size: int, batch: Any, loss_of: Callable[[], Any]) -> Trace:
        """One forward and backward pass: ``loss_of()`` returns the scalar loss of ``batch``."""
        self._register_known(batch)
        with self._wrapped(), self._layer_names(), _no_collection():
            self._start = self._peak = in_use()
            self._phase = "forward"
            loss = loss_of()
            self._phase = "backward"
            self._entry, self._mark = in_use(), Mark()
            loss.backward()
            self._end_step()
            self._phase = "off"
        return Trace(
            batch=batch_size,
            values=tuple(self._values),
            calls=tuple(self._calls),
            backward=tuple(self._backward),
            batch_bytes=sum(v.nbytes for v in self._values if v.kind == "input"),
            peak=self._peak - self._start,
            notes=tuple(sorted(set(self._retention.unknown))),
        )

    def _register_known(self, batch: Any) -> None:
        for name, parameter in self._model.named_parameters():
            self._new_value(parameter, "parameter", name)
        for name, buffer in self._model.named_buffers():
            if buffer is not None and buffer._is_initialized():
                self._new_value(buffer, "buffer", name)
        for tensor in batch_tensors(batch):
            self._new_value(tensor, "input")

    # -- tensors -----------------------------------------------------------------------------------------

    def _tick(self) -> int:
        return len(self._calls) + len(self._backward)

    def _new_value(self, tensor: Any, kind: Kind, name: str = "", hosts: Sequence[int] = ()) -> int:
        """A value for this tensor; ``hosts``: values whose storage it may share (the inputs of its op)."""
        position = len(self._values)
        storage = self._storage_of(tensor, position, hosts)
        value = Value(size_of(tensor), dtype_name(tensor.dtype), storage, not tensor.stop_gradient, kind, NEVER, name)
        self._values.append(value)
        before = self._position(tensor)
        if before is not None:  # changed in place
            self._let_go(before)
        self._hold(tensor, position)
        return position

    def _hold(self, tensor: Any, position: int) -> None:
        """``tensor`` is a Python object for this value; the value is released with the last of them."""

        def gone(_: Any, key: int = id(tensor)) -> None:
            if self._known.get(key, (None, -1))[1] == position:
                del self._known[key]
                self._let_go(position)

        self._held[position] = self._held.get(position, 0) + 1
        self._known[id(tensor)] = (weakref.ref(tensor, gone), position)

    def _let_go(self, position: int) -> None:
        self._held[position] -= 1
        if not self._held[position]:
            self._values[position] = replace(self._values[position], released=self._tick())

    def _position(self, tensor: Any) -> int | None:
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def _storage_of(self, tensor: Any, position: int, hosts: Sequence[int]) -> int:
        address, nbytes = tensor.data_ptr(), size_of(tensor)
        for number in (self._values[host].storage for host in hosts):
            begin, size, _ = self._storages[number]
            if nbytes and begin <= address < begin + size:
                return self._used(number, position)
        number = self._at.get(address, -1)
        if nbytes and number >= 0 and not hosts and self._values[self._storages[number][2]].released == NEVER:
            return self._used(number, position)  # a shared parameter, or a view that no op made
        self._storages.append((address, nbytes, position))
        self._at[address] = len(self._storages) - 1
        return len(self._storages) - 1

    def _used(self, number: int, position: int) -> int:
        address, nbytes, _ = self._storages[number]
        self._storages[number] = (address, nbytes, position)
        return number

    def _value_of(self, tensor: Any) -> int:
        position = self._position(tensor)
        if position is None:
            position = self._twin(tensor)
            if position is None:
                return self._new_value(tensor, "activation")
            self._hold(tensor, position)
        return position

    def _twin(self, tensor: Any) -> int | None:
        """The value that this new Python object is another name of: some methods give out a second one."""
        number = self._at.get(tensor.data_ptr(), -1)
        if number < 0:
            return None
        position = self._storages[number][2]
        value = self._values[position]
        same = value.nbytes == size_of(tensor) and value.requires_grad is not tensor.stop_gradient
        return position if same and value.nbytes and value.released == NEVER else None

    # -- calls -------------------------------------------------------------------------------------------

    def wrap(self, op: str, function: Callable[..., Any], inplace: bool = False) -> Callable[..., Any]:
        """``function``, noted as a call of ``op`` (an AMP name) while the forward pass is traced."""

        def traced(*args: Any, **kwargs: Any) -> Any:
            if self._busy or self._phase != "forward":
                return function(*args, **kwargs)
            self._busy = True
            try:
                return self._call(op, function, args, kwargs, inplace)
            finally:
                self._busy = False

        traced.__name__ = getattr(function, "__name__", op)
        return traced

    def _call(self, op: str, function: Callable[..., Any], args: Any, kwargs: Any, inplace: bool) -> Any:
        given = list(tensors_in((*args, *kwargs.values())))
        inputs = tuple(self._value_of(t) for t in given)
        kept = self._retention.ask(function.__name__, function, args, kwargs) if given else NOTHING
        before, mark = in_use(), Mark()
        results = function(*args, **kwargs)
        risen = mark.rise()
        grown = in_use() - before
        self._peak = max(self._peak, before + risen)
        made = list(tensors_in(results))
        outputs = tuple(self._new_value(t, "activation", hosts=inputs or ()) for t in made)
        saved = (*(inputs[i] for i in kept.inputs), *(outputs[i] for i in kept.outputs if i < len(outputs)))
        number = len(self._calls)
        self._calls.append(
            Call(
                op,
                inputs,
                outputs,
                saved,
                kept_bytes=kept.other_bytes,
                workspace=max(0, risen - grown),
                inplace=inplace,
                in_model=bool(self._layers),
                layer=self._layers[-1] if self._layers else "",
            )
        )
        for tensor in made:
            if not tensor.stop_gradient:
                tensor.register_hook(lambda _: self._step_begins(number))
        return results

    # -- the backward pass -------------------------------------------------------------------------------

    def _step_begins(self, call: int) -> None:
        """The gradient node of ``call`` is about to run: its result's gradient is complete."""
        if self._phase != "backward" or (self._backward and self._backward[-1].call == call):
            return
        self._end_step()
        self._entry = in_use()
        self._backward.append(BackwardStep(call, 0, self._entry - self._start))
        self._mark = Mark()

    def _end_step(self) -> None:
        if self._mark is None:
            return
        risen, self._mark = self._mark.rise(), None
        self._peak = max(self._peak, self._entry + risen)
        if self._backward:
            self._backward[-1] = replace(self._backward[-1], transient=risen)

    # -- what is wrapped ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _wrapped(self) -> Iterator[None]:
        pairs = {id(function): (function, wrapper) for function, wrapper in self._functions()}
        methods = self._methods()
        before = {name: getattr(paddle.Tensor, name) for name in methods}
        swap(pairs)
        try:
            for name, wrapper in methods.items():
                setattr(paddle.Tensor, name, wrapper)
            yield
        finally:
            for name, original in before.items():
                setattr(paddle.Tensor, name, original)
            swap({id(wrapper): (wrapper, function) for function, wrapper in pairs.values()})

    def _functions(self) -> Iterator[tuple[Any, Callable[..., Any]]]:
        by_name = {}
        for module, name in ((m, n) for m in (_legacy_C_ops, _C_ops) for n in dir(m)):
            function = getattr(module, name)
            if not _is_op(name, function):
                continue
            inplace = name.endswith("_") and hasattr(module, name[:-1])
            op = name if module is _legacy_C_ops else amp_name(name[:-1] if inplace else name)
            by_name[name] = self.wrap(op, function, inplace)
            if name != "linear":
                yield function, by_name[name]
        linear = getattr(_C_ops, "linear", None)
        if linear is not None:
            fused = self.wrap("linear_v2", linear) if linear_is_one_op() else None
            yield linear, wrap_linear(by_name["matmul"], by_name["add"], fused)

    def _methods(self) -> dict[str, Callable[..., Any]]:
        tensor = paddle.Tensor
        methods = {name: self._operator(name) for name in OPERATORS if hasattr(tensor, name)}
        methods["clone"] = self.wrap("assign", _plain(tensor.clone))
        get, put = _plain(tensor._getitem_dygraph), tensor._setitem_dygraph

        def getitem(x: Any, index: Any) -> Any:
            names = index_ops(x, index)
            return self.wrap(names[-1] if names else "slice", get)(x, index)

        def setitem(x: Any, index: Any, value: Any) -> Any:
            put(x, index, value)
            return x

        methods["_getitem_dygraph"] = getitem
        methods["_setitem_dygraph"] = self.wrap("set_value", setitem, inplace=True)
        return methods

    def _operator(self, method: str) -> Callable[..., Any]:
        function = _plain(getattr(paddle.Tensor, method))
        with_tensor, with_number = self.wrap(OPERATORS[method], function), self.wrap(name_with_number(method), function)
        return lambda x, other: with_tensor(x, other) if is_tensor(other) else with_number(x, other)

    # -- where in the model ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _layer_names(self) -> Iterator[None]:
        hooks = []
        for name, layer in self._model.named_sublayers(include_self=True):
            hooks.append(layer.register_forward_pre_hook(lambda *_, at=name: self._layers.append(at)))
            hooks.append(layer.register_forward_post_hook(lambda *_: self._leave()))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._layers.clear()

    def _leave(self) -> None:
        self._layers.pop()


def batch_tensors(batch: Any) -> Iterator[Any]:
    """The tensors of a batch: in lists, tuples and dicts of any depth."""
    for value in batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else (batch,):
        if isinstance(value, (dict, list, tuple)):
            yield from batch_tensors(value)
        elif is_tensor(value):
            yield value


def _is_op(name: str, function: Any) -> bool:
    if name.startswith(("_", "c_", "partial_")) or name.endswith(("_grad", "_grad_")):
        return False
    if name in _NO_OPS or name in OPTIMIZER_OPS or f"{name}_" in OPTIMIZER_OPS or name.startswith("check_finite"):
        return False
    return type(function).__name__ == "builtin_function_or_method"


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    """A C method descriptor as a function with a name."""

    def call(*args: Any) -> Any:
        return method(*args)

    call.__name__ = getattr(method, "__name__", "method")
    return call
