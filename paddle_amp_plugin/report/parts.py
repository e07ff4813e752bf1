"""What the pages are made of: frame, cards and tables. Texts are in both languages, and all is well-formed XML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from paddle_amp_plugin import __version__
from paddle_amp_plugin.report import charts, svg
from paddle_amp_plugin.report.assets import CSS, SCRIPT
from paddle_amp_plugin.report.build import LayerRange
from paddle_amp_plugin.report.words import Advice, Text, number, percent

#: The plan's keys that a page shows, in this order, where the plan has them.
_SETTINGS = (
    "enabled",
    "off_reason",
    "family",
    "level",
    "dtype",
    "dtype_reason",
    "software_half",
    "preset",
    "fp32_layers",
    "use_loss_scaling",
    "scaling",
    "master_weight",
    "master_grad",
    "on_collapse",
    "accumulate_steps",
    "ema_decay",
    "eval_dtype",
)


def document(title: str, body: Iterable[str], shown: Sequence[charts.Chart], language: str) -> str:
    """The whole page. ``shown``: the curves that the script reads values off; ``language``: the one it opens in."""
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="{language}" data-lang="{language}"><head><meta charset="utf-8" />'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>AMP · {escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + f'\n</main>\n<script type="application/json" id="data">{_json(shown)}</script>\n'
        + f"<script>{SCRIPT}</script></body></html>\n"
    )


def both(text: Text) -> str:
    """A text in both languages, of which the page shows one."""
    if text.en == text.zh:
        return escape(text.en)
    return f'<span class="en" lang="en">{escape(text.en)}</span><span class="zh" lang="zh">{escape(text.zh)}</span>'


def header(title: str, where: Text) -> str:
    """The page's name, one line about it, and the button for the other language."""
    return (
        f'<header><div><h1>{escape(title)}</h1><p class="soft">{both(where)}</p></div>'
        '<button id="language" type="button"><span class="en">中文</span><span class="zh">English</span></button>'
        "</header>"
    )


def verdict_card(words: Advice) -> str:
    """The verdict, with the YAML to paste."""
    parts = [f'<section class="card verdict {words.level}"><h2>{both(words.headline)}</h2>']
    parts += [f"<p>{both(line)}</p>" for line in words.lines]
    if words.yaml:
        label = Text("To paste into the config:", "可粘贴到配置文件中：")
        parts.append(f'<p class="soft">{both(label)}</p>')
    copy = both(Text("copy", "复制"))
    parts += [
        f'<div class="yaml"><pre>{escape(block)}</pre><button type="button">{copy}</button></div>'
        for block in words.yaml
    ]
    return "".join(parts) + "</section>"


def tiles_row(cells: Iterable[tuple[Text, str]]) -> str:
    """A row of figures: label and value."""
    row = [f'<div class="tile"><b>{escape(value)}</b><span>{both(label)}</span></div>' for label, value in cells]
    return f'<div class="tiles">{"".join(row)}</div>'


def chart_grid(shown: Iterable[charts.Chart]) -> list[str]:
    """The charts over the steps, two beside each other where there is room."""
    return ['<div class="grid2">', *(chart_card(chart) for chart in shown), "</div>"]


def chart_card(chart: charts.Chart) -> str:
    """One chart over the steps; several curves in colours of their own get a legend."""
    keys = "".join(
        f'<span class="key k{series.tone}"></span>{both(series.label)}' for series in chart.series if series.tone
    )
    if chart.marks:
        keys += f'<span class="key rug"></span>{both(Text("skipped steps", "跳过的步"))}'
    legend = f'<span class="legend">{keys}</span>' if keys else ""
    return (
        f'<section class="card"><div class="head"><h2>{both(chart.title)}</h2><output id="read-{chart.key}"></output>'
        f"{legend}</div>{svg.step_chart(chart)}</section>"
    )


