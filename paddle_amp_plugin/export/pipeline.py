"""One export, whatever the host: save, read back, compare, and keep only what is equal; then ONNX and INT8."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import paddle

from paddle_amp_plugin.diagnosis.ranges import range_probe
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.export import compare, int8, record
from paddle_amp_plugin.export.exported import (
    NAME,
    Array,
    OnnxRunner,
    PaddleRunner,
    Runner,
    read_parameters,
    seconds_per_call,
)
from paddle_amp_plugin.export.folder import staged
from paddle_amp_plugin.export.onnx_model import require_onnx, to_onnx
from paddle_amp_plugin.export.qat import fine_tuned
from paddle_amp_plugin.export.wanted import Wanted
from paddle_amp_plugin.export.weights import Masters
from paddle_amp_plugin.messages import tr

Loss = Callable[[paddle.nn.Layer], paddle.Tensor]


class Subject(Protocol):
    """What a host gives to an export. ``kind``: ``det``, ``rec``, ``sequence_classification``, …"""

    kind: str
    transformer: bool
    masters: Masters
    model: paddle.nn.Layer

    def batches(self) -> Sequence[Sequence[Array]]:
        """The inputs of some batches of the evaluation set, as the exported model takes them."""

    def forward(self, model: paddle.nn.Layer, batch: int) -> Any:
        """The outputs of ``model`` (eval mode) for the batch of that number, in whatever structure it returns."""

    def save(self, model: paddle.nn.Layer, folder: Path) -> None:
        """Writes ``inference.*`` of ``model`` into ``folder``; leaves the model as it is."""

    def metric(self, runner: Runner | None) -> dict[str, float]:
        """The metric over the evaluation set: of ``runner``, or of the model itself if None. Empty: no labels."""

    def losses(self, steps: int) -> Iterator[Loss]:
        """``steps`` training batches, each as a function from the model to its loss."""

    def again(self) -> paddle.nn.Layer:
        """Another model of the same architecture with the same weights."""

    def finish(self, folder: Path) -> dict[str, Any]:
        """Adds what deployment needs beside the model; returns what ``export.json`` should say of it."""


def require(wanted: Wanted) -> None:
    """Raises AmpError (AMP240, AMP241) for what the installed packages cannot do, before any work is done."""
    if wanted.onnx:
        require_onnx()
    if wanted.int8 is not None:
        int8.require_int8(wanted.int8)


def export(subject: Subject, wanted: Wanted, say: Callable[[str], None]) -> dict[str, Any]:
    """The whole export into ``wanted.out``; returns the record, as it lies there in ``export.json``.

    Nothing is left behind if the FP32 model is not what it must be (AMP233, AMP234, AMP235, AMP239, AMP244). An INT8
    model that fails (AMP242) leaves the FP32 export in place.
    """
    require(wanted)
    check_fit(subject.model, subject.masters)
    subject.model.eval()
    with staged(wanted.out) as folder:
        made = _float32(subject, folder, say)
        if wanted.onnx or (wanted.int8 is not None and int8.backend() == "onnxruntime"):
            made["onnx"] = _onnx(subject, folder, say)
        made.update(subject.finish(folder))
        record.write_record(folder, made)
    if wanted.int8 is not None:
        made["int8"] = _int8(subject, wanted, made["metric"]["exported"], say)
        record.write_record(wanted.out, made)
    return made


def check_fit(model: paddle.nn.Layer, masters: Masters) -> None:
    """Raises AmpError (AMP239) if a weight of the model is not in the checkpoint, or of another shape there.

    Hosts only warn of that, and such a model would be exported with random numbers in it.
    """
    state = model.state_dict()
    missing = [name for name in state if name not in masters.tensors]
    wrong = [n for n, v in state.items() if n in masters.tensors and list(masters.tensors[n].shape) != list(v.shape)]
    if not missing and not wrong:
        return
    parts = []
    if missing:
        parts.append(
            tr("{n} weights are not in it (first: {f})", "缺少 {n} 个权重（例如 {f}）", n=len(missing), f=missing[0])
        )
    if wrong:
        name = wrong[0]
        shapes = f"{name}: {list(masters.tensors[name].shape)} / {list(state[name].shape)}"
        parts.append(tr("{n} have another shape ({s})", "{n} 个权重形状不同（{s}）", n=len(wrong), s=shapes))
    raise AmpError(
        "AMP239",
        tr(
            "{f} does not fit the model of the config: {p}",
            "{f} 与配置中的模型不符：{p}",
            f=masters.path,
            p="; ".join(parts),
        ),
        hint=tr(
            "is it the config.yml that was written beside the weights? (another dictionary makes another head)",
            "是否使用了与权重一同保存的 config.yml？（字典不同，输出层也不同）",
        ),
    )


def _float32(subject: Subject, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    say(tr("exporting FP32 masters", "正在导出 FP32 主权重"))
    subject.save(subject.model, folder)
    parameters = _parameters(subject, folder)
    say(
        tr(
            "{n} parameters read back: float32, equal to {f} bit for bit",
            "已读回 {n} 个参数：均为 float32，与 {f} 逐位一致",
            n=parameters.equal,
            f=subject.masters.path.name,
        )
    )
    if parameters.derived:
        say(
            tr(
                "{n} more were merged by the host from others (re-parameterisation): the outputs are their proof",
                "另有 {n} 个参数由宿主从其他参数合并而来（重参数化）：以输出比较为证",
                n=len(parameters.derived),
            )
        )
    runner = PaddleRunner(folder)
    batches = subject.batches()
    expected = [_arrays(subject.forward(subject.model, i)) for i in range(len(batches))]
    gap = compare.difference([runner(batch) for batch in batches], expected)
    compare.require_small(gap, tr("the inference model", "推理模型"))
    say(_said(tr("inference model", "推理模型"), gap, len(batches)))
    ranges = range_probe(subject.model, range(len(batches)), lambda model, i: _only_outputs(subject, model, i))
    say(record.range_note(ranges))
    metric = {"trained": subject.metric(None), "exported": subject.metric(runner)}
    for name, value in metric["trained"].items():
        say(f"{name}: {value:.6g} -> {metric['exported'][name]:.6g}")
    made = record.base(subject.masters, kind=subject.kind)
    made["parameters"] = record.parameters_section(parameters)
    made["outputs"] = {"batches": len(batches), **record.difference_section(gap)}
    made["metric"] = metric
    made["float16_ranges"] = record.range_section(ranges)
    return made


def _only_outputs(subject: Subject, model: paddle.nn.Layer, batch: int) -> None:
    with paddle.no_grad():
        subject.forward(model, batch)


def _parameters(subject: Subject, folder: Path) -> compare.Parameters:
    names = {tensor.name: key for key, tensor in subject.model.state_dict().items()}

    def name_of(name: str) -> str | None:
        # Hosts export a deep copy; Paddle names its parameters <name>_deepcopy_<n>.
        return names.get(name) or names.get(re.sub(r"_deepcopy_\d+$", "", name))

    # PP-LCNetV3 and its kin merge parallel branches into one convolution for inference, in a method `rep`.
    merges = any(callable(getattr(layer, "rep", None)) for layer in subject.model.sublayers())
    return compare.compare_parameters(
        read_parameters(folder),
        subject.masters.tensors,
        name_of,
        derived=lambda name: merges and name_of(name) is None,
    )


def _arrays(outputs: Any) -> list[Array]:
    return [tensor.numpy() for tensor in compare.flat(outputs)]


def _said(what: str, gap: compare.Difference, count: int) -> str:
    return tr(
        "{w}: outputs differ by at most {a:.3g} (relative {r:.3g}) on {n} real batch(es)",
        "{w}：在 {n} 个真实批次上，输出最大相差 {a:.3g}（相对 {r:.3g}）",
        w=what,
        a=gap.max_abs,
        r=gap.max_rel,
        n=count,
    )


def _onnx(subject: Subject, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    path = to_onnx(folder, folder / f"{NAME}.onnx")
    runner = OnnxRunner(path)
    batches = subject.batches()
    expected = [_arrays(subject.forward(subject.model, i)) for i in range(len(batches))]
    gap = compare.difference([runner(batch) for batch in batches], expected)
    compare.require_small(gap, tr("the ONNX model", "ONNX 模型"))
    say(_said("ONNX", gap, len(batches)))
    return {"file": path.name, "bytes": path.stat().st_size, **record.difference_section(gap)}


def _int8(subject: Subject, wanted: Wanted, before: dict[str, float], say: Callable[[str], None]) -> dict[str, Any]:
    assert wanted.int8 is not None
    say(tr("INT8 ({m}) by {b}", "INT8（{m}），使用 {b}", m=wanted.int8, b=int8.backend()))
    target = wanted.out / int8.FOLDER
    temporary = wanted.out / f".{int8.FOLDER}.{os.getpid()}.tmp"
    try:
        if wanted.int8 == "ptq":
            int8.quantise(wanted.out, temporary, subject.batches(), transformer=subject.transformer)
        else:
            fine_tuned(subject, wanted, temporary)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    runner, plain = int8.runner_of(target), int8.runner_of(wanted.out)
    slow, fast = seconds_per_call([plain, runner], subject.batches()[0])
    sizes = int8.size(wanted.out), int8.size(target)
    made: dict[str, Any] = {"method": wanted.int8, "by": int8.backend(), "folder": int8.FOLDER}
    if wanted.int8 == "qat":
        made["fine_tuning_steps"] = wanted.qat_steps
    made["bytes"] = {"float32": sizes[0], "int8": sizes[1]}
    made["metric"] = {"float32": before, "int8": subject.metric(runner)}
    made["latency_ratio"] = round(fast / slow, 3)
    for line in _int8_lines(made):
        say(line)
    return made


def _int8_lines(made: dict[str, Any]) -> list[str]:
    sizes, metric = made["bytes"], made["metric"]
    lines = [f"{k}: {v:.6g} -> {metric['int8'][k]:.6g}" for k, v in metric["float32"].items()]
    text = tr(
        "size {a} -> {b} bytes; time of a batch: {r:.2f} of FP32's on this CPU",
        "大小 {a} -> {b} 字节；每批耗时为 FP32 的 {r:.2f} 倍（本机 CPU）",
        a=sizes["float32"],
        b=sizes["int8"],
        r=made["latency_ratio"],
    )
    return [*lines, text]
