"""The quick start's data set: the same settings give the same bytes, nothing leaks, nothing is left half made."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

pytest.importorskip("jieba", reason="the words come from the package jieba")
pytest.importorskip("pylopdf_fonts_zh_cn", reason="the fonts come from the package pylopdf-fonts-zh-cn")
pytest.importorskip("paperang_p2_fonts_cjk", reason="the fonts come from the package paperang-p2-fonts-cjk")

from paddle_amp_plugin.data import ocr_lines, words
from paddle_amp_plugin.data.lines import FACES, contact_sheet, load_font, render_line
from paddle_amp_plugin.data.ocr_lines import Settings, make_ocr_lines
from paddle_amp_plugin.errors import AmpError

QUIET = Console(quiet=True)
PROJECT = Path(__file__).resolve().parents[2]


def make(out: Path, lines: int = 120, seed: int = 5, val_lines: int = 60, **more: float) -> bool:
    return make_ocr_lines(out, lines, seed, val_lines=val_lines, console=QUIET, **more)  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    """{path relative to the folder: bytes} of every file."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def labels(folder: Path, split: str) -> list[tuple[str, str]]:
    rows = (folder / f"{split}.txt").read_text(encoding="utf-8").splitlines()
    return [(path, text) for path, text in (row.split("\t") for row in rows)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "ocr_amp"
    assert make(out, lines=400, val_lines=120)
    return out


def test_same_settings_same_bytes(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    make(tmp_path / "c", seed=6)
    a, b, c = (content(tmp_path / name) for name in "abc")
    assert a == b
    assert a["train.txt"] != c["train.txt"]
    assert a["images/train/00000.jpg"] != c["images/train/00000.jpg"]


def test_more_lines_do_not_change_the_first_ones(tmp_path: Path) -> None:
    make(tmp_path / "few", lines=20)
    make(tmp_path / "more", lines=40)
    few, more = content(tmp_path / "few"), content(tmp_path / "more")
    assert more["train.txt"].startswith(few["train.txt"])
    assert few["images/train/00019.jpg"] == more["images/train/00019.jpg"]


def test_no_text_in_both_splits(made: Path) -> None:
    train, val = ({text for _, text in labels(made, split)} for split in ("train", "val"))
    assert train and val
    assert not train & val


def test_counts_and_pictures(made: Path) -> None:
    for split, count in (("train", 400), ("val", 120)):
        rows = labels(made, split)
        assert len(rows) == count
        assert all((made / path).is_file() for path, _ in rows)
        assert len(list((made / "images" / split).iterdir())) == count


def test_every_label_inside_the_dictionary(made: Path) -> None:
    characters = (made / "dict.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(characters)) == len(characters)
    assert all(len(c) == 1 for c in characters)
    for split in ("train", "val"):
        for _, text in labels(made, split):
            assert set(text) <= set(characters)
            assert 2 <= len(text) <= words.MAX_LENGTH
            assert words.display_width(text) <= Settings.max_width


def test_every_character_is_taught(made: Path) -> None:
    """A character that training never shows cannot be read in the held-out lines."""
    shown = set("".join(text for _, text in labels(made, "train")))
    assert set("".join(text for _, text in labels(made, "val"))) <= shown


def test_words_are_real_words_of_the_frequent_characters() -> None:
    vocabulary = words.Vocabulary.quick_start(40)
    known = dict(words.jieba_words())
    assert len(vocabulary.han) == 40 == len(set(vocabulary.han))
    assert set(words.LABEL_HAN) <= set(vocabulary.han)
    assert all(word in known and set(word) <= set(vocabulary.han) for word in vocabulary.words)
    assert len(vocabulary.words) > 300


def test_pictures_differ_and_are_legible(made: Path) -> None:
    seen: set[bytes] = set()
    for path, text in labels(made, "train"):
        with Image.open(made / path) as image:
            pixels = np.asarray(image.convert("L"), dtype=np.float32)
            assert image.mode == "RGB"
        height, width = pixels.shape
        assert 30 <= height <= 80, path
        # At least 7 pixels a half-width character, once the line is 32 pixels high.
        assert width * 32 / height >= 12 * words.display_width(text), path
        low, high = np.percentile(pixels, [2, 98])
        assert high - low > 45, f"{path}: {text} is too pale"
        seen.add((made / path).read_bytes())
    assert len(seen) == 400


def test_every_face_draws_every_character() -> None:
    characters = words.Vocabulary.quick_start(40).characters
    for face in FACES:
        font = load_font(face, 40)
        missing = bytes(font.getmask("\U0010fffe"))
        for character in characters:
            assert bytes(font.getmask(character)) not in (b"", missing), f"{face.name} lacks {character}"


def test_contact_sheet_holds_all() -> None:
    images = [render_line("中国", np.random.default_rng(i)) for i in range(9)]
    assert contact_sheet(images, columns=4, cell=(100, 40)).size == (400, 120)


def test_done_once_and_again_when_settings_change(tmp_path: Path) -> None:
    out = tmp_path / "ocr_amp"
    assert make(out, lines=10)
    stamp = (out / "train.txt").stat().st_mtime_ns
    assert not make(out, lines=10)
    assert (out / "train.txt").stat().st_mtime_ns == stamp
    assert make(out, lines=11)
    assert len(labels(out, "train")) == 11
    assert [p.name for p in tmp_path.iterdir()] == ["ocr_amp"]
    assert json.loads((out / "manifest.json").read_text())["settings"]["lines"] == 11


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("broken")])
def test_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    calls = iter(range(10_000))

    def stop_at_ten(*args: object) -> Image.Image:
        if next(calls) == 10:
            raise error
        return render_line(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(ocr_lines, "render_line", stop_at_ten)
    with pytest.raises(type(error)):
        make(tmp_path / "deep" / "ocr_amp")
    assert list((tmp_path / "deep").iterdir()) == []


def test_interrupted_remake_keeps_the_old_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "ocr_amp"
    make(out, lines=10)
    before = content(out)

    def stop(*args: object) -> Image.Image:
        raise KeyboardInterrupt

    monkeypatch.setattr(ocr_lines, "render_line", stop)
    with pytest.raises(KeyboardInterrupt):
        make(out, lines=12)
    assert content(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["ocr_amp"]


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("keep me")
    with pytest.raises(AmpError) as caught:
        make(tmp_path / "mine")
    assert caught.value.code == "AMP074"
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "keep me"


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.ENOSPC, "free about"), (errno.EACCES, "may write"), (errno.EROFS, "may write")]
)
def test_disk_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")

    def refuse(self: Path, data: bytes) -> int:
        raise OSError(number, "refused")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(AmpError) as caught:
        make(tmp_path / "ocr_amp")
    assert caught.value.code == "AMP076"
    assert hint in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_target_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AmpError) as caught:
        make(tmp_path / "file" / "ocr_amp")
    assert caught.value.code == "AMP076"


