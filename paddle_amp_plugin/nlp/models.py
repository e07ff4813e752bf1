"""The network and the tokenizer of a recipe, by PaddleNLP's own loading code.

Codes: AMP222 a model folder without its files, AMP223 a name that the hub did not give, AMP224 weights of another
architecture, AMP228 a setting that this model does not have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paddle

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr
from paddle_amp_plugin.nlp.recipe_schema import Recipe
from paddle_amp_plugin.spelling import nearest, show

#: What PaddleNLP reads from a model folder: any one of each row.
WEIGHT_FILES = ("*.pdparams", "*.safetensors", "*.index.json")
TOKENIZER_FILES = ("tokenizer_config.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "vocab.json")
#: How to get a pretrained encoder and its recipe where no hub can be reached.
OFFLINE_ENCODER = "python -m paddle_amp_plugin.data nlp_encoder --out train_data/nlp_encoder"
OFFLINE_MODEL = "-o model.model_name_or_path=train_data/nlp_encoder/ernie"


class MeanPooling:
    """Mixed into a PaddleNLP classifier: its head sees the mean over the tokens instead of the first one.

    ``input_ids``, ``token_type_ids``, ``attention_mask``: [batch, length] int64. Returns logits
    [batch, labels]. The mean is what encoders such as E5 were trained with (they have no pooler).
    """

    def forward(self: Any, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None) -> Any:
        encoder = getattr(self, self.base_model_prefix)
        if attention_mask is None:
            attention_mask = (input_ids != self.config.pad_token_id).astype("int64")
        hidden = encoder(input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)[0]
        weights = attention_mask.astype("float32").unsqueeze(-1)
        pooled = (hidden.astype("float32") * weights).sum(axis=1) / weights.sum(axis=1)
        return self.classifier(self.dropout(pooled))


def load_tokenizer(recipe: Recipe, name: str | None = None) -> Any:
    """The tokenizer of ``name``, by default the one the recipe names. Raises AmpError: AMP222, AMP223."""
    from paddlenlp.transformers import AutoTokenizer

    name = name or recipe.model.tokenizer_name_or_path or recipe.model.model_name_or_path
    assert name is not None  # the recipe was checked
    _check_folder(recipe, name, "tokenizer")
    with _loading(recipe, name):
        return AutoTokenizer.from_pretrained(name)


def load_model(recipe: Recipe, head: str, tokenizer: Any, name: str | None = None) -> Any:
    """The network with a ``head`` ("SequenceClassification", …), weights loaded and frozen parts marked.

    ``name``: a trained model's folder; by default what the recipe starts from. Raises AmpError: AMP222-AMP224,
    AMP228.
    """
    source = name or recipe.model.model_name_or_path
    config = _config(recipe, source, tokenizer)
    if recipe.data.labels:
        config.num_labels = len(recipe.data.labels)
    if name is None:
        _override(config, recipe.model.config)
        config.pooling = recipe.model.pooling
    model_class = _model_class(config, head)
    model = model_class(config) if source is None else _from_pretrained(recipe, model_class, source, config)
    if name is None:
        _freeze(model, recipe)
    return model


def _config(recipe: Recipe, source: str | None, tokenizer: Any) -> Any:
    from paddlenlp import transformers

    if source is None:
        assert recipe.model.architecture is not None  # the recipe was checked
        kind = getattr(transformers, f"{recipe.model.architecture.capitalize()}Config")
        return kind(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    _check_folder(recipe, source, "model")
    with _loading(recipe, source):
        return transformers.AutoConfig.from_pretrained(source)


def _override(config: Any, settings: dict[str, Any]) -> None:
    known = config.to_dict()
    for key, value in settings.items():
        if key not in known and not hasattr(config, key):
            near = nearest(key, known)
            raise AmpError(
                "AMP228",
                tr(
                    "model.config.{k}: {c} has no such setting",
                    "model.config.{k}：{c} 没有该设置",
                    k=key,
                    c=type(config).__name__,
                ),
                hint=tr("did you mean: {n}", "您是不是想写：{n}", n=near) if near else "",
            )
        setattr(config, key, value)


def _model_class(config: Any, head: str) -> Any:
    """PaddleNLP's class for a config and a head: ErnieConfig, "TokenClassification" -> ErnieForTokenClassification."""
    from paddlenlp import transformers

    family = type(config).__name__.removesuffix("Config")
    found = getattr(transformers, f"{family}For{head}", None)
    if found is None:
        text = tr("PaddleNLP has no {f}For{h}", "PaddleNLP 中没有 {f}For{h}", f=family, h=head)
        raise AmpError("AMP224", text, hint=tr("take an ERNIE or BERT model", "请使用 ERNIE 或 BERT 模型"))
    if getattr(config, "pooling", "first") == "mean":
        return type(f"MeanPooled{found.__name__}", (MeanPooling, found), {})
    return found


