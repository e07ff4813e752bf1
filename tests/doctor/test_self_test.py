"""The five steps on the device that is here, what they notice when something is broken, and the whole command."""

from __future__ import annotations

import json
import re

import paddle
import pytest

from paddle_amp_plugin.doctor import self_test
from paddle_amp_plugin.doctor.report import plain, without_names
from tests.hosts import tiny


def made(level="O1", dtype="float16"):
    found = {}
    self_test.run(found.update, "cpu", level, dtype)
    assert found["stage"] == "done" and len(found["losses"]) == 5
    return {row["name"]: row["ok"] for row in found["checks"]}


@pytest.mark.parametrize(
    ("level", "dtype"),
    [("O1", "float16"), ("O2", "float16"), ("OD", "float16"), ("O1", "bfloat16"), ("O2", "bfloat16")],
)
def test_it_passes(level, dtype):
    checks = made(level, dtype)
    assert all(checks.values()), checks
    names = {
        "losses",
        "updates",
        "half",
        "batch_norm",
        "masters" if level == "O2" else "weights",
        "skipped",
        "statistics",
    }
    assert set(checks) == names | ({"scale"} if dtype == "float16" else set())


def wrong(checks):
    return {name for name, ok in checks.items() if not ok}


def test_it_notices_an_auto_cast_without_effect(monkeypatch):
    """What happens on a CPU without software half: everything stays FP32, and nothing overflows."""
    from paddle_amp_plugin.session import Session

    monkeypatch.setattr(Session, "use_software_half", lambda self: None)
    assert {"half", "skipped", "scale"} <= wrong(made())


def test_it_notices_a_scaler_that_does_not_look(monkeypatch):
    from paddle_amp_plugin.scaler import LossScaler

    monkeypatch.setattr(LossScaler, "_check_and_unscale", lambda self, gradients: paddle.to_tensor([False]))
    assert {"skipped", "scale"} <= wrong(made())


def test_it_notices_half_norms(monkeypatch):
    from paddle_amp_plugin import plan

    monkeypatch.setattr(plan, "SAFE_BLACK_LIST", frozenset())
    before = plan.make_plan

    def careless(config, device, **more):
        import dataclasses

        made = before(config, device, **more)
        return dataclasses.replace(made, custom_black_list=(), custom_white_list=("batch_norm",))

    monkeypatch.setattr(plan, "make_plan", careless)
    assert "batch_norm" in wrong(made())


def test_an_exception_is_a_finding(tmp_path):
    path = tmp_path / "f.json"
    self_test.main(str(path), "nowhere:0", "O1", "float16")
    found = json.loads(path.read_text())
    assert found["stage"] == "build" and found["error"]


@pytest.mark.gpu
def test_on_a_gpu():
    found = {}
    self_test.run(found.update, "gpu:0", "O1", "float16")
    assert all(row["ok"] for row in found["checks"]), found


# -- the command -------------------------------------------------------------------------------------------------------


def doctor(*arguments, cwd, **env):
    return tiny.call(["-m", "paddle_amp_plugin", "doctor", *arguments], cwd, **env)


def test_json(tmp_path):
    """Everything, on the Paddle that is here; keys that an issue template may rely on; no home folder, no user."""
    path = tmp_path / "private_folder" / "x.yml"
    path.parent.mkdir()
    path.write_text("amp: O2\nArchitecture: {model_type: rec, algorithm: X}\nGlobal: {save_model_dir: o}\n")
    result = doctor("-c", str(path), "--json", cwd=tmp_path, HOME=str(tmp_path), PADDLE_AMP_LANG="zh")
    assert result.returncode == 0, result.stdout
    found = json.loads(result.stdout[result.stdout.index("{") : result.stdout.rindex("}") + 1])
    assert (found["schema"], found["version"]) == ("paddle-amp-doctor", 1)
    assert list(found) == ["schema", "version", "verdict", "facts", "config", "self_test"]
    verdict = found["verdict"]
    assert (verdict["state"], verdict["level"], verdict["dtype"]) == ("emulated", "O2", "float16")
    assert {reason["key"] for reason in verdict["reasons"]} == {"emulated", "test_passed"}
    assert set(verdict["reasons"][0]) == {"key", "code", "weight", "values", "text"}
    assert found["facts"]["paddle"]["version"] == paddle.__version__
    assert "use_promote" in found["facts"]["paddle"]["amp"]["auto_cast"]
    assert found["facts"]["hosts"]["numpy"] and found["facts"]["cores"] >= 1
    assert found["config"]["file"] == "x.yml" and found["config"]["plan"]["level"] == "O2"
    assert found["self_test"]["state"] == "passed" and len(found["self_test"]["losses"]) == 5
    assert "private_folder" not in result.stdout and str(tmp_path) not in result.stdout
    assert not re.search(r"[\u4e00-\u9fff]", result.stdout)


