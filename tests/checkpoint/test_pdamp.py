"""The ``.pdamp`` file: what is written comes back, and nothing else is ever believed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_amp_plugin import pdamp
from paddle_amp_plugin.checkpoint_files import offered, read, whole_checkpoints
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.pdamp import FileEntry, Pdamp, Pins

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
counts = st.integers(0, 10**9)


@st.composite
def states(draw):
    judged, updates = sorted([draw(counts), draw(counts)])
    skips = draw(counts)
    return Pdamp(
        step=updates + skips,
        updates=updates,
        updates_judged=judged,
        scaler={"scale": draw(st.floats(1e-38, 1e38)), "good_steps": draw(counts)},
        use_loss_scaling=draw(st.booleans()),
        level=draw(st.sampled_from(["O1", "O2"])),
        dtype=draw(st.sampled_from(["float16", "bfloat16"])),
        paddle="3.3.1",
        pins=Pins("float16", tuple(draw(st.lists(st.text(), max_size=3))), off=draw(st.text())),
        rng={"python": draw(json_values)},
        files=tuple(FileEntry(name, 3, "0" * 64) for name in draw(st.lists(st.text(), max_size=3))),
        host=draw(st.dictionaries(st.text(), json_values, max_size=3)),
    )


SAVED = Pdamp(2, 1, {"scale": 512.0}, True, "O1", "float16", "3.3.1", host={"轮": "中文", "x": 0.1})


@given(states())
def test_what_is_written_comes_back(saved):
    assert pdamp.from_text(pdamp.to_text(saved)) == saved


@given(st.data())
@settings(max_examples=300)
def test_no_damage_is_taken_for_a_state(data):
    """One byte changed, or the end missing: AMP092 or AMP093, or a file that says the same (a blank, an escape)."""
    raw = bytearray(pdamp.to_text(SAVED).encode("utf-8"))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 3))]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = pdamp.from_text(raw.decode("utf-8", errors="replace"), source="x.pdamp")
    except AmpError as error:
        assert error.code in ("AMP092", "AMP093") and "x.pdamp" in error.message
    else:
        assert found == SAVED


@given(st.text() | json_values.map(json.dumps))
def test_a_foreign_file_is_said_to_be_one(text):
    with pytest.raises(AmpError) as caught:
        pdamp.from_text(text, source="x.pdamp")
    assert caught.value.code == "AMP092"


def _with(**changes):
    body = json.loads(pdamp.to_text(SAVED))
    body.pop("sha256")
    body.update(changes)
    return json.dumps({"sha256": pdamp._digest(body), **body})


def test_a_newer_format_is_refused_and_unknown_fields_are_passed_over():
    with pytest.raises(AmpError) as caught:
        pdamp.from_text(_with(version=pdamp.VERSION + 1))
    assert caught.value.code == "AMP093" and "pip install" in caught.value.hint
    assert pdamp.from_text(_with(later=[1, 2])) == SAVED


@pytest.mark.parametrize("changes", [{"updates": 3}, {"step": "many"}, {"files": [{"name": "x"}]}, {"world_size": 0}])
def test_a_sound_checksum_over_nonsense(changes):
    with pytest.raises(AmpError) as caught:
        pdamp.from_text(_with(**changes))
    assert caught.value.code == "AMP092"


def test_reading_executes_nothing(tmp_path):
    import pickle

    path = tmp_path / "x.pdamp"
    path.write_bytes(pickle.dumps(Exploding()))
    with pytest.raises(AmpError) as caught:
        pdamp.read(path)
    assert caught.value.code == "AMP092" and not Exploding.went_off


class Exploding:
    went_off = False

    def __reduce__(self):
        return (setattr, (Exploding, "went_off", True))


# -- beside its files ------------------------------------------------------------------------------------------


def save(folder, name, step=2, content=b"weights"):
    from dataclasses import replace

    files = [folder / f"{name}.pdparams", folder / f"{name}.pdopt"]
    for file in files:
        file.write_bytes(content + file.suffix.encode())
    saved = replace(SAVED, step=step, updates=step, files=pdamp.file_entries(folder, files))
    (folder / f"{name}.pdamp").write_text(pdamp.to_text(saved), encoding="utf-8")
    return saved


def test_a_damaged_file_is_named_and_the_last_good_checkpoint_offered(tmp_path):
    for name, step in (("iter_epoch_1", 5), ("iter_epoch_2", 9), ("latest", 12)):
        save(tmp_path, name, step)
    (tmp_path / "latest.pdopt").write_bytes(b"weight")
    (tmp_path / "iter_epoch_1.pdparams").unlink()
    with pytest.raises(AmpError) as caught:
        read(tmp_path / "latest", say=print)
    assert caught.value.code == "AMP090" and "latest.pdopt" in caught.value.message
    assert "latest.pdparams" not in caught.value.message
    assert "iter_epoch_2 (step 9)" in caught.value.hint and "iter_epoch_1" not in caught.value.hint
    assert whole_checkpoints(tmp_path) == [(9, tmp_path / "iter_epoch_2")]
    assert read(tmp_path / "latest", say=print, weights_only=True).step == 12
    (tmp_path / "iter_epoch_2.pdamp").write_text("{}")
    assert "no other whole checkpoint" in offered(tmp_path / "latest")


def test_a_checkpoint_written_over_by_the_host_alone_is_none_of_ours(tmp_path):
    save(tmp_path, "latest")
    for suffix in ("pdparams", "pdopt"):
        (tmp_path / f"latest.{suffix}").write_bytes(b"of another run")
    said = []
    assert read(tmp_path / "latest", say=said.append) is None
    assert len(said) == 1 and "latest.pdamp" in said[0] and "not used" in said[0]
    assert read(tmp_path / "never", say=said.append) is None and len(said) == 1


def test_weights_that_somebody_put_in_place_are_taken_as_weights_but_not_to_resume_from(tmp_path):
    save(tmp_path, "latest")
    (tmp_path / "latest.pdparams").write_bytes(b"of somebody else")
    said = []
    assert read(tmp_path / "latest", say=said.append, weights_only=True) is None and len(said) == 1
    with pytest.raises(AmpError) as caught:
        read(tmp_path / "latest", say=said.append)
    assert caught.value.code == "AMP090" and "latest.pdparams" in caught.value.message
