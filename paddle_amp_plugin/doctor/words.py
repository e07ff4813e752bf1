"""How verdict and reasons are said, in English and in Chinese. Pure."""

from __future__ import annotations

from paddle_amp_plugin.doctor.verdict import Reason, Verdict
from paddle_amp_plugin.messages import tr

#: key of a reason -> (English, Chinese), with the reason's values as fields.
REASONS: dict[str, tuple[str, str]] = {
    "no_paddle": (
        'PaddlePaddle is not installed in this Python: pip install "paddle-amp-plugin[cpu]" or [gpu]',
        '当前 Python 未安装 PaddlePaddle：pip install "paddle-amp-plugin[cpu]" 或 [gpu]',
    ),
    "paddle_import": ("PaddlePaddle cannot be imported: {error}", "无法导入 PaddlePaddle：{error}"),
    "paddle_crash": (
        "importing PaddlePaddle ends its process: {error}",
        "导入 PaddlePaddle 时进程异常结束：{error}",
    ),
    "amp_lacks": (
        "PaddlePaddle {version} lacks what the plugin calls: {names}; 2.6.2 or newer has it",
        "PaddlePaddle {version} 缺少插件所需的接口：{names}；2.6.2 及以上版本具备",
    ),
    "two_wheels": (
        "several wheels bring the same `paddle` folder and overwrite each other: {names}; uninstall all, install one",
        "多个安装包提供同一个 `paddle` 目录并相互覆盖：{names}；请全部卸载后只安装其一",
    ),
    "cpu_wheel": (
        "this machine has {gpus}, but PaddlePaddle {version} is the CPU build: "
        "pip uninstall paddlepaddle, then install paddlepaddle-gpu",
        "本机有 {gpus}，但 PaddlePaddle {version} 是 CPU 版：请先 pip uninstall paddlepaddle，再安装 paddlepaddle-gpu",
    ),
    "no_driver": (
        "PaddlePaddle {version} is built for CUDA {cuda}, but sees no GPU, and there is no nvidia-smi: "
        "install NVIDIA's driver (in a container: start it with --gpus all)",
        "PaddlePaddle {version} 为 CUDA {cuda} 版，但看不到 GPU，也没有 nvidia-smi："
        "请安装 NVIDIA 驱动（容器请用 --gpus all 启动）",
    ),
    "driver_fails": ("NVIDIA's driver does not answer: {error}", "NVIDIA 驱动没有响应：{error}"),
    "hidden": (
        "the GPUs are hidden from Paddle by CUDA_VISIBLE_DEVICES={value}",
        "环境变量 CUDA_VISIBLE_DEVICES={value} 使 Paddle 看不到 GPU",
    ),
    "not_seen": (
        "nvidia-smi answers (driver {driver}, up to CUDA {runs}), but PaddlePaddle, built for CUDA {cuda}, sees no "
        "GPU: update the driver, or install a build for CUDA {runs} or older",
        "nvidia-smi 正常（驱动 {driver}，最高支持 CUDA {runs}），但为 CUDA {cuda} 构建的 PaddlePaddle 看不到 GPU："
        "请升级驱动，或安装 CUDA {runs} 及更早的版本",
    ),
    "card_fails": ("{place} does not answer: {error}", "{place} 没有响应：{error}"),
    "driver_old": (
        "driver {driver} runs CUDA up to {runs}, PaddlePaddle is built for {cuda}: if kernels fail, update the driver",
        "驱动 {driver} 最高支持 CUDA {runs}，而 PaddlePaddle 为 {cuda} 构建：若算子报错，请升级驱动",
    ),
    "no_paddleocr": (
        "{file} needs PaddleOCR's training code: give your checkout with PADDLEOCR_HOME, or: "
        "pip install --no-deps unstructured-paddleocr==2.10.0",
        "{file} 需要 PaddleOCR 训练代码：请用 PADDLEOCR_HOME 指定您的目录，或执行："
        "pip install --no-deps unstructured-paddleocr==2.10.0",
    ),
    "no_paddlenlp": (
        '{file} needs PaddleNLP: pip install "paddle-amp-plugin[nlp]"',
        '{file} 需要 PaddleNLP：pip install "paddle-amp-plugin[nlp]"',
    ),
    "absent": (
        "{file} asks for the device {place}, which Paddle does not see here",
        "{file} 指定了设备 {place}，但 Paddle 在此看不到它",
    ),
    "plan_refused": ("{file} cannot run here: [{code}] {text}", "{file} 无法在此运行：[{code}] {text}"),
    "no_key": ("{file} has no `amp` key; add: amp: true", "{file} 中没有 `amp` 键；请添加：amp: true"),
    "config_off": ("{file}: {why}", "{file}：{why}"),
    "too_old": (
        "{name} ({architecture}, compute capability {capability}): Paddle's auto_cast needs 7.0 for float16 and "
        "8.0 for bfloat16",
        "{name}（{architecture}，计算能力 {capability}）：Paddle 的 auto_cast 对 float16 要求 7.0，"
        "对 bfloat16 要求 8.0",
    ),
    "no_half": (
        "{name}: Paddle reports neither float16 nor bfloat16 for {place}",
        "{name}：Paddle 报告 {place} 既不支持 float16 也不支持 bfloat16",
    ),
    "emulated": (
        "no GPU: half precision is computed in software; the numerics are real, the speed is not",
        "没有 GPU：以软件方式计算半精度；数值真实，速度不具参考性",
    ),
    "emulated_by_choice": (
        "the config asks for the CPU, though there are devices: half precision is computed in software, without speed",
        "配置指定使用 CPU，尽管存在其他设备：半精度以软件方式计算，没有加速",
    ),
    "tensor_cores": (
        "{name} ({architecture}, {capability}) has Tensor Cores: convolutions and matmuls gain most",
        "{name}（{architecture}，{capability}）具有 Tensor Core：卷积与矩阵乘收益最大",
    ),
    "no_tensor_cores": (
        "{name} ({architecture}, {capability}) has no Tensor Cores: expect less memory, and little speed",
        "{name}（{architecture}，{capability}）没有 Tensor Core：可节省显存，但加速有限",
    ),
    "as_paddle_says": ("{name}: Paddle reports {halves} for {place}", "{name}：Paddle 报告 {place} 支持 {halves}"),
    "no_bfloat16": (
        "no bfloat16 on {name}: layers that leave float16's range (text detection) stay in FP32",
        "{name} 不支持 bfloat16：超出 float16 范围的层（文本检测）将保持 FP32",
    ),
    "reader": (
        "{file}: Train.loader.num_workers is 0, so the device waits while its data are read; AMP does not shorten that",
        "{file}：Train.loader.num_workers 为 0，读取数据时设备处于等待状态；AMP 不会缩短这部分时间",
    ),
    "unlike": (
        "the devices are not alike ({names}): a distributed run over all of them would not compute in one precision",
        "各设备能力不一致（{names}）：在所有设备上分布式运行时精度会不统一",
    ),
    "test_passed": (
        "self-test passed on {place}: 5 steps at {level}, {dtype}, and one overflow",
        "自检通过：{place} 上以 {level}、{dtype} 训练 5 步，并处理了一次溢出",
    ),
    "test_failed": (
        "self-test on {place} at {level}, {dtype}: not as planned: {checks}",
        "{place} 上的自检（{level}，{dtype}）与计划不符：{checks}",
    ),
    "test_crashed": (
        "self-test on {place} at {level}, {dtype} broke off at '{stage}': {error}",
        "{place} 上的自检（{level}，{dtype}）在“{stage}”处中断：{error}",
    ),
    "test_timeout": (
        "self-test on {place} at {level}, {dtype} did not end; it hung at '{stage}'",
        "{place} 上的自检（{level}，{dtype}）没有结束，停在“{stage}”",
    ),
}


def say(reason: Reason) -> str:
    """One reason in the user's language, with its code in front if it has one."""
    text = tr(*REASONS[reason.key], **reason.values)
    return f"[{reason.code}] {text}" if reason.code else text


def headline(verdict: Verdict, *, config: bool) -> str:
    """The verdict in one line. ``config``: it is about a config, not about ``amp: true`` in general."""
    what = f"{verdict.level}, {verdict.dtype}"
    if not config and verdict.detection_dtype != verdict.dtype:
        what += tr("; text detection: {d}", "；文本检测：{d}", d=verdict.detection_dtype)
    if verdict.state == "works":
        return tr("AMP will work on {p}: {w}", "AMP 可在 {p} 上工作：{w}", p=verdict.place, w=what)
    if verdict.state == "emulated":
        return tr("AMP will work, emulated on the CPU: {w}", "AMP 可在 CPU 上以软件模拟方式工作：{w}", w=what)
    # "broken" and "off" always have the reason that made them so in front
    why = say(verdict.reasons[0])
    if verdict.state == "off":
        return tr("AMP would be off: {w}", "AMP 不会启用：{w}", w=why)
    return tr("something is wrong: {w}", "存在问题：{w}", w=why)
