"""Figures of matplotlib as parts of a page."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from lipcert.show.report.page import Figure


def drawn(ax: Any, caption: str) -> Figure:
    """The figure of some axes; the same drawing is the same file, byte for byte."""
    from matplotlib import rc_context

    stream = BytesIO()
    with rc_context({"svg.hashsalt": "lipcert"}):
        ax.figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
    return Figure(stream.getvalue(), caption)
