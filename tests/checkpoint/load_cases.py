"""PaddleOCR's ``load_model`` and ``save_model`` on a small model, alone and patched; prints what happened as JSON."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import zlib  # noqa: F401  (before Paddle 2.6)
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(sys.argv[1])


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.said = []

    def emit(self, record):
        self.said.append(f"{record.levelname} {record.getMessage()}")


def model(layers=30, first=0):
    import paddle
    from paddle.utils import unique_name

    with unique_name.guard():
        paddle.seed(3)
        net = paddle.nn.Sequential(*((f"l{first + i}", paddle.nn.Linear(3, 3)) for i in range(layers)))
        return net, paddle.optimizer.Adam(0.01, parameters=net.parameters())


def config(**section):
    return {"Global": {"distributed": False, **section}, "Architecture": {"model_type": "rec", "algorithm": "CRNN"}}


def step(net, adam):
    import paddle

    net(paddle.ones([2, 3])).mean().backward()
    adam.step()
    adam.clear_grad()


def tried(action):
    """The result, the lines said, and the error's name or code."""
    from paddle_amp_plugin.errors import AmpError

    LINES.said.clear()
    result, error = {}, ""
    try:
        result = action()
    except AmpError as found:
        error = f"{found.code} {found.message} {found.hint}"
    except BaseException as found:
        error = type(found).__name__
    return {"result": result, "said": list(LINES.said), "error": error}


def same(net, path):
    import numpy as np
    import paddle

    state = paddle.load(path)
    return all(np.array_equal(v.numpy(), np.asarray(state[k]).astype("float32")) for k, v in net.state_dict().items())


