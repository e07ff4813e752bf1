"""``paddle-amp estimate``: what it prints, what it ends with, and how it says no."""

import json
import sys

import pytest
import yaml
from typer.testing import CliRunner

from paddle_amp_plugin.cli.main import app
from tests.hosts import tiny
from tests.workloads import configs

#: Runs of the command, one after the other in one process: their exit codes and what they print.
CHILD = """
import zlib, json, sys
from typer.testing import CliRunner
from paddle_amp_plugin.cli.main import app
for words, environment in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, words, env=environment)
    print("ANSWER" + json.dumps([done.exit_code, done.output]))
"""
FULL = "--memory 400MiB --reserve 0MiB --batch 64 --json --picture bars.svg".split()
ACCUMULATED = "--memory 24GB --set amp.accumulate_steps=2 --set amp.ema.decay=0.99".split()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimate")
    document = {**configs.cls(folder), "amp": {"level": "O2", "dtype": "float16"}}
    return configs.write(folder, document)


@pytest.fixture(scope="module")
def answers(config):
    cases = [(FULL, {"PADDLE_AMP_LANG": "en"}), (ACCUMULATED, {"PADDLE_AMP_LANG": "zh", "COLUMNS": "120"})]
    words = json.dumps([(["estimate", "-c", str(config), *words], environment) for words, environment in cases])
    done = tiny.call(["-c", CHILD, words], config.parent, timeout=600)
    lines = [line[len("ANSWER") :] for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert len(lines) == len(cases), done.stdout
    return [json.loads(line) for line in lines]


def test_json_and_picture(config, answers):
    """It does not fit, so it ends with 1."""
    code, text = answers[0]
    assert code == 1, text
    found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert (found["mode"], found["batch"], found["fits"]) == ("O2", 64, False)
    assert list(found["modes"]) == ["FP32", "O1", "O2"] and found["modes"]["O2"]["dtype"] == "float16"
    fp32, o2 = found["modes"]["FP32"], found["modes"]["O2"]
    assert o2["total"] < fp32["total"] and 0 < fp32["largest_batch"] < o2["largest_batch"] < 64
    assert fp32["states"] > 1.99 * fp32["gradients"] and o2["masters"] > 0 == fp32["masters"]
    assert fp32["copies"] == 0 < o2["copies"] < o2["weights"] / 10  # the norms' running statistics
    assert (config.parent / "bars.svg").read_text(encoding="utf-8").startswith("<svg")


def test_it_fits_in_chinese_with_accumulation_and_an_average(answers):
    code, text = answers[1]
    assert code == 0, text
    for word in ("O2 float16 *", "最大批大小", "放得下", "批大小 4", "累积 2 次 = 每次更新 8"):
        assert word in text, text
    row = next(line for line in text.splitlines() if "平均与副本" in line)
    sizes = {cell.strip() for cell in row.strip("│ ").split("│")[1:]}  # the same in FP32, at O1 and at O2
    assert len(sizes) == 1 and sizes != {"0.0 KiB"}, row


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--memory", "16G"), "AMP285", "16GiB"),
        (("--reserve", "lots"), "AMP285", "--reserve"),
        (("--batch", "0"), "AMP288", "--batch"),
        (("--memory", "1GiB", "--reserve", "1GiB"), "AMP289", "--reserve"),
        (("--set", "novalue"), "AMP014", "novalue"),
    ],
)
def test_bad_use_is_said_before_anything_is_built(config, arguments, code, word, monkeypatch):
    monkeypatch.setitem(sys.modules, "paddle_amp_plugin.hosts.workloads", None)  # its import fails
    done = refused(config, *arguments)
    assert f"[{code}]" in done and word in done, done


def refused(path, *arguments):
    done = CliRunner().invoke(app, ["estimate", "-c", str(path), *arguments], env={"PADDLE_AMP_LANG": "en"})
    assert done.exit_code == 2, done.output
    return done.output


def test_a_bad_amp_key_is_the_same_error_as_in_training(tmp_path):
    path = tmp_path / "c.yml"
    path.write_text(yaml.safe_dump({**configs.cls(tmp_path), "amp": {"level": "O7"}}), encoding="utf-8")
    assert "amp.level" in refused(path)


def test_a_config_that_is_not_there(tmp_path):
    assert "none.yml" in refused(tmp_path / "none.yml").replace("\n", "")
