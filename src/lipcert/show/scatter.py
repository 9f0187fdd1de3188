"""Methods side by side as points: bound against time, with names beside the points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from lipcert.questions.compare import Comparison, Row
from lipcert.questions.names import OWN

FAMILIES: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "lipcert": ("tab:blue", "o", tuple(OWN)),
    "ECLipsE": ("tab:orange", "s", ("eclipse",)),
    "LipSDP and relatives": ("tab:green", "^", ("lipsdp", "geolip", "glipsdp", "lipdiff")),
    "products and boxes": ("tab:red", "D", ("trivial", "seqlip", "aao", "jacobian")),
    "others": ("tab:purple", "v", ()),
}
"""What a family looks like, and how the names of its methods begin."""
_SIZE = 8.0
"""Of the names, in points."""

_Box: TypeAlias = tuple[float, float, float, float]


def family(row: Row) -> str:
    """The family of a method."""
    return next((name for name, (_, _, begin) in FAMILIES.items() if row.name.startswith(begin)), "others")


def draw(result: Comparison, ax: Any) -> None:
    """The points, their names, and the lower bound as a line with its name; all that is needed is on the axes."""
    rows = [row for row in result.rows if row.bound and row.seconds]
    ax.set(xscale="log", yscale="log", xlabel="seconds", ylabel="bound")
    ax.grid(True, which="major", alpha=0.3)
    for name, (color, shape, _) in FAMILIES.items():
        mine = [row for row in rows if family(row) == name]
        if mine:
            fill = "none" if mine[0].published else color
            places = [row.seconds for row in mine], [row.bound for row in mine]
            ax.scatter(*places, marker=shape, edgecolors=color, facecolors=fill, s=36, label=name, zorder=3)
    lower = result.lower.value if result.lower is not None else 0.0
    heights = [row.bound or 0.0 for row in rows] + ([lower] if lower > 0.0 else [])
    if heights:
        _limits(ax.set_ylim, heights, 0.08)
    if rows:
        _limits(ax.set_xlim, [row.seconds or 0.0 for row in rows], 0.16)
    if lower > 0.0:
        ax.axhline(lower, color="black", linewidth=1, linestyle="--")
        ax.annotate("lower bound", (1.0, lower), (-3, -3), xycoords=("axes fraction", "data"),
                    textcoords="offset points", ha="right", va="top", fontsize=_SIZE)  # fmt: skip
    if rows:
        _names(ax, rows)
        ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False, ncols=3)


def _limits(place: Any, values: Sequence[float], share: float) -> None:
    """Limits of a logarithmic axis that leave room around the values for names."""
    least, most = min(values), max(values)
    room = max(most / least, 10.0) ** share
    place(least / room, most * room)


def _names(ax: Any, rows: Sequence[Row]) -> None:
    """Write each name beside its point, where it covers neither another name nor a point."""
    scale = ax.figure.dpi / 72.0
    points = {row.name: ax.transData.transform((row.seconds, row.bound)) for row in rows}
    taken: list[_Box] = [(x - 5 * scale, y - 5 * scale, x + 5 * scale, y + 5 * scale) for x, y in points.values()]
    frame = ax.get_window_extent()
    for row in sorted(rows, key=lambda row: -(row.bound or 0.0)):
        x, y = points[row.name]
        width, height = 0.56 * _SIZE * len(row.name) * scale, 1.25 * _SIZE * scale
        best: tuple[float, tuple[float, float], str, _Box] | None = None
        for lift in (0.0, 9.0, -9.0, 18.0, -18.0, 27.0, -27.0, 38.0, -38.0, 50.0, -50.0):
            for side, at in (("left", 7.0), ("right", -7.0)):
                left = x + at * scale if side == "left" else x + at * scale - width
                low = y + lift * scale - 0.5 * height
                box = (left, low, left + width, low + height)
                cost = sum(_overlap(box, other) for other in taken) + 0.01 * abs(lift) * scale
                cost += max(0.0, frame.x0 - box[0]) * height + max(0.0, box[2] - frame.x1) * height
                cost += max(0.0, frame.y0 - box[1]) * width + max(0.0, box[3] - frame.y1) * width
                if best is None or cost < best[0]:
                    best = cost, (at, lift), side, box
        assert best is not None
        taken.append(best[3])
        color = FAMILIES[family(row)][0]
        far = {"arrowprops": {"arrowstyle": "-", "color": color, "linewidth": 0.6, "alpha": 0.7}} if best[1][1] else {}
        ax.annotate(row.name, (row.seconds, row.bound), best[1], textcoords="offset points", ha=best[2], va="center",
                    fontsize=_SIZE, color=color, **far)  # fmt: skip


def _overlap(one: _Box, two: _Box) -> float:
    """The area that two boxes share."""
    wide, high = min(one[2], two[2]) - max(one[0], two[0]), min(one[3], two[3]) - max(one[1], two[1])
    return max(0.0, wide) * max(0.0, high)
