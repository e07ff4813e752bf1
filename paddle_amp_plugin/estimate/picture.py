"""The estimate as a stacked bar a mode: an SVG of its own, no script, no font to fetch (pure)."""

from __future__ import annotations

from html import escape

from paddle_amp_plugin.estimate.modes import PARTS
from paddle_amp_plugin.estimate.result import Result, part_names
from paddle_amp_plugin.estimate.sizes import shown
from paddle_amp_plugin.messages import tr

WIDTH, LEFT, RIGHT = 720, 110, 90
BAR, GAP, TOP = 34, 18, 46
LEGEND = 5  # names in a row
COLOURS = {
    "weights": "#1f5f8b",
    "masters": "#3f8fbf",
    "gradients": "#8cc1de",
    "states": "#b8a1d9",
    "copies": "#7f6ab0",
    "batch": "#7d8a97",
    "activations": "#e08a3c",
    "temporary": "#f2c48d",
    "reserve": "#d5d9dd",
}
LIMIT = "#b3261e"
_STYLE = "font-family:-apple-system,'Segoe UI','Noto Sans CJK SC','Microsoft YaHei',sans-serif;font-size:13px"


def draw(result: Result) -> str:
    """One bar a mode, its parts in the order of the table; the line is ``memory``, if there is one."""
    most = max([p.total for _, p, _ in result.columns] + ([result.memory] if result.memory else []))
    scale = (WIDTH - LEFT - RIGHT) / most
    legend_rows = -(-len(PARTS) // LEGEND)
    height = TOP + len(result.columns) * (BAR + GAP) + legend_rows * 22 + 14
    title = tr(
        "{n}: memory of a training step, batch {b}", "{n}：训练一步的显存，批大小 {b}", n=result.name, b=result.samples
    )
    shapes = [
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="14" y="24" font-weight="600" font-size="15">{escape(title)}</text>',
    ]
    for place, (mode, parts, largest) in enumerate(result.columns):
        y = TOP + place * (BAR + GAP)
        shapes.append(_label(mode.name, mode.dtype, largest, y))
        x = float(LEFT)
        for part in PARTS:
            width = getattr(parts, part) * scale
            if width > 0:
                shapes.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.2f}" height="{BAR}" fill="{COLOURS[part]}"/>')
            x += width
        shapes.append(f'<text x="{x + 6:.1f}" y="{y + BAR / 2 + 5:.0f}">{shown(parts.total)}</text>')
    bottom = TOP + len(result.columns) * (BAR + GAP)
    if result.memory is not None:
        x = LEFT + result.memory * scale
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom - 6}"'
        shapes.append(f'{line} stroke="{LIMIT}" stroke-dasharray="5 3"/>')
        text = f'<text x="{x:.1f}" y="{TOP - 12}" text-anchor="end" fill="{LIMIT}">'
        shapes.append(f"{text}{shown(result.memory)}</text>")
    shapes += _legend(bottom + 12)
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'style="{_STYLE}" fill="#1d2733" role="img" aria-label="{escape(title)}">\n{body}\n</svg>\n'
    )


def _label(name: str, dtype: str, largest: int | None, y: int) -> str:
    lines = [f'<text x="14" y="{y + 15}" font-weight="600">{escape(name)}</text>']
    second = tr("batch ≤ {n}", "批 ≤ {n}", n=largest) if largest is not None else dtype
    lines.append(f'<text x="14" y="{y + 31}" font-size="11" fill="#5b6875">{escape(second)}</text>')
    return "\n".join(lines)


def _legend(y: int) -> list[str]:
    names = part_names()
    shapes = []
    for place, part in enumerate(PARTS):
        x, line = 14 + (place % LEGEND) * ((WIDTH - 14) // LEGEND), y + (place // LEGEND) * 22
        shapes.append(f'<rect x="{x}" y="{line}" width="13" height="13" fill="{COLOURS[part]}"/>')
        shapes.append(f'<text x="{x + 19}" y="{line + 11}">{escape(names[part])}</text>')
    return shapes
