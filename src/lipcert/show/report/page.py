"""HTML pages from plain values. All text is escaped here, and a page loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from io import BytesIO
from typing import Any, Literal, Protocol

from lipcert import __version__
from lipcert.questions.markup import escape
from lipcert.show.wording import downward, upward


class Block(Protocol):
    """A piece of a page."""

    def html(self) -> str:
        """The piece as HTML."""


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the number to sort by, if any."""

    text: str = ""
    value: float | None = None
    kind: str = ""

    @staticmethod
    def bound(value: float | None, digits: int = 4) -> Cell:
        """An upper bound, rounded up."""
        return Cell() if value is None else Cell(upward(value, digits), value)

    @staticmethod
    def below(value: float | None, digits: int = 4) -> Cell:
        """A lower bound, rounded down."""
        return Cell() if value is None else Cell(downward(value, digits), value)

    @staticmethod
    def number(value: float | None, digits: int = 4) -> Cell:
        """Any other number."""
        return Cell() if value is None else Cell(f"{value:.{digits}g}", value)

    @staticmethod
    def percent(share: float | None) -> Cell:
        """A share from 0 to 1."""
        return Cell() if share is None else Cell(f"{100.0 * share:.2f} %", share)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Table:
    """A sortable table, with numbers set to the right. A folded table opens with a click."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False

    def html(self) -> str:
        numeric = [any(row[k].value is not None for row in self.rows) for k in range(len(self.headings))]
        head = "".join(
            f'<th scope="col"{_class("number" if right else "")}>{escape(heading)}</th>'
            for heading, right in zip(self.headings, numeric, strict=True)
        )
        body = "\n".join(f"<tr>{''.join(map(_cell, row, numeric))}</tr>" for row in self.rows)
        caption = "" if self.folded else f"<caption>{escape(self.caption)}</caption>"
        table = (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(self.caption)}">'
            f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
        )
        return f"<details><summary>{escape(self.caption)}</summary>{table}</details>" if self.folded else table


def _cell(cell: Cell, numeric: bool) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    kind = "long" if len(cell.text) > _LONG else "number" if numeric else cell.kind
    return f"<td{_class(kind)}{value}>{escape(cell.text)}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


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

    def html(self) -> str:
        data = base64.b64encode(self.svg).decode("ascii")
        text = escape(self.caption)
        return (
            f'<figure><div class="frame{" wide" if self.wide else ""}" tabindex="0" role="region" aria-label="Figure">'
            f'<img alt="{text}" src="data:image/svg+xml;base64,{data}"></div><figcaption>{text}</figcaption></figure>'
        )


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds: good, bad, or open if it was not checked."""

    standing: Literal["good", "bad", "open"]
    text: str


@dataclass(frozen=True)
class Card:
    """One claim: its statement, whether it holds, and facts about it."""

    title: str
    verdict: Verdict
    claim: str
    formula: str
    facts: Sequence[tuple[str, str]]

    def html(self) -> str:
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in self.facts)
        verdict = f'<p><span class="verdict {self.verdict.standing}">{escape(self.verdict.text)}</span></p>'
        claim = f'<p class="claim">{escape(self.claim)}<span class="formula">{escape(self.formula)}</span></p>'
        return f"<article><h3>{escape(self.title)}</h3>{verdict}{claim}<dl>{facts}</dl></article>"


@dataclass(frozen=True)
class Section:
    """A section of a page. Its summary is also at the top of the page."""

    title: str
    summary: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    def html(self, anchor: str) -> str:
        blocks = "\n".join(block.html() for block in self.blocks)
        return f'<section id="{anchor}"><h2>{escape(self.title)}</h2>\n{blocks}</section>'


def page(title: str, sections: Sequence[Section], made: str) -> str:
    """The whole page, with style and script inside."""
    style, script = (resources.files("lipcert.show.report").joinpath(name).read_text("utf-8") for name in _PARTS)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}';"
        " base-uri 'none'; form-action 'none'"
    )
    short = "\n".join(
        f'<p><a href="#part-{number}">{escape(section.title)}</a>. {escape(section.summary)}</p>'
        for number, section in enumerate(sections, 1)
    )
    body = "\n".join(section.html(f"part-{number}") for number, section in enumerate(sections, 1))
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
{short}
</div>
{body}
</main>
<footer><p>lipcert {__version__}. Bounds are rounded up as they are printed, lower bounds down. This page holds all that
it shows, fetches nothing, and can be sent as it is.</p></footer>
<script>{script}</script>
</body>
</html>
"""


_PARTS = ("page.css", "page.js")
_LONG = 40
"""Cells with more characters than this are broken into lines."""


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
