"""The page's style and script, as text: the page must need nothing beside itself."""

CSS = """
:root { color-scheme: light dark; --bg: #f5f6f8; --card: #fff; --ink: #1c2330; --soft: #667085; --line: #e3e7ee;
  --c1: #2563eb; --c2: #d97706; --c3: #0d9488; --c4: #9333ea;
  --skip: #dc2626; --good: #15803d; --warn: #b45309; --bad: #b91c1c;
  --held: rgba(21, 128, 61, .08); --code: #f1f3f7; }
@media (prefers-color-scheme: dark) { :root { --bg: #10141b; --card: #181e28; --ink: #e6eaf1; --soft: #98a3b5;
  --line: #2a3341; --c1: #6ea8fe; --c2: #fbbf24; --c3: #2dd4bf; --c4: #c084fc;
  --skip: #f87171; --good: #4ade80; --warn: #fbbf24; --bad: #f87171;
  --held: rgba(74, 222, 128, .09); --code: #0f141c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  "Noto Sans", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 16px; }
header { display: flex; gap: 12px; align-items: baseline; justify-content: space-between; }
h1 { font-size: 20px; margin: 4px 0; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 0; }
.soft { color: var(--soft); font-size: 13px; margin: 2px 0; }
button { font: inherit; font-size: 13px; color: var(--ink); background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 4px 12px; cursor: pointer; white-space: nowrap; }
button:hover { border-color: var(--c1); }
html[data-lang="en"] .zh, html[data-lang="zh"] .en { display: none; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px; min-width: 0; }
.verdict { border-left: 5px solid var(--good); margin: 12px 0; }
.verdict.warn { border-left-color: var(--warn); } .verdict.bad { border-left-color: var(--bad); }
.verdict h2 { font-size: 18px; color: var(--good); overflow-wrap: anywhere; }
.verdict.warn h2 { color: var(--warn); } .verdict.bad h2 { color: var(--bad); }
.verdict p { margin: 6px 0; overflow-wrap: anywhere; }
.yaml { position: relative; margin-top: 8px; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 8px; margin: 6px 0; padding: 10px 12px;
  overflow-x: auto; font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.yaml button { position: absolute; right: 6px; top: 6px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(104px, 1fr)); gap: 8px; margin: 12px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 8px 10px; }
.tile b { display: block; font-size: 17px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile span { color: var(--soft); font-size: 12px; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 12px;
  align-items: start; }
.stack { display: grid; gap: 12px; min-width: 0; }
.head { display: flex; flex-wrap: wrap; gap: 2px 12px; justify-content: space-between; align-items: baseline; }
output, .legend { color: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 50%; background: var(--c1);
  margin: 0 4px 0 8px; }
.key.grad { background: var(--c2); border-radius: 0; transform: rotate(45deg) scale(.8); }
.key.k2 { background: var(--c2); } .key.k3 { background: var(--c3); } .key.k4 { background: var(--c4); }
.key.rug { background: var(--skip); border-radius: 0; width: 3px; }
svg { display: block; width: 100%; height: auto; margin-top: 6px; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 10.5px; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .tick.y, svg .name { text-anchor: end; }
svg .tick.x, svg .limit-label, svg .break, svg .cross { text-anchor: middle; }
svg .curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .c1 { stroke: var(--c1); } svg .c2 { stroke: var(--c2); }
svg .c3 { stroke: var(--c3); } svg .c4 { stroke: var(--c4); }
svg .faint { stroke: var(--c1); stroke-width: 1; opacity: .35; }
svg .rug { stroke: var(--skip); stroke-width: 1.4; } svg .skip { fill: var(--skip); }
svg .break, svg .cross { fill: var(--skip); font-size: 13px; font-weight: 700; }
svg .bar { fill: var(--c1); opacity: .8; } svg .held { fill: var(--held); }
svg .limit { stroke: var(--good); stroke-width: 1.2; stroke-dasharray: 4 3; } svg .limit-label { fill: var(--good); }
svg .name { fill: var(--ink); } svg .name.culprit { fill: var(--bad); font-weight: 700; }
svg circle.out { fill: var(--c1); } svg path.grad { fill: var(--c2); }
svg circle.beyond, svg path.beyond { fill: var(--skip); }
svg .cursor { stroke: var(--soft); stroke-width: 1; opacity: 0; } svg.live .cursor { opacity: .7; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12.5px; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: 3px 8px; border-bottom: 1px solid var(--line); white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
.settings td { white-space: normal; overflow-wrap: anywhere; text-align: left; }
.settings td:first-child { color: var(--soft); white-space: nowrap; }
.split { display: grid; grid-template-columns: 70px 1fr minmax(150px, auto); gap: 10px; align-items: center;
  margin: 8px 0; font-size: 13px; font-variant-numeric: tabular-nums; }
.bar100 { display: flex; height: 16px; border-radius: 4px; overflow: hidden; background: var(--line); }
.part { display: block; height: 100%; } .p1 { background: var(--c1); } .p2 { background: var(--c2); }
.p3 { background: var(--c3); } .p4 { background: var(--c4); }
tr.bad td { color: var(--bad); }
footer { margin: 16px 0 4px; }
@media print { button { display: none; } .card { break-inside: avoid; } }
"""

