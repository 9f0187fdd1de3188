"""Figures. Each function draws on ``ax``, or on new axes, and returns them (extra ``plot``)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from lipcert.answers.reach import Reach
from lipcert.answers.sensitivity import Sensitivity
from lipcert.arguments.words import upward
from lipcert.errors import InvalidInput
from lipcert.files.whole import write_whole
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.questions.campaign import Row
from lipcert.questions.certify import METHODS, PUBLISHED
from lipcert.questions.compare import Comparison
from lipcert.questions.loops.invariant import InvariantEllipsoid
from lipcert.questions.loops.tube import Tube
from lipcert.questions.sweep import SweepRow
from lipcert.show.wording import called

_MARKERS: Final = "o1^vD<>phX8dP+23s4*"


def look(method: str) -> dict[str, Any]:
    """The look of a method, the same in every figure: lipcert's own are filled, those of the literature are open.

    There are as many markers as methods in the literature, so that figures can be read without colours.
    """
    number = list(METHODS).index(method) if method in METHODS else len(METHODS)
    marker = {"color": f"C{number % 10}", "marker": _MARKERS[number % len(_MARKERS)], "markersize": 6}
    return marker | ({"markerfacecolor": "none"} if method in PUBLISHED else {})


def comparison(result: Comparison, ax: Any = None) -> Any:
    """Bound against time, on logarithmic axes: a point per method, the largest bound first in the legend.

    The lower bound is a line.
    """
    ax = figure(9.0, 6.0).subplots() if ax is None else ax
    rows = sorted((row for row in result.rows if row.bound and row.seconds), key=lambda row: -(row.bound or 0.0))
    logarithmic(ax)
    ax.set(xlabel="seconds", ylabel="bound")
    ax.grid(True, which="major", alpha=0.3)
    for row in rows:
        ax.plot(row.seconds, row.bound, linestyle="none", label=row.name, **look(row.name))
    if result.lower is not None and result.lower.value > 0.0:
        ax.axhline(result.lower.value, color="black", linewidth=1, linestyle="--", label="lower bound")
    if rows:
        ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def radius_curve(rows: Sequence[SweepRow], ax: Any = None, title: str = "") -> Any:
    """Bound, lower bound and trivial bound against the radius, on logarithmic axes; radius 0 is left out."""
    ax = figure().subplots() if ax is None else ax
    shown = sorted((row for row in rows if row.radius > 0), key=lambda row: row.radius)
    radii = [row.radius for row in shown]
    bounds, lowers = [row.bound for row in shown], [row.lower for row in shown]
    if shown:
        ax.axhline(shown[0].trivial, color="tab:gray", linewidth=1, linestyle=":", label="trivial bound")
    ax.plot(radii, bounds, "o-", markersize=4, color="tab:blue", label="certified bound")
    ax.fill_between(radii, lowers, bounds, color="tab:blue", alpha=0.1, linewidth=0, label="the true constant")
    open_circle = {"marker": "o", "markersize": 7, "markerfacecolor": "none"}
    ax.plot(radii, lowers, "--", color="tab:orange", label="lower bound", **open_circle)
    logarithmic(ax)
    ax.set(xlabel="radius", ylabel="Lipschitz constant")
    ax.set_title(title, fontsize=10)
    ax.grid(True, which="major", alpha=0.3)
    if shown:
        ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def certified_share(rows: Sequence[Row], ax: Any = None, *, attacked: bool = False) -> Any:
    """Share of a campaign's points certified up to a radius, one curve per method; dashed by the plain rule.

    A curve ends at the largest ball of the campaign. After attacks, a dotted curve is the share classified correctly
    without a counterexample: an upper limit.
    """
    ax = figure().subplots() if ax is None else ax
    sizes = [row.radius for row in rows]
    end = max(sizes) if sizes and min(sizes) > 0.0 else np.inf  # a search has no largest ball
    for number, method in enumerate(sorted({row.method for row in rows})):
        for rule, style, fill, name in (("certified", "-", None, ""), ("plain", "--", "none", ", plain rule")):
            best: dict[int, float] = {}
            for row in rows:
                if row.method == method:
                    best[row.point] = max(best.get(row.point, 0.0), getattr(row, rule))
            look = {"marker": "os^vDP"[number % 6], "markevery": 0.1, "markersize": 5, "markerfacecolor": fill}
            curve = _survival(list(best.values()), end)
            ax.plot(*curve, style, drawstyle="steps-pre", color=f"C{number}", label=f"{method}{name}", **look)
    if attacked:
        most = max([row.broken or row.certified for row in rows] if end == np.inf else sizes)
        held = {row.point: (row.radius or most) * row.correct for row in sorted(rows, key=lambda row: row.radius)}
        for row in rows:
            if row.broken is not None:
                held[row.point] = min(held[row.point], row.broken)
        ax.plot(*_survival(list(held.values()), end), "k:", drawstyle="steps-pre", label="not broken by an attack")
    ax.set(xlabel="radius", ylabel="share of the points", xlim=(0.0, None), ylim=(0.0, 1.03))
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g} %")
    ax.grid(True, alpha=0.3)
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False, ncols=2)
    return ax


def _survival(radii: Sequence[float], end: float) -> tuple[list[float], list[float]]:
    """Corners of the curve r ↦ share of positive radii that are at least r, up to the largest ball."""
    values = np.asarray(radii, dtype=float)
    reached = np.unique(values[values > 0.0])
    shares = [float(np.mean(values >= radius)) for radius in reached]
    corners = [0.0, *reached.tolist()], [shares[0] if shares else 0.0, *shares]
    if corners[0][-1] >= end:
        return corners
    beyond = [end] if np.isfinite(end) else []  # no point reaches the largest ball
    return [*corners[0], corners[0][-1], *beyond], [*corners[1], 0.0, *(0.0 for _ in beyond)]


def reach_set(found: Reach, network: Network, outputs: tuple[int, int] | None = None, ax: Any = None) -> Any:
    """Box and ellipsoid of two outputs of a reach set, with outputs of random inputs; of one output its interval.

    By default the two outputs with the widest intervals are drawn.
    """
    samples = found.region.sample(2000, np.random.default_rng(0))
    values = network(samples)
    if len(found.lower) == 1:
        return _interval(found, values[:, 0], ax)
    if outputs is None:
        first, second = np.sort(np.argsort(found.lower - found.upper, kind="stable")[:2]).tolist()
        outputs = first, second
    i, j = outputs
    if i == j or not all(0 <= k < len(found.lower) for k in outputs):
        raise InvalidInput(f"outputs must be two different ones from 0 to {len(found.lower) - 1}, got {outputs}")
    ax = figure().subplots() if ax is None else ax
    ax.plot(values[:, i], values[:, j], ".", markersize=2, color="tab:gray", label="outputs of random inputs")
    (left, right), (bottom, top) = ((found.lower[k], found.upper[k]) for k in outputs)
    ax.plot([left, right, right, left, left], [bottom, bottom, top, top, bottom], color="tab:blue", label="box")
    if len(found.hull[0]) > 1:
        for low, high in zip(found.hull[0][:, outputs], found.hull[1][:, outputs], strict=True):
            sides = [low[0], high[0], high[0], low[0]], [low[1], low[1], high[1], high[1]]
            ax.fill(*sides, color="tab:blue", alpha=0.05)
    turn = np.linspace(0.0, 2.0 * np.pi, 400)
    # the shadow of an ellipsoid on two axes is the ellipse of that 2 × 2 block
    ring = np.linalg.cholesky(found.shape[np.ix_(outputs, outputs)]) @ np.stack([np.cos(turn), np.sin(turn)])
    ax.plot(found.center[i] + ring[0], found.center[j] + ring[1], "--", color="tab:orange", label="ellipsoid")
    ax.plot(found.center[i], found.center[j], "+", color="black", markersize=9, label="output at the centre")
    ax.set(xlabel=f"output {called(i, found.names[1])}", ylabel=f"output {called(j, found.names[1])}")
    ax.margins(0.08)
    ax.grid(True, alpha=0.3)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def _interval(found: Reach, values: Array, ax: Any) -> Any:
    """The proved interval of the only output, and where outputs of random inputs lie in it."""
    ax = figure(9.0, 3.2).subplots() if ax is None else ax
    ax.hist(values, bins=60, color="tab:gray", label="outputs of random inputs")
    ax.axvspan(found.lower[0], found.upper[0], color="tab:blue", alpha=0.1, label="proved interval")
    for end in (found.lower[0], found.upper[0]):
        ax.axvline(end, color="tab:blue")
    ax.axvline(found.center[0], color="black", linestyle="--", linewidth=1, label="output at the centre")
    ax.set(xlabel=f"output {called(0, found.names[1])}", ylabel="random inputs")
    ax.margins(x=0.08)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def tube(found: Tube, step: Network | None = None, plane: tuple[int, int] | None = None, ax: Any = None) -> Any:
    """The boxes of a tube over time, or in the plane of two states; with random trajectories if the step is given."""
    ax = figure().subplots() if ax is None else ax
    lower, upper, paths = found.lower, found.upper, _trajectories(found, step)
    if plane is None:
        for k in range(lower.shape[1]):
            color, times = f"C{k}", np.arange(len(lower))
            ax.vlines(
                times,
                lower[:, k],
                upper[:, k],
                color=color,
                linewidth=5,
                alpha=0.4,
                label=called(k, found.names) if found.names else f"state {k}",
            )
            ax.plot(times, paths[:, :, k], ".", markersize=1.5, color=color)
        ax.set(xlabel="step", ylabel="states, and those of random trajectories" if step else "states")
        ax.xaxis.get_major_locator().set_params(integer=True)
    else:
        i, j = plane
        for number, (low, high) in enumerate(zip(lower[:, plane], upper[:, plane], strict=True)):
            sides = [low[0], high[0], high[0], low[0]], [low[1], low[1], high[1], high[1]]
            label = {0: "initial states", 1: "after each step"}.get(number)
            color = "tab:orange" if number == 0 else "tab:blue"
            ax.fill(*sides, facecolor="none", edgecolor=color, linewidth=1, label=label)
        for number, path in enumerate(np.swapaxes(paths, 0, 1)[:100]):
            label = "random trajectories" if number == 0 else None
            ax.plot(path[:, i], path[:, j], ".-", color="tab:gray", linewidth=0.3, markersize=1.5, label=label)
        ax.set(xlabel=f"state {called(i, found.names)}", ylabel=f"state {called(j, found.names)}")
    ax.grid(True, alpha=0.3)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def _trajectories(found: Tube, step: Network | None) -> Array:
    """States of random trajectories, (steps + 1, count, states); none without a step."""
    rng, states = np.random.default_rng(0), found.lower.shape[1]
    if step is None:
        return np.zeros((len(found.lower), 0, states))
    paths = [found.region.sample(300, rng)]
    for _ in range(found.steps):
        forces = np.zeros((300, 0)) if found.disturbance is None else found.disturbance.sample(300, rng)
        paths.append(step(np.hstack([paths[-1], forces])))
    return np.stack(paths)


def ellipsoid(found: InvariantEllipsoid, step: Network, ax: Any = None) -> Any:
    """An invariant ellipsoid, the images of points of its edge, and random trajectories, in the first two states."""
    ax = figure(6.4, 4.8).subplots() if ax is None else ax
    edge = found.edge(4000)
    ax.plot(*edge[:, :2].T, ".", markersize=2, color="tab:blue", label="edge")
    ax.plot(*step(edge)[:, :2].T, ".", markersize=2, color="tab:orange", label="after a step")
    paths = [edge[:20]]
    for _ in range(100):
        paths.append(step(paths[-1]))
    ax.plot(*np.moveaxis(np.stack(paths)[:, :, :2], -1, 0), color="tab:gray", linewidth=0.5)
    ax.plot(*found.middle[:2], "k+", markersize=9, label="centre")
    ax.set(xlabel=f"state {called(0, step.names[1])}", ylabel=f"state {called(1, step.names[1])}")
    ax.grid(True, alpha=0.3)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return ax


def sensitivity_map(found: Sensitivity, ax: Any = None) -> Any:
    """A heat map of certified bounds, outputs down and inputs across; large cells show their number.

    If there are many inputs or outputs, only some are named.
    """
    matrix = found.matrix
    rows, columns = matrix.shape
    if ax is None:
        ax = figure(min(16.0, max(9.0, 2.0 + 0.42 * columns)), min(12.0, 1.3 + 0.42 * rows)).subplots()
    image = ax.imshow(matrix, aspect="auto", cmap="viridis", vmin=0.0, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="certified bound")
    sides = (ax.xaxis, found.inputs, "input"), (ax.yaxis, found.outputs, "output")
    for (axis, groups, name), names in zip(sides, found.names, strict=True):
        every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if len(groups) <= 36 * step)
        places = range(0, len(groups), every)
        axis.set_ticks(places, ["+".join(called(one, names) for one in groups[k]) for k in places], fontsize=7)
        axis.set_label_text(name if every == 1 else f"{name}, {len(groups)} in all, one in {every} is named")
    width, height = ax.figure.get_size_inches()
    if columns <= 2.2 * width and rows <= 4.0 * height:
        middle = 0.6 * float(matrix.max())
        for row, column in np.ndindex(*matrix.shape):
            value = float(matrix[row, column])
            look = {"fontsize": 8 if columns <= 10 else 6, "color": "black" if value > middle else "white"}
            ax.text(column, row, upward(value, 2), ha="center", va="center", **look)
    return ax


def save(ax: Any, path: str | Path) -> None:
    """Write the figure of an axes to a file; its ending says in which format."""
    stream = io.BytesIO()
    ax.figure.savefig(stream, format=Path(path).suffix[1:].lower(), dpi=150, bbox_inches="tight")
    write_whole(path, stream.getvalue())


def logarithmic(ax: Any) -> None:
    """Make both axes logarithmic, with plain numbers at the ticks."""
    from matplotlib.ticker import LogFormatter

    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(LogFormatter())
        axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.0, 0.4)))


def figure(width: float = 9.0, height: float = 4.8) -> Any:
    """A new figure, so many inches wide and high, or an error that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput("plots need matplotlib: pip install 'lipcert[plot]'") from None
    return Figure(figsize=(width, height))
