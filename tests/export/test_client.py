"""Exported models in the official ``paddleocr`` clients: they read what the host's own tools read.

The clients live in environments of their own (``make test-client``), and nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from paddle_amp_plugin.data.real_lines import find_real_ocr
from tests import quick_start
from tests.export.conftest import Exported, paddle_amp_export
from tests.hosts import tiny

CLIENTS = {3: ".venv-client3", 2: ".venv-client210"}


def client(version: int) -> str:
    """The client's Python. PADDLE_AMP_CLIENT3 / PADDLE_AMP_CLIENT2 name another one."""
    path = os.environ.get(f"PADDLE_AMP_CLIENT{version}") or str(tiny.ROOT / CLIENTS[version] / "bin" / "python")
    if not Path(path).is_file():
        pytest.skip(f"no {CLIENTS[version]}: make test-client")
    return path


def read(version: int, rec: Exported, det: Exported, lines: list[Path], pages: list[Path], cwd: Path) -> dict:
    name = f"paddleocr_{version}"
    job = {
        "version": version,
        "rec": str(rec.folder),
        "det": str(det.folder),
        "lines": [str(f) for f in lines],
        "pages": [str(f) for f in pages],
        "rec_arguments": rec.record["client"][name],
        "det_arguments": det.record["client"][name],
    }
    environment = {k: v for k, v in tiny.environment(HOME=str(cwd)).items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [client(version), str(Path(__file__).with_name("client_reads.py")), json.dumps(job)],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert not list(cwd.glob(".paddle*/**/*.pdiparams")), "a model was downloaded"
    return json.loads(next(row for row in done.stdout.splitlines() if row.startswith("READ "))[5:])


def host_lines(config: Path, weights: Path, images: Path, cwd: Path, project: Path | None = None) -> dict:
    """What PaddleOCR's own infer_rec reads: file name -> (text, score). ``project``: where the config's paths start."""
    options = [
        f"Global.pretrained_model={weights}",
        f"Global.infer_img={images}",
        f"Global.save_res_path={cwd}/rec.txt",
    ]
    done = tiny.tool("infer_rec", "-c", str(config), "-o", *options, cwd=project or cwd)
    assert done.returncode == 0, done.stdout[-3000:]
    rows = [row.split("\t") for row in (cwd / "rec.txt").read_text(encoding="utf-8").splitlines()]
    return {Path(name).name: (text, float(score)) for name, text, score in rows}


def host_boxes(config: Path, weights: Path, image: Path, cwd: Path) -> list[list[list[int]]]:
    options = [f"Global.pretrained_model={weights}", f"Global.infer_img={image}", f"Global.save_res_path={cwd}/det.txt"]
    done = tiny.tool("infer_det", "-c", str(config), "-o", *options, cwd=cwd)
    assert done.returncode == 0, done.stdout[-3000:]
    return [row["points"] for row in json.loads((cwd / "det.txt").read_text(encoding="utf-8").split("\t")[1])]


def same_boxes(found, expected) -> bool:
    """As many, and each within two pixels of one of the others' (the client rounds, and orders them by reading)."""
    if len(found) != len(expected):
        return False
    ours, theirs = np.array(found, float), np.array(expected, float)
    gaps = np.abs(ours[:, None].mean(2) - theirs[None].mean(2)).max(-1)  # of the centres
    return bool((gaps.min(1) <= 2).all() and (gaps.min(0) <= 2).all())


@pytest.mark.parametrize("version", [3, 2])
def test_the_client_reads_what_the_host_reads(version, request, made, tmp_path):
    client(version)
    rec, det = request.getfixturevalue("rec"), request.getfixturevalue("det")
    lines = sorted((made / "images").glob("val*.png"))
    found = read(version, rec, det, lines, [made / "pages" / "0.png"], tmp_path)
    expected = host_lines(made / "rec.yml", made / "rec", made / "images", tmp_path)
    texts = [text for text, _ in found["lines"]]
    assert texts == [expected[f.name][0] for f in lines] and len(set(texts)) > 3
    assert [s for _, s in found["lines"]] == pytest.approx([expected[f.name][1] for f in lines], abs=0.02)
    boxes = host_boxes(made / "det.yml", made / "det", made / "pages" / "0.png", tmp_path)
    assert len(boxes) > 3 and same_boxes(found["pages"][0]["boxes"], boxes)


@pytest.mark.parametrize("version", [3, 2])
def test_photographed_pages(version, request, made, tmp_path):
    """Real photographs, of any size: they are read to the end, with the host's boxes."""
    client(version)
    folder = find_real_ocr(tiny.ROOT)
    if folder is None:
        pytest.skip("no photographed pages (../shared/data/real_ocr)")
    rec, det = request.getfixturevalue("rec"), request.getfixturevalue("det")
    pages = sorted((folder / "pages").glob("*.jpg"))[:2]
    found = read(version, rec, det, [], pages, tmp_path)
    assert len(found["pages"]) == 2
    for page, image in zip(found["pages"], pages, strict=True):
        assert len(page["texts"]) == len(page["boxes"]) > 0
        boxes = host_boxes(made / "det.yml", made / "det", image, tmp_path)
        assert abs(len(boxes) - len(page["boxes"])) <= max(2, len(boxes) // 10)


@pytest.mark.convergence
@pytest.mark.parametrize("version", [3, 2])
def test_the_quick_start_reads_in_the_client(version, request, tmp_path, tmp_path_factory):
    """From `make train`'s output to the official client: the same texts as the host's infer_rec, and mostly right."""
    client(version)
    run = quick_start.trained(tmp_path_factory.getbasetemp() / "quick_start_amp")
    out, config = tmp_path / "exported", run.output / "config.yml"
    done = paddle_amp_export(
        str(run.output / "best_accuracy"), "-c", str(config), "-o", str(out), "--onnx", cwd=quick_start.PROJECT
    )
    assert done.returncode == 0, done.stdout[-3000:]
    data = quick_start.PROJECT / "train_data" / "ocr_amp"
    lines = sorted((data / "images" / "val").glob("*.jpg"))[:60]
    few = tmp_path / "lines"
    few.mkdir()
    for file in lines:
        (few / file.name).write_bytes(file.read_bytes())
    found = read(version, Exported(out, done.stdout), request.getfixturevalue("det"), lines, [], tmp_path)
    expected = host_lines(config, run.output / "best_accuracy", few, tmp_path, quick_start.PROJECT)
    assert [text for text, _ in found["lines"]] == [expected[f.name][0] for f in lines]
    labels = dict(row.split("\t") for row in (data / "val.txt").read_text("utf-8").splitlines())
    right = sum(labels[f"images/val/{f.name}"] == text for f, (text, _) in zip(lines, found["lines"], strict=True))
    assert right >= 0.8 * len(lines)
