"""The page and the picture: whole, self-contained, in both languages, with the run's numbers in them."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from paddle_amp_plugin.cli.report import report
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.report import load_run, render
from paddle_amp_plugin.report.words import advice, tiles
from tests.report import browser, fake_run


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return fake_run.write(tmp_path_factory.mktemp("run") / "rec_svtr")


@pytest.fixture(scope="module")
def page(run_dir):
    return report(run_dir, out=None, png=False, lang="en")


@pytest.fixture(scope="module")
def tree(page):
    """The page as XML: it parses only if it is well-formed."""
    text = page.read_text(encoding="utf-8")
    head, _, body = text.partition("\n")
    assert head == "<!DOCTYPE html>"
    return ElementTree.fromstring(body)


def words(element, language):
    """The text that a reader of one language sees."""
    other = "zh" if language == "en" else "en"
    if other in element.get("class", "").split() or element.tag in ("script", "style", "title"):
        return ""
    parts = [element.text or ""]
    for child in element:
        parts += [words(child, language), child.tail or ""]
    return "".join(parts)


def test_it_lies_in_the_amp_folder_and_nothing_else_is_left(page, run_dir):
    assert page == run_dir / "amp" / "report.html"
    assert not [p for p in page.parent.iterdir() if p.name.endswith(".tmp")]


def test_self_contained(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[\w.]+\.\w|@import|url\(|src=|<link|<img|<iframe", text)
    assert len(text) < 400_000


def test_ids_are_unique(tree):
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids))


def test_both_languages_are_in_it_and_neither_leaks_into_the_other(tree):
    english, chinese = words(tree, "en"), words(tree, "zh")
    assert not re.search(r"[\u4e00-\u9fff]", english.replace("中文", ""))  # the button shows the other language's name
    for text in (
        "healthy since",
        "Skip rate",
        "skipped steps",
        "Learning rate",
        "Gradient norm",
        "Settings of the run",
    ):
        assert text in english and text not in chinese
    for text in ("此后运行正常", "损失", "跳过率", "学习率", "梯度范数", "本次运行的设置", "复制"):
        assert text in chinese


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_numbers_of_the_run_are_shown(tree, run_dir, language):
    text = words(tree, language)
    data = load_run(run_dir)
    for label, value in tiles(data):
        assert f"{value}{label.of(language)}" in text
    said = advice(data)
    assert said.headline.of(language) in text and all(line.of(language) in text for line in said.lines)
    assert [pre.text for pre in tree.iter("pre")] == [fake_run.YAML]
    for row in fake_run.layers():
        assert row["name"] in text


def test_the_curves_equal_the_events(tree, run_dir):
    script = next(e for e in tree.iter("script") if e.get("id") == "data")
    charts = {c["key"]: c["series"][0]["points"] for c in json.loads(script.text)["charts"]}
    events = {e.step: e for e in load_run(run_dir).events}
    assert all(events[step].loss_scale == value for step, value in charts["scale"])
    assert all(events[step].loss == value for step, value in charts["loss"])
    assert {step for step, _ in charts["scale"]} >= {1, 1200}


def test_every_skip_is_marked(tree, run_dir):
    dots = [e for e in tree.iter("circle") if e.get("class") == "skip"]
    skipped = [e for e in load_run(run_dir).events if e.skipped]
    assert len(dots) == len(skipped)
    assert [re.search(r"step (\d+)", d.find("title").text).group(1) for d in dots] == [str(e.step) for e in skipped]


def test_everything_drawn_is_inside_its_drawing(tree):
    for drawing in tree.iter("svg"):
        _, _, width, height = map(float, drawing.get("viewBox").split())
        for element in drawing.iter():
            for names, limit in ((("x", "x1", "x2", "cx"), width), (("y", "y1", "y2", "cy"), height)):
                for name in names:
                    assert 0 <= float(element.get(name, 0)) <= limit, ElementTree.tostring(element)


def test_names_from_outside_are_escaped(tmp_path):
    folder = fake_run.write(tmp_path / "a<b>&'\"", steps=30, found=False)
    finding = fake_run.overflow()
    finding["verdict"] = {**finding["verdict"], "culprit": "x<script>alert(1)</script>", "yaml": "a: </pre><b>&"}
    finding["layers"][0]["name"] = "</svg><script>"
    (folder / "amp" / "overflow-9.json").write_text(json.dumps(finding))
    text = render(load_run(folder))
    assert "<script>alert" not in text and "</pre><b>" not in text
    ElementTree.fromstring(text.partition("\n")[2])


@pytest.mark.parametrize(
    "row",
    [
        {"step": 1},
        {"step": 1, "loss": "nan", "grad_norm": "inf", "skipped": True, "lr": 0.0},
        {"step": 7, "loss": 0.0, "grad_norm": 0.0, "lr": 1e-12, "seconds": 0.0, "samples": 3},
        {"step": 2, "loss": 1.0, "loss_scale": 0.0},
        {"step": 3, "loss": -1e30, "loss_scale": "inf", "grad_norm": 1e-30},
    ],
)
def test_a_run_of_one_step(tmp_path, row):
    (tmp_path / "amp").mkdir()
    (tmp_path / "amp" / "events.jsonl").write_text(json.dumps(row) + "\n")
    path = report(tmp_path, out=tmp_path / "r.html", png=True, lang="zh")
    ElementTree.fromstring(path.read_text(encoding="utf-8").partition("\n")[2])


def test_a_run_that_only_skips(tmp_path):
    (tmp_path / "amp").mkdir()
    rows = [{"step": s, "loss": "inf", "loss_scale": 1.0, "skipped": True, "grad_norm": "nan"} for s in range(1, 400)]
    (tmp_path / "amp" / "events.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = report(tmp_path, out=None, png=True, lang="en").read_text(encoding="utf-8")
    assert "Not normal" in text and "399 (100 %)" in text


def test_unknown_language_and_places_that_cannot_be_written(run_dir, tmp_path):
    with pytest.raises(AmpError) as caught:
        report(run_dir, out=None, png=False, lang="fr")
    assert caught.value.code == "AMP086"
    (tmp_path / "file").write_text("")
    with pytest.raises(AmpError) as caught:
        report(run_dir, out=tmp_path / "file" / "r.html", png=False, lang=None)
    assert caught.value.code == "AMP084" and (tmp_path / "file").read_text() == ""


def test_out_may_be_a_folder_and_the_users_language_is_the_default(run_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLE_AMP_LANG", "zh")
    page = report(run_dir, out=tmp_path, png=False, lang=None)
    assert page == tmp_path / "report.html" and 'data-lang="zh"' in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_picture(run_dir, tmp_path, language):
    from PIL import Image

    page = report(run_dir, out=tmp_path / "r.html", png=True, lang=language)
    with Image.open(page.with_suffix(".png")) as image:
        assert image.format == "PNG" and image.width > 1000 and image.height > 900
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50


def test_without_matplotlib_there_is_a_page_and_a_message(run_dir, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AmpError) as caught:
        report(run_dir, out=tmp_path / "r.html", png=True, lang="en")
    assert caught.value.code == "AMP085" and "pip install matplotlib" in str(caught.value)
    assert (tmp_path / "r.html").exists() and not (tmp_path / "r.png").exists()


# -- in a browser ------------------------------------------------------------------------------------------


PROBE = """<script>
window.addEventListener('load', function () {
  var root = document.documentElement, result = [];
  function shown(name) { return getComputedStyle(document.querySelector('h2 .' + name)).display !== 'none'; }
  result.push(root.dataset.lang, shown('en'), shown('zh'));
  document.getElementById('language').click();
  result.push(root.dataset.lang, shown('en'), shown('zh'));
  var svg = document.getElementById('chart-scale'), box = svg.getBoundingClientRect();
  var where = { clientX: box.right - 1, clientY: box.top + 50, bubbles: true };
  svg.dispatchEvent(new PointerEvent('pointermove', where));
  result.push(document.getElementById('read-scale').textContent);
  result.push(root.scrollWidth > root.clientWidth ? 'too wide' : 'fits');
  document.body.setAttribute('data-result', JSON.stringify(result));
});
window.addEventListener('error', function (e) { document.body.setAttribute('data-error', e.message); });
</script></body>"""


@pytest.mark.parametrize("width", [500, 1280])
def test_in_a_browser(page, tmp_path, width):
    """The language button works, values are read off the curves, and nothing is wider than the screen."""
    browser.chromium()
    probe = tmp_path / "probe.html"
    probe.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    html = browser.document(probe.as_uri(), tmp_path / "profile", width=width)
    assert "data-error" not in html.split("<script", 1)[0]
    result = json.loads(re.search(r'data-result="([^"]*)"', html).group(1).replace("&quot;", '"'))
    scale = load_run(page.parent).events[-1].loss_scale
    assert result[:6] == ["en", True, False, "zh", False, True]
    assert "1200" in result[6] and result[6].endswith(f"loss scale {scale:g}") and result[7] == "fits"
