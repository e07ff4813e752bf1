"""Where networks come from: folders in hub layout, hub names, and what is said when they are not there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.nlp import models
from tests.nlp import tiny

pytest.importorskip("paddlenlp")


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """{family: a pretrained base model's folder in the layout of PaddleNLP's hub}."""
    from paddlenlp import transformers

    root = tmp_path_factory.mktemp("hub")
    out = {}
    for family in ("Ernie", "Bert"):
        folder = tiny.tokenizer(root / family.lower())
        config = getattr(transformers, f"{family}Config")(vocab_size=29, **tiny.SIZES)
        getattr(transformers, f"{family}Model")(config).save_pretrained(str(folder))
        out[family.lower()] = folder
    return out


def recipe_from(tmp_path: Path, source: object, task: str = "sequence_classification", **model):
    model = {
        "architecture": None,
        "tokenizer_name_or_path": None,
        "config": None,
        "model_name_or_path": str(source),
        **model,
    }
    return tiny.read(tmp_path, task, model=model)


def load(recipe, head: str = "SequenceClassification"):
    return models.load_model(recipe, head, models.load_tokenizer(recipe))


@pytest.mark.parametrize("family", ["ernie", "bert"])
@pytest.mark.parametrize("task", ["SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"])
def test_a_folder_in_hub_layout(folders, tmp_path, family: str, task: str) -> None:
    """The encoder of the folder, to the bit, under a new head."""
    import paddle

    model = load(recipe_from(tmp_path, folders[family]), task)
    assert type(model).__name__ == f"{family.capitalize()}For{task}"
    saved = paddle.load(str(folders[family] / "model_state.pdparams"))
    key = "encoder.layers.1.linear1.weight"
    stem = family if family in next(iter(saved)) else ""
    wanted = saved[f"{stem}.{key}" if stem else key]
    np.testing.assert_array_equal(model.state_dict()[f"{family}.{key}"].numpy(), np.asarray(wanted))


def test_settings_of_the_config(folders, tmp_path) -> None:
    recipe = recipe_from(tmp_path, folders["ernie"], config={"num_hidden_layers": 1, "hidden_dropout_prob": 0.3})
    model = load(recipe)
    assert len(model.ernie.encoder.layers) == 1 and model.config.hidden_dropout_prob == 0.3
    assert model.config.num_labels == 2
    with pytest.raises(AmpError, match="num_hiden_layers") as caught:
        load(recipe_from(tmp_path, folders["ernie"], config={"num_hiden_layers": 1}))
    assert caught.value.code == "AMP228" and "num_hidden_layers" in caught.value.hint


def test_frozen_parts_and_rates_by_depth(folders, tmp_path) -> None:
    recipe = recipe_from(tmp_path, folders["ernie"], freeze={"embeddings": True, "layers": 1})
    model = load(recipe)
    frozen = {name for name, p in model.named_parameters() if p.stop_gradient}
    assert frozen == {n for n, _ in model.named_parameters() if ".embeddings." in n or "layers.0." in n}
    assert models.trainable(model)[0] < models.trainable(model)[1]
    recipe = tiny.read(tmp_path, "sequence_classification", optimizer={"layer_lr_decay": 0.5, "head_lr_ratio": 10})
    model = models.load_model(recipe, "SequenceClassification", models.load_tokenizer(recipe))
    models.set_learning_rates(model, recipe)
    rates = {name: p.optimize_attr["learning_rate"] for name, p in model.named_parameters()}
    assert rates["ernie.embeddings.word_embeddings.weight"] == 0.25
    assert rates["ernie.encoder.layers.0.linear1.weight"] == 0.5
    assert rates["ernie.encoder.layers.1.linear1.weight"] == rates["ernie.pooler.dense.weight"] == 1.0
    assert rates["classifier.weight"] == 10
    with pytest.raises(AmpError, match="9 of 2 layers") as caught:
        load(recipe_from(tmp_path, folders["ernie"], freeze={"layers": 9}))
    assert caught.value.code == "AMP228"


def test_the_optimizer_follows_the_rates(tmp_path) -> None:
    """One AdamW step moves a weight by its own rate (Adam's first step is the rate itself)."""
    import paddle

    recipe = tiny.read(tmp_path, "sequence_classification", optimizer={"layer_lr_decay": 0.5, "head_lr_ratio": 10})
    model = models.load_model(recipe, "SequenceClassification", models.load_tokenizer(recipe))
    models.set_learning_rates(model, recipe)
    before = {name: p.numpy().copy() for name, p in model.named_parameters()}
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=0.0)
    model(paddle.to_tensor([[2, 5, 6, 3]])).sum().backward()
    optimizer.step()
    moved = {name: float(np.abs(p.numpy() - before[name]).max()) for name, p in model.named_parameters()}
    assert moved["classifier.weight"] == pytest.approx(1e-2, rel=1e-2)
    assert moved["ernie.encoder.layers.1.linear2.weight"] == pytest.approx(1e-3, rel=2e-2)
    assert moved["ernie.encoder.layers.0.linear2.weight"] == pytest.approx(5e-4, rel=2e-2)


def test_a_hub_name_without_a_network(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    recipe = recipe_from(tmp_path, "nobody-here/no-such-model-zh")
    with pytest.raises(AmpError, match="model hub did not give nobody-here/no-such-model-zh") as caught:
        load(recipe)
    assert caught.value.code == "AMP223"
    assert (
        "paddle_amp_plugin.data nlp_encoder" in caught.value.hint
        and "train_data/nlp_encoder/ernie" in caught.value.hint
    )


@pytest.mark.parametrize(
    ("lost", "named"), [("config.json", "config.json"), ("model_state.pdparams", "pdparams"), ("vocab", "vocab.txt")]
)
def test_a_folder_that_lacks_files(folders, tmp_path, lost: str, named: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["ernie"], folder)
    for path in folder.iterdir():
        if path.name == lost or (lost == "vocab" and path.name in models.TOKENIZER_FILES):
            path.unlink()
    with pytest.raises(AmpError, match=re.escape(named)) as caught:
        load(recipe_from(tmp_path, folder))
    assert caught.value.code == "AMP222" and "it holds" in caught.value.hint


def test_a_folder_that_is_not_there(tmp_path) -> None:
    recipe = recipe_from(tmp_path, tmp_path / "no" / "where")
    with pytest.raises(AmpError, match="no such model folder") as caught:
        load(recipe)
    assert caught.value.code == "AMP222"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "lacks 33"),
        ({"num_hidden_layers": 3}, "lacks 16"),
        ({"hidden_size": 64}, "cannot load"),
    ],
)
def test_weights_of_another_architecture(folders, tmp_path, change: dict, said: str) -> None:
    """Names or shapes that do not fit are an error, not an encoder with random weights."""
    import paddle

    folder = tmp_path / "model"
    shutil.copytree(folders["ernie"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    if "model_type" in change:  # weights whose names are another network's
        paddle.save({"backbone.conv1.weight": paddle.zeros([3, 3])}, str(folder / "model_state.pdparams"))
    with pytest.raises(AmpError, match=said) as caught:
        load(recipe_from(tmp_path, folder))
    assert caught.value.code == "AMP224"
