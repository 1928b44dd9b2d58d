"""A page that stands alone: its style, and the script by which a click sorts a table.

The page loads nothing. Its Content-Security-Policy allows inline style and the one script below, by
its hash, and nothing else: no other script, no image, font or frame, and no connection. Text is
escaped, and control characters in it are made visible.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence

from gpuprof._common.text import in_html

STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1c2126;--faint:#5d6873;--line:#d9dee3;
--card:#f6f8fa;--bar:#3b75af;--slow:#b3261e;--fast:#1a7431;--doubt:#8a5a00}
@media (prefers-color-scheme:dark){:root{--back:#14181c;--text:#e4e8ec;--faint:#9aa5b0;
--line:#333b43;--card:#1c2227;--bar:#6fa8dc;--slow:#ff8a80;--fast:#7fd88f;--doubt:#f0b95a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:80rem;padding:1rem;background:var(--back);color:var(--text);
font:15px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .4rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
nav a{margin-right:1em}a{color:inherit}
section>div:not([class])>div,.faint{color:var(--faint);font-size:.9em}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:6px;margin:.5rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.sorted{width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top;
white-space:nowrap}
th{background:var(--card)}
.sorted td:first-child,.sorted th:first-child{position:sticky;left:0}
.sorted td:first-child{background:var(--back);white-space:normal;min-width:15rem;max-width:26rem}
th button{all:unset;cursor:pointer;font-weight:600}
th button:focus-visible{outline:2px solid var(--bar)}
th[aria-sort=descending] button::after{content:" \\2193"}
th[aria-sort=ascending] button::after{content:" \\2191"}
.bar{display:block;height:.3rem;margin-top:.15rem;background:var(--bar);border-radius:2px;
min-width:1px}
/* The cells of verdicts, and no names. */
.sorted td:not(:first-child):is([data-value$=SLOW],[data-value$=MEMORY],
[data-value$=LAUNCHES]){color:var(--slow);font-weight:600}
.sorted td:not(:first-child)[data-value=FAST]{color:var(--fast);font-weight:600}
.sorted td:not(:first-child):is([data-value=AMBIGUOUS],[data-value=NODATA],
[data-value=INCOMPARABLE]){color:var(--doubt);font-weight:600}
details{border:1px solid var(--line);border-radius:6px;padding:.4rem .7rem;margin:.4rem 0;
overflow-x:auto}
summary{cursor:pointer}details td{white-space:normal}
svg{max-width:100%;height:auto}
.drawing{overflow-x:auto}.drawing svg{max-width:none}
.drawing svg,.plot svg{background:#fff;color:#1c2126}
@media (max-width:40rem){body{padding:.6rem}.sorted td:first-child{min-width:9rem;max-width:11rem}}
"""

# Rows are sorted among those of one parent, by the number or the text of a cell; cells without
# either come last. The first click on numbers shows the largest first.
SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sorted")) {
  const body = table.tBodies[0];
  const top = {rows: [], depth: -1};
  const open = [top];
  for (const row of body.rows) {
    const node = {row, depth: Number(row.dataset.depth || 0), rows: []};
    while (open[open.length - 1].depth >= node.depth) open.pop();
    open[open.length - 1].rows.push(node);
    open.push(node);
  }
  const place = (nodes, compare) => {
    for (const node of compare ? [...nodes].sort(compare) : nodes) {
      body.append(node.row);
      place(node.rows, compare);
    }
  };
  for (const button of table.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.parentElement, column = head.cellIndex;
      const numeric = head.dataset.kind === "number";
      const first = numeric ? "descending" : "ascending";
      const second = numeric ? "ascending" : "descending";
      const order = {[first]: second, [second]: "none"}[head.getAttribute("aria-sort")] || first;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (order === "none") return place(top.rows);
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      place(top.rows, (a, b) => {
        const [x, y] = [a, b].map((node) => node.row.cells[column].dataset.value);
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (numeric ? x - y : x < y ? -1 : x > y ? 1 : 0);
      });
    });
  }
}
"""


def details(heading: str, content: str) -> str:
    """Return a part that a click opens."""
    return f"<details><summary>{in_html(heading)}</summary>{content}</details>"


def document(title: str, facts: str, sections: Sequence[tuple[str, str]]) -> str:
    """Return the page: its title, a line of facts, and sections, each a heading and HTML."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "".join(
        f'<a href="#part{place}">{in_html(heading)}</a>'
        for place, (heading, _) in enumerate(sections)
    )
    parts = "\n".join(
        f'<section><h2 id="part{place}">{in_html(heading)}</h2>{content}</section>'
        for place, (heading, content) in enumerate(sections)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="gpuprof">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{in_html(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>{in_html(title)}</h1><div class="faint">{in_html(facts)}</div>
{f"<nav>{links}</nav>" if len(sections) > 1 else ""}</header>
<main>
{parts}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""
