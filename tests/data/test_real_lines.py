"""Reading real photographed lines: bad lines are reported by number, photos are never torn apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from paddle_amp_plugin.data import real_lines
from paddle_amp_plugin.data.real_lines import (
    RealLine,
    find_real_ocr,
    make_real_lines,
    normalise,
    read_dictionary,
    read_label_file,
    score,
    split_by_group,
    within,
)
from paddle_amp_plugin.errors import AmpError

PROJECT = Path(__file__).resolve().parents[2]


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (60, 20), (200, 200, 200)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three photos of four lines each, with a label file and sources.tsv."""
    rows, sources = [], ["file\tgroup"]
    for photo in ("ticket", "label", "menu"):
        for i in range(4):
            name = f"lines/{photo}_{i:02d}.jpg"
            picture(tmp_path / name)
            rows.append(f"{name}\t中国{i}元")
            sources.append(f"{name}\t{photo}")
    (tmp_path / "rec_label.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "sources.tsv").write_text("\n".join(sources) + "\n", encoding="utf-8")
    return tmp_path


def test_bad_lines_are_reported_by_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_AMP_LANG", "en")
    label = folder / "rec_label.txt"
    good = label.read_bytes()
    bad = b"lines/a.jpg 1\n\nlines/none.jpg\tabc\nlines/menu_00.jpg\t  \n\xff\xfe\t1\n"
    label.write_bytes(bad + good)
    found = read_label_file(label)
    assert len(found.lines) == 12
    assert [number for number, _ in found.problems] == [1, 3, 4, 5]
    assert ["no tab" in found.problems[0][1], "does not exist" in found.problems[1][1]] == [True, True]


def test_windows_line_ends_and_byte_order_mark(folder: Path) -> None:
    label = folder / "rec_label.txt"
    label.write_bytes(b"\xef\xbb\xbf" + label.read_bytes().replace(b"\n", b"\r\n"))
    found = read_label_file(label)
    assert not found.problems
    assert found.lines[0].text == "中国0元"


def test_nothing_usable(tmp_path: Path) -> None:
    (tmp_path / "rec_label.txt").write_text("a.jpg\tx\n")
    for path in (tmp_path / "rec_label.txt", tmp_path / "none.txt"):
        with pytest.raises(AmpError) as caught:
            read_label_file(path)
        assert caught.value.code == "AMP077"


def test_group_comes_from_the_name_without_sources(folder: Path) -> None:
    (folder / "sources.tsv").unlink()
    assert {line.group for line in read_label_file(folder / "rec_label.txt").lines} == {"ticket", "label", "menu"}


def test_photos_are_split_whole_and_deterministically(folder: Path) -> None:
    lines = read_label_file(folder / "rec_label.txt").lines
    for seed in range(8):
        train, val = split_by_group(lines, seed=seed)
        assert train and val and len(train) + len(val) == len(lines)
        assert not {x.group for x in train} & {x.group for x in val}
        assert (train, val) == split_by_group(lines, seed=seed)
    assert len({tuple(split_by_group(lines, seed=s)[1]) for s in range(8)}) > 1


def test_one_photo_is_all_training() -> None:
    lines = [RealLine(Path(f"{i}.jpg"), "元", "only") for i in range(5)]
    assert split_by_group(lines) == (lines, [])


def test_normalise_and_within() -> None:
    assert normalise("￥73.00 元（含税）：1") == "¥73.00元(含税):1"
    lines = [RealLine(Path("a.jpg"), "￥7 元", "g"), RealLine(Path("b.jpg"), "铝", "g")]
    assert within(lines, "¥7元") == lines[:1]
    assert within(lines, "¥7元铝", max_width=1.5) == lines[1:]


def test_make_real_lines(folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.txt"
    base.write_text("0\n1\n一\n是\n不\n大\n个\n", encoding="utf-8")
    out = tmp_path / "made"
    made = make_real_lines(folder / "rec_label.txt", out, base_dictionary=base, rendered=30, repeat=3)
    characters = read_dictionary(out / "dict.txt")
    assert characters == made.characters
    assert characters.startswith("01一是不大个"), "the quick start's characters keep their places"
    rows = {s: [r.split("\t") for r in (out / f"{s}.txt").read_text("utf-8").splitlines()] for s in ("train", "val")}
    assert len(rows["train"]) == made.train * 3 + 30
    assert len(rows["val"]) == made.val
    assert all((out / path).is_file() and set(text) <= set(characters) for r in rows.values() for path, text in r)
    held_out = {text for _, text in rows["val"]}
    assert not held_out & {text for path, text in rows["train"] if path.startswith("rendered/")}
    again = make_real_lines(folder / "rec_label.txt", tmp_path / "again", base_dictionary=base, rendered=30, repeat=3)
    assert again == made
    for path in (p.relative_to(out) for p in out.rglob("*") if p.is_file()):
        assert (out / path).read_bytes() == (tmp_path / "again" / path).read_bytes()


def test_score() -> None:
    truth = {"a.jpg": "￥7元", "b.jpg": "中国"}
    assert score({"a.jpg": "¥7元", "b.jpg": "中国"}, truth) == (1.0, 1.0)
    assert score({"b.jpg": "中"}, truth) == (0.0, 0.25)


def test_too_few_photos(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(AmpError) as caught:
        make_real_lines(folder / "rec_label.txt", tmp_path / "made", max_width=0.5)
    assert caught.value.code == "AMP078"
    assert not (tmp_path / "made").exists()


def test_foreign_folder_is_refused(folder: Path) -> None:
    with pytest.raises(AmpError) as caught:
        make_real_lines(folder / "rec_label.txt", folder)
    assert caught.value.code == "AMP074"


def test_finding_the_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(real_lines.ENVIRONMENT, str(folder))
    assert find_real_ocr(PROJECT) == folder
    monkeypatch.setenv(real_lines.ENVIRONMENT, str(tmp_path / "none"))
    assert find_real_ocr(PROJECT) is None


def test_the_real_photographs() -> None:
    """The real set, where it is present: every line is readable and has its photo."""
    found = find_real_ocr(PROJECT)
    if found is None:
        pytest.skip(f"no real lines: set {real_lines.ENVIRONMENT} to the folder that holds rec_label.txt")
    file = read_label_file(found / "rec_label.txt")
    assert not file.problems
    assert len(file.lines) >= 80
    assert len({line.group for line in file.lines}) >= 5
