"""Tables as CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lipcert.model.files import write_whole
from lipcert.show.wording import downward, upward


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A file with a line of names and a line a row; None is empty, numbers have all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns but the first are aligned to the right.

    Examples
    --------
    >>> print(markdown(("cell", "bound"), [("10 × 5", "4.943")]))
    | cell | bound |
    |---|---:|
    | 10 × 5 | 4.943 |
    """
    lines = [header, *rows]
    text = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([text[0], "|---" + "|---:" * (len(header) - 1) + "|", *text[1:]])


def shown(value: float | None, rounding: str = "nearest", digits: int = 4) -> str:
    """A number for people: rounded "up" (bounds), "down" (lower bounds) or to the "nearest"; nothing for None."""
    if value is None:
        return ""
    if rounding == "nearest":
        return f"{value:.{digits}g}"
    return upward(value, digits) if rounding == "up" else downward(value, digits)
