"""The two commands as a user runs them: exit codes, files, words, and mistakes."""

from __future__ import annotations

import json

import pytest

from tests.hosts import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("verbs")
    tiny.make_data(place)
    tiny.write(place / "c.yml", tiny.config(place, place / "out", amp=True))
    return place


def amp(*arguments: str, cwd, **env: str):
    return tiny.call(["-m", "paddle_amp_plugin", *arguments], cwd, timeout=600, **env)


def test_rehearse_a_healthy_config(folder):
    result = amp("rehearse", "-c", "c.yml", "--steps", "4", "--png", cwd=folder)
    assert result.returncode == 0, result.stdout
    assert "Will hold: O1 float16" in result.stdout and "report: output/rehearsal/c/rehearsal.html" in result.stdout
    made = {path.name for path in (folder / "output" / "rehearsal" / "c").iterdir()}
    assert made == {"rehearsal.html", "rehearsal.json", "rehearsal.png"}
    record = json.loads((folder / "output" / "rehearsal" / "c" / "rehearsal.json").read_text("utf-8"))
    assert record["verdict"]["holds"] is True and len(record["steps"]) == 4
    assert not (folder / "out").exists()  # the run's own folder


def test_rehearse_a_config_that_breaks_ends_with_1(folder):
    """A learning rate at which FP32 itself is lost: said, and not called an AMP problem."""
    result = amp(
        "rehearse", "-c", "c.yml", "--steps", "6", "-o", "Optimizer.lr.learning_rate=1.0e+30", cwd=folder,
        PADDLE_AMP_LANG="zh",
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    assert "不是 AMP 的问题" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["rehearse", "-c", "c.yml", "--steps", "1"], "AMP260"),
        (["rehearse", "-c", "none.yml"], "AMP030"),
        (["rehearse", "-c", "c.yml", "-o", "amp.levle=O2"], "AMP001"),
        (["rehearse", "-c", "c.yml", "-o", "Train.dataset.data_dir=/nowhere"], "AMP262"),
        (["compare", "-c", "c.yml", "--modes", "fp32,O3"], "AMP260"),
        (["compare", "-c", "c.yml", "--steps", "2"], "AMP260"),
        (["compare", "-c", "none.yml"], "AMP030"),
    ],
)
def test_bad_use_ends_with_2(folder, arguments, code, monkeypatch, capsys):
    """In this process: what is told from before Paddle does its work."""
    from typer.testing import CliRunner

    from paddle_amp_plugin.cli.main import app

    monkeypatch.chdir(folder)
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")
    result = CliRunner().invoke(app, arguments)
    text = result.output + capsys.readouterr().err
    assert result.exit_code == 2, text
    assert f"[{code}]" in text


def test_compare(folder):
    result = amp("compare", "-c", "c.yml", "--steps", "4", "--seeds", "2", "--modes", "fp32,O1", "--png", cwd=folder)
    assert result.returncode == 0, result.stdout
    assert "say nothing about a GPU" in result.stdout
    place = folder / "output" / "compare" / "c"
    assert {path.name for path in place.iterdir()} == {"compare.html", "compare.json", "compare.png"}
    record = json.loads((place / "compare.json").read_text("utf-8"))
    assert [(run["seed"], run["mode"]) for run in record["runs"]] == [
        (11, "fp32"),
        (11, "O1"),
        (12, "fp32"),
        (12, "O1"),
    ]
    first, second = record["runs"][0], record["runs"][1]
    assert first["losses"][0] != second["losses"][0]
    assert first["losses"][0] == pytest.approx(second["losses"][0], rel=5e-3)  # the same weights and batch
    assert first["losses"][0] != record["runs"][2]["losses"][0]  # another seed
    assert all(run["memory"] > run["memory_start"] > 0 and run["timed"] == 3 for run in record["runs"])
    assert set(first["metric"]) == {"acc", "norm_edit_dis"}
    assert second["half_share"] > 0.2 and record["model"]["products"] > 5
    assert not (folder / "out").exists()
