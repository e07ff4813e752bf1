"""The checks of an export: each is shown something wrong and says so."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest

from paddle_amp_plugin.cli.export import _check
from paddle_amp_plugin.cli.options import overrides
from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.export import compare, onnx_model
from paddle_amp_plugin.export.folder import check_folder, staged
from paddle_amp_plugin.export.record import beside_checkpoint
from paddle_amp_plugin.export.weights import read_masters
from paddle_amp_plugin.hosts.paddleocr_client import client_transforms, dictionary_of, refusal

ONES = np.ones((2, 3), np.float32)


def code_of(call, *arguments, **options) -> str:
    with pytest.raises(AmpError) as caught:
        call(*arguments, **options)
    return caught.value.code


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_files(kind, tmp_path):
    value = paddle.to_tensor([1.0, 1.0009765625]).astype(kind)
    path = tmp_path / "w.pdparams"
    paddle.save({"a": value, "n": paddle.to_tensor([3])}, str(path))
    assert code_of(read_masters, path, convert_half=False) == "AMP231"
    masters = read_masters(path, convert_half=True)
    assert masters.half == 1 and masters.tensors["a"].dtype == "float32" and masters.tensors["n"].tolist() == [3]
    assert masters.tensors["a"].tolist() == value.astype("float32").tolist()


def test_other_bad_files(tmp_path):
    path = tmp_path / "w.pdparams"
    for value, code in ((paddle.to_tensor([1.0], dtype="float64"), "AMP232"), (paddle.to_tensor([np.inf]), "AMP244")):
        paddle.save({"a": value}, str(path))
        assert code_of(read_masters, path, convert_half=False) == code
    path.write_bytes(b"not a pickle")
    assert code_of(read_masters, path, convert_half=False) == "AMP056"


def test_one_bit_is_seen():
    """The nearest float32 to 1 is another weight; a half weight is one even if its value is the master's."""
    near = ONES.copy()
    near[0, 0] = np.nextafter(np.float32(1), np.float32(2))
    masters = {"a": ONES}
    assert compare.compare_parameters({"p": ONES}, masters, {"p": "a"}.get).equal == 1
    for wrong in (near, ONES.astype(np.float16), ONES.T.copy(), -0.0 * ONES):
        assert code_of(compare.compare_parameters, {"p": wrong}, masters, {"p": "a"}.get) == "AMP233"
        assert code_of(compare.compare_parameters, {"q": wrong}, masters, {"p": "a"}.get) == "AMP233"
    found = compare.compare_parameters({"r": near}, masters, {}.get, derived=lambda name: name == "r")
    assert (found.equal, found.derived, found.unused) == (0, ("r",), ("a",))


def test_a_name_is_not_replaced_by_content():
    """A parameter that has a name is compared with its own master, not with another of the same bits."""
    masters = {"a": ONES, "b": 2 * ONES}
    assert code_of(compare.compare_parameters, {"p": 2 * ONES}, masters, {"p": "a"}.get) == "AMP233"


def test_outputs():
    gap = compare.difference([[ONES]], [[ONES + np.float32(1e-5)]])
    assert gap.small and gap.max_abs == pytest.approx(1e-5, rel=0.02)
    assert code_of(compare.require_small, compare.difference([[ONES]], [[ONES * 1.01]]), "x") == "AMP234"
    assert code_of(compare.difference, [[ONES]], [[ONES.T]]) == "AMP234"
    assert code_of(compare.difference, [[ONES * np.nan]], [[ONES]]) == "AMP244"


def test_packed_is_the_inverse_of_flat():
    nested = {"maps": 1, "more": [2, (3, None)]}
    assert compare.packed(nested, compare.flat(nested)) == nested


