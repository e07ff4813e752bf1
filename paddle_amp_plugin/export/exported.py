"""An inference model on disk: run as a deployment runs it, and its parameters read back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import paddle

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

Array = np.ndarray[Any, Any]
NAME = "inference"


class Runner(Protocol):
    """A model that maps input arrays, in the order of its inputs, to its output arrays."""

    @property
    def inputs(self) -> tuple[str, ...]: ...

    def __call__(self, arrays: Sequence[Array]) -> list[Array]: ...


def model_file(folder: Path, name: str = NAME) -> Path:
    """``inference.json`` (Paddle 3) or ``inference.pdmodel`` (Paddle 2). Raises AmpError (AMP235) for neither."""
    for suffix in (".json", ".pdmodel"):
        path = folder / f"{name}{suffix}"
        if path.is_file() and (folder / f"{name}.pdiparams").is_file():
            return path
    raise AmpError(
        "AMP235",
        tr(
            "{d} holds no inference model ({n}.json or {n}.pdmodel, and {n}.pdiparams)",
            "{d} 中没有推理模型（{n}.json 或 {n}.pdmodel，以及 {n}.pdiparams）",
            d=folder,
            n=name,
        ),
    )


def _cpu_has_avx512() -> bool:
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


class PaddleRunner:
    """``paddle.inference`` on the CPU, in FP32 and without oneDNN.

    Paddle 3.3.1's oneDNN instructions cannot read ``nearest_interp``'s scales (a list of doubles), so any FPN fails
    there; Paddle 2.6.2's ``self_attention_fuse_pass`` runs AVX-512 code on every CPU, so it is left out without that.
    """

    def __init__(self, folder: Path, name: str = NAME) -> None:
        path = model_file(folder, name)
        config = paddle.inference.Config(str(path), str(folder / f"{name}.pdiparams"))
        config.disable_gpu()
        config.disable_glog_info()
        if hasattr(config, "disable_mkldnn"):
            config.disable_mkldnn()
        if not _cpu_has_avx512():
            config.delete_pass("self_attention_fuse_pass")
        try:
            self._predictor = paddle.inference.create_predictor(config)
        except Exception as error:
            raise _cannot("AMP235", path, error) from None
        self._path = path
        self.inputs = tuple(self._predictor.get_input_names())

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Raises AmpError (AMP235) if the model cannot run on these arrays."""
        try:
            for name, value in zip(self.inputs, arrays, strict=True):
                self._predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(value))
            self._predictor.run()
            names = self._predictor.get_output_names()
            return [self._predictor.get_output_handle(name).copy_to_cpu() for name in names]
        except Exception as error:
            raise _cannot("AMP235", self._path, error) from None


class OnnxRunner:
    """ONNX Runtime on the CPU."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns of every initializer that the graph does not use
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise _cannot("AMP240", path, error) from None
        self._path = path
        self.inputs = tuple(value.name for value in self._session.get_inputs())

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Raises AmpError (AMP240) if the model cannot run on these arrays."""
        try:
            return list(self._session.run(None, dict(zip(self.inputs, arrays, strict=True))))
        except Exception as error:
            raise _cannot("AMP240", self._path, error) from None


def _cannot(code: str, path: Path, error: Exception) -> AmpError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if "Error" in line or line.startswith("(")), lines[0] if lines else "")
    return AmpError(
        code,
        tr(
            "the exported model {f} cannot run: {e}",
            "导出的模型 {f} 无法运行：{e}",
            f=path.name,
            e=f"{type(error).__name__}: {text}",
        ),
    )


@contextlib.contextmanager
def _static_program(folder: Path, name: str) -> Iterator[tuple[Any, list[str], Any]]:
    """The program of an inference model, its inputs' names and the scope that holds its parameters."""
    dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    try:
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            executor = paddle.static.Executor(paddle.CPUPlace())
            program, inputs, _ = paddle.static.load_inference_model(str(folder / name), executor)
            yield program, inputs, scope
    finally:
        if dynamic:
            paddle.disable_static()


def read_parameters(folder: Path, name: str = NAME) -> dict[str, Array]:
    """Every parameter and buffer of an inference model, by its name in the program, as it lies on disk."""
    pir = model_file(folder, name).suffix == ".json"
    with _static_program(folder, name) as (program, _, scope):
        names = _parameter_names(program, pir=pir)
        return {n: np.array(scope.find_var(n).get_tensor()) for n in names}


def input_shapes(folder: Path, name: str = NAME) -> list[tuple[list[int], str]]:
    """Shape (-1: any) and dtype of each input of a Paddle 2 inference model (``.pdmodel``)."""
    with _static_program(folder, name) as (program, inputs, _):
        variables = [program.global_block().var(n) for n in inputs]
        return [(list(v.shape), paddle.base.data_feeder.convert_dtype(v.dtype)) for v in variables]


def _parameter_names(program: Any, *, pir: bool) -> list[str]:
    if pir:
        operations = program.global_block().ops
        return [op.attrs()["parameter_name"] for op in operations if op.name() == "builtin.parameter"]
    return [v.name for v in program.list_vars() if v.persistable and v.name not in ("feed", "fetch")]


def seconds_per_call(runners: Sequence[Runner], arrays: Sequence[Array], *, rounds: int = 20) -> list[float]:
    """The shortest time of a call for each runner, called in turns, so that a busy machine is busy for all of them."""
    for runner in runners:
        runner(arrays)
    times: list[list[float]] = [[] for _ in runners]
    for _ in range(rounds):
        for place, runner in enumerate(runners):
            begin = time.perf_counter()
            runner(arrays)
            times[place].append(time.perf_counter() - begin)
    return [min(row) for row in times]
