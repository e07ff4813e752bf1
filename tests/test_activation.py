"""``PADDLE_AMP_PLUGIN=1`` with nothing but the installed package, and ``enable`` from Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

import paddle_amp_plugin
from paddle_amp_plugin import config
from paddle_amp_plugin.errors import ConfigError
from paddle_amp_plugin.hosts.paddleocr_tree import find_tree
from tests.hosts import tiny

#: What ``site`` does at start with the folder that the package is installed into, then the user's command.
AS_INSTALLED = """
import runpy, site, sys
site.addsitedir({site!r})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What a wheel would put into site-packages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(folder)]
    done = subprocess.run(command, cwd=tiny.ROOT, capture_output=True, text=True, timeout=tiny.TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    tiny.make_data(folder)
    return folder


def train(installed, config_path, **env):
    """The host's own ``tools/train.py``, from its own tree."""
    code = AS_INSTALLED.format(site=str(installed))
    script = find_tree().script("train")
    return tiny.call(["-c", code, str(script), "-c", str(config_path)], config_path.parent, **env)


def test_a_wheel_carries_the_hook_and_the_recipes(installed):
    assert (installed / "paddle_amp_plugin.pth").read_text(encoding="utf-8").count("\n") == 1
    assert (installed / "paddle_amp_plugin" / "py.typed").is_file()
    for path in (tiny.ROOT / "configs").rglob("*.yml"):
        copy = installed / "paddle_amp_plugin" / path.relative_to(tiny.ROOT)
        assert copy.read_bytes() == path.read_bytes(), path


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_without_the_variable_nothing_happens(installed, tmp_path, value):
    script = tmp_path / "s.py"
    script.write_text("import sys; print([m for m in sys.modules if m.startswith(('paddle', 'wrapt'))], sys.meta_path)")
    code = AS_INSTALLED.format(site=str(installed))
    done = tiny.call(["-c", code, str(script)], tmp_path, PADDLE_AMP_PLUGIN=value)
    loaded, _, finders = done.stdout.partition("]")
    assert done.returncode == 0 and "_Finder" not in finders, done.stdout
    allowed = "" if value in ("", "0") else "'paddle_amp_plugin', 'paddle_amp_plugin.activation'"
    assert loaded == "[" + allowed


def test_with_the_variable_only_a_finder_is_added(installed, tmp_path):
    """Until a host is imported, neither Paddle nor anything else that takes time."""
    script = tmp_path / "s.py"
    heavy = ("paddle", "numpy", "pydantic", "wrapt", "yaml", "rich")
    script.write_text(f"import sys; print([m for m in {heavy} if m in sys.modules], sys.meta_path[0])")
    done = tiny.call(["-c", AS_INSTALLED.format(site=str(installed)), str(script)], tmp_path, PADDLE_AMP_PLUGIN="1")
    assert done.stdout.startswith("[] <paddle_amp_plugin.activation._Finder"), done.stdout


def test_the_host_s_own_command_trains_in_mixed_precision(installed, data, tmp_path):
    path = tiny.write(tmp_path / "c.yml", tiny.config(data, tmp_path / "out", epochs=1, amp={"level": "O2"}))
    done = train(installed, path, PADDLE_AMP_PLUGIN="1")
    assert done.returncode == 0 and "amp: 6 steps, 6 updates" in done.stdout, done.stdout[-3000:]
    assert "What to do next" in done.stdout and (tmp_path / "out" / "latest.pdamp").is_file()


def test_a_mistake_is_a_message_and_an_exit_code(installed, data, tmp_path):
    path = tiny.write(tmp_path / "c.yml", tiny.config(data, tmp_path / "out", amp={"levle": "O2"}))
    done = train(installed, path, PADDLE_AMP_PLUGIN="1")
    assert done.returncode == 2 and "AMP001" in done.stdout and "did you mean: level" in done.stdout
    assert "Traceback" not in done.stdout and not (tmp_path / "out").exists()


ENABLED = """
import paddle_amp_plugin, runpy, sys
paddle_amp_plugin.enable({{"level": "O1", "dtype": "bfloat16"}})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_enable_holds_for_a_config_that_does_not_ask(data, tmp_path):
    path = tiny.write(tmp_path / "c.yml", tiny.config(data, tmp_path / "out", epochs=1))
    script = find_tree().script("train")
    done = tiny.call(["-c", ENABLED.format(), str(script), "-c", str(path)], tmp_path)
    assert done.returncode == 0 and "6 steps, 6 updates, 0 skipped" in done.stdout, done.stdout[-3000:]
    assert "in bfloat16" in done.stdout


@pytest.fixture
def disabled():
    yield
    paddle_amp_plugin.disable()


def test_enable_and_disable(disabled, tmp_path):
    paddle_amp_plugin.enable({"level": "O2"})
    for host in ("paddleocr", "paddlenlp"):
        assert config.read_amp({}, host=host).level == "O2"
        assert config.read_amp({"amp": "O1"}, host=host).level == "O1"  # who asks has the last word
        assert not config.read_amp({"amp": False}, host=host).enabled
    (tmp_path / "c.yml").write_text("Global: {}\namp: {level: OD}\n", encoding="utf-8")
    paddle_amp_plugin.enable(str(tmp_path / "c.yml"))
    assert config.read_amp({}).level == "OD"
    paddle_amp_plugin.disable()
    assert config.read_amp({}) is None


def test_enable_with_a_mistake_enables_nothing(disabled):
    with pytest.raises(ConfigError) as caught:
        paddle_amp_plugin.enable({"level": "O3"})
    assert "AMP003" in str(caught.value) and config.read_amp({}) is None
    finders = [type(finder).__name__ for finder in sys.meta_path]
    assert "_Finder" not in finders
