"""Paddle's own cast plan: build a test model in static (PIR) mode under ``auto_cast`` and read the program back.

In static mode Paddle 3 runs the same C++ AMP code as eager mode (``GetAmpDestDtype``, ``AmpAutoCast``,
paddle/fluid/imperative/amp_utils.h) and never asks for the device, so a CPU wheel inserts the casts a GPU sees. Four
things keep a CPU wheel from giving a GPU's plan as it stands; they are answered like this:

* it knows no op "without a half GPU kernel". Those of ``op_support.json`` go on the custom black list, which has the
  same effect (float32);
* the builder refuses a dtype the wheel has no kernel for (``CheckValueDataType``,
  paddle/fluid/pir/dialect/operator/utils/utils.cc). By then AMP has decided: the error names the dtype. The refused
  call is built again in float32 without AMP, its results are cast to the decided dtype, and the plan says
  that dtype (``StandIns``);
* ``F.linear`` takes its pre-3.3 form unless Paddle is compiled with CUDA. Static mode is told that it is;
* ``batch_norm`` is the in-place op ``batch_norm_`` in static mode only, and in-place ops have no AMP code. Where
  batch_norm is black-listed, and at level OD, its input is cast here, as the eager function does.

Run as a program, in a process of its own, because static mode is a process-wide switch::

    python pir_casts.py --models db op:softmax --cases O1,bfloat16,default OD,float16,safe > plans.json
"""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for folder in (str(HERE), str(ROOT)):
    if folder not in sys.path:
        sys.path.insert(0, folder)

from plan_ops import FLOATING, PlanOp, plan_op  # noqa: E402

OP_SUPPORT = ROOT / "paddle_amp_plugin" / "op_support.json"
REFUSED = re.compile(r"Check data type error for op: (\w+), input: \w+, \w+\.dtype: (float16|bfloat16)")
#: Bookkeeping of the program, no operators of the model.
NOT_OPS = {"builtin.parameter", "builtin.combine", "builtin.split", "pd_op.data", "builtin.shadow_output"}
#: Beside the first, the outputs of the norms are statistics in float32 (their kernels' registrations say so); those of
#: einsum are caches that nobody sees.
FIRST_OUTPUT_ONLY = {"batch_norm_", "sync_batch_norm_", "layer_norm", "instance_norm", "group_norm", "einsum"}


@cache
def support() -> dict[str, Any]:
    return json.loads(OP_SUPPORT.read_text(encoding="utf-8"))


def amp_names() -> dict[str, str]:
    table = support()
    return {**table["amp_names"], **table["amp_names_3"]}


def black_list(lists: str) -> set[str]:
    """The user's custom black list of a case: none, or the plugin's ``safe`` preset."""
    if lists == "default":
        return set()
    from paddle_amp_plugin.op_rules import SAFE_BLACK_LIST

    return set(SAFE_BLACK_LIST)


def dtype_of(kind: Any) -> str:
    return str(kind.dtype).rsplit(".", 1)[-1].lower()


def dtypes_of(values: list[Any]) -> list[str | None]:
    """Dtype names of PIR values; a tensor list gives one entry per tensor."""
    found: list[str | None] = []
    for value in values:
        if not value.initialized():
            found.append(None)
            continue
        vector = value.type().as_vec_type()
        found.extend(dtype_of(kind) for kind in (vector.as_list() if vector else [value.type()]))
    return found


