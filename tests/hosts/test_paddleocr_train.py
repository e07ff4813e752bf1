"""Training PaddleOCR's trainer for real, in processes of their own: O1 / O2, float16 / bfloat16, and without AMP."""

from __future__ import annotations

import re

import numpy as np
import paddle
import pytest
import yaml

from paddle_amp_plugin.hosts.paddleocr_tree import find_tree
from tests.hosts import tiny


def losses(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"global_step: .*? loss: ([-\w.+]+)", text)]


def weights(run, name: str = "latest") -> dict[str, np.ndarray]:
    state = paddle.load(str(run.output / f"{name}.pdparams"))
    assert all(value.dtype == paddle.float32 for value in state.values())
    return {key: value.numpy() for key, value in state.items()}


def check_training(run, updates: int = 18) -> None:
    values = losses(run.text)
    assert np.isfinite(values).all() and values[-1] < 0.5 * values[0], values
    assert f"amp: {updates} steps, {updates} updates, 0 skipped" in run.text
    share = int(re.search(r"(\d+)% of the forward ops in", run.text).group(1))
    assert share > 20
    assert all(np.isfinite(value).all() for value in weights(run).values())


def test_o1(o1):
    check_training(o1)
    assert "loss_scale: 1024.000000" in o1.text and "skipped_steps: 0.000000" in o1.text
    assert "Traceback" not in o1.text


def test_o2_saves_the_masters(o2):
    check_training(o2)
    masters = paddle.load(str(o2.output / "latest.pdopt"))["master_weights"]
    assert len(masters) > 20
    saved = {value.name: value.numpy() for value in paddle.load(str(o2.output / "latest.pdparams")).values()}
    for name, master in masters.items():
        assert np.array_equal(saved[name], master.numpy()), name
        assert not np.array_equal(master.numpy(), master.astype("float16").astype("float32").numpy()), name


def test_bfloat16_o2(train):
    run = train("o2_bf16", amp={"level": "O2", "dtype": "bfloat16"})
    check_training(run)
    assert "in bfloat16" in run.text


def test_plan_is_shown_and_written(o1):
    assert "software_half" in o1.text and "init_loss_scaling" in o1.text
    plan = yaml.safe_load((o1.output / "amp" / "plan.yml").read_text(encoding="utf-8"))
    assert plan["level"] == "O1" or plan.get("amp", {}).get("level") == "O1", plan


def test_the_config_beside_the_weights_says_what_was_run(o2):
    """It holds one spelling only, so that it can be given to every tool again."""
    document = yaml.safe_load((o2.output / "config.yml").read_text(encoding="utf-8"))
    assert document["amp"] == {"level": "O2", "fp32_layers": ["head.*"]}
    assert not any(key.startswith("amp") or key == "use_amp" for key in document["Global"])


def test_commands_to_go_on_with(o1):
    text = o1.text[o1.text.index("What to do next") :]
    for script in ("eval.py", "export_model.py", "infer_rec.py"):
        line = next(line for line in text.splitlines() if script in line)
        assert str(o1.output / "config.yml") in line and str(o1.output / "best_accuracy") in line


def test_host_spelling_alone_switches_amp_on(train):
    """Only ``Global.use_amp``, as in PaddleOCR's own files; ``-o`` reaches the key that is not in the file."""
    run = train("spelling", "-o", "Global.use_amp=True", "Global.amp_level=O1", "amp.init_loss_scaling=256", epochs=1)
    assert "amp: 6 steps, 6 updates, 0 skipped, final loss scale 256" in run.text


def test_without_the_key_the_run_is_the_hosts_own_to_the_bit(train):
    """20-odd steps in separate processes: the host alone, under the plugin without the key, and amp: false."""
    script = str(find_tree().script("train"))
    alone = train("alone", command=(script,), epochs=4)
    plain = train("plain", command=("-m", "paddle_amp_plugin", "run", script), epochs=4)
    off = train("off", amp=False, epochs=4)
    reference = weights(alone)
    for other in (plain, off):
        values = weights(other)
        assert values.keys() == reference.keys()
        assert all(np.array_equal(values[key], reference[key]) for key in reference)
    assert "amp" not in plain.text.lower().replace("paddle_amp", "").replace("samples", "").replace("sampler", "")


