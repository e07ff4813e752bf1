"""The random states of a process as plain JSON values: Python's, NumPy's and Paddle's generators.

Paddle's state object shows all of itself in ``__getstate__``: (device, seed, offset) on 2.6, and from 3.0 on also the
text of the CPU engine (``std::mt19937_64``), as character codes. Where that text is missing a CPU state cannot be
written down; so there the generator is started anew from a number drawn from itself whenever its state is asked for,
and the seed then is the whole state. A run that is not stopped does the same at the same places.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import paddle

_SEED_BITS = (1 << 63) - 1
_written_down: list[str] = []  # the state after the last fresh start: nothing was drawn since, if it is the same


def rng_state() -> dict[str, Any]:
    """``{"python": …, "numpy": …, "paddle": …}``, each as ``set_rng_state`` takes it."""
    return {**host_rng_state(), "paddle": paddle_rng_state()}


def host_rng_state() -> dict[str, Any]:
    """Python's and NumPy's states: what data sets and samplers draw from."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, [int(key) for key in keys], int(position), int(has_gauss), float(cached)],
    }


def paddle_rng_state() -> dict[str, Any]:
    """``cpu``: the CPU generator's state, ``gpu``: one state a visible GPU."""
    generator = paddle.framework.core.default_cpu_generator()
    state = generator.get_state()
    if len(state.__getstate__()) < 4 and str(state) not in _written_down:
        generator.manual_seed(int(generator.random()) & _SEED_BITS)
        state = generator.get_state()
        _written_down[:] = [str(state)]
    gpus = paddle.get_cuda_rng_state() if paddle.is_compiled_with_cuda() else []
    return {"cpu": _plain(state), "gpu": [_plain(gpu) for gpu in gpus]}


def set_rng_state(state: dict[str, Any], *, only: tuple[str, ...] = ("python", "numpy", "paddle")) -> list[str]:
    """Puts the generators where ``rng_state`` found them; returns the names of those it could not.

    Raises ``ValueError`` for a state that is none.
    """
    failed = []
    try:
        if "python" in only:
            version, words, gauss = state["python"]
            random.setstate((version, tuple(words), gauss))
        if "numpy" in only:
            name, keys, position, has_gauss, cached = state["numpy"]
            np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
        if "paddle" in only and not _set_paddle(state["paddle"]):
            failed.append("paddle")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not random states: {error!r}") from None
    return failed


def _set_paddle(state: dict[str, Any]) -> bool:
    generator = paddle.framework.core.default_cpu_generator()
    device, seed, offset, engine = (state["cpu"][name] for name in ("device", "seed", "offset", "engine"))
    done = True
    if not engine:
        generator.manual_seed(int(seed))
        _written_down[:] = [str(generator.get_state())]
    elif len(generator.get_state().__getstate__()) == 4:
        generator.set_state(_state_of(int(device), int(seed), int(offset), engine))
    else:
        done = False
    gpus = state["gpu"]
    if gpus and paddle.is_compiled_with_cuda() and len(gpus) == len(paddle.get_cuda_rng_state()):
        parts = [[int(g["device"]), int(g["seed"]), int(g["offset"]), g["engine"]] for g in gpus]
        paddle.set_cuda_rng_state([_state_of(*part) for part in parts])
    elif gpus:
        done = False
    return done


def _plain(state: Any) -> dict[str, Any]:
    parts = state.__getstate__()
    engine = "".join(map(chr, parts[3])) if len(parts) > 3 else ""
    return {"device": int(parts[0]), "seed": int(parts[1]), "offset": int(parts[2]), "engine": engine}


def _state_of(device: int, seed: int, offset: int, engine: str) -> Any:
    cls = type(paddle.framework.core.default_cpu_generator().get_state())
    state = cls.__new__(cls)
    length = len(paddle.framework.core.default_cpu_generator().get_state().__getstate__())
    state.__setstate__((device, seed, offset, [ord(c) for c in engine])[:length])
    return state