def _from_pretrained(recipe: Recipe, model_class: Any, source: str, config: Any) -> Any:
    """``model_class.from_pretrained``, except that an encoder with new, random weights is an error."""
    missing: list[str] = []

    class Watched(model_class):  # type: ignore[misc]
        @classmethod
        def _load_pretrained_model(cls, *args: Any, **kwargs: Any) -> Any:
            result = super()._load_pretrained_model(*args, **kwargs)
            missing.extend(result[1])
            return result

    Watched.__name__ = Watched.__qualname__ = model_class.__name__
    with _loading(recipe, source):
        model = Watched.from_pretrained(source, config=config)
    lost = sorted(k for k in missing if ".encoder." in f".{k}" or ".word_embeddings" in f".{k}")
    if lost:
        raise _another(
            source,
            model_class,
            tr(
                "it lacks {n} of the encoder's weights, e.g. {k}",
                "缺少编码器的 {n} 个权重，例如 {k}",
                n=len(lost),
                k=lost[0],
            ),
        )
    return model


def _another(source: str, model_class: Any, why: str) -> AmpError:
    return AmpError(
        "AMP224",
        tr(
            "{s} does not hold the weights of {c}: {w}",
            "{s} 中不是 {c} 的权重：{w}",
            s=source,
            c=model_class.__name__,
            w=why,
        ),
        hint=tr(
            "its config.json and its weights must be of one architecture, and model.config must fit them",
            "其 config.json 与权重必须属于同一架构，且 model.config 与之相符",
        ),
    )


def is_local(name: str) -> bool:
    """Does a model's name mean a folder here? A hub name has one ``/`` at most, and no such folder exists."""
    parts = Path(name).parts
    return Path(name).exists() or len(parts) > 2 or name.startswith((".", "~", os.sep)) or Path(parts[0]).is_dir()


def _check_folder(recipe: Recipe, name: str, what: str) -> None:
    """Raises AMP222 if ``name`` is a folder that lacks what a model or a tokenizer needs."""
    if not is_local(name):
        return
    folder = Path(name)
    hint = tr("make it: {c}", "请先生成：{c}", c=recipe.data_command) if recipe.data_command else ""
    if not folder.is_dir():
        here = tr("relative paths start at {d}", "相对路径以 {d} 为起点", d=os.getcwd())
        raise AmpError("AMP222", tr("no such model folder: {f}", "模型目录不存在：{f}", f=name), hint=hint or here)
    lacking = []
    if what == "model":
        lacking = [] if (folder / "config.json").is_file() else ["config.json"]
        if not any(any(folder.glob(pattern)) for pattern in WEIGHT_FILES):
            lacking.append(" | ".join(WEIGHT_FILES[:2]))
    elif not any((folder / file).is_file() for file in TOKENIZER_FILES):
        lacking = [" | ".join(TOKENIZER_FILES)]
    if lacking:
        there = sorted(path.name for path in folder.iterdir())[:8]
        raise AmpError(
            "AMP222",
            tr("{f} is no {w}: missing {m}", "{f} 不是完整的 {w}：缺少 {m}", f=name, w=what, m=", ".join(lacking)),
            hint=hint or tr("it holds: {t}", "其中有：{t}", t=", ".join(there) or "-"),
        )