def ranges_card(layers: Sequence[LayerRange], ranges: charts.Ranges, notes: Sequence[Text], *, scaled: bool) -> str:
    """The layers' largest outputs and gradients (``scaled``: times the loss scale), as a chart and as a table."""
    title = both(Text("Largest values of the layers", "各层最大幅值"))
    gradient = Text("gradient (scaled)", "梯度（已缩放）") if scaled else Text("gradient", "梯度")
    legend = (
        f'<span class="legend"><span class="key"></span>{both(Text("output", "输出"))}'
        f'<span class="key grad"></span>{both(gradient)}</span>'
    )
    held = Text("green: what float16 can hold", "绿色：float16 可表示的范围")
    some = Text(
        f"the {len(ranges.rows)} of {ranges.total} layers nearest to the limits",
        f"共 {ranges.total} 层，显示最接近极限的 {len(ranges.rows)} 层",
    )
    said = [*notes, held, *([some] if len(ranges.rows) != ranges.total else [])]
    note = " · ".join(both(text) for text in said)
    return (
        f'<section class="card"><div class="head"><h2>{title}</h2>{legend}</div><p class="soft">{note}</p>'
        f"{svg.range_chart(ranges)}{_layer_table(layers, ranges.culprits)}</section>"
    )


def _layer_table(layers: Sequence[LayerRange], culprits: frozenset[str]) -> str:
    heads = (
        Text("layer", "层"),
        Text("type", "类型"),
        Text("output max", "输出最大值"),
        Text("zeros", "零占比"),
        Text("gradient max", "梯度最大值"),
        Text("zeros", "零占比"),
    )
    rows = []
    for layer in layers:
        bad = layer.name in culprits or layer.out_nonfinite or bool(layer.grad_nonfinite)
        cells = (
            layer.name,
            layer.type,
            number(layer.out_absmax),
            percent(layer.out_zero_share),
            number(layer.grad_absmax),
            percent(layer.grad_zero_share),
        )
        rows.append((cells, bad))
    summary = both(Text(f"all {len(layers)} layers as a table", f"全部 {len(layers)} 层的表格"))
    return f'<details><summary>{summary}</summary><div class="scroll">{table(heads, rows)}</div></details>'


def table(heads: Iterable[Text], rows: Iterable[tuple[Sequence[str], bool]]) -> str:
    """A table; a row is its cells, and whether it is bad."""
    lines = []
    for cells, bad in rows:
        body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr class="bad">{body}</tr>' if bad else f"<tr>{body}</tr>")
    head = "".join(f"<th>{both(text)}</th>" for text in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def settings_card(plan: Mapping[str, Any]) -> str:
    """The plan of a run, as ``plan.yml`` has it."""
    rows = []
    device = plan.get("device")
    if isinstance(device, dict):
        rows.append(("device", f"{device.get('kind', '')} {device.get('name', '')}".strip()))
    for key in _SETTINGS:
        value = plan.get(key)
        if value is None or value == "" or value == [] or value == ():
            continue
        rows.append((key, _setting(value)))
    body = "".join(f"<tr><td>{escape(key)}</td><td>{escape(value)}</td></tr>" for key, value in rows)
    title = both(Text("Settings of the run", "本次运行的设置"))
    return f'<section class="card"><h2>{title}</h2><table class="settings"><tbody>{body}</tbody></table></section>'


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{key} {_setting(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_setting(item) for item in value)
    return number(value) if isinstance(value, int | float) else str(value)


def footer(lines: Iterable[Text] = ()) -> str:
    """What could not be read and the like, and who made the page."""
    made = Text(f"Made by paddle-amp-plugin {__version__}.", f"由 paddle-amp-plugin {__version__} 生成。")
    return "<footer>" + "".join(f'<p class="soft">{both(line)}</p>' for line in (*lines, made)) + "</footer>"


def _json(shown: Sequence[charts.Chart]) -> str:
    """The curves for the script. No "<" and no "&" may stand in it."""
    rows = [
        {
            "key": chart.key,
            "series": [
                {"en": s.label.en, "zh": s.label.zh, "step": s.look == "step", "points": s.points} for s in chart.series
            ],
        }
        for chart in shown
    ]
    text = json.dumps({"charts": rows}, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026").replace(">", "\\u003e")
