"""``<prefix>.pdamp``: what a checkpoint needs to go on exactly where it was, and which files belong to it.

Strict JSON (RFC 8259), UTF-8, read without executing anything: ``format``, ``version`` (a reader refuses a higher
one), ``sha256`` (of the rest, as ``json.dumps(…, sort_keys=True, separators=(",", ":"))`` writes it in ASCII), and
the fields of :class:`Pdamp`. A reader passes over fields it does not know. Nothing here imports Paddle.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

FORMAT = "paddle-amp checkpoint"
VERSION = 1
SUFFIX = ".pdamp"
#: ``<prefix>_ema.pdparams`` beside ``<prefix>.pdparams``: the moving average of the weights.
AVERAGE = "_ema"

_CONFIG = ConfigDict(extra="ignore", allow_inf_nan=False)


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint. ``name``: relative to the ``.pdamp``'s folder, with ``/``; ``size`` in bytes."""

    name: str
    size: int
    sha256: str

    __pydantic_config__ = _CONFIG


@dataclass(frozen=True)
class Pins:
    """What a healing changed beside the YAML. ``dtype``: the half type it was for.

    ``static_scale``: a lowered static loss scale. ``off``: why AMP was switched off for good, "" if it was not.
    """

    dtype: str = ""
    layers: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    static_scale: float | None = None
    off: str = ""

    __pydantic_config__ = _CONFIG

    def __bool__(self) -> bool:
        return bool(self.layers or self.ops or self.off or self.static_scale is not None)


@dataclass(frozen=True)
class Pdamp:
    """The state of a run beside its weights and moments, which are in the host's files.

    ``step``: optimizer steps done, ``updates``: those that changed the weights, ``updates_judged``: ``updates`` at
    the last evaluation. ``scaler``: ``LossScale.state_dict()``; ``use_loss_scaling``: whether its scale meant
    anything. ``level``, ``dtype``: what the run computed in; ``stored_dtype`` / ``master_dtype``: of the weights in
    the files / of the learned weights. ``plan``: the plan as in ``plan.yml``, as it was before any healing.
    ``treatment``: counters of the healing. ``window``: of gradient accumulation, if within one. ``rng``: see
    ``rng.rng_state``. ``files``: every file of the checkpoint.
    ``host``: whatever the host wants to have back (JSON values).
    """

    step: int
    updates: int
    scaler: dict[str, float | int]
    use_loss_scaling: bool
    level: str
    dtype: str
    paddle: str
    updates_judged: int = 0
    stored_dtype: str = "float32"
    master_dtype: str = "float32"
    plan: dict[str, Any] = field(default_factory=dict)
    pins: Pins = field(default_factory=Pins)
    treatment: dict[str, Any] = field(default_factory=dict)
    window: dict[str, Any] = field(default_factory=dict)
    rng: dict[str, Any] = field(default_factory=dict)
    world_size: int = 1
    device: str = ""
    plugin: str = ""
    files: tuple[FileEntry, ...] = ()
    host: dict[str, Any] = field(default_factory=dict)

    __pydantic_config__ = _CONFIG

    def __post_init__(self) -> None:
        if not 0 <= self.updates_judged <= self.updates <= self.step or self.world_size < 1:
            raise ValueError("not 0 <= updates_judged <= updates <= step")


_ADAPTER = TypeAdapter(Pdamp)


def to_text(saved: Pdamp) -> str:
    """The content of a ``.pdamp``. Raises ``ValueError`` if a value (of ``host``) is none of JSON's."""
    body = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(saved)}
    try:
        body = {"sha256": _digest(body), **body}
        lines = [
            f"{json.dumps(name)}: {json.dumps(value, allow_nan=False, ensure_ascii=False)}"
            for name, value in body.items()
        ]
    except TypeError as error:
        raise ValueError(str(error)) from None
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_text(text: str, *, source: str = "") -> Pdamp:
    """The state in ``text``. Raises AmpError: AMP092 if it is damaged or something else, AMP093 if it is newer."""
    try:
        body = json.loads(text, parse_constant=_no_constant)
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise ValueError(tr("not a .pdamp file", "不是 .pdamp 文件"))
        version = body.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"version: {version!r}")
        if version > VERSION:
            raise _newer(source, version)
        if body.pop("sha256", None) != _digest(body):
            raise ValueError(tr("its checksum does not match", "校验和不匹配"))
        known = {f.name for f in dataclasses.fields(Pdamp)}
        return _ADAPTER.validate_python({name: value for name, value in body.items() if name in known})
    except ValidationError as error:
        what = ", ".join(dict.fromkeys(".".join(map(str, item["loc"])) or "?" for item in error.errors()))
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise AmpError(
        "AMP092",
        tr("{f} is damaged, or no file of this plugin: {w}", "{f} 已损坏，或不是本插件的文件：{w}", f=source, w=what),
    )


def read(path: Path) -> Pdamp:
    """The state in the file ``path``; errors as ``from_text``, and AMP092 if it cannot be read at all."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else tr("not UTF-8", "不是 UTF-8 编码")
        raise AmpError("AMP092", tr("cannot read {f}: {e}", "无法读取 {f}：{e}", f=path, e=reason)) from None
    return from_text(text, source=str(path))


def file_entries(folder: Path, files: Iterable[Path]) -> tuple[FileEntry, ...]:
    """The entries of ``files``, all below ``folder``. Raises ``OSError``."""
    return tuple(
        FileEntry(path.relative_to(folder).as_posix(), path.stat().st_size, file_digest(path)) for path in sorted(files)
    )


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits. Raises ``OSError``."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def differing(folder: Path, entries: Iterable[FileEntry]) -> dict[str, str]:
    """Those files that are not what they were when they were saved: name -> what is wrong, in words."""
    found: dict[str, str] = {}
    for entry in entries:
        path = folder / entry.name
        try:
            size = path.stat().st_size
            if size != entry.size:
                found[entry.name] = tr("{n} bytes, saved were {m}", "{n} 字节，保存时为 {m}", n=size, m=entry.size)
            elif file_digest(path) != entry.sha256:
                found[entry.name] = tr("its content has changed", "内容已改变")
        except FileNotFoundError:
            found[entry.name] = tr("it is missing", "文件缺失")
        except OSError as error:
            found[entry.name] = str(error.strerror or error)
    return found


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _no_constant(name: str) -> float:
    raise ValueError(f"not JSON: {name}")


def _newer(source: str, version: int) -> AmpError:
    return AmpError(
        "AMP093",
        tr(
            "{f} was written by a newer version of this plugin (format {v}, this one reads up to {m})",
            "{f} 由更新版本的本插件写出（格式 {v}，当前最多支持 {m}）",
            f=source,
            v=version,
            m=VERSION,
        ),
        hint="pip install -U paddle-amp-plugin",
    )
