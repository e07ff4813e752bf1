"""``paddle-amp``: fast, the same as ``python -m``, and its ``run`` is a way to run one's own script."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paddle_amp_plugin.cli.errors import describe, guarded
from paddle_amp_plugin.cli.tools import take_tree
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.paddleocr_tree import find_tree
from tests.hosts import tiny


def paddle_amp(*arguments: str, cwd):
    return tiny.call(["-m", "paddle_amp_plugin", *arguments], cwd)


HEAVY = ("paddle", "numpy", "yaml", "cv2", "wrapt", "matplotlib", "paddle_amp_plugin.config")


@pytest.mark.parametrize("verb", ["", "run", "doctor", "report", "export"])
def test_help_imports_nothing_heavy(tmp_path, verb):
    """Neither Paddle nor what validates, parses or computes.

    Typer draws a help with rich, and reads a single verb's options with pydantic: that is its own.
    """
    arguments = ["paddle-amp", verb, "--help"] if verb else ["paddle-amp", "--help"]
    code = (
        f"import sys\nsys.argv = {arguments}\n"
        "from paddle_amp_plugin.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"heavy = {HEAVY if verb else (*HEAVY, 'pydantic')}\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    result = tiny.call(["-c", code], tmp_path)
    assert result.stdout.strip().endswith("[]") and (verb or "run") in result.stdout, result.stdout


def test_version_without_importing_paddle(tmp_path):
    result = paddle_amp("version", cwd=tmp_path)
    assert result.returncode == 0 and "paddle-amp-plugin" in result.stdout and "paddlepaddle" in result.stdout


def test_help_in_chinese(tmp_path):
    result = tiny.call(["-m", "paddle_amp_plugin", "--help"], tmp_path, PADDLE_AMP_LANG="zh")
    assert "混合精度" in result.stdout


def test_show_patches(tmp_path):
    script = str(find_tree().script("train"))
    result = paddle_amp("run", "--show-patches", script, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    for name in ("tools.program:train", "ppocr.utils.save_load:save_model", "TrainingStats"):
        assert name in result.stdout.replace("\n", "") or name.split(":")[-1] in result.stdout
    assert "patched" in result.stdout


def test_run_passes_arguments_through_untouched(tmp_path):
    """Also those that look like ours, and a script that is not a training script."""
    (tmp_path / "mine.py").write_text("import sys\nprint(sys.argv[1:], __name__)\nsys.exit(7)\n")
    result = paddle_amp("run", "mine.py", "--show-patches", "-x", "--paddleocr", "y", cwd=tmp_path)
    assert "['--show-patches', '-x', '--paddleocr', 'y'] __main__" in result.stdout, result.stdout
    assert result.returncode == 7


def test_run_without_a_script(tmp_path):
    result = paddle_amp("run", "none.py", cwd=tmp_path)
    assert result.returncode == 2 and "AMP052" in result.stdout and "Traceback" not in result.stdout


def test_unknown_verb(tmp_path):
    result = paddle_amp("rnu", cwd=tmp_path)
    assert result.returncode == 2 and "Traceback" not in result.stdout


def test_take_tree():
    assert take_tree(["-c", "x", "--paddleocr", "D", "-o", "a=b"]) == ("D", ["-c", "x", "-o", "a=b"])
    assert take_tree(["--paddleocr=D"]) == ("D", [])
    assert take_tree(["-c", "x"]) == (None, ["-c", "x"])
    with pytest.raises(AmpError):
        take_tree(["--paddleocr"])


def raised(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (AmpError("AMP099", "what", hint="do", exit_code=5), 5, "[AMP099] what\n    do"),
        (KeyboardInterrupt(), 130, "Ctrl-C"),
        (SystemExit(None), 0, ""),
        (SystemExit(4), 4, ""),
        (SystemExit("bye"), 1, "bye"),
        (ModuleNotFoundError("No module", name="shapely.geometry"), 1, "pip install shapely"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied"),
        (RuntimeError("worker said [AMP048] all bad"), 1, "[AMP048] all bad"),
        (ValueError("first line\nsecond"), 1, "ValueError: first line"),
        (RuntimeError(), 1, "RuntimeError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exceptions_become_messages(capsys, error, code, words):
    assert guarded(raised(error)) == code
    shown = capsys.readouterr().err
    assert words in shown and "Traceback" not in shown


def test_paddles_own_errors_are_summed_up():
    text = "\n\n----\nC++ Traceback (most recent call last):\n----\n0 x\n\nError Message Summary:\n----\n"
    text += "InvalidArgumentError: The shape is wrong.\n  [Hint: Expected] (at /paddle/x.cc:1)\n"
    assert "InvalidArgumentError: The shape is wrong." in describe(ValueError(text))


def test_success_is_zero():
    assert guarded(lambda: None) == 0


def test_package_import_is_light():
    code = "import paddle_amp_plugin, sys; assert 'zlib' in sys.modules; assert 'paddle' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tiny.ROOT)
