"""A page that stands alone: its style, its script, and its tables that a click sorts.

The page loads nothing. Its Content-Security-Policy allows inline style and the one script below, by
its hash, and nothing else: no other script, no image, font or frame, and no connection. Text is
escaped, and control characters in it are made visible.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuprof._common.text import shown_text

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
.faint{color:var(--faint);font-size:.9em}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:6px;margin:.5rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.sorted{width:100%}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;
vertical-align:top;white-space:nowrap}
th{background:var(--card)}.left{text-align:left}
td.name{white-space:normal;min-width:15rem;max-width:26rem}
.sorted td.name,.sorted th:first-child{position:sticky;left:0}
.sorted td.name{background:var(--back)}
th button{all:unset;cursor:pointer;font-weight:600}
th button:focus-visible{outline:2px solid var(--bar)}
th[aria-sort=descending] button::after{content:" \\2193"}
th[aria-sort=ascending] button::after{content:" \\2191"}
.bar{display:block;height:.3rem;margin-top:.15rem;background:var(--bar);border-radius:2px;
min-width:1px}
.slow,.memory,.launches,.instructions{color:var(--slow);font-weight:600}
.fast{color:var(--fast);font-weight:600}
.ambiguous,.nodata,.incomparable{color:var(--doubt);font-weight:600}
details{border:1px solid var(--line);border-radius:6px;padding:.4rem .7rem;margin:.4rem 0;
overflow-x:auto}
summary{cursor:pointer}details td{white-space:normal}
svg{max-width:100%;height:auto}
.drawing{overflow-x:auto}.drawing svg{max-width:none}
.drawing svg,.plot svg{background:#fff;color:#1c2126}
ul{padding-left:1.2rem}
@media (max-width:40rem){body{padding:.6rem}td.name{min-width:9rem;max-width:11rem}}
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


@dataclass(frozen=True)
class Cell:
    """What one place of a table shows: text, what it is sorted by, and a class of the style.

    `value` of None is sorted by its text, NaN and empty text stand last. `bar` is a fraction.
    """

    text: str
    value: float | None = None
    style: str = ""
    bar: float | None = None


def escaped(text: str) -> str:
    """Return text as HTML that shows it."""
    return html.escape(shown_text(text))


def table(
    columns: Sequence[str], lines: Sequence[Sequence[Cell]], depths: Sequence[int] = ()
) -> str:
    """Return a table that a click on a heading sorts; the first column has names.

    A column of numbers is right-aligned. Columns without text are left out. With `depths` it is a
    tree.
    """
    kept = [
        place
        for place in range(len(columns))
        if not place or any(line[place].text for line in lines)
    ]
    numeric = [
        any(line[place].value is not None for line in lines) for place in range(len(columns))
    ]
    head = "".join(
        f'<th scope="col" data-kind="{"number" if numeric[place] else "text"}"'
        f"{'' if numeric[place] else _LEFT}>"
        f'<button type="button">{escaped(columns[place])}</button></th>'
        for place in kept
    )
    body = []
    for line, depth in zip(lines, depths or [0] * len(lines), strict=True):
        cells = "".join(
            _cell(line[place], is_name=not place, numeric=numeric[place], depth=depth)
            for place in kept
        )
        body.append(f'<tr data-depth="{depth}">{cells}</tr>')
    return (
        '<div class="scroll" tabindex="0"><table class="sorted">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


_LEFT = ' class="left"'
_MOST_INDENT = 20


def _cell(cell: Cell, *, is_name: bool, numeric: bool, depth: int) -> str:
    attributes = []
    classes = ["left"] * (not numeric) + ["name"] * is_name
    if classes:
        attributes.append(f'class="{" ".join(classes)}"')
    if is_name and depth:
        attributes.append(f'style="padding-left:{0.6 + 0.9 * min(depth, _MOST_INDENT):.1f}rem"')
    if numeric:
        if cell.value is not None and math.isfinite(cell.value):
            attributes.append(f'data-value="{cell.value!r}"')
    elif cell.text:
        attributes.append(f'data-value="{escaped(cell.text)}"')
    content = escaped(cell.text)
    if cell.style:
        content = f'<span class="{cell.style}">{content}</span>'
    if cell.bar is not None:
        content += (
            f'<span class="bar" style="width:{100 * min(max(cell.bar, 0.0), 1.0):.1f}%"></span>'
        )
    return f"<td {' '.join(attributes)}>{content}</td>" if attributes else f"<td>{content}</td>"


def notes(texts: Iterable[str]) -> str:
    """Return texts as a list; nothing for none."""
    items = "".join(f"<li>{escaped(text)}</li>" for text in texts)
    return f'<ul class="faint">{items}</ul>' if items else ""


def details(heading: str, content: str) -> str:
    """Return a part that a click opens."""
    return f"<details><summary>{escaped(heading)}</summary>{content}</details>"


def document(title: str, facts: str, sections: Sequence[tuple[str, str]]) -> str:
    """Return the page: its title, a line of facts, and sections, each a heading and HTML."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "".join(
        f'<a href="#part{place}">{escaped(heading)}</a>'
        for place, (heading, _) in enumerate(sections)
    )
    parts = "\n".join(
        f'<section><h2 id="part{place}">{escaped(heading)}</h2>{content}</section>'
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
<title>{escaped(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>{escaped(title)}</h1><div class="faint">{escaped(facts)}</div>
{f"<nav>{links}</nav>" if len(sections) > 1 else ""}</header>
<main>
{parts}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""
