"""What notebooks show: small pieces of HTML, in which every text is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

_ROWS = 20
"""Rows of a table that are shown."""


def escape(text: str) -> str:
    """Text that HTML shows as it is; what UTF-8 cannot hold becomes a question mark."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; of many rows the first ones, and how many are left out."""
    head = "".join(f'<th style="text-align:left">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(map(_left, row))}</tr>" for row in rows[:_ROWS])
    rest = f"<p>… and {len(rows) - _ROWS} rows more</p>" if len(rows) > _ROWS else ""
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _left(text: str) -> str:
    return f'<td style="text-align:left">{escape(text)}</td>'