class StandIns:
    """Wraps the functions of ``paddle._C_ops`` and builds in float32 what the builder refuses in half.

    ``decided``: index of such an op in the current program -> the dtype AMP had decided on.
    """

    def __init__(self) -> None:
        import paddle

        self.paddle, self.float32_batch_norm = paddle, False
        self.decided: dict[int, str] = {}
        self._originals = {
            name: getattr(paddle._C_ops, name)
            for name in dir(paddle._C_ops)
            if not name.startswith("_") and callable(getattr(paddle._C_ops, name)) and name != "cast"
        }

    def install(self) -> None:
        # `paddle.matmul` and `Tensor.matmul` may be the very function of `_C_ops`: replace every reference.
        wrapped = {id(f): self._wrap(name, f) for name, f in self._originals.items()}
        modules = [m for n, m in list(sys.modules.items()) if n.split(".")[0] == "paddle" and m is not None]
        for holder in [*modules, self.paddle.pir.Value]:
            for name, value in list(vars(holder).items()):
                if id(value) in wrapped:
                    setattr(holder, name, wrapped[id(value)])
                # Operators are closures over the function they call (paddle/pir/math_op_patch.py).
                if holder is not self.paddle.pir.Value or not isinstance(value, FunctionType):
                    continue
                for cell in value.__closure__ or ():
                    if id(cell.cell_contents) in wrapped:
                        cell.cell_contents = wrapped[id(cell.cell_contents)]

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "batch_norm_" and self.float32_batch_norm:
                args = (self._cast(args[0], "float32"), *args[1:])
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                refused = REFUSED.search(str(error))
                if refused is None:
                    raise
                return self._in_float32(name, function, refused.group(2), args, kwargs)

        return call

    def _cast(self, value: Any, dtype: str) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(v, dtype) for v in value)
        is_value = isinstance(value, self.paddle.pir.Value) and value.initialized()
        if not is_value or value.type().as_vec_type() or dtype_of(value) not in FLOATING:
            return value
        return self.paddle.cast(value, dtype)

    def _in_float32(self, name: str, function: Callable[..., Any], decided: str, args: Any, kwargs: Any) -> Any:
        attributes = self.paddle.base.core._get_amp_attrs()
        level, attributes._amp_level = attributes._amp_level, self.paddle.base.core.AmpLevel.O0
        try:
            args = self._cast(tuple(args), "float32")
            out = function(*args, **{k: self._cast(v, "float32") for k, v in kwargs.items()})
            first = out[0] if isinstance(out, (list, tuple)) else out
            ops = self.paddle.static.default_main_program().global_block().ops
            index = next(i for i in reversed(range(len(ops))) if ops[i].name() == f"pd_op.{name}")
            self.decided[index] = decided
            if first is out:
                return self._cast(out, decided)
            if name in FIRST_OUTPUT_ONLY:
                return [self._cast(first, decided), *out[1:]]
            return self._cast(list(out), decided)
        finally:
            attributes._amp_level = level


def linear_as_on_cuda(paddle: Any) -> None:
    """Let ``F.linear`` choose the op a CUDA build chooses (``linear_v2``)."""
    common = sys.modules["paddle.nn.functional.common"]
    original = common.linear

    def linear(*args: Any, **kwargs: Any) -> Any:
        asked = paddle.is_compiled_with_cuda
        paddle.is_compiled_with_cuda = lambda: True
        try:
            return original(*args, **kwargs)
        finally:
            paddle.is_compiled_with_cuda = asked

    common.linear = paddle.nn.functional.linear = linear


