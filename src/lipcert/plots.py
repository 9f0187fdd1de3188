"""Figures. Each function draws on the ``ax`` it is given, or on a new one, and returns it (extra ``plot``)."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lipcert.errors import InvalidInput

if TYPE_CHECKING:
    from lipcert.compare import Comparison


def comparison(result: Comparison, ax: Any = None) -> Any:
    """Bound against time, both logarithmic, a point a method; lipcert's own are filled, the lower bound is a line."""
    ax = _axes() if ax is None else ax
    colors, shapes = cycle(f"C{k}" for k in range(10)), cycle("os^vDPX*<>hp")
    for row in result.rows:
        color, shape = next(colors), next(shapes)
        if row.bound and row.seconds:
            fill = "none" if row.published else color
            ax.scatter(row.seconds, row.bound, marker=shape, edgecolors=color, facecolors=fill, s=36, label=row.name)
    if result.lower is not None and result.lower.value > 0.0:
        ax.axhline(result.lower.value, color="black", linewidth=1, linestyle="--", label="lower bound")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("seconds")
    ax.set_ylabel("bound")
    ax.grid(True, which="major", alpha=0.3)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    return ax


def save(ax: Any, path: str | Path) -> None:
    """Write the figure of an axes to a file; its ending says in which format."""
    ax.figure.savefig(path, dpi=150, bbox_inches="tight")


def _axes() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput("plots need matplotlib: pip install 'lipcert[plot]'") from None
    return Figure(figsize=(7.0, 4.5)).subplots()
