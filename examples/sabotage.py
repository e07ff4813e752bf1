"""Makes weights with one sick layer, to watch a run diagnose and heal itself.

    python examples/sabotage.py -c configs/ocr_amp.yml --out output/sabotaged/init
    python tools/train.py -c configs/ocr_amp.yml -o Global.pretrained_model=output/sabotaged/init

The fresh model of the config, one convolution of it (the first that a norm follows) times a factor. Its outputs
then exceed float16's 65504; the norm behind it hides that from the loss. In FP32 the model trains as before.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import yaml

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.hosts.paddleocr_tree import find_tree, put_first
from paddle_amp_plugin.messages import tr

#: Times weights of about 0.1 this stays below 65504, so that the weights themselves still fit float16.
FACTOR = 3.0e5


def fresh_model(config: dict[str, Any]) -> Any:
    """The model that PaddleOCR would build for a config whose head needs the number of characters."""
    import paddle
    from ppocr.modeling.architectures import build_model
    from ppocr.postprocess import build_post_process

    paddle.seed(config["Global"].get("seed", 1024))
    characters = getattr(build_post_process(config["PostProcess"], config["Global"]), "character", None)
    if characters is not None:
        config["Architecture"]["Head"]["out_channels"] = len(characters)
    return build_model(config["Architecture"])


def first_convolution(model: Any) -> str:
    """The first convolution that is followed by a normalization layer beside it."""
    import paddle

    names = [name for name, _ in model.named_sublayers()]
    layers = dict(model.named_sublayers())
    for name, following in pairwise(names):
        is_norm = "norm" in type(layers[following]).__name__.lower()
        if isinstance(layers[name], paddle.nn.Conv2D) and is_norm:
            return name
    raise SystemExit(tr("no convolution before a norm: give --layer", "没有后接归一化层的卷积：请用 --layer 指定"))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--config", default="configs/ocr_amp.yml")
    parser.add_argument("--out", default="output/sabotaged/init", help="the weights, without .pdparams")
    parser.add_argument("--layer", help="the layer's name; default: the first convolution before a norm")
    parser.add_argument("--factor", type=float, default=FACTOR)
    parser.add_argument("--paddleocr", help="where PaddleOCR is")
    options = parser.parse_args(argv)
    try:
        put_first(find_tree(options.paddleocr))
    except AmpError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    import paddle

    model = fresh_model(yaml.safe_load(Path(options.config).read_text(encoding="utf-8")))
    name = options.layer or first_convolution(model)
    layer = dict(model.named_sublayers())[name]
    layer.weight.set_value(layer.weight * options.factor)
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    paddle.save(model.state_dict(), f"{options.out}.pdparams")
    text = tr(
        "{n}: weights times {f:g}; saved as {o}.pdparams",
        "{n}：权重乘以 {f:g}；已保存为 {o}.pdparams",
        n=name,
        f=options.factor,
        o=options.out,
    )
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
