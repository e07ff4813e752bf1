"""Exports of PaddleOCR checkpoints: what lies in the folder is what was trained."""

from __future__ import annotations

import paddle
import pytest
import yaml

from paddle_amp_plugin.export.exported import PaddleRunner, read_parameters
from tests.export.conftest import paddle_amp_export
from tests.hosts import tiny

PADDLE_3 = not paddle.__version__.startswith("2.")


@pytest.mark.parametrize("kind", ["rec", "det"])
def test_the_folder_is_complete(kind, request):
    export = request.getfixturevalue(kind)
    names = {f.name for f in export.folder.iterdir()}
    assert {"inference.pdiparams", "inference.yml", "export.json", "inference.onnx", "int8"} <= names
    assert ("inference.json" if PADDLE_3 else "inference.pdmodel") in names
    assert not [n for n in names if n.endswith(".tmp")]
    assert set(export.record["files"]) <= names | {"int8"}


@pytest.mark.parametrize("kind", ["rec", "det"])
def test_every_parameter_is_the_checkpoints(kind, request, made):
    """Read by this test itself, from both files."""
    export = request.getfixturevalue(kind)
    stored = {v.numpy().tobytes() for v in paddle.load(str(made / f"{kind}.pdparams")).values()}
    found = read_parameters(export.folder)
    assert len(found) == export.record["parameters"]["bit_equal_to_masters"] > 40
    assert all(value.dtype == "float32" and value.tobytes() in stored for value in found.values())


@pytest.mark.parametrize(("kind", "shape"), [("rec", (3, 32, 64)), ("det", (3, 128, 128))])
def test_record(kind, shape, request):
    export = request.getfixturevalue(kind)
    record = export.record
    assert record["kind"] == kind and record["outputs"]["batches"] >= 2
    assert 0 <= record["outputs"]["max_abs"] <= 1e-4 and record["outputs"]["largest_output"] > 0.5
    assert record["metric"]["trained"] == pytest.approx(record["metric"]["exported"], abs=1e-6)
    assert record["onnx"]["max_abs"] <= 1e-4
    assert record["float16_ranges"]["holds_float16"] is True
    inputs = [paddle.rand([1, *shape]).numpy()]
    assert len(PaddleRunner(export.folder)(inputs)) == 1


@pytest.mark.parametrize(("kind", "method"), [("rec", "ptq"), ("det", "qat")])
def test_int8(kind, method, request):
    """8-bit weights in a smaller file, and a model that still answers nearly the same."""
    export = request.getfixturevalue(kind)
    int8 = export.record["int8"]
    assert int8["method"] == method and int8["by"] == ("onnxruntime" if PADDLE_3 else "paddleslim")
    assert int8["bytes"]["int8"] < int8["bytes"]["float32"] and int8["latency_ratio"] > 0
    assert set(int8["metric"]["int8"]) == set(int8["metric"]["float32"])
    folder = export.folder / "int8"
    if PADDLE_3:
        import onnx

        model = onnx.load(str(folder / "inference.onnx"))
        kinds = [i.data_type for i in model.graph.initializer]
        assert kinds.count(onnx.TensorProto.INT8) >= 10
    else:
        assert sum(v.dtype == "int8" for v in read_parameters(folder).values()) >= 10


def test_client_file(rec, made):
    """The operators and the dictionary that the official client 3.x reads; the host's own file has others."""
    document = yaml.safe_load((rec.folder / "inference.yml").read_text(encoding="utf-8"))
    assert document["PreProcess"]["transform_ops"] == [
        {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
        {"RecResizeImg": {"image_shape": [3, 32, 64]}},
    ]
    assert document["PostProcess"] == {"name": "CTCLabelDecode", "character_dict": list("0123456789")}
    assert (rec.folder / "dict.txt").read_text(encoding="utf-8").split() == list("0123456789")
    assert rec.record["client"]["paddleocr_3"] == {"enable_mkldnn": False, "text_rec_input_shape": [3, 32, 64]}


def test_half_weights_are_refused_then_converted(made):
    """What a host's own O2 leaves on disk."""
    half = {k: v.astype("float16") for k, v in paddle.load(str(made / "rec.pdparams")).items()}
    paddle.save(half, str(made / "half.pdparams"))
    arguments = (str(made / "half"), "-c", str(made / "rec.yml"), "-o", str(made / "from_half"))
    done = paddle_amp_export(*arguments, cwd=made)
    assert done.returncode == 2 and "AMP231" in done.stdout and "60 of 60" in done.stdout, done.stdout[-2000:]
    assert not (made / "from_half").exists()
    done = paddle_amp_export(*arguments, "--convert-half", cwd=made)
    assert done.returncode == 0 and "rounded values, not the masters" in done.stdout, done.stdout[-2000:]
    assert all(v.dtype == "float32" for v in read_parameters(made / "from_half").values())


def test_a_checkpoint_of_another_head_is_refused(made):
    """The host only warns of it, and exports random numbers; that is shown first."""
    (made / "longer.txt").write_text("\n".join("0123456789abc") + "\n", encoding="utf-8")
    changed = f"Global.character_dict_path={made / 'longer.txt'}"
    options = ("-o", f"Global.pretrained_model={made / 'rec'}", changed, f"Global.save_inference_dir={made / 'random'}")
    host = tiny.tool("export_model", "-c", str(made / "rec.yml"), *options, cwd=made)
    assert host.returncode == 0 and "not matched" in host.stdout and (made / "random").is_dir()
    out = made / "other_head"
    arguments = (str(made / "rec"), "-c", str(made / "rec.yml"), "-o", str(out), "--set", changed)
    done = paddle_amp_export(*arguments, cwd=made)
    assert done.returncode == 2 and "AMP239" in done.stdout and "head.fc" in done.stdout, done.stdout[-2000:]
    assert not out.exists() and "Traceback" not in done.stdout