@pytest.mark.parametrize("settings", [{"lines": 0}, {"val_lines": 0}, {"han": 2}, {"max_width": 0.5}])
def test_bad_settings(tmp_path: Path, settings: dict[str, float]) -> None:
    with pytest.raises(AmpError) as caught:
        make(tmp_path / "ocr_amp", **settings)  # type: ignore[arg-type]
    assert caught.value.code == "AMP075"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", language)
    with pytest.raises(AmpError) as caught:
        words.package_file("no_such_fonts", "a.otf")
    assert caught.value.code == "AMP070"
    assert "pip install no-such-fonts" in caught.value.hint


def test_damaged_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dict.txt").write_text("中国 many n\n", encoding="utf-8")
    monkeypatch.setattr(words, "package_file", lambda package, relative: tmp_path / "dict.txt")
    with pytest.raises(AmpError) as caught:
        words.jieba_words.__wrapped__()
    assert caught.value.code == "AMP071"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_from_outside(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C and kill end with a message and code 130, and leave no temporary folder."""
    command = [sys.executable, "-m", "paddle_amp_plugin.data", "ocr_lines", "--out", str(tmp_path / "d" / "x")]
    environment = {**os.environ, "PADDLE_AMP_LANG": "en"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=PROJECT, env=environment) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("d/.x.*.part/images/train/0000*.jpg")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing half-made" in said and "Traceback" not in said
    assert list((tmp_path / "d").iterdir()) == []


def test_command_line(tmp_path: Path) -> None:
    """The command works, does not import Paddle, and ends with a message and code 2 when it cannot."""
    code = (
        "import sys; from paddle_amp_plugin.data.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert 'paddle' not in sys.modules; sys.exit(end.code)\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "ocr_lines", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    good = run("--out", str(tmp_path / "d"), "--lines", "5", "--val-lines", "5", "--seed", "3")
    assert good.returncode == 0, good.stderr
    assert (tmp_path / "d" / "manifest.json").is_file()
    (tmp_path / "file").write_text("")
    bad = run("--out", str(tmp_path / "file"), "--lines", "5")
    assert bad.returncode == 2
    assert "AMP074" in bad.stderr and "Traceback" not in bad.stderr
    assert run("--seed", "many").returncode == 2
