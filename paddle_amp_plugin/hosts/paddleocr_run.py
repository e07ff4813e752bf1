"""Running a script of a PaddleOCR tree, patched, as ``__main__``. Imports Paddle only by running the script."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts import paddleocr
from paddle_amp_plugin.hosts.paddleocr_args import parse, preflight
from paddle_amp_plugin.hosts.paddleocr_tree import Tree, find_tree, put_first, tree_of_script
from paddle_amp_plugin.messages import tr

#: The host's scripts that read a config with ``-c``.
TOOLS = ("train", "eval", "export_model", "infer_rec", "infer_det", "infer_cls", "infer_e2e", "infer_table", "infer_sr")


def run_tool(name: str, argv: Sequence[str], *, paddleocr_dir: str | None, instead_of: Path) -> None:
    """This project's ``tools/<name>.py``: the host's script of the same name, with its own arguments.

    ``instead_of`` is the folder of our script. Raises AmpError for whatever the user can put right.
    """
    preflight(argv, training=name == "train")
    tree = find_tree(paddleocr_dir)
    _run(tree, tree.script(name), argv, instead_of=instead_of, tools=f"python {_shown(instead_of)}/")


def run_script(
    path: Path,
    argv: Sequence[str],
    *,
    paddleocr_dir: str | None,
    show: Callable[[paddleocr.Controller], None] | None = None,
) -> None:
    """``paddle-amp run SCRIPT ARGS…``: the user's own script; its own tree comes before the others.

    ``show`` is called with the controller after everything is imported and before the script's ``__main__``
    part would run; the script is then not run.
    """
    tree = find_tree(paddleocr_dir) if paddleocr_dir else (tree_of_script(path) or find_tree(None))
    if show is not None:
        _show(tree, path, show)
        return
    if path.stem in TOOLS or parse(argv).config_path is not None:
        preflight(argv, training=path.stem == "train")
    _run(tree, path, argv, tools=f"paddle-amp run {_shown(path.parent)}/")


def require_paddle() -> None:
    if importlib.util.find_spec("paddle") is None:
        raise AmpError(
            "AMP043",
            tr("PaddlePaddle is not installed in {p}", "{p} 中未安装 PaddlePaddle", p=sys.executable),
            hint='pip install "paddle-amp-plugin[cpu,ocr]"',
        )


def _shown(folder: Path) -> str:
    """A folder as the user would type it: relative to the current one where that is shorter."""
    return _quoted(min(os.path.relpath(folder), str(folder), key=len))


def _run(tree: Tree, script: Path, argv: Sequence[str], *, tools: str, instead_of: Path | None = None) -> None:
    require_paddle()
    before = list(sys.path)
    put_first(tree, instead_of=instead_of)
    controller = paddleocr.patch()
    try:
        run_patched(controller, script, argv)
    finally:
        paddleocr.unpatch()
        sys.path[:] = before
    if controller.trained and controller.settings is not None:
        say_next(controller, tools)


def run_patched(controller: paddleocr.Controller, script: Path, argv: Sequence[str]) -> None:
    """The script as ``__main__`` with these arguments, under a controller whose patches are applied."""
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    before = sys.argv
    sys.argv = [str(script), *argv]
    try:
        with interruptible(controller):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before


@contextlib.contextmanager
def interruptible(controller: paddleocr.Controller) -> Iterator[None]:
    """Ctrl-C that the host's bare ``except:`` in its data sets cannot swallow, and errors of reader threads.

    A handler of its own is set, because a shell starts background jobs with SIGINT ignored.
    """
    guard = controller.guard

    def arrived(number: int, frame: Any) -> None:
        guard.interrupted = True
        raise KeyboardInterrupt

    def failed(arguments: Any) -> None:
        guard.thread_failed(arguments)
        if controller.settings is None:
            hook(arguments)

    before, hook = signal.signal(signal.SIGINT, arrived), threading.excepthook
    threading.excepthook = failed
    try:
        yield
    except Exception:
        if guard.interrupted:  # the interrupt came while Paddle was calling back, which makes another error of it
            raise KeyboardInterrupt from None
        raise
    finally:
        threading.excepthook = hook
        signal.signal(signal.SIGINT, before)


def _show(tree: Tree, script: Path, show: Callable[[paddleocr.Controller], None]) -> None:
    """Imports what the script imports (its ``__main__`` part does not run) and lists the patches."""
    require_paddle()
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    before = (sys.argv, list(sys.path))
    put_first(tree)
    controller = paddleocr.patch()
    sys.argv = [str(script)]
    try:
        runpy.run_path(str(script), run_name="paddle_amp_show")
        show(controller)
    finally:
        paddleocr.unpatch()
        sys.argv, sys.path[:] = before[0], before[1]


def say_next(controller: paddleocr.Controller, tools: str) -> None:
    """After training: the commands that evaluate, export and use what was trained, with the run's real paths.

    ``tools`` is how a command starts, up to the script's name (``python tools/``).
    """
    if controller.config is None or int(os.environ.get("PADDLE_TRAINER_ID", "0")):
        return
    folder = Path(str(controller.config["Global"]["save_model_dir"]))
    weights = next((folder / n for n in ("best_accuracy", "latest") if (folder / f"{n}.pdparams").is_file()), None)
    if weights is None:
        return
    kind = controller.config.get("Architecture", {}).get("model_type", "rec")
    base = f"-c {_quoted(folder / 'config.yml')} -o Global.pretrained_model={_quoted(weights)}"
    rows = [
        (tr("evaluate", "评估"), f"{tools}eval.py {base}"),
        (
            tr("export", "导出"),
            f"{tools}export_model.py {base} Global.save_inference_dir={_quoted(folder / 'inference')}",
        ),
    ]
    if kind in ("rec", "det"):
        target = (
            f"Global.infer_img={_quoted(_some_image(controller.config))}"
            f" Global.save_res_path={_quoted(folder / 'predicts.txt')}"
        )
        rows.append((tr("use", "使用"), f"{tools}infer_{kind}.py {base} {target}"))
    print(tr("\nWhat to do next:", "\n接下来可以："))
    for name, command in rows:
        print(f"  {name}: {command}")


def _some_image(config: dict[str, Any]) -> str:
    """An image of the evaluation set, or a placeholder."""
    dataset = (config.get("Eval") or {}).get("dataset") or {}
    files = dataset.get("label_file_list") or []
    files = [files] if isinstance(files, str) else files
    try:
        with open(files[0], encoding="utf-8") as lines:
            name = next(lines).split(dataset.get("delimiter", "\t"))[0]
        image = Path(dataset["data_dir"]) / name
        return str(image) if image.is_file() else "IMAGE.jpg"
    except (OSError, IndexError, KeyError, StopIteration, UnicodeDecodeError):
        return "IMAGE.jpg"


def _quoted(path: str | Path) -> str:
    import shlex

    return shlex.quote(str(path))