def allow_what_eager_allows(paddle: Any) -> None:
    """Python-side limits of static mode that have nothing to do with AMP.

    Functions check the dtypes of their inputs by lists that lag behind the kernels; ``concat`` and ``stack``
    refuse mixed dtypes before the C++ side can promote them; ``full`` refuses the string ``"-inf"``; a parameter
    has no ``set_value`` (values do not matter here); a computed tensor can be no buffer.
    """
    full = paddle.full

    def full_of_string(shape: Any, fill_value: Any, *args: Any, **kwargs: Any) -> Any:
        return full(shape, float(fill_value) if isinstance(fill_value, str) else fill_value, *args, **kwargs)

    paddle.full = full_of_string
    checks = [getattr(paddle.base.data_feeder, f"check_{what}") for what in ("dtype", "variable_and_dtype", "type")]
    for module in [m for n, m in list(sys.modules.items()) if n.split(".")[0] == "paddle" and m is not None]:
        for name, value in list(vars(module).items()):
            if any(value is check for check in checks):
                setattr(module, name, lambda *args, **kwargs: None)
    paddle.concat = lambda x, axis=0, name=None: paddle._C_ops.concat(list(x), axis)
    paddle.stack = lambda x, axis=0, name=None: paddle._C_ops.stack(list(x), axis)
    paddle.pir.Value.set_value = lambda self, value: None
    register_buffer = paddle.nn.Layer.register_buffer

    def register(self: Any, name: str, tensor: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(tensor, paddle.pir.Value):
            object.__setattr__(self, name, tensor)
        else:
            register_buffer(self, name, tensor, *args, **kwargs)

    paddle.nn.Layer.register_buffer = register


def read_program(program: Any, start: int, decided: dict[int, str]) -> list[PlanOp]:
    """Every op of the program from ``start`` on that AMP has a say in, in order."""
    names = amp_names()
    plan = []
    for index, op in enumerate(program.global_block().ops):
        if index < start or op.name() in NOT_OPS:
            continue
        function = op.name().split(".", 1)[1]
        name = names.get(function, names.get(function.rstrip("_"), function.rstrip("_")))
        outputs = dtypes_of(op.results())
        compute = decided.get(index, "")
        if compute:
            kept = 1 if function in FIRST_OUTPUT_ONLY else len(outputs)
            outputs = [compute if d in FLOATING else d for d in outputs[:kept]] + outputs[kept:]
        record = plan_op(name, dtypes_of(op.operands_source()), outputs, compute)
        if record is not None:
            plan.append(record)
    return plan


def static_plan(model_name: str, case: str, stand_ins: StandIns) -> list[PlanOp]:
    """The plan of one test model; static mode must be on and ``stand_ins`` installed."""
    import models
    import paddle

    level, dtype, lists = case.split(",")
    black = black_list(lists)
    program, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, startup):
        model, arrays = models.build(model_name)
        inputs = [paddle.static.data(f"x{i}", list(a.shape), str(a.dtype)) for i, a in enumerate(arrays)]
        start = len(program.global_block().ops)  # before: the constructors' arithmetic on constants
        everything = black | set(support()[f"no_{dtype}"])
        stand_ins.decided, stand_ins.float32_batch_norm = {}, "batch_norm" in black or level == "OD"
        with paddle.amp.auto_cast(level=level, dtype=dtype, custom_black_list=everything):
            model(*inputs)
    return read_program(program, start, stand_ins.decided)


def run_static_plans(models: Sequence[str], cases: Sequence[str]) -> dict[str, dict[str, list[PlanOp] | str]]:
    """model -> case (``"O1,bfloat16,default"``) -> plan, or the error message where static mode cannot build it.

    All in one process of its own.
    """
    command = [sys.executable, str(Path(__file__)), "--cases", *cases, "--models", *models]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"static plans failed:\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    return {
        model: {
            case: plan if isinstance(plan, str) else [PlanOp.from_dict(o) for o in plan] for case, plan in plans.items()
        }
        for model, plans in result.items()
    }


def plan_or_error(model_name: str, case: str, stand_ins: StandIns) -> list[dict] | str:
    """One plan as JSON data; for an op of the zoo a failure is an answer too."""
    try:
        return [o.to_dict() for o in static_plan(model_name, case, stand_ins)]
    except Exception as error:
        if not model_name.startswith("op:"):
            raise
        return f"{type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--cases", nargs="+", required=True)
    args = parser.parse_args()
    import paddle

    paddle.enable_static()
    linear_as_on_cuda(paddle)
    allow_what_eager_allows(paddle)
    stand_ins = StandIns()
    stand_ins.install()
    print(json.dumps({m: {c: plan_or_error(m, c, stand_ins) for c in args.cases} for m in args.models}))


if __name__ == "__main__":
    main()
