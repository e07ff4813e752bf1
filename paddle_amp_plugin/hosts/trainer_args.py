"""The ``amp`` key of a PaddleNLP-like Trainer: a field of ``TrainingArguments``, its parser, and how it is read.

``TrainingArguments`` and the dataclasses made of it get the field in place, so that the key can be given in Python
(``TrainingArguments(amp="O2")``), on the command line (``--amp O2``, ``--amp.level O2``), in a JSON, YAML or dict
config, and by ``setattr`` after ``__post_init__`` (some scripts read their YAML like that). It is read when the
Trainer is built. Pure: nothing of the host or of Paddle is imported.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from paddle_amp_plugin import config
from paddle_amp_plugin.config_overrides import overlay
from paddle_amp_plugin.errors import AmpError, ConfigError
from paddle_amp_plugin.host_spellings import PADDLENLP, misspellings
from paddle_amp_plugin.messages import tr

#: What the host does with several devices, and what else moves weights or state behind a Trainer's back:
#: attribute of the arguments -> is it in use?
_BEYOND: dict[str, Callable[[Any], bool]] = {
    "sharding": lambda v: len(v) > 0,
    **dict.fromkeys(
        (
            "tensor_parallel_degree",
            "pipeline_parallel_degree",
            "sep_parallel_degree",
            "context_parallel_degree",
            "expert_parallel_degree",
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "sep_parallel_size",
            "context_parallel_size",
            "expert_model_parallel_size",
        ),
        lambda v: v > 1,
    ),
    **dict.fromkeys(
        ("use_expert_parallel", "enable_auto_parallel", "to_static", "offload_optim", "enable_zero_cost_checkpoint"),
        bool,
    ),
}


class AmpArgument:
    """The type of the field. Of a text from the command line it makes what the text is as YAML.

    Raises ConfigError (AMP014) for a text that is no YAML.
    """

    def __new__(cls, text: Any = None) -> Any:
        return config.parse_override(f"amp={text}")[1] if isinstance(text, str) else text


def _made_field() -> dataclasses.Field[Any]:
    words = tr(
        "mixed precision: true, false, fp16, bf16, O1, O2, OD, or a mapping such as '{level: O2}'",
        "混合精度：true、false、fp16、bf16、O1、O2、OD，或映射，如 '{level: O2}'",
    )
    about = {"help": words, "nargs": "?", "const": True}
    holder = dataclasses.make_dataclass(
        "_Holder", [("amp", AmpArgument, dataclasses.field(default=None, metadata=about))]
    )
    return dataclasses.fields(holder)[0]


def extend(cls: type) -> Callable[[], None]:
    """Gives the dataclass ``cls``, and those that are made of it already, the field ``amp``; returns the undoing."""
    made = _made_field()
    undo: list[Callable[[], None]] = []
    for each in [cls, *_subclasses(cls)]:
        fields = vars(each).get("__dataclass_fields__")
        if fields is None or "amp" in fields:
            continue
        fields["amp"] = made
        init = vars(each)["__init__"]
        each.__init__ = _with_amp(init)  # type: ignore[misc]
        undo.append(functools.partial(_without, each, fields, init))
    annotations = cls.__annotations__
    annotations["amp"] = AmpArgument
    cls.amp = None  # type: ignore[attr-defined]

    def restore() -> None:
        for one in undo:
            one()
        annotations.pop("amp", None)
        if "amp" in vars(cls):
            del cls.amp  # type: ignore[attr-defined]

    return restore


def _without(cls: type, fields: dict[str, Any], init: Any) -> None:
    fields.pop("amp", None)
    cls.__init__ = init  # type: ignore[misc]


def _subclasses(cls: type) -> Iterator[type]:
    sub: type
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _with_amp(init: Callable[..., None]) -> Callable[..., None]:
    """``init`` that takes ``amp`` as well, by keyword."""

    @functools.wraps(init)
    def with_amp(self: Any, *args: Any, amp: Any = None, **kwargs: Any) -> None:
        self.amp = amp
        init(self, *args, **kwargs)

    signature = inspect.signature(init)
    extra = inspect.Parameter("amp", inspect.Parameter.KEYWORD_ONLY, default=None)
    with_amp.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
    return with_amp


# -- parsing -----------------------------------------------------------------------------------------------------


def take_dotted(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Takes ``--amp.level O2`` and ``--amp.level=O2`` out of a command line: (the rest, dotted key -> value).

    A key without a value is true. Raises ConfigError (AMP014) for a value that is no YAML.
    """
    rest: list[str] = []
    found: dict[str, Any] = {}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not isinstance(word, str) or not word.startswith("--amp."):
            rest.append(word)
            continue
        key, equals, text = word[2:].partition("=")
        if not equals:
            text = "true"
            if position < len(words) and not words[position].startswith("--"):
                text = words[position]
                position += 1
        path, value = config.parse_override(f"{key}={text}")
        found[path] = value
    return rest, found


