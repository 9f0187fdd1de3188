"""HTML pages from plain values. All text is escaped here, and a page loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from typing import Any, TypeAlias

from lipcert import __version__
from lipcert.questions.tables import Cell, Table, escape

_LONG = 40
"""Cells with more characters than this are broken into lines."""


@dataclass(frozen=True)
class Figure:
    """An SVG drawing as an image: it can neither run scripts nor load anything. A wide one fills the page width."""

    svg: bytes
    caption: str
    wide: bool = False

    @staticmethod
    def of(ax: Any, caption: str) -> Figure:
        """The figure of matplotlib axes; equal drawings give equal bytes."""
        from matplotlib import rc_context

        stream = BytesIO()
        with rc_context({"svg.hashsalt": "lipcert"}):
            ax.figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
        return Figure(stream.getvalue(), caption)


@dataclass(frozen=True)
class Card:
    """One claim: its statement, whether it holds ("good", "bad", or "open" if it was not checked), and facts."""

    title: str
    standing: str
    verdict: str
    claim: str
    formula: str
    facts: Sequence[tuple[str, str]]


Block: TypeAlias = str | Table | Figure | Card
"""A piece of a page; a text is a paragraph."""


@dataclass(frozen=True)
class Section:
    """A section of a page. Its summary is also at the top of the page."""

    title: str
    summary: str
    blocks: Sequence[Block] = ()


def _html(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Figure):
        data, text = base64.b64encode(block.svg).decode("ascii"), escape(block.caption)
        kind = "frame wide" if block.wide else "frame"
        return (
            f'<figure><div class="{kind}" tabindex="0" role="region" aria-label="Figure">'
            f'<img alt="{text}" src="data:image/svg+xml;base64,{data}"></div><figcaption>{text}</figcaption></figure>'
        )
    if isinstance(block, Card):
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in block.facts)
        verdict = f'<p><span class="verdict {block.standing}">{escape(block.verdict)}</span></p>'
        claim = f'<p class="claim">{escape(block.claim)}<span class="formula">{escape(block.formula)}</span></p>'
        return f"<article><h3>{escape(block.title)}</h3>{verdict}{claim}<dl>{facts}</dl></article>"
    return _table(block)


def _table(table: Table) -> str:
    numeric, title = table.numeric, escape(table.title)
    head = "".join(
        f'<th scope="col"{_class("number" if right else "")}>{escape(heading)}</th>'
        for heading, right in zip(table.headings, numeric, strict=True)
    )
    body = "\n".join(f"<tr>{''.join(map(_cell, row, numeric))}</tr>" for row in table.rows)
    caption = "" if table.folded else f"<caption>{title}</caption>"
    framed = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
    return f"<details><summary>{title}</summary>{framed}</details>" if table.folded else framed


def _cell(cell: Cell, numeric: bool) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    kind = "long" if len(cell.text) > _LONG else "number" if numeric else ""
    return f"<td{_class(kind)}{value}>{escape(cell.text)}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def page(title: str, sections: Sequence[Section], made: str) -> str:
    """The whole page, with style and script inside."""
    folder = resources.files("lipcert.show.report")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}';"
        " base-uri 'none'; form-action 'none'"
    )
    short, body = [], []
    for number, section in enumerate(sections, 1):
        heading, blocks = escape(section.title), "\n".join(map(_html, section.blocks))
        short.append(f'<p><a href="#part-{number}">{heading}</a>. {escape(section.summary)}</p>')
        body.append(f'<section id="part-{number}"><h2>{heading}</h2>\n{blocks}</section>')
    lines = "\n".join
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{escape(title)}</h1><p class="made">{escape(made)}</p></header>
<main>
<div class="short">
{lines(short)}
</div>
{lines(body)}
</main>
<footer><p>lipcert {__version__}. Bounds are rounded up as they are printed, lower bounds down. This page holds all that
it shows, fetches nothing, and can be sent as it is.</p></footer>
<script>{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
