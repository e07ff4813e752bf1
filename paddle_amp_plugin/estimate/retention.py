"""What an op's gradient node keeps: asked of Paddle itself, by calling the op on copies and letting go of them.

Whether the backward pass of ``relu`` needs its input or its result is written in Paddle's ``backward.yaml``, with
further rules in the code generator (``no_need_buffer``, in-place pairs) that change between versions. So nothing is
tabulated here: the op is called once more on copies of its inputs, every Python reference is dropped, and the
allocator's count tells which of the storages did not go away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import paddle

from paddle_amp_plugin.estimate.allocator import in_use
from paddle_amp_plugin.software_half.ops import is_tensor, map_tensors


def tensors_in(values: Any) -> Iterator[Any]:
    """The tensors with values in nested lists and tuples, in order."""
    for value in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(value, (list, tuple)):
            yield from tensors_in(value)
        elif is_tensor(value) and value._is_initialized():
            yield value


def size_of(tensor: Any) -> int:
    """Bytes of the elements."""
    count = 1
    for size in tensor.shape:
        count *= size
    return count * int(tensor.element_size())


@dataclass(frozen=True)
class Kept:
    """Positions among the op's tensor inputs and outputs (in order) whose storage the node keeps; other bytes."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    other_bytes: int


#: No second call needed: nothing to differentiate.
NOTHING = Kept((), (), 0)


class Retention:
    """Asks, and remembers the answers by op, shapes, dtypes and attributes.

    ``original``: the op's plain function; ``scale`` and ``assign`` are Paddle's, unwrapped.
    """

    def __init__(self, scale: Callable[..., Any], assign: Callable[..., Any]) -> None:
        self._scale, self._assign = scale, assign
        self._known: dict[Any, Kept] = {}
        self.unknown: list[str] = []

    def ask(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Kept:
        """What the node of ``function(*args, **kwargs)`` keeps. Where the second call fails: all inputs and outputs."""
        inputs = list(tensors_in((*args, *kwargs.values())))
        if not paddle.is_grad_enabled() or all(t.stop_gradient for t in inputs):
            return NOTHING
        key = (name, _signature((*args, *sorted(kwargs.items()))))
        if key not in self._known:
            try:
                self._known[key] = self._measure(function, args, kwargs)
            except Exception:  # an op that cannot be called twice; whatever it says, the estimate errs upwards
                self.unknown.append(name)
                self._known[key] = Kept(tuple(range(len(inputs))), (0,), 0)
        return self._known[key]

    def _measure(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Kept:
        copies: dict[int, Any] = {}
        leaves: list[Any] = []

        def copy(tensor: Any) -> Any:
            if not tensor._is_initialized():
                return tensor
            if id(tensor) not in copies:
                with paddle.no_grad():
                    fresh = self._assign(tensor)
                if not tensor.stop_gradient:
                    fresh.stop_gradient = False
                    leaves.append(fresh)
                    fresh = self._scale(fresh, 1.0, 0.0, True)  # no leaf, so that it may be changed in place
                copies[id(tensor)] = fresh
            return copies[id(tensor)]

        start = in_use()
        own_args = map_tensors(tuple(args), copy)
        own_kwargs = {k: map_tensors(v, copy) for k, v in kwargs.items()}
        given: list[Any] = list(tensors_in((*own_args, *own_kwargs.values())))
        results = function(*own_args, **own_kwargs)
        made: list[Any] = list(tensors_in(results))
        # One more op on each result holds the gradient node, without holding the result.
        tails = [self._scale(t, 1.0, 0.0, True) for t in made if not t.stop_gradient and _floating(t)]
        groups = _by_storage(given, made)
        still_held = start + sum(map(size_of, leaves)) + sum(map(size_of, tails))
        del own_args, own_kwargs, results
        copies.clear()
        kept: tuple[list[int], list[int]] = ([], [])
        for nbytes, of_inputs, of_outputs in groups:
            before = in_use()
            for position in of_inputs:
                given[position] = None
            for position in of_outputs:
                made[position] = None
            if nbytes and before - in_use() < nbytes:
                still_held += nbytes
                if of_inputs:
                    kept[0].append(of_inputs[0])
                else:
                    kept[1].append(of_outputs[0])
        other = in_use() - still_held
        del tails
        return Kept(tuple(kept[0]), tuple(kept[1]), max(0, other))


def _floating(tensor: Any) -> bool:
    return tensor.dtype in (paddle.float32, paddle.float64, paddle.float16, paddle.bfloat16)


def _by_storage(given: list[Any], made: list[Any]) -> list[tuple[int, list[int], list[int]]]:
    """Groups of tensors on one storage: (its bytes, positions in ``given``, positions in ``made``)."""
    groups: list[tuple[int, int, list[int], list[int]]] = []  # start, bytes, …
    for which, tensors in ((2, given), (3, made)):
        for position, tensor in enumerate(tensors):
            start, nbytes = tensor.data_ptr(), size_of(tensor)
            home = next((g for g in groups if g[0] <= start < g[0] + g[1] or g[0] == start), None)
            if home is None:
                home = (start, nbytes, [], [])
                groups.append(home)
            home[which].append(position)  # type: ignore[union-attr]
    return [(nbytes, of_inputs, of_outputs) for _, nbytes, of_inputs, of_outputs in groups]


def _signature(value: Any) -> Any:
    if is_tensor(value):
        return ("T", tuple(value.shape), str(value.dtype), value.stop_gradient)
    if isinstance(value, (list, tuple)):
        return tuple(map(_signature, value))
    return repr(value)