def parse_known_args(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Around ``PdArgumentParser.parse_known_args``: dotted keys are laid over what ``--amp`` or the file says."""
    arguments = inspect.signature(wrapped).bind(*args, **kwargs).arguments
    words = arguments.get("args")
    if "--amp" not in getattr(instance, "_option_string_actions", {}):
        return wrapped(*args, **kwargs)
    rest, dotted = take_dotted(sys.argv[1:] if words is None else list(words))
    namespace, remaining = wrapped(rest, arguments.get("namespace"))
    if dotted:
        said = getattr(namespace, "amp", None)
        merged, _, problems = overlay({} if said is None else {"amp": said}, dotted)
        if problems:
            raise ConfigError(problems)
        namespace.amp = merged["amp"]
    return namespace, remaining


def parse_dict(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Around ``PdArgumentParser.parse_dict``, which is silent about unknown keys: a misspelt ``amp`` is said."""
    document = next(iter(inspect.signature(wrapped).bind(*args, **kwargs).arguments.values()))
    known = {f.name for cls in instance.dataclass_types for f in dataclasses.fields(cls)}
    if isinstance(document, Mapping) and "amp" in known:
        unread = {key: value for key, value in document.items() if key not in known}
        problems = list(misspellings(unread, "paddlenlp"))
        if problems:
            raise ConfigError(problems)
    return wrapped(*args, **kwargs)


def post_init(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Around ``TrainingArguments.__post_init__``: a bad ``amp`` is said at once, before models are loaded.

    ``amp_master_grad`` is kept from the host there: without the host's own AMP, PaddleNLP switches it off and
    PaddleFormers, where it is on by default, raises an error.
    """
    amp = plain(getattr(instance, "amp", None))
    if amp is None:
        return wrapped(*args, **kwargs)
    config.read_amp({"amp": amp}, host="paddlenlp")
    instance.amp = amp
    given = getattr(instance, "amp_master_grad", None)
    if given is not None and not (instance.fp16 or instance.bf16):
        instance.amp_master_grad = False
    result = wrapped(*args, **kwargs)
    if given is not None:
        instance.amp_master_grad = given
    return result


def plain(value: Any) -> Any:
    """Dicts and lists instead of OmegaConf's containers."""
    if type(value).__module__.split(".")[0] == "omegaconf":
        from omegaconf import OmegaConf

        return OmegaConf.to_container(value, resolve=True)
    return value


# -- reading -----------------------------------------------------------------------------------------------------


def settings_of(args: Any) -> config.AmpConfig | None:
    """The AMP settings of a ``TrainingArguments``; None if nothing in it asks for AMP.

    A host's name counts as written if its value is not the default. Raises ConfigError with all that is wrong.
    """
    document: dict[str, Any] = {}
    amp = plain(getattr(args, "amp", None))
    if amp is not None:
        document["amp"] = amp
    for name, default in _defaults(args).items():
        value = getattr(args, name, default)
        # True by default in PaddleFormers, which sets it to False where its own AMP is off: that is no one's wish
        if value != default and not (name == "amp_master_grad" and not value):
            document[name] = value
    return config.read_amp(document, host="paddlenlp", source=tr("the training arguments", "训练参数"))


def _defaults(args: Any) -> dict[str, Any]:
    """The host's AMP names -> their defaults."""
    found = {}
    for field in dataclasses.fields(args):
        if field.name in PADDLENLP:
            made = field.default_factory
            found[field.name] = field.default if made is dataclasses.MISSING else made()
    return found


def adapt(args: Any, amp: Any) -> None:
    """Switches the host's own AMP off; ``amp`` (which then says it all) is what the arguments keep."""
    for name, default in _defaults(args).items():
        setattr(args, name, default)
    if hasattr(args, "amp_master_grad"):
        args.amp_master_grad = False
    args.amp = amp


def refuse_beyond(args: Any) -> None:
    """Raises AmpError (AMP200) naming every argument that does not go together with the ``amp`` key."""
    used = [
        f"{name}={getattr(args, name)}"
        for name, in_use in _BEYOND.items()
        if getattr(args, name, None) is not None and in_use(getattr(args, name))
    ]
    if used:
        raise AmpError(
            "AMP200",
            tr(
                "the amp key works on one device and with data parallelism; not together with {u}",
                "amp 键适用于单设备与数据并行；不能与 {u} 同时使用",
                u=", ".join(used),
            ),
            hint=tr("leave these out, or train with amp: false", "请去掉这些参数，或用 amp: false 训练"),
        )


__all__ = [
    "AmpArgument",
    "adapt",
    "extend",
    "parse_dict",
    "parse_known_args",
    "post_init",
    "refuse_beyond",
    "settings_of",
    "take_dotted",
]