def test_pretrained_float32_weights_reach_the_masters_as_they_are(train, o1):
    """R10. With a learning rate of 0 the masters at the end are those of the beginning."""
    optimizer = {"name": "Adam", "lr": {"name": "Const", "learning_rate": 0.0}, "regularizer": None}
    path = o1.output / "latest"
    run = train("r10", "-o", f"Global.pretrained_model={path}", amp="O2", epochs=1, Optimizer=optimizer)
    before, after = weights(o1), weights(run)
    assert any(not np.array_equal(v, v.astype("float16").astype("float32")) for v in before.values())
    for name, value in before.items():
        if not name.endswith(("_mean", "_variance")):
            assert np.array_equal(value, after[name]), name


def test_resume_at_o2_goes_on_from_the_masters(train, o2):
    run = train(
        "resume",
        "-o",
        f"Global.checkpoints={o2.output / 'latest'}",
        "Global.epoch_num=4",
        amp={"level": "O2", "fp32_layers": ["head.*"]},
        epochs=4,
    )
    assert losses(run.text)[0] < 1.2 * losses(o2.text)[-1]


def test_exporting_while_training_and_reading_in_workers(data, tmp_path):
    """PaddleX's ``uniform_output_enabled``: the model is copied and traced in the middle of an O2 run."""
    document = tiny.config(data, tmp_path / "out", epochs=1, workers=1, amp={"level": "O2", "fp32_layers": ["head.*"]})
    document["Global"].update(uniform_output_enabled=True, pdx_model_name="tiny")
    result = tiny.tool("train", "-c", str(tiny.write(tmp_path / "c.yml", document)), cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-4000:]
    assert list((tmp_path / "out" / "latest" / "inference").glob("inference.pdiparams"))
    exported = sum(f.stat().st_size for f in (tmp_path / "out/latest/inference").glob("*.pdiparams"))
    state = paddle.load(str(tmp_path / "out" / "latest" / "latest.pdparams"))
    assert exported >= 4 * sum(int(np.prod(v.shape)) for v in state.values()) * 0.95


def test_evaluation_tool(o1, o2):
    """In FP32, from the config the run wrote; the metric of the log comes out again."""
    for run in (o1, o2):
        result = tiny.tool(
            "eval",
            *("-c", str(run.output / "config.yml"), "-o", f"Global.pretrained_model={run.output / 'latest'}"),
            cwd=run.folder,
        )
        assert result.returncode == 0, result.stdout[-4000:]
        wanted = re.findall(r"cur metric, acc: ([\d.]+), norm_edit_dis: ([\d.e-]+)", run.text)[-1]
        found = (re.search(r" acc:([\d.]+)", result.stdout), re.search(r"norm_edit_dis:([\d.e-]+)", result.stdout))
        assert tuple(m.group(1) for m in found) == wanted


def test_evaluation_tool_in_half(o1):
    result = tiny.tool(
        "eval",
        *("-c", str(o1.config), "-o", f"Global.pretrained_model={o1.output / 'latest'}"),
        *("amp.eval_dtype=float16", "amp.dtype=float16"),
        cwd=o1.folder,
    )
    assert result.returncode == 0 and "metric eval" in result.stdout, result.stdout[-4000:]


def test_export_and_inference_tools(o2, data):
    base = ("-c", str(o2.output / "config.yml"), "-o", f"Global.pretrained_model={o2.output / 'latest'}")
    result = tiny.tool("export_model", *base, f"Global.save_inference_dir={o2.folder / 'inf'}", cwd=o2.folder)
    assert result.returncode == 0, result.stdout[-4000:]
    assert (o2.folder / "inf" / "inference.pdiparams").is_file()
    target = o2.folder / "predicts.txt"
    result = tiny.tool(
        "infer_rec",
        *base,
        f"Global.infer_img={data / 'images' / 'val0.png'}",
        f"Global.save_res_path={target}",
        cwd=o2.folder,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert "val0.png" in target.read_text(encoding="utf-8")


@pytest.mark.gpu
@pytest.mark.skipif(not paddle.is_compiled_with_cuda(), reason="needs a GPU build of Paddle")
def test_the_same_file_on_a_gpu(train):
    assert "software_half" not in train("gpu", amp="O2").text
