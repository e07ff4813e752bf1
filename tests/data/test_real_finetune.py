"""Fine-tuning the quick start on real photographs: held-out photos are read measurably better afterwards.

In mixed precision, by tools/train.py, from the quick start's weights. Needs the real lines; skipped without them.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from paddle_amp_plugin.data.real_lines import ENVIRONMENT, find_real_ocr, make_real_lines, score
from tests.quick_start import PROJECT, run, trained

#: Holds out ticket_a and wash_label: printed photos of which many lines are short enough to be legible.
SPLIT_SEED = 9


def read_lines(config: str, weights: Path, dictionary: Path, pictures: Path, result: Path) -> dict[str, str]:
    """{picture name: text read} of all pictures of a folder, by the host's infer_rec."""
    run(
        "tools/infer_rec.py",
        "-c",
        f"configs/{config}",
        "-o",
        f"Global.pretrained_model={weights}",
        f"Global.character_dict_path={dictionary}",
        f"Global.infer_img={pictures}",
        f"Global.save_res_path={result}",
    )
    rows = (row.split("\t") for row in result.read_text(encoding="utf-8").splitlines())
    return {Path(row[0]).name: row[1] for row in rows if len(row) >= 2}


@pytest.mark.convergence
def test_fine_tuning_reads_held_out_photos_better(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    real = find_real_ocr(PROJECT)
    if real is None:
        pytest.skip(f"no real lines: set {ENVIRONMENT} to the folder that holds rec_label.txt")
    # The run of tests/test_quick_start.py, if that came first in this session.
    start = trained(tmp_path_factory.getbasetemp() / "quick_start_amp").output / "best_accuracy"
    base = PROJECT / "train_data" / "ocr_amp" / "dict.txt"
    data, output = tmp_path / "data", tmp_path / "output"
    made = make_real_lines(real / "rec_label.txt", data, base_dictionary=base, seed=SPLIT_SEED)
    rows = (row.split("\t") for row in (data / "val.txt").read_text(encoding="utf-8").splitlines())
    truth = {Path(path).name: text for path, text in rows}
    pictures = data / "real_val"

    before = score(read_lines("ocr_amp.yml", start, base, pictures, tmp_path / "before.txt"), truth)
    begin = time.monotonic()
    run(
        "tools/train.py",
        "-c",
        "configs/ocr_amp_real.yml",
        "-o",
        f"Global.pretrained_model={start}",
        f"Global.character_dict_path={data / 'dict.txt'}",
        f"Global.save_model_dir={output}",
        f"Train.dataset.data_dir={data}",
        f"Train.dataset.label_file_list=['{data / 'train.txt'}']",
        f"Eval.dataset.data_dir={data}",
        f"Eval.dataset.label_file_list=['{data / 'val.txt'}']",
    )
    seconds = time.monotonic() - begin
    # The last weights, not the best ones: the best were chosen on these very lines.
    weights, dictionary = output / "latest", data / "dict.txt"
    after = score(read_lines("ocr_amp_real.yml", weights, dictionary, pictures, tmp_path / "after.txt"), truth)
    with capsys.disabled():
        print(
            f"\n{made.val} held-out real lines; learned from {made.train} real and {made.rendered} rendered ones, "
            f"{seconds:.0f} s: "
            f"acc {before[0]:.2f} -> {after[0]:.2f}, norm_edit_dis {before[1]:.2f} -> {after[1]:.2f}"
        )
    # 0.05 before and 0.57 after when it was written.
    assert after[1] >= before[1] + 0.25