def make_files(save_load, logger):
    """Checkpoints as the host alone writes them, and files of others."""
    import paddle

    net, adam = model()
    step(net, adam)
    facts = {"best_model_dict": {"acc": 0.955, "best_epoch": 2}, "epoch": 3, "global_step": 12}
    save_load.save_model(net, adam, str(FOLDER), logger, config(), prefix="latest", **facts)
    paddle.save({k: v.astype("float16") for k, v in net.state_dict().items()}, str(FOLDER / "half.pdparams"))
    paddle.save(model(5, first=28)[0].state_dict(), str(FOLDER / "part.pdparams"))
    paddle.save(model(5, first=90)[0].state_dict(), str(FOLDER / "other.pdparams"))
    whole = (FOLDER / "latest.pdparams").read_bytes()
    (FOLDER / "torn.pdparams").write_bytes(whole[: len(whole) // 2])
    for suffix in ("pdparams", "states"):
        (FOLDER / f"tornopt.{suffix}").write_bytes((FOLDER / f"latest.{suffix}").read_bytes())
    (FOLDER / "tornopt.pdopt").write_bytes((FOLDER / "latest.pdopt").read_bytes()[:50])
    (FOLDER / "list.pdparams").write_bytes(pickle.dumps([1, 2], protocol=2))


def loads(save_load):
    found = {}
    for name, section in {
        "best": {"checkpoints": "latest"},
        "half": {"pretrained_model": "half"},
        "part": {"pretrained_model": "part"},
        "other": {"pretrained_model": "other"},
        "torn": {"pretrained_model": "torn"},
        "torn optimizer": {"checkpoints": "tornopt"},
        "list": {"pretrained_model": "list"},
    }.items():
        net, adam = model()
        section = {key: str(FOLDER / value) for key, value in section.items()}
        found[name] = tried(
            lambda section=section, net=net, adam=adam: save_load.load_model(config(**section), net, adam)
        )
        if name == "half":
            found[name]["same"] = same(net, str(FOLDER / "half.pdparams"))
            found[name]["dtypes"] = sorted({str(v.dtype) for v in net.state_dict().values()})
    return found


def interrupted(save_load, logger, folder, net, adam):
    """The second of the host's files cannot be written: what of the former checkpoint is left?"""
    import paddle

    facts = {"best_model_dict": {}, "epoch": 1, "global_step": 1}
    save_load.save_model(net, adam, str(folder), logger, config(), prefix="latest", **facts)
    before = {path.name: path.read_bytes() for path in folder.glob("latest.*")}
    step(net, adam)
    original, calls = paddle.save, []

    def save(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return original(*args, **kwargs)

    paddle.save = save
    try:
        outcome = tried(
            lambda: save_load.save_model(net, adam, str(folder), logger, config(), prefix="latest", **facts)
        )
    finally:
        paddle.save = original
    after = {path.name: path.read_bytes() for path in folder.glob("latest.*")}
    return {"changed": sorted(n for n in before if before[n] != after.get(n)), "error": outcome["error"]}


def with_nan(save_load, logger, folder, net, adam):
    """A weight is NaN: is it written over the former checkpoint?"""
    import numpy as np
    import paddle

    facts = {"best_model_dict": {}, "epoch": 1, "global_step": 1}
    save_load.save_model(net, adam, str(folder), logger, config(), prefix="nan", **facts)
    weight = next(iter(net.parameters()))
    kept = weight.numpy()
    weight.set_value(np.full_like(kept, np.nan))
    outcome = tried(lambda: save_load.save_model(net, adam, str(folder), logger, config(), prefix="nan", **facts))
    weight.set_value(kept)
    saved = paddle.load(str(folder / "nan.pdparams"), return_numpy=True)
    return {"finite": all(bool(np.isfinite(v).all()) for v in saved.values()), "error": outcome["error"]}


def killed(folder):
    """The host alone, in a process that dies (as by ``kill -9``) when the first of its files is written."""
    return subprocess.run([sys.executable, __file__, str(folder), "killed"], timeout=300).returncode


def dies(save_load, folder):
    import paddle

    net, adam = model()
    step(net, adam)
    original = paddle.save

    def save(*args, **kwargs):
        original(*args, **kwargs)
        os.kill(os.getpid(), 9)

    paddle.save = save
    facts = {"best_model_dict": {}, "epoch": 2, "global_step": 2}
    save_load.save_model(net, adam, str(folder), logging.getLogger(), config(), prefix="latest", **facts)


def main():
    from paddle_amp_plugin.hosts import paddleocr
    from paddle_amp_plugin.hosts.paddleocr_tree import find_tree, put_first

    put_first(find_tree(None))
    from ppocr.utils import save_load
    from ppocr.utils.logging import get_logger

    if sys.argv[2:] == ["killed"]:
        return dies(save_load, FOLDER)
    logger = get_logger()
    logger.addHandler(LINES)
    make_files(save_load, logger)
    alone = {"loads": loads(save_load)}
    (FOLDER / "alone").mkdir()
    net, adam = model()
    step(net, adam)
    alone["interrupted"] = interrupted(save_load, logger, FOLDER / "alone", net, adam)
    alone["nan"] = with_nan(save_load, logger, FOLDER / "alone", net, adam)
    before = {path.name: path.read_bytes() for path in (FOLDER / "alone").glob("latest.*")}
    signal = killed(FOLDER / "alone")
    changed = sorted(n for n, old in before.items() if (FOLDER / "alone" / n).read_bytes() != old)
    alone["killed"] = {"signal": signal, "changed": changed}

    from tests.checkpoint.small import plan

    controller = paddleocr.patch()
    controller.settings, controller.logger, controller.training = SimpleNamespace(), logger, True
    from paddle_amp_plugin.session import Session

    class Fresh:  # every load has a session of its own, as every process has
        def __get__(self, instance, owner):
            return Session(controller.plan, logger=logger)

        def __set__(self, instance, value):
            raise AttributeError

    controller.plan = plan({"level": "O1", "dtype": "float16"})
    type(controller).session = Fresh()
    ours = {"loads": loads(save_load)}
    del type(controller).session
    session = controller.session = Session(controller.plan, logger=logger)
    (FOLDER / "ours").mkdir()
    net, adam = model()
    with session.attach(net, None, adam):
        step(net, adam)
        ours["interrupted"] = interrupted(save_load, logger, FOLDER / "ours", net, adam)
        ours["nan"] = with_nan(save_load, logger, FOLDER / "ours", net, adam)
    paddleocr.unpatch()
    print("RESULT " + json.dumps({"alone": alone, "ours": ours}, default=str))


LINES = Lines()
if __name__ == "__main__":
    main()
