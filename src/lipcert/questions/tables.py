"""Tables of answers: the same rows for notebooks, the terminal and reports. In HTML every text is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from lipcert.arguments.words import downward, upward

_ROWS = 20
"""Rows of a table that a notebook shows."""


def escape(text: str) -> str:
    """Text that HTML shows as it is; what UTF-8 cannot hold becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the number to sort by, if any."""

    text: str = ""
    value: float | None = None

    @staticmethod
    def bound(value: float | None, digits: int = 4) -> Cell:
        """An upper bound, rounded up; an empty cell for None."""
        return Cell() if value is None else Cell(upward(value, digits), value)

    @staticmethod
    def below(value: float | None, digits: int = 4) -> Cell:
        """A lower bound, rounded down."""
        return Cell() if value is None else Cell(downward(value, digits), value)

    @staticmethod
    def number(value: float | None, form: str = ".4g") -> Cell:
        """Any other number, in a format of Python."""
        return Cell() if value is None else Cell(f"{value:{form}}", value)

    @staticmethod
    def percent(share: float | None) -> Cell:
        """A share from 0 to 1."""
        return Cell() if share is None else Cell(f"{100.0 * share:.2f}%", share)


@dataclass(frozen=True)
class Table:
    """Rows under headings. On a page, a folded table opens with a click."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, which are aligned to the right."""
        return [any(row[k].value is not None for row in self.rows) for k in range(len(self.headings))]

    def without(self, *names: str) -> Table:
        """The table without the columns of these names."""
        kept = [k for k, heading in enumerate(self.headings) if heading not in names]
        rows = [[row[k] for k in kept] for row in self.rows]
        return Table(self.title, [self.headings[k] for k in kept], rows, self.folded)

    def html(self) -> str:
        """The table for a notebook; of many rows the first ones, and how many are left out."""
        head = "".join(f'<th style="text-align:left">{escape(heading)}</th>' for heading in self.headings)
        cell = '<td style="text-align:left">{}</td>'
        rows = ("".join(cell.format(escape(one.text)) for one in row) for row in self.rows[:_ROWS])
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        rest = f"<p>… and {len(self.rows) - _ROWS} rows more</p>" if len(self.rows) > _ROWS else ""
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
