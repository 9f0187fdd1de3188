"""Methods side by side as numbered points, bound against time; the legend has their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lipcert.questions.compare import Comparison, Row
from lipcert.questions.names import OWN

FAMILIES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "lipcert": ("tab:blue", "o", tuple(OWN)),
    "ECLipsE": ("tab:orange", "s", ("eclipse",)),
    "LipSDP and relatives": ("tab:green", "^", ("lipsdp", "geolip", "glipsdp", "lipdiff")),
    "products and boxes": ("tab:red", "D", ("trivial", "seqlip", "aao", "jacobian")),
    "others": ("tab:purple", "v", ()),
}
"""Colour and marker of a family, and how the names of its methods begin."""


def family(row: Row) -> str:
    """The family of a method."""
    return next((name for name, (_, _, begin) in FAMILIES.items() if row.name.startswith(begin)), "others")


def draw(result: Comparison, ax: Any) -> None:
    """Draw the points, numbered from the largest bound to the smallest, and the lower bound as a line."""
    rows = sorted((row for row in result.rows if row.bound and row.seconds), key=lambda row: -(row.bound or 0.0))
    ax.set(xscale="log", yscale="log", xlabel="seconds", ylabel="bound")
    ax.grid(True, which="major", alpha=0.3)
    for number, row in enumerate(rows, 1):
        color, shape, _ = FAMILIES[family(row)]
        look = {"marker": shape, "color": color, "markerfacecolor": "none" if row.published else color}
        ax.plot(row.seconds, row.bound, linestyle="none", label=f"{number}  {row.name}", **look)
        ax.annotate(str(number), (row.seconds, row.bound), (5, 3), textcoords="offset points", fontsize=7)
    if result.lower is not None and result.lower.value > 0.0:
        ax.axhline(result.lower.value, color="black", linewidth=1, linestyle="--", label="lower bound")
    if rows:
        ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