def test_output_folder(tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    assert code_of(check_folder, foreign) == "AMP236"
    assert code_of(check_folder, foreign / "thesis.txt") == "AMP236"
    assert code_of(check_folder, foreign / "thesis.txt" / "x") == "AMP237"
    with pytest.raises(ZeroDivisionError), staged(tmp_path / "a" / "out") as place:
        (place / "half").write_text("written")
        raise ZeroDivisionError
    assert list((tmp_path / "a").iterdir()) == []
    for text in ("first", "second"):
        with staged(tmp_path / "out") as place:
            (place / "export.json").write_text(text)
        check_folder(tmp_path / "out")
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["export.json"]
    assert (tmp_path / "out" / "export.json").read_text() == "second"


def test_double_attributes_become_float(tmp_path):
    """Only lists of doubles: a scalar double is read by paddle2onnx as it is."""
    scale = {"#": "0.a_array", "D": [{"#": "0.a_f64", "D": 2.0}]}
    source = tmp_path / "inference.json"
    source.write_text(json.dumps({"ops": [{"A": [{"AT": scale}, {"AT": {"#": "0.a_f64", "D": 1.0}}]}]}))
    copy = onnx_model._readable(source, tmp_path / "copy.json")
    operators = json.loads(copy.read_text())["ops"][0]["A"]
    assert operators[0]["AT"]["D"] == [{"#": "0.a_f32", "D": 2.0}] and operators[1]["AT"]["#"] == "0.a_f64"
    source.write_text(json.dumps({"ops": []}))
    assert onnx_model._readable(source, tmp_path / "copy.json") == source


def test_a_missing_package_is_named_with_its_install_line(monkeypatch):
    monkeypatch.setattr(onnx_model, "versions_needed", lambda: {"paddle2onnx-none": "9.9"})
    with pytest.raises(AmpError) as caught:
        onnx_model.require_onnx()
    assert caught.value.code == "AMP240" and caught.value.hint == "pip install paddle2onnx-none==9.9"


def test_operators_for_the_client():
    transforms = [
        {"DecodeImage": {"img_mode": "BGR"}},
        {"CTCLabelEncode": None},
        {"SVTRRecResizeImg": {"image_shape": [3, 32, 100], "padding": False}},
        {"GrayImage": None},
        {"KeepKeys": {"keep_keys": ["image"]}},
    ]
    kept, unknown = client_transforms("rec", transforms)
    assert [next(iter(op)) for op in kept] == ["DecodeImage", "RecResizeImg", "GrayImage"]
    assert unknown == ["GrayImage"] and "GrayImage" in refusal("rec", {"name": "CTCLabelDecode"}, unknown)
    assert refusal("det", {"name": "DBPostProcess"}, []) == "" != refusal("det", {"name": "EASTPostProcess"}, [])


def test_dictionary_without_blank_and_space():
    class Decoder:
        character = ("blank", "中", "国", " ")

    assert dictionary_of(Decoder, True) == ["中", "国"]
    assert dictionary_of(Decoder, False) == ["中", "国", " "]
    assert dictionary_of(object(), True) == []


def test_facts_beside_the_weights(tmp_path):
    weights = tmp_path / "best.pdparams"
    assert beside_checkpoint(weights) == {}
    (tmp_path / "best.pdamp").write_text(json.dumps({"step": 7, "plan": {"level": "O1"}, "digests": {}}))
    assert beside_checkpoint(weights) == {"training": {"step": 7, "plan": {"level": "O1"}}}
    (tmp_path / "best.pdamp").write_text("[1")
    assert beside_checkpoint(weights) == {}


def test_arguments(tmp_path):
    assert code_of(_check, tmp_path, None, "ptqq", 1, None) == "AMP230"
    assert code_of(_check, tmp_path, None, "qat", 0, None) == "AMP230"
    assert code_of(_check, tmp_path / "none", None, None, 1, None) == "AMP056"
    (tmp_path / "w.pdparams").write_bytes(b"")
    assert code_of(_check, tmp_path / "w.pdparams", None, None, 1, None) == "AMP230"
    assert code_of(_check, tmp_path, tmp_path, None, 1, tmp_path) == "AMP230"
    assert overrides(["Global.a=1", "b=x"]) == {"Global.a": 1, "b": "x"}
    assert code_of(overrides, ["novalue"]) == "AMP014"