@contextmanager
def _loading(recipe: Recipe, name: str) -> Iterator[None]:
    """What the host raises while loading ``name``, in one message: not reached, or not fitting."""
    try:
        yield
    except AmpError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        if is_local(name):
            fits = "size" in said or "shape" in said
            code = "AMP224" if fits else "AMP222"
            text = tr("cannot load {n}: {e}", "无法加载 {n}：{e}", n=name, e=f"{type(error).__name__}: {said}")
            raise AmpError(code, text, hint=recipe.data_command) from error
        raise AmpError(
            "AMP223",
            tr(
                "the model hub did not give {n} ({e}), and there is no folder of that name here",
                "未能从模型库获取 {n}（{e}），本地也没有同名目录",
                n=name,
                e=f"{type(error).__name__}: {said[:120]}",
            ),
            hint=tr(
                "with a network: check the name; without: {c}\n    and then: {o}",
                "有网络时：请检查名称；没有网络时：{c}\n    然后使用：{o}",
                c=OFFLINE_ENCODER,
                o=OFFLINE_MODEL,
            ),
        ) from error


def encoder_layers(model: Any) -> tuple[Any, list[Any]]:
    """(embeddings, layers from the bottom) of a PaddleNLP encoder; raises AmpError (AMP228) for another shape."""
    base = getattr(model, model.base_model_prefix, model)
    try:
        return base.embeddings, list(base.encoder.layers)
    except AttributeError:
        raise AmpError(
            "AMP228",
            tr(
                "{c} has no embeddings and encoder.layers",
                "{c} 没有 embeddings 与 encoder.layers",
                c=type(base).__name__,
            ),
            hint=tr(
                "leave out model.freeze and optimizer.layer_lr_decay", "请去掉 model.freeze 与 optimizer.layer_lr_decay"
            ),
        ) from None


def _freeze(model: Any, recipe: Recipe) -> None:
    freeze = recipe.model.freeze
    if not freeze.embeddings and not freeze.layers:
        return
    embeddings, layers = encoder_layers(model)
    if freeze.layers > len(layers):
        said = tr(
            "model.freeze.layers: {a} of {b} layers",
            "model.freeze.layers：{a}，共 {b} 层",
            a=show(freeze.layers),
            b=len(layers),
        )
        raise AmpError("AMP228", said)
    for part in [embeddings] * freeze.embeddings + layers[: freeze.layers]:
        for parameter in part.parameters():
            parameter.stop_gradient = True


def set_learning_rates(model: Any, recipe: Recipe) -> None:
    """Each parameter's learning rate over the schedule's, by depth; Paddle's optimizers read it from the parameter."""
    decay, ratio = recipe.optimizer.layer_lr_decay, recipe.optimizer.head_lr_ratio
    if decay == 1.0 and ratio == 1.0:
        return
    embeddings, layers = encoder_layers(model)
    factors: dict[int, float] = {}
    for depth, part in enumerate([embeddings, *layers]):
        for parameter in part.parameters():
            factors[id(parameter)] = decay ** (len(layers) - depth)
    base = getattr(model, model.base_model_prefix)
    inside = {id(parameter) for parameter in base.parameters()}
    for parameter in model.parameters():
        factor = factors.get(id(parameter), 1.0 if id(parameter) in inside else ratio)
        parameter.optimize_attr["learning_rate"] = factor


def trainable(model: paddle.nn.Layer) -> tuple[int, int]:
    """(weights that are trained, all weights) of a network."""
    sizes = [(int(p.size), not p.stop_gradient) for p in model.parameters()]
    return sum(size for size, on in sizes if on), sum(size for size, _ in sizes)
