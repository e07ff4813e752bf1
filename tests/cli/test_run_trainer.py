"""``paddle-amp run`` with a user's own PaddleNLP script."""

from __future__ import annotations

import pytest

from paddle_amp_plugin.hosts import scripts
from paddle_amp_plugin.monitor import read_events
from paddle_amp_plugin.plan import plan_from_yaml
from tests.hosts import tiny
from tests.hosts.tiny_nlp import needs_paddlenlp

SCRIPT = """
import sys

sys.path.append({root!r})

from paddlenlp.trainer import PdArgumentParser, Trainer, TrainingArguments

import task


def main():
    args, rest = PdArgumentParser(TrainingArguments).parse_args_into_dataclasses(return_remaining_strings=True)
    trainer = Trainer(model=task.model(), args=args, train_dataset=task.data(), data_collator=task.collate)
    trainer.train()
    trainer.save_model()
    print("the rest:", rest)


if __name__ == "__main__":
    main()
"""
TASK = """
from tests.hosts.tiny_nlp import Words as data
from tests.hosts.tiny_nlp import bert as model
from tests.hosts.tiny_nlp import collate
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    path = tmp_path / "mine.py"
    path.write_text(SCRIPT.format(root=str(tiny.ROOT)))
    return path


def paddle_amp(*arguments, cwd):
    return tiny.call(["-m", "paddle_amp_plugin", *arguments], cwd)


def test_whose_script_it_is(script, tmp_path):
    assert scripts.is_for_a_trainer(script)
    (tmp_path / "outer.py").write_text("import json\nfrom mine import main\n")
    assert scripts.imports_of(tmp_path / "outer.py") >= {"json", "sys", "paddlenlp", "tests"}
    assert scripts.is_for_a_trainer(tmp_path / "outer.py"), "by a module beside it"
    (tmp_path / "ocr.py").write_text("import paddlenlp\nfrom ppocr.data import build_dataloader\n")
    (tmp_path / "broken.py").write_text("import paddlenlp\n(")
    assert not scripts.is_for_a_trainer(tmp_path / "ocr.py")
    assert not scripts.is_for_a_trainer(tmp_path / "broken.py")


@needs_paddlenlp
def test_training(script, tmp_path):
    common = [
        "--output_dir",
        "out",
        "--max_steps",
        "3",
        "--device",
        "cpu",
        "--disable_tqdm",
        "true",
        "--report_to",
        "none",
    ]
    result = paddle_amp("run", str(script), *common, "--amp.level", "O2", "--amp.dtype=float16", "--mine", cwd=tmp_path)
    text = result.stdout
    assert result.returncode == 0, text[-4000:]
    assert "amp: 3 steps, 3 updates, 0 skipped, final loss scale 1024" in text and "the rest: ['--mine']" in text
    folder = tmp_path / "out" / "amp"
    assert len(read_events(folder / "events.jsonl")) == 3
    assert plan_from_yaml((folder / "plan.yml").read_text(encoding="utf-8")).level == "O2"
    report = paddle_amp("report", str(tmp_path / "out"), cwd=tmp_path)
    assert report.returncode == 0 and (folder / "report.html").is_file(), report.stdout


@needs_paddlenlp
def test_a_bad_key_is_one_message(script, tmp_path):
    result = paddle_amp("run", str(script), "--output_dir", "out", "--device", "cpu", "--amp.levle", "O2", cwd=tmp_path)
    assert result.returncode == 2 and "AMP001" in result.stdout and "did you mean: level" in result.stdout
    assert "Traceback" not in result.stdout and not (tmp_path / "out" / "amp").exists()


@needs_paddlenlp
def test_show_patches_runs_nothing(script, tmp_path):
    result = tiny.call(["-m", "paddle_amp_plugin", "run", "--show-patches", str(script)], tmp_path, COLUMNS="200")
    text = result.stdout
    assert result.returncode == 0, text
    assert (
        "patches on PaddleNLP" in text
        and "Trainer._wrap_model" in text
        and "not patched" not in text
        and "the rest" not in text
    )


def test_a_host_that_is_not_installed(tmp_path, monkeypatch):
    import importlib.util

    from paddle_amp_plugin.errors import AmpError

    path = tmp_path / "mine.py"
    path.write_text("from paddleformers.trainer import Trainer\n")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "paddleformers" else find(name, *a)
    )
    with pytest.raises(AmpError) as caught:
        scripts.run_trainer_script(path, [])
    assert caught.value.code == "AMP201" and "pip install paddleformers" in str(caught.value)