@pytest.mark.parametrize(
    ("language", "words"), [("en", "AMP would be off: [AMP254] y.yml"), ("zh", "AMP 不会启用：[AMP254] y.yml")]
)
def test_off_is_one_line_and_exit_code_1(tmp_path, language, words):
    (tmp_path / "y.yml").write_text("Architecture: {model_type: rec}\nGlobal: {save_model_dir: o}\n")
    result = doctor("-c", "y.yml", "--no-self-test", cwd=tmp_path, PADDLE_AMP_LANG=language, COLUMNS="200")
    assert result.returncode == 1 and "Traceback" not in result.stdout
    assert result.stdout.rstrip().splitlines()[-1].startswith(words), result.stdout


@pytest.mark.parametrize(
    ("text", "code"),
    [(None, "AMP030"), ("amp: {levle: O2}\nGlobal: {}\nArchitecture: {}\n", "AMP001"), ("amp: [", "AMP03")],
)
def test_bad_use_is_exit_code_2(tmp_path, text, code):
    if text is not None:
        (tmp_path / "z.yml").write_text(text)
    result = doctor("-c", "z.yml", cwd=tmp_path)
    assert result.returncode == 2 and code in result.stdout and "Traceback" not in result.stdout
    assert doctor("--jsno", cwd=tmp_path).returncode == 2


def test_a_paddle_that_cannot_be_imported_is_a_diagnosis(tmp_path):
    folder = tmp_path / "paddle"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    result = doctor("--json", cwd=tmp_path)
    found = json.loads(result.stdout[result.stdout.index("{") : result.stdout.rindex("}") + 1])
    assert result.returncode == 1 and found["verdict"]["reasons"][0]["code"] == "AMP250"
    assert "libcudart.so.12" in found["verdict"]["headline"] and found["self_test"]["state"] == "skipped"


def test_names_are_taken_out(monkeypatch):
    monkeypatch.setenv("HOME", "/data/people/mei")
    monkeypatch.setenv("LOGNAME", "mei")
    assert without_names("/data/people/mei/x.so, /data/people/meiling/y") == "~/x.so, /data/people/meiling/y"
    assert without_names("at /home/someone/.venv/lib: no; /Users/else/a") == "at ~/.venv/lib: no; ~/a"
    assert without_names("/mnt/mei/model") == "/mnt/<user>/model"
    assert without_names("mei is no path") == "mei is no path"
    monkeypatch.setenv("HOME", "/")
    assert without_names("/usr/lib") == "/usr/lib"
    assert plain({"a": (1, float("nan")), "b": ["/home/x/y"]}) == {"a": [1, None], "b": ["~/y"]}


def test_the_help_of_other_verbs_imports_no_doctor(tmp_path):
    code = (
        "import sys\nfrom paddle_amp_plugin.cli import main\n"
        "heavy = ('paddle', 'numpy', 'pydantic', 'yaml', 'rich', 'paddle_amp_plugin.doctor')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    result = tiny.call(["-c", code], tmp_path)
    assert result.stdout.strip().endswith("[]"), result.stdout


def test_the_doctor_itself_never_imports_paddle(tmp_path):
    code = "import paddle_amp_plugin.cli.doctor, sys\nprint([m for m in ('paddle', 'paddlenlp') if m in sys.modules])"
    assert tiny.call(["-c", code], tmp_path).stdout.strip().endswith("[]")