#: No "<" and no "&" in it, so that the page is well-formed XML too.
SCRIPT = """
(function () {
  var root = document.documentElement;
  var asked = location.hash.slice(1);
  if (asked === 'en' || asked === 'zh') { root.dataset.lang = root.lang = asked; }
  document.getElementById('language').addEventListener('click', function () {
    root.dataset.lang = root.dataset.lang === 'zh' ? 'en' : 'zh';
    root.lang = root.dataset.lang;
  });
  document.querySelectorAll('.yaml button').forEach(function (button) {
    button.addEventListener('click', function () {
      var pre = button.parentNode.querySelector('pre');
      if (navigator.clipboard) { navigator.clipboard.writeText(pre.textContent); return; }
      var range = document.createRange(); range.selectNodeContents(pre);
      var selection = getSelection(); selection.removeAllRanges(); selection.addRange(range);
      document.execCommand('copy');
    });
  });
  var data = JSON.parse(document.getElementById('data').textContent);
  data.charts.forEach(function (chart) {
    var svg = document.getElementById('chart-' + chart.key);
    var out = document.getElementById('read-' + chart.key);
    var axis = svg.dataset.axis.split(',').map(Number);
    var cursor = svg.querySelector('.cursor'), rest = out.textContent;
    svg.addEventListener('pointermove', function (event) {
      var box = svg.getBoundingClientRect(), width = svg.viewBox.baseVal.width;
      var at = (event.clientX - box.left) * width / box.width;
      var step = Math.round(axis[2] + (at - axis[0]) / (axis[1] - axis[0]) * (axis[3] - axis[2]));
      step = Math.max(Math.ceil(axis[2]), Math.min(Math.floor(axis[3]), step));
      var x = axis[0] + (step - axis[2]) / (axis[3] - axis[2]) * (axis[1] - axis[0]);
      cursor.setAttribute('x1', x); cursor.setAttribute('x2', x); svg.classList.add('live');
      var zh = root.dataset.lang === 'zh';
      var texts = chart.series.map(function (series) {
        var best = null;
        series.points.forEach(function (point) {
          if (series.step) { if (step >= point[0]) { best = point; } return; }
          if (best === null || Math.abs(best[0] - step) > Math.abs(point[0] - step)) { best = point; }
        });
        return best === null ? '' : (zh ? series.zh : series.en) + ' ' + Number(best[1].toPrecision(4));
      });
      out.textContent = (zh ? '第 ' + step + ' 步：' : 'step ' + step + ': ') + texts.join(', ');
    });
    svg.addEventListener('pointerleave', function () { svg.classList.remove('live'); out.textContent = rest; });
  });
})();
"""
