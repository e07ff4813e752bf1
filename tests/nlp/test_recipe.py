"""Recipe files: bases, overrides, and everything wrong said at once. No Paddle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paddle_amp_plugin.errors import AmpError, ConfigError
from paddle_amp_plugin.nlp import recipe as recipes
from tests.nlp import tiny

PROJECT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((PROJECT / "configs" / "nlp").rglob("*.yml"))


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return tiny.write(tmp_path / "r.yml", tiny.recipe(tmp_path, "sequence_classification"))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda p: str(p.relative_to(PROJECT / "configs" / "nlp")))
def test_the_recipes_of_the_project_are_good(file: Path) -> None:
    recipe = recipes.read(file)
    assert recipe.wants_amp
    assert recipes.looks_nlp(file)


def test_an_ocr_config_is_none(tmp_path: Path) -> None:
    assert not recipes.looks_nlp(PROJECT / "configs" / "ocr_amp.yml")
    assert not recipes.looks_nlp(tmp_path / "missing.yml")


def test_the_full_recipes_leave_nothing_of_the_small_ones() -> None:
    full = recipes.read(PROJECT / "configs" / "nlp" / "full" / "ernie_sentiment.yml")
    assert full.model.model_name_or_path == "ernie-3.0-base-zh"
    assert full.model.config == {} and not full.model.freeze.embeddings and full.model.pooling == "first"
    assert full.data.prefix == "" and full.optimizer.head_lr_ratio == 1.0
    assert "max_steps" not in full.trainer and full.trainer["learning_rate"] == 5e-5


def test_bases_are_merged_key_by_key(tmp_path: Path) -> None:
    tiny.write(tmp_path / "a.yml", {"model": {"config": {"x": 1, "y": 2}}, "amp": True, "gone": 1})
    tiny.write(tmp_path / "b.yml", {"_base_": "a.yml", "model": {"config": {"y": 3}}, "gone": None})
    assert recipes.load(tmp_path / "b.yml") == {"model": {"config": {"x": 1, "y": 3}}, "amp": True}


@pytest.mark.parametrize(
    ("base", "said"),
    [("b.yml", "circle"), ("nowhere.yml", "not there"), (3, "no path"), ([""], "no path")],
)
def test_bad_bases(tmp_path: Path, base, said: str) -> None:
    tiny.write(tmp_path / "b.yml", {"_base_": base, "task": "masked_lm"})
    with pytest.raises(AmpError, match=said) as caught:
        recipes.load(tmp_path / "b.yml")
    assert caught.value.code == "AMP218"


def test_overrides_reach_every_section_and_amp(path: str) -> None:
    recipe = recipes.read(path, ["trainer.max_steps=7", "data.prefix='q: '", "amp.level=O2", "amp=bf16"])
    assert (recipe.trainer["max_steps"], recipe.data.prefix) == (7, "q: ")
    assert recipe.amp == {"level": "O2", "dtype": "bfloat16"} and recipe.wants_amp
    assert not recipes.read(path, ["amp=false"]).wants_amp
    assert not recipes.read(path).wants_amp


def test_a_number_without_a_dot_is_a_number(path: str) -> None:
    """YAML 1.1 reads 5e-5 as text; the host then compares a text with a number."""
    recipe = recipes.read(path, ["trainer.learning_rate=5e-5", "optimizer.layer_lr_decay=9e-1"])
    assert recipe.trainer["learning_rate"] == 5e-5 and recipe.optimizer.layer_lr_decay == 0.9


@pytest.mark.parametrize(
    ("options", "path_said", "suggestion"),
    [
        (["data.lables=[a]"], "data.lables", "labels"),
        (["trainer.max_step=3"], "trainer.max_step", "max_steps"),
        (["task=sequence_clasification"], "task", "sequence_classification"),
        (["model.poling=mean"], "model.poling", "pooling"),
        (["model.freeze.layer=1"], "model.freeze.layer", "layers"),
        (["train='x.jsonl'"], "train", ""),
        (["trainer.fp16=true"], "trainer.fp16", "amp: true"),
        (["max_seq_length=3"], "max_seq_length", "data.max_seq_length"),
    ],
)
def test_slips_get_a_suggestion(path: str, options, path_said: str, suggestion: str) -> None:
    with pytest.raises(recipes.RecipeError) as caught:
        recipes.read(path, options)
    problem = next(p for p in caught.value.problems if p.path == path_said)
    assert problem.code == "AMP217"
    if suggestion:
        assert problem.suggestion == suggestion


def test_everything_wrong_is_said_at_once(path: str) -> None:
    options = ["data.max_seq_length=text", "optimizer.layer_lr_decay=2", "model.pooling=max", "trainer.max_step=1"]
    with pytest.raises(recipes.RecipeError) as caught:
        recipes.read(path, options)
    paths = {p.path for p in caught.value.problems}
    assert paths == {"data.max_seq_length", "optimizer.layer_lr_decay", "model.pooling", "trainer.max_step"}
    assert "4 problem(s) in the recipe" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["data.labels=[a]"], "data.labels"),
        (["data.labels=[a, a]"], "data.labels"),
        (["data.labels=[yes, no]"], "data.labels"),  # YAML 1.1 makes true and false of them
        (["model.architecture="], "model.model_name_or_path"),
        (["model.model_name_or_path=x"], "model.architecture"),
        (["trainer.output_dir="], "trainer.output_dir"),
        (["task=token_classification", "model.pooling=mean"], "model.pooling"),
    ],
)
def test_values_that_do_not_go_together(path: str, options, where: str) -> None:
    with pytest.raises(recipes.RecipeError) as caught:
        recipes.read(path, options)
    assert where in {p.path.split(".0")[0] for p in caught.value.problems}


def test_the_amp_key_is_checked_as_everywhere(path: str) -> None:
    with pytest.raises(ConfigError, match=r"amp\.levle") as caught:
        recipes.read(path, ["amp.levle=O2"])
    assert caught.value.problems[0].suggestion == "level"


def test_chinese(path: str, monkeypatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    with pytest.raises(recipes.RecipeError, match="配方有 1 处问题"):
        recipes.read(path, ["data.lables=[a]"])


def test_a_bad_recipe_is_said_before_paddle_is_imported(path: str) -> None:
    code = (
        "import sys; from paddle_amp_plugin.cli.tools import main;"
        f"code = main('train', ['-c', {path!r}, '-o', 'data.lables=[a]'], 'tools/train.py');"
        "print(code, 'paddle' in sys.modules, 'paddlenlp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=False)
    assert done.stdout.split() == ["2", "False", "False"], done.stderr
