"""``amp/report.html``: one page that needs nothing beside itself, in both languages, light and dark, small and large.

It is written as well-formed XML, holds no address, and shows everything without a script; the script switches the
language, copies the YAML and reads values off the curves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from paddle_amp_plugin import __version__
from paddle_amp_plugin.report import charts, svg
from paddle_amp_plugin.report.assets import CSS, SCRIPT
from paddle_amp_plugin.report.build import LayerRange, RunData
from paddle_amp_plugin.report.words import Advice, Text, advice, number, percent, tiles

#: The plan's keys that the page shows, in this order, where the plan has them.
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


def render(data: RunData, language: str = "en") -> str:
    """The page as text. ``language`` ("en" or "zh") is the one it opens in."""
    shown = charts.step_charts(data)
    ranges = charts.ranges(data)
    title = data.folder.resolve().parent.name if data.folder.name == "amp" else data.folder.resolve().name
    body = [
        _header(title, data),
        _verdict(advice(data)),
        _tiles(data),
        '<div class="grid2">',
        *(_chart_card(chart) for chart in shown),
        "</div>",
        _lower(data, ranges),
        _footer(data),
    ]
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="{language}" data-lang="{language}"><head><meta charset="utf-8" />'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>AMP · {escape(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + f'\n</main>\n<script type="application/json" id="data">{_json(shown)}</script>\n'
        + f"<script>{SCRIPT}</script></body></html>\n"
    )


def _both(text: Text) -> str:
    if text.en == text.zh:
        return escape(text.en)
    return f'<span class="en" lang="en">{escape(text.en)}</span><span class="zh" lang="zh">{escape(text.zh)}</span>'


def _header(title: str, data: RunData) -> str:
    first, last = data.events[0].step, data.events[-1].step
    where = Text(f"mixed-precision report, steps {first} to {last}", f"混合精度报告，第 {first} 至 {last} 步")
    return (
        f'<header><div><h1>{escape(title)}</h1><p class="soft">{_both(where)}</p></div>'
        '<button id="language" type="button"><span class="en">中文</span><span class="zh">English</span></button>'
        "</header>"
    )


def _verdict(words: Advice) -> str:
    parts = [f'<section class="card verdict {words.level}"><h2>{_both(words.headline)}</h2>']
    parts += [f"<p>{_both(line)}</p>" for line in words.lines]
    if words.yaml:
        label = Text("To paste into the config:", "可粘贴到配置文件中：")
        parts.append(f'<p class="soft">{_both(label)}</p>')
    copy = _both(Text("copy", "复制"))
    parts += [
        f'<div class="yaml"><pre>{escape(block)}</pre><button type="button">{copy}</button></div>'
        for block in words.yaml
    ]
    return "".join(parts) + "</section>"


def _tiles(data: RunData) -> str:
    cells = [
        f'<div class="tile"><b>{escape(value)}</b><span>{_both(label)}</span></div>' for label, value in tiles(data)
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def _chart_card(chart: charts.Chart) -> str:
    legend = ""
    if chart.marks:
        legend = f'<span class="legend"><span class="key rug"></span>{_both(Text("skipped steps", "跳过的步"))}</span>'
    return (
        f'<section class="card"><div class="head"><h2>{_both(chart.title)}</h2><output id="read-{chart.key}"></output>'
        f"{legend}</div>{svg.step_chart(chart)}</section>"
    )


def _lower(data: RunData, ranges: charts.Ranges | None) -> str:
    """Below the curves: ranges on the left where there are some; histogram and settings beside them."""
    histogram = charts.norm_histogram(data.events)
    right = [_histogram_card(histogram)] if histogram else []
    if data.plan:
        right.append(_settings_card(data.plan))
    left = _ranges_card(data, ranges) if ranges else ""
    if not left:
        return f'<div class="grid2" style="margin-top:12px">{"".join(right)}</div>'
    return f'<div class="grid2" style="margin-top:12px">{left}<div class="stack">{"".join(right)}</div></div>'


def _histogram_card(data: charts.Histogram) -> str:
    extra = []
    if data.nonfinite:
        extra.append(Text(f"not finite at {data.nonfinite} steps", f"{data.nonfinite} 步为非有限值"))
    if data.zero:
        extra.append(Text(f"zero at {data.zero} steps", f"{data.zero} 步为零"))
    note = "".join(f'<span class="legend">{_both(text)}</span>' for text in extra)
    title = _both(Text("Gradient norm (unscaled), steps", "梯度范数（已反缩放），步数"))
    return f'<section class="card"><div class="head"><h2>{title}</h2>{note}</div>{svg.histogram(data)}</section>'


def _ranges_card(data: RunData, ranges: charts.Ranges) -> str:
    title = _both(Text("Largest values of the layers", "各层最大幅值"))
    legend = (
        f'<span class="legend"><span class="key"></span>{_both(Text("output", "输出"))}'
        f'<span class="key grad"></span>{_both(Text("gradient (scaled)", "梯度（已缩放）"))}</span>'
    )
    when = (
        Text("before training", "训练前")
        if not data.layers_step
        else Text(f"recorded at step {data.layers_step}", f"记录于第 {data.layers_step} 步")
    )
    held = Text("green: what float16 can hold", "绿色：float16 可表示的范围")
    some = Text(
        f"the {len(ranges.rows)} of {ranges.total} layers nearest to the limits",
        f"共 {ranges.total} 层，显示最接近极限的 {len(ranges.rows)} 层",
    )
    note = " · ".join(_both(t) for t in ((when, held, some) if len(ranges.rows) != ranges.total else (when, held)))
    return (
        f'<section class="card"><div class="head"><h2>{title}</h2>{legend}</div><p class="soft">{note}</p>'
        f"{svg.range_chart(ranges)}{_layer_table(data.layers, ranges.culprits)}</section>"
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
        body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr class="bad">{body}</tr>' if bad else f"<tr>{body}</tr>")
    head = "".join(f"<th>{_both(text)}</th>" for text in heads)
    summary = _both(Text(f"all {len(layers)} layers as a table", f"全部 {len(layers)} 层的表格"))
    return (
        f'<details><summary>{summary}</summary><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _settings_card(plan: Mapping[str, Any]) -> str:
    rows = []
    device = plan.get("device")
    if isinstance(device, dict):
        rows.append(("device", f"{device.get('kind', '')} {device.get('name', '')}".strip()))
    for key in _SETTINGS:
        value = plan.get(key)
        if value is None or value == "" or value == []:
            continue
        rows.append((key, _setting(value)))
    body = "".join(f"<tr><td>{escape(key)}</td><td>{escape(value)}</td></tr>" for key, value in rows)
    title = _both(Text("Settings of the run", "本次运行的设置"))
    return f'<section class="card"><h2>{title}</h2><table class="settings"><tbody>{body}</tbody></table></section>'


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{key} {_setting(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_setting(item) for item in value)
    return number(value) if isinstance(value, int | float) else str(value)


def _footer(data: RunData) -> str:
    lines = []
    if data.broken_lines:
        n = data.broken_lines
        lines.append(Text(f"{n} line(s) of events.jsonl could not be read.", f"events.jsonl 中有 {n} 行无法读取。"))
    if data.unreadable:
        names = ", ".join(data.unreadable)
        lines.append(Text(f"Could not be read: {names}.", f"无法读取：{names}。"))
    lines.append(Text(f"Made by paddle-amp-plugin {__version__}.", f"由 paddle-amp-plugin {__version__} 生成。"))
    return "<footer>" + "".join(f'<p class="soft">{_both(line)}</p>' for line in lines) + "</footer>"


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
