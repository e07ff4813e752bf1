"""The complete installed hosts: no file is refused, and what is known to be in them is found."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from paddle_amp_plugin.lint import RULES, files_of, lint_files


def tree(package: str) -> Path:
    spec = importlib.util.find_spec(package)  # of a top-level package: nothing is imported
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(spec.origin).parent


@pytest.mark.parametrize("package", ["unstructured_paddleocr", "paddlenlp", "paddleformers"])
def test_the_whole_tree(package):
    folder = tree(package)
    files = files_of([folder])
    findings = lint_files(files, frozenset(RULES))
    assert len(files) > 250 and findings
    assert [f for f in findings if f.severity == "error"] == []
    # their trainers step rightly
    assert not any(f.code.startswith("AMP13") for f in findings)
    found = Counter((Path(f.path).relative_to(folder).as_posix(), f.code) for f in findings)
    for path, code in KNOWN.get(package, ()):
        assert found[path, code], (path, code)


#: Read in these files by hand.
KNOWN = {
    "unstructured_paddleocr": (
        ("ppocr/modeling/heads/rec_satrn_head.py", "AMP110"),
        ("ppocr/modeling/heads/rec_visionlan_head.py", "AMP110"),
        ("ppocr/modeling/heads/kie_sdmgr_head.py", "AMP110"),
        ("ppocr/modeling/heads/rec_can_head.py", "AMP122"),
        ("ppocr/modeling/heads/rec_att_head.py", "AMP106"),
        ("ppocr/losses/det_drrg_loss.py", "AMP120"),
        ("ppocr/losses/det_basic_loss.py", "AMP120"),
    ),
    "paddlenlp": (
        ("layers/globalpointer.py", "AMP110"),
        ("transformers/xlnet/modeling.py", "AMP110"),
        ("transformers/bert/modeling.py", "AMP111"),
        ("utils/ie_utils.py", "AMP120"),
    ),
}
