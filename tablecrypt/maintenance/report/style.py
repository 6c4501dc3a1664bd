"""How the page looks: light and dark as the reader's system says, on a wide screen, a narrow one, and paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a2130; --soft: #5a6577; --line: #d9dee7; --box: #eef1f6;
  --good: #12774a; --good-soft: #d9f0e4; --info: #2a5fb0; --info-soft: #dfe9f8;
  --warning: #8a5a00; --warning-soft: #fbeccb; --error: #b3371b; --error-soft: #fbdfd7; --critical: #a3123f; --critical-soft: #f9d7e1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161d; --card: #1a2029; --ink: #e7ebf2; --soft: #a0abbd; --line: #313a48; --box: #232b37;
    --good: #5fd39b; --good-soft: #17382a; --info: #8bb6f5; --info-soft: #1c2f4c;
    --warning: #f0c162; --warning-soft: #41330f; --error: #ff9a80; --error-soft: #47221a; --critical: #ff8fae; --critical-soft: #4a1729;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; line-height: 1.25; }
h2 { font-size: 1.25rem; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.75rem 0 .6rem; }
p { margin: .25rem 0; }
a { color: var(--info); }
code, .mono { font-family: ui-monospace, "SFMono-Regular", Menlo, "Liberation Mono", monospace; font-size: .86em; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--card); padding: .5rem 1rem; z-index: 1; }
:focus-visible { outline: 3px solid var(--info); outline-offset: 2px; border-radius: 3px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.25rem 1.5rem 1.5rem; margin-top: 1.5rem; }
.head { display: flex; gap: .75rem; align-items: center; flex-wrap: wrap; }
.chip { display: inline-block; padding: .1rem .6rem; border-radius: 999px; font-size: .8rem; font-weight: 600; white-space: nowrap; }
.good { color: var(--good); background: var(--good-soft); } .info { color: var(--info); background: var(--info-soft); }
.warning { color: var(--warning); background: var(--warning-soft); } .error { color: var(--error); background: var(--error-soft); }
.critical { color: var(--critical); background: var(--critical-soft); }
.verdict { border-radius: 12px; padding: 1rem 1.25rem; margin-top: 1.25rem; font-size: 1.05rem; font-weight: 600; }
.verdict .chip { background: var(--card); }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; margin-top: .75rem; font-weight: 400; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: .9rem 0 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 46rem; height: auto; font: 13px system-ui, "Segoe UI", "Liberation Sans", sans-serif; }
svg .box { fill: var(--box); stroke: var(--line); } svg .ink { fill: var(--ink); } svg .small { fill: var(--soft); font-size: 11.5px; }
svg .count { fill: var(--ink); font-size: 18px; font-weight: 600; } svg .wire { fill: none; stroke: var(--soft); stroke-width: 1.5; }
svg .head-row { fill: var(--soft); font-size: 11.5px; letter-spacing: .04em; text-transform: uppercase; }
svg .mark-good { fill: var(--good); } svg .mark-info { fill: var(--info); } svg .mark-warning { fill: var(--warning); }
svg .mark-critical { fill: var(--critical); } svg .dashed { stroke-dasharray: 5 4; }
table { border-collapse: collapse; width: 100%; font-size: .92em; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: .8rem; min-width: 10rem; border-radius: 999px; overflow: hidden; border: 1px solid var(--line); }
.bar i { background: var(--good); } .bar b { background: var(--critical); flex: 1;
  background-image: repeating-linear-gradient(135deg, transparent 0 4px, var(--critical-soft) 4px 7px); }
.finding { border-left: 4px solid var(--line); padding: .5rem 0 .5rem .9rem; margin: .6rem 0; }
.finding.left-critical { border-color: var(--critical); } .finding.left-error { border-color: var(--error); }
.finding.left-warning { border-color: var(--warning); } .finding.left-info { border-color: var(--info); }
.finding ul { margin: .35rem 0 0; padding-left: 1.1rem; } .finding li { margin: .2rem 0; }
details { margin-top: 1.25rem; } summary { cursor: pointer; font-weight: 600; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } .card { padding: 1rem; } }
@media print {
  :root { --page: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --box: #f2f2f2;
    --good: #12774a; --good-soft: #fff; --info: #2a5fb0; --info-soft: #fff; --warning: #8a5a00; --warning-soft: #fff;
    --error: #b3371b; --error-soft: #fff; --critical: #a3123f; --critical-soft: #fff; }
  body { font-size: 11px; } main { max-width: none; padding: 0; } .skip { display: none; }
  .card { border: 0; padding: 0; } .finding, tr, svg { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .chip { border: 1px solid currentColor; } .verdict { border: 2px solid currentColor; }
  .bar, .bar * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } svg { min-width: 0; }
}
"""
