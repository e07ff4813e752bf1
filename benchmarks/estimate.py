"""``paddle-amp estimate`` against the truth: the allocator's own peak in real FP32 training steps.

    python -m benchmarks.estimate                # every case, each measurement in a process of its own; a table
    python -m benchmarks.estimate crnn           # one of them

Every case is estimated from two small steps (2 and 4 samples), then trained for three steps at each batch size. What is
compared: the total without reserve, and ``paddle.base.core.host_memory_stat_peak_value("Allocated", 0)``.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.nlp import tiny as nlp
from tests.workloads import configs as ocr

STEPS = 3
ROOT = Path(__file__).resolve().parent.parent


def quick_start(folder: Path) -> Path:
    """The quick start's SVTR; its dictionary comes with its data, so another of the same size takes its place."""
    import yaml

    document = yaml.safe_load((ROOT / "configs" / "ocr_amp.yml").read_text(encoding="utf-8"))
    words = folder / "dict.txt"
    words.write_text("".join(f"{chr(0x4E00 + i)}\n" for i in range(500)), encoding="utf-8")
    document["Global"]["character_dict_path"] = str(words)
    return ocr.write(folder, document)


def db_resnet18(folder: Path) -> Path:
    """DB with ResNet18_vd and DBFPN 256, as det_r18_vd's config has it."""
    document = ocr.det_v3_student(folder)
    document["Architecture"]["Backbone"] = {"name": "ResNet_vd", "layers": 18, "disable_se": True}
    document["Architecture"]["Neck"] = {"name": "DBFPN", "out_channels": 256}
    return ocr.write(folder, document)


def _ocr(make: Callable[[Path], dict[str, Any]]) -> Callable[[Path], Path]:
    return lambda folder: ocr.write(folder, make(folder))


def _encoder(model_type: str, hidden: int, layers: int, length: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        document = nlp.recipe(folder, "sequence_classification")
        sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 4}
        sizes |= {"intermediate_size": 4 * hidden, "vocab_size": 4000, "max_position_embeddings": 128}
        sizes |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        document["model"]["config"].update(sizes)
        document["model"]["architecture"] = model_type
        document["data"]["max_seq_length"] = length
        return nlp.write(folder / "c.yml", document)

    return make


#: name -> (writes its config, batch sizes)
CASES: dict[str, tuple[Callable[[Path], Path], tuple[int, int, int]]] = {
    "svtr (quick start)": (quick_start, (8, 16, 48)),
    "crnn": (_ocr(ocr.crnn), (8, 16, 64)),
    "svtr_lcnet (CTC + SAR)": (_ocr(ocr.multi_head), (6, 12, 24)),
    "db mobilenetv3": (_ocr(ocr.det_v3_student), (3, 6, 10)),
    "db resnet18": (db_resnet18, (3, 6, 8)),
    "distillation (2 crnn)": (_ocr(ocr.distillation), (8, 16, 32)),
    "cls mobilenetv3": (_ocr(ocr.cls), (8, 32, 96)),
    "ernie 4x128": (_encoder("ernie", 128, 4, 64), (8, 16, 32)),
    "bert 2x256": (_encoder("bert", 256, 2, 96), (8, 16, 32)),
}


def measured_peak(work: Any, size: int) -> int:
    """The allocator's highest count, in bytes, over ``STEPS`` training steps of ``size`` samples."""
    from paddle_amp_plugin.estimate.allocator import Mark, in_use, on_cpu
    from paddle_amp_plugin.estimate.step import WorkloadStep

    with on_cpu():
        step = WorkloadStep(work)
        step.model.train()
        batch = step.batch(size)
        gc.collect()
        before, mark = in_use(), Mark()
        for _ in range(STEPS):
            step.loss(batch).backward()
            step.optimizer.step()
            step.optimizer.clear_grad()
        return before + mark.rise()


def estimated(work: Any, sizes: tuple[int, ...]) -> list[int]:
    """The estimate of the same, without reserve."""
    from paddle_amp_plugin.estimate.allocator import on_cpu
    from paddle_amp_plugin.estimate.measure import trace_step
    from paddle_amp_plugin.estimate.modes import parts
    from paddle_amp_plugin.estimate.plans import FP32
    from paddle_amp_plugin.estimate.step import WorkloadStep

    with on_cpu():
        traced = trace_step(WorkloadStep(work))
    return [parts(traced, FP32, size).total for size in sizes]


def child(config: str, what: str, sizes: tuple[int, ...]) -> list[int]:
    """Runs in a process of its own: ``what`` is ``estimate``, ``measure`` (one size) or ``both``."""
    from paddle_amp_plugin.hosts.workloads import open_workload

    with open_workload(config, synthetic=True) as work:
        found = [measured_peak(work, sizes[0])] if what != "estimate" else []
        gc.collect()
        return found if what == "measure" else [*found, *estimated(work, sizes)]


def run_child(config: Path, what: str, *sizes: int) -> list[int]:
    """``child`` in a fresh process."""
    words = [sys.executable, "-m", "benchmarks.estimate", f"--{what}", str(config), *map(str, sizes)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{config}: {done.stdout}{done.stderr}")
    return list(json.loads(done.stdout.splitlines()[-1]))


def table(names: list[str]) -> None:
    print("| model | batch | estimated | measured | error |")
    print("|---|---|---|---|---|")
    for name in names:
        make, sizes = CASES[name]
        with tempfile.TemporaryDirectory() as place:
            config = make(Path(place))
            for size, estimate in zip(sizes, run_child(config, "estimate", *sizes), strict=True):
                measured = run_child(config, "measure", size)[0]
                error = 100 * (estimate - measured) / measured
                mib = 1 << 20
                print(
                    f"| {name} | {size} | {estimate / mib:.2f} MiB | {measured / mib:.2f} MiB | {error:+.2f} % |",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("--"):
        answer = child(sys.argv[2], sys.argv[1][2:], tuple(map(int, sys.argv[3:])))
        print(json.dumps(answer))
    else:
        table(sys.argv[1:] or list(CASES))
