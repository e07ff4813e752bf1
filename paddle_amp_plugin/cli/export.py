"""``paddle-amp export``: FP32 masters as an inference model, verified; ONNX and INT8 if asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin import pdamp
from paddle_amp_plugin.cli.options import overrides
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.export.folder import check_folder
from paddle_amp_plugin.export.wanted import METHODS, Wanted
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.spelling import nearest


def export(
    checkpoint: Path,
    *,
    config: Path | None,
    out: Path,
    onnx: bool,
    int8: str | None,
    qat_steps: int,
    convert_half: bool,
    data: Path | None,
    options: Sequence[str],
    paddleocr_dir: str | None,
) -> None:
    """Exports and prints what was seen. Raises AmpError: AMP230 for the arguments, AMP231 to AMP245 for the rest."""
    _check(checkpoint, config, int8, qat_steps, data)
    check_folder(out)
    from paddle_amp_plugin.hosts.paddleocr_run import require_paddle

    require_paddle()
    if checkpoint.with_name(f"{checkpoint.name}{pdamp.AVERAGE}.pdparams").is_file():
        _say(
            tr(
                "this exports the trained weights; evaluated was their moving average: {c}",
                "导出的是训练得到的权重；评估所用的是其滑动平均：{c}",
                c=f"{checkpoint}{pdamp.AVERAGE}",
            )
        )
    wanted = Wanted(out, onnx, int8, qat_steps)  # type: ignore[arg-type]
    if config is not None:
        from paddle_amp_plugin.hosts.paddleocr_export import export_checkpoint

        record = export_checkpoint(
            checkpoint,
            config,
            wanted,
            options=overrides(options),
            convert_half=convert_half,
            paddleocr_dir=paddleocr_dir,
            say=_say,
        )
    else:
        from paddle_amp_plugin.hosts.paddlenlp_export import export_folder

        record = export_folder(checkpoint, wanted, data=data, convert_half=convert_half, say=_say)
    _say(tr("written: {d}", "已写入：{d}", d=out))
    _say_client(record, out)


def _check(checkpoint: Path, config: Path | None, int8: str | None, qat_steps: int, data: Path | None) -> None:
    if int8 is not None and int8 not in METHODS:
        near = nearest(int8, METHODS)
        raise AmpError(
            "AMP230",
            tr("--int8 {v}: allowed: {a}", "--int8 {v}：允许的值：{a}", v=int8, a=", ".join(METHODS)),
            hint=tr("did you mean: {s}", "您是不是想写：{s}", s=near) if near else "",
        )
    if qat_steps < 1:
        raise AmpError("AMP230", tr("--qat-steps {v}: 1 or more", "--qat-steps {v}：应为 1 或更大", v=qat_steps))
    if config is None and not checkpoint.exists() and not checkpoint.with_name(f"{checkpoint.name}.pdparams").exists():
        raise AmpError("AMP056", tr("no such file or folder: {c}", "文件或文件夹不存在：{c}", c=checkpoint))
    if config is None and not checkpoint.is_dir():
        raise AmpError(
            "AMP230",
            tr("{c}: a PaddleOCR checkpoint needs its config", "{c}：PaddleOCR 检查点需要其配置文件", c=checkpoint),
            hint=tr(
                "-c config.yml (a PaddleNLP model is given as its folder, without -c)",
                "-c config.yml（PaddleNLP 模型请直接给出其文件夹，不加 -c）",
            ),
        )
    if config is not None and data is not None:
        raise AmpError(
            "AMP230",
            tr(
                "--data is for a PaddleNLP folder; a config names its own data",
                "--data 用于 PaddleNLP 文件夹；配置文件自带数据",
            ),
        )


def _say(text: str) -> None:
    print(f"export: {text}", flush=True)


def _say_client(record: dict[str, Any], out: Path) -> None:
    client = record.get("client", {}).get("paddleocr_3")
    if client is None:
        return
    name = "text_recognition_model_dir" if record["kind"] == "rec" else "text_detection_model_dir"
    arguments = ", ".join(f"{k}={json.dumps(v) if not isinstance(v, bool) else v}" for k, v in client.items())
    _say(tr("in the official client: ", "在官方客户端中：") + f"PaddleOCR({name}={str(out)!r}, {arguments})")
