"""``docs/images/step-*.svg``: the path of one step, the same picture in two languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from docs_site import DOCS

WIDTH, HEIGHT = 1010, 452
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 170, 84, 30
_FONTS = "'Noto Sans','Noto Sans CJK SC','Microsoft YaHei','WenQuanYi Micro Hei',sans-serif"
#: kind -> (fill, border)
_COLOURS = {
    "half": ("#fde8cf", "#d9822b"),
    "fp32": ("#dcebfa", "#2f6fb5"),
    "rule": ("#eeeeee", "#777777"),
    "skip": ("#f9d9d9", "#b94a48"),
}

#: name -> (column, row, kind, lines in English, lines in Chinese). The first line is set in bold.
BOXES: dict[str, tuple[int, int, str, list[str], list[str]]] = {
    "batch": (0, 0, "fp32", ["batch", "FP32, integers"], ["批次", "FP32、整数"]),
    "model": (
        1,
        0,
        "half",
        ["model", "under auto_cast;", "norms, softmax,", "reductions in FP32"],
        ["模型", "在 auto_cast 下；", "归一化、softmax、", "归约为 FP32"],
    ),
    "outputs": (2, 0, "fp32", ["outputs", "cast to FP32"], ["输出", "转换为 FP32"]),
    "loss": (3, 0, "fp32", ["loss", "computed in FP32"], ["损失", "以 FP32 计算"]),
    "scale": (4, 0, "fp32", ["× loss scale", "float16 only"], ["× loss scale", "仅 float16"]),
    "unscale": (
        0,
        1,
        "rule",
        ["÷ loss scale", "gradients: FP32 at O1,", "half at O2"],
        ["÷ loss scale", "梯度：O1 为 FP32，", "O2 为半精度"],
    ),
    "finite": (1, 1, "rule", ["all finite?", "one test of all", "gradients"], ["全部有限？", "一次检查", "所有梯度"]),
    "update": (
        2,
        1,
        "fp32",
        ["clip and update", "of the FP32 weights", "(the masters at O2)"],
        ["裁剪与更新", "FP32 权重", "（O2 为主权重）"],
    ),
    "after": (3, 1, "fp32", ["LR schedule, EMA", "move on"], ["学习率、EMA", "向前一步"]),
    "grow": (
        4,
        1,
        "rule",
        ["scale × 2", "after 1000 updates", "up to 16777216"],
        ["scale × 2", "1000 次更新之后", "上限 16777216"],
    ),
    "skip": (
        2,
        2,
        "skip",
        ["skip", "weights, LR, BatchNorm", "statistics as before"],
        ["跳过", "权重、学习率、", "BatchNorm 统计量不变"],
    ),
    "shrink": (3, 2, "rule", ["scale × 0.5", "not below 1"], ["scale × 0.5", "不低于 1"]),
    "watch": (
        4,
        2,
        "rule",
        ["3 skips in a row", "watch the next step,", "name the layer, pin it"],
        ["连续跳过 3 次", "观察下一步，", "指出该层并固定"],
    ),
}
_ARROWS = [
    "batch>model",
    "model>outputs",
    "outputs>loss",
    "loss>scale",
    "unscale>finite",
    "finite>update",
    "update>after",
    "after>grow",
    "skip>shrink",
    "shrink>watch",
]
_WORDS: dict[str, dict[str, Any]] = {
    "en": {
        "backward": "backward: each op's gradient in the dtype of its forward pass",
        "yes": "yes",
        "no": "no",
        "legend": ["mostly half", "FP32", "decides", "no update"],
        "title": "The path of one step",
    },
    "zh": {
        "backward": "反向：每个算子的梯度与其前向的 dtype 相同",
        "yes": "是",
        "no": "否",
        "legend": ["以半精度为主", "FP32", "判断", "不更新"],
        "title": "一步训练的过程",
    },
}


def path(language: str) -> Path:
    return DOCS / "images" / f"step-{language}.svg"


def _place(name: str) -> tuple[int, int]:
    column, row = BOXES[name][:2]
    return 20 + column * (_BOX_WIDTH + _GAP), 16 + row * 136


def _box(name: str, language: str) -> str:
    x, y = _place(name)
    fill, border = _COLOURS[BOXES[name][2]]
    lines = BOXES[name][3] if language == "en" else BOXES[name][4]
    first = y + _BOX_HEIGHT / 2 - (len(lines) - 1) * 9 + 5
    bold = ' class="b"'
    texts = "".join(
        f'<text{bold if i == 0 else ""} x="{x + _BOX_WIDTH / 2:g}" y="{first + 18 * i:g}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    size = f'width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="8"'
    rect = f'<rect x="{x}" y="{y}" {size} fill="{fill}" stroke="{border}" stroke-width="1.5"/>'
    return rect + texts


def _line(points: str) -> str:
    return f'<polyline points="{points}" fill="none" stroke="#444" stroke-width="1.6" marker-end="url(#arrow)"/>'


def render(language: str) -> str:
    """The picture as SVG, on a ground of its own (it is read on dark pages too)."""
    words = _WORDS[language]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" ',
        f'aria-label="{words["title"]}">',
        f"<style>text{{font:13px {_FONTS};text-anchor:middle;fill:#222}}",
        ".b{font-weight:bold}.s{text-anchor:start}</style>",
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#fff"/>',
        *(_box(name, language) for name in BOXES),
    ]
    for arrow in _ARROWS:
        (x, y), (x2, _) = map(_place, arrow.split(">"))
        middle = y + _BOX_HEIGHT // 2
        parts.append(_line(f"{x + _BOX_WIDTH + 2},{middle} {x2 - 2},{middle}"))
    right, left = _place("scale"), _place("unscale")
    lane = right[1] + _BOX_HEIGHT + 26
    start, end = right[0] + _BOX_WIDTH // 2, left[0] + _BOX_WIDTH // 2
    parts.append(_line(f"{start},{right[1] + _BOX_HEIGHT + 2} {start},{lane} {end},{lane} {end},{left[1] - 2}"))
    parts.append(f'<text x="{(start + end) // 2}" y="{lane - 6}">{escape(words["backward"])}</text>')
    (fx, fy), (sx, sy) = _place("finite"), _place("skip")
    middle = fx + _BOX_WIDTH // 2
    parts.append(
        _line(f"{middle},{fy + _BOX_HEIGHT + 2} {middle},{sy + _BOX_HEIGHT // 2} {sx - 2},{sy + _BOX_HEIGHT // 2}")
    )
    parts.append(f'<text x="{fx + _BOX_WIDTH + _GAP // 2}" y="{fy + _BOX_HEIGHT // 2 - 9}">{words["yes"]}</text>')
    parts.append(f'<text class="s" x="{middle + 8}" y="{fy + _BOX_HEIGHT + 26}">{words["no"]}</text>')
    for i, ((fill, border), word) in enumerate(zip(_COLOURS.values(), words["legend"], strict=True)):
        x, y = 20 + i * 150, HEIGHT - 34
        parts.append(f'<rect x="{x}" y="{y}" width="18" height="18" rx="4" fill="{fill}" stroke="{border}"/>')
        parts.append(f'<text class="s" x="{x + 26}" y="{y + 14}">{word}</text>')
    return "\n".join([*parts, "</svg>", ""])
