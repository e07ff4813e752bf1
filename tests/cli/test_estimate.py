"""``paddle-amp estimate``: what it prints, what it ends with, and how it says no."""

import json

import pytest
import yaml

from tests.hosts import tiny
from tests.workloads import configs


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimate")
    document = {**configs.cls(folder), "amp": {"level": "O2", "dtype": "float16"}}
    return configs.write(folder, document)


def estimate(config, *arguments, **environment):
    words = ["-m", "paddle_amp_plugin", "estimate", "-c", str(config), *arguments]
    return tiny.call(words, config.parent, timeout=600, **environment)


def test_json_table_and_picture(config):
    """One run for the numbers; it does not fit, so it ends with 1."""
    words = "--memory 400MiB --reserve 0MiB --batch 64 --json --picture bars.svg".split()
    done = estimate(config, *words)
    assert done.returncode == 1, done.stdout
    found = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
    assert (found["mode"], found["batch"], found["fits"]) == ("O2", 64, False)
    assert list(found["modes"]) == ["FP32", "O1", "O2"] and found["modes"]["O2"]["dtype"] == "float16"
    fp32, o2 = found["modes"]["FP32"], found["modes"]["O2"]
    assert o2["total"] < fp32["total"] and 0 < fp32["largest_batch"] < o2["largest_batch"] < 64
    assert fp32["states"] > 1.99 * fp32["gradients"] and o2["masters"] > 0 == fp32["masters"]
    assert (config.parent / "bars.svg").read_text(encoding="utf-8").startswith("<svg")


def test_it_fits(config):
    done = estimate(config, "--memory", "24GB", "--set", "amp.level=O1", PADDLE_AMP_LANG="zh")
    assert done.returncode == 0, done.stdout
    for word in ("O1 float16 *", "最大批大小", "放得下", "批大小 4"):
        assert word in done.stdout, done.stdout


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
def test_bad_use_is_said_before_anything_is_built(config, arguments, code, word):
    done = estimate(config, *arguments)
    assert done.returncode == 2 and f"[{code}]" in done.stdout and word in done.stdout, done.stdout


def test_a_bad_amp_key_is_the_same_error_as_in_training(tmp_path):
    path = tmp_path / "c.yml"
    path.write_text(yaml.safe_dump({**configs.cls(tmp_path), "amp": {"level": "O7"}}), encoding="utf-8")
    done = estimate(path)
    assert done.returncode == 2 and "amp.level" in done.stdout, done.stdout


def test_a_config_that_is_not_there(tmp_path):
    done = estimate(tmp_path / "none.yml")
    assert done.returncode == 2 and "none.yml" in done.stdout, done.stdout
