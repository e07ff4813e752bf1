"""PaddleOCR's command line, read before anything heavy is imported, so that mistakes are said in a second.

Pure: no Paddle. The host parses the same arguments again later; nothing here changes them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paddle_amp_plugin import config
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.file_set import recover
from paddle_amp_plugin.messages import tr


@dataclass(frozen=True)
class Arguments:
    """``-c`` and ``-o`` of a PaddleOCR script. ``options`` maps dotted keys to values (YAML scalars)."""

    config_path: str | None
    options: dict[str, Any] = field(default_factory=dict)


def parse(argv: Sequence[str]) -> Arguments:
    """Reads ``-c FILE`` and ``-o k=v …`` as the host's ArgsParser does; other arguments are ignored.

    Raises AmpError (AMP050) for ``-o`` without ``=``, which in the host ends in a traceback.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--config")
    parser.add_argument("-o", "--opt", nargs="+", action="extend", default=[])
    try:
        known, _ = parser.parse_known_args(list(argv))
    except SystemExit:  # argparse has printed what is wrong
        raise AmpError("AMP050", tr("the command line could not be read", "无法解析命令行参数")) from None
    options = {}
    for text in known.opt:
        key, equals, value = text.strip().partition("=")
        if not equals or not key:
            raise AmpError(
                "AMP050",
                tr("-o {t}: expected key=value", "-o {t}：应写成 键=值", t=text),
                hint=tr("for example -o Global.epoch_num=1", "例如 -o Global.epoch_num=1"),
            )
        if "=" in value:
            raise AmpError(
                "AMP050",
                tr("-o {t}: PaddleOCR reads one '=' only", "-o {t}:PaddleOCR 只接受一个 '='", t=text),
                hint=tr("put such a value into the YAML file", "请将这样的值写进 YAML 文件"),
            )
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise AmpError(
                "AMP050", tr("-o {t}: the value is not valid YAML", "-o {t}：该值不是有效的 YAML", t=text)
            ) from None
    return Arguments(known.config, options)


def is_amp_option(key: str) -> bool:
    """Is a dotted ``-o`` key one of ours (``amp``, ``amp.*``, ``Global.amp``, ``Global.amp.*``)?"""
    return key.split(".")[0] == "amp" or key == "Global.amp" or key.startswith("Global.amp.")


def preflight(argv: Sequence[str], *, training: bool) -> config.AmpConfig | None:
    """Everything that can be known before Paddle is imported: file, YAML, ``amp`` key, data, folders.

    Returns the AMP settings, or None if the file has none. Raises AmpError / ConfigError.
    """
    arguments = parse(argv)
    if any(flag in argv for flag in ("-h", "--help")):
        return None
    if arguments.config_path is None:
        raise AmpError(
            "AMP050",
            tr("no config file given: -c FILE is missing", "未指定配置文件：缺少 -c FILE"),
            hint=tr("for example: -c configs/ocr_amp.yml", "例如：-c configs/ocr_amp.yml"),
        )
    if Path(arguments.config_path).suffix not in (".yml", ".yaml"):
        raise AmpError(
            "AMP050",
            tr(
                "{f}: PaddleOCR reads .yml and .yaml files only",
                "{f}:PaddleOCR 只读取 .yml 与 .yaml 文件",
                f=arguments.config_path,
            ),
        )
    document = config.load_yaml(arguments.config_path)
    settings = config.read_amp(
        document, host="paddleocr", overrides=arguments.options, source=str(arguments.config_path)
    )
    if settings is not None:
        check_sections(document, arguments.config_path)
        if value(document, arguments.options, "Architecture.model_type") != "kie":  # those load folders
            for key in ("Global.checkpoints", "Global.pretrained_model"):
                check_weights(key, value(document, arguments.options, key))
    if training and settings is not None:
        check_output_folder(value(document, arguments.options, "Global.save_model_dir"))
    return settings


def check_sections(document: Mapping[str, Any], source: str) -> None:
    """Raises AmpError (AMP055) if a section is missing that every PaddleOCR script needs."""
    missing = [name for name in ("Global", "Architecture") if not isinstance(document.get(name), Mapping)]
    if missing:
        raise AmpError(
            "AMP055",
            tr("{f} has no section {m}", "{f} 中缺少 {m} 部分", f=source, m=", ".join(missing)),
            hint=tr("is it a PaddleOCR config?", "它是 PaddleOCR 的配置文件吗？"),
        )


def value(document: Mapping[str, Any], options: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, ``-o`` first; None if absent."""
    if path in options:
        return options[path]
    node: Any = document
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def check_weights(key: str, path: Any) -> None:
    """Raises AmpError (AMP056) if the weights that ``key`` names are not there. URLs are the host's business."""
    if not isinstance(path, str) or not path or "://" in path:
        return
    stem = path.removesuffix(".pdparams")
    recover(Path(stem).parent, Path(stem).name)  # a kill may have left a whole checkpoint that is not in its place
    if Path(f"{stem}.pdparams").is_file() or Path(path).is_dir():
        return
    folder = Path(stem).parent
    there = sorted(f.stem for f in folder.glob("*.pdparams")) if folder.is_dir() else []
    raise AmpError(
        "AMP056",
        tr("{k}: no such weights: {f}.pdparams", "{k}：权重不存在：{f}.pdparams", k=key, f=stem),
        hint=tr("{d} holds: {n}", "{d} 中有：{n}", d=folder, n=", ".join(there[:8]))
        if there
        else tr("relative paths start at {d}", "相对路径以 {d} 为起点", d=os.getcwd()),
    )


def check_output_folder(folder: Any) -> None:
    """Raises AmpError (AMP049) if nothing can be written into ``folder``; leaves nothing behind."""
    if not isinstance(folder, str) or not folder:
        raise AmpError(
            "AMP049",
            tr("Global.save_model_dir is not set", "未设置 Global.save_model_dir"),
            hint=tr("-o Global.save_model_dir=output/run", "-o Global.save_model_dir=output/run"),
        )
    place = Path(folder)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        if not place.is_dir():
            raise NotADirectoryError(20, os.strerror(20), str(place))
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise AmpError(
            "AMP049",
            tr(
                "cannot write into {f} (Global.save_model_dir): {e}",
                "无法写入 {f}(Global.save_model_dir):{e}",
                f=folder,
                e=f"{place}: {error.strerror or error}",
            ),
            hint=tr("choose another folder: -o Global.save_model_dir=…", "请换一个目录：-o Global.save_model_dir=…"),
        ) from None
