"""Write ``paddle_amp_plugin/op_support.json``: what Paddle's eager AMP knows about GPU kernels.

Paddle's eager AMP computes an op in float32 when the op has no GPU kernel for the AMP dtype: ``AmpOperators`` fills
its two "unsupported" sets from ``OpSupportedInfos("GPU", dtype)`` (paddle/fluid/imperative/amp_auto_cast.cc), and
``GetAmpDestDtype`` (paddle/fluid/imperative/amp_utils.h) looks the op up there last. A CPU wheel has no GPU kernel
to ask about, so this script asks a GPU wheel, on a machine that needs no GPU: the wheel imports without a driver and
``paddle.base.core.op_supported_infos`` is that same C++ function. No kernel is ever run.

The names come from the CPU wheels. AMP lists speak the names of the old operators (``matmul_v2``), the eager
functions those of the yaml files (``matmul``); ``phi::TransToFluidOpName`` translates and returns its argument for a
name it does not know. Its table is read back through ``core._get_phi_kernel_name``, asked for every identifier in
the compiled library, so nothing can be missed.

Usage, once per source package, in three environments (JSON on standard output goes to a file of your choice)::

    python make_op_support.py dump --out gpu.json      # in a venv with: pip install --no-deps paddlepaddle-gpu==2.6.2
    python make_op_support.py dump --out paddle2.json  # paddlepaddle==2.6.2
    python make_op_support.py dump --out paddle3.json  # paddlepaddle==3.3.1
    python make_op_support.py merge gpu.json paddle2.json paddle3.json

The GPU wheel also needs ``numpy<2 protobuf httpx decorator astor opt_einsum Pillow setuptools==68.2.2``.
"""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import argparse
import json
import re
from pathlib import Path

TARGET = Path(__file__).resolve().parents[2] / "paddle_amp_plugin" / "op_support.json"
IDENTIFIER = re.compile(rb"(?<![A-Za-z0-9_])[a-z][a-z0-9_]{1,63}(?=\x00)")
# Functions of `paddle._C_ops` that are no operators and never reach the AMP code.
NOT_OPS = {"get_core_ops_args_info", "get_core_ops_args_type_info", "get_core_ops_returns_info"}
# Hand-written eager functions whose name ends in "_" and that do have AMP code
# (paddle/fluid/eager/api/manual/eager_manual/forwards/sync_batch_norm_fwd_func.cc).
MANUAL = {"sync_batch_norm_": "sync_batch_norm"}


def is_forward(name: str) -> bool:
    """Backward functions are called by the autograd engine, below the AMP code."""
    return not (name.startswith("_") or name.endswith("_grad") or "_grad_" in name or name in NOT_OPS)


def phi_to_amp() -> dict[str, str]:
    """Read back ``OpUtilsMap::phi_kernel_to_fluid_op`` of the installed wheel: {yaml name: AMP name}."""
    from paddle.base import core, libpaddle

    candidates = {m.decode() for m in IDENTIFIER.findall(Path(libpaddle.__file__).read_bytes())}
    candidates |= set(core.get_all_op_names())
    table: dict[str, str] = {}
    for name in sorted(candidates):
        phi = core._get_phi_kernel_name(name)
        if phi not in (name, "deprecated") and table.setdefault(phi, name) != name:
            raise SystemExit(f"two old names for {phi}: {table[phi]}, {name}")
    return table


def dump() -> dict:
    """Everything this script needs from the Paddle wheel it runs in."""
    import paddle
    from paddle.base import core

    functions = [n for n in dir(paddle._C_ops) if callable(getattr(paddle._C_ops, n)) and is_forward(n)]
    table = phi_to_amp()
    result = {
        "version": paddle.__version__,
        "cuda": paddle.version.cuda(),
        "with_cuda": paddle.is_compiled_with_cuda(),
        "amp_names": {n: MANUAL.get(n, table.get(n, n)) for n in functions},
        "all_ops": sorted(filter(is_forward, core.get_all_op_names())),
        "phi_kernels": sorted(core._get_registered_phi_kernels("all")),
    }
    for dtype in ("FP32", "FP16", "BF16"):
        supported = core.op_supported_infos("GPU", getattr(core.VarDesc.VarType, dtype))[1]
        result[dtype] = sorted(filter(is_forward, supported))
    return result


def merge(gpu: dict, paddle2: dict, paddle3: dict) -> dict:
    """Put the three dumps together into the table that software half reads."""
    if not gpu["with_cuda"] or not paddle2["version"].startswith("2.") or not paddle3["version"].startswith("3."):
        raise SystemExit("order: GPU wheel, Paddle 2 CPU wheel, Paddle 3 CPU wheel")
    two, three = paddle2["amp_names"], paddle3["amp_names"]
    common = {n: a for n, a in {**two, **three}.items() if two.get(n, a) == a and three.get(n, a) == a and n != a}
    reachable = {a for names in (two, three) for a in names.values()}
    with_float32 = set(gpu["FP32"]) & reachable
    known = set(gpu["all_ops"]) & reachable
    return {
        "about": {
            "what": "what Paddle's eager AMP knows about GPU kernels; see tests/reference/make_op_support.py",
            "gpu_kernels": f"paddlepaddle-gpu {gpu['version']} (CUDA {gpu['cuda']}), core.op_supported_infos('GPU', …)",
            "names": f"paddlepaddle {paddle2['version']} and {paddle3['version']}, core._get_phi_kernel_name",
            "amp_names": "paddle._C_ops function -> name in the AMP lists, both versions, where they differ",
            "amp_names_2": "the same, Paddle 2 only",
            "amp_names_3": "the same, Paddle 3 only",
            "no_float16": "AMP names with a float32 GPU kernel and no float16 one",
            "no_bfloat16": "AMP names with a float32 GPU kernel and no bfloat16 one",
            "ops": "every AMP name in use",
            "no_gpu_float": "AMP names Paddle knows that have no GPU kernel for any of these dtypes (unsupported too)",
        },
        "amp_names": common,
        "amp_names_2": {n: a for n, a in two.items() if n != a and n not in common},
        "amp_names_3": {n: a for n, a in three.items() if n != a and n not in common},
        "no_float16": sorted(with_float32 - set(gpu["FP16"])),
        "no_bfloat16": sorted(with_float32 - set(gpu["BF16"])),
        "ops": sorted(reachable),
        "no_gpu_float": sorted(known - set(gpu["FP32"]) - set(gpu["FP16"]) - set(gpu["BF16"])),
    }


def unmapped(dumped: dict) -> list[str]:
    """Functions whose AMP name is neither an operator nor a kernel of that wheel (identity, as Paddle does)."""
    known = set(dumped["all_ops"]) | set(dumped["phi_kernels"])
    return sorted(n for n, a in dumped["amp_names"].items() if a not in known and not n.endswith("_"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("dump").add_argument("--out", type=Path, required=True)
    merging = verbs.add_parser("merge")
    for name in ("gpu", "paddle2", "paddle3"):
        merging.add_argument(name, type=Path)
    args = parser.parse_args()
    if args.verb == "dump":
        args.out.write_text(json.dumps(dump()), encoding="utf-8")
        return
    dumps = [json.loads(p.read_text(encoding="utf-8")) for p in (args.gpu, args.paddle2, args.paddle3)]
    TARGET.write_text(json.dumps(merge(*dumps), indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    for one in dumps[1:]:
        print(one["version"], "identity by default, no kernel or operator of that name:", ", ".join(unmapped(one)))


if __name__ == "__main__":
    main()
