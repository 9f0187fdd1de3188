"""Regions as seen by a proof: a stack of them, with their sizes and support functions rounded up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, down, norm_above, norm_below, root_above, transpose, twice_above, up
from lipcert.model.arrays import Array, Weight
from lipcert.model.regions import Ball, Box, Everywhere, LInf, Region
from lipcert.suggest.multipliers import split_rate

_FEW_INPUTS = 16
"""Inputs up to which a box is made to fit what it has of a ball; with many, one cut hardly makes a difference."""


def check_region(region: Region, inputs: int) -> None:
    """Raise unless the region is one that is understood here: a single one, of the right dimension."""
    if isinstance(region, Everywhere):
        return
    if not isinstance(region, (Ball, Box)):
        raise ProofFailed(f"no rule for a region of type {type(region).__name__}")
    if region.center.shape[-1] != inputs:
        raise ProofFailed(f"the region has {region.center.shape[-1]} coordinates, the network has {inputs} inputs")
    box = region if isinstance(region, Box) else region.clip
    corners = [region.center] if box is None else [region.center, box.lower, box.upper]
    if np.ndim(region.radius) or any(np.ndim(corner) != 1 for corner in corners):
        raise ProofFailed("a proof is about one region, not about a stack of them")


def radius_above(region: Region) -> Array:
    """At least ‖z - center‖₂ for every z of a bounded region."""
    return np.asarray(Domain.of([region]).extent()[0])


def corners(region: Region) -> tuple[Array, Array]:
    """The smallest box around the region."""
    if not region.bounded:
        raise ProofFailed(f"a region of type {type(region).__name__} cannot be cut into pieces")
    (lower,), (upper,) = Domain.of([region]).corners()
    return lower, upper


def same_region(one: Region, two: Region) -> bool:
    """Whether two regions are defined by the same numbers."""

    def parts(region: Region) -> tuple[object, list[Array]]:
        norm, box = getattr(region, "norm", None), getattr(region, "clip", None) or region
        corners = [box.lower, box.upper] if isinstance(box, Box) else []
        return (type(region), norm, len(corners)), [region.center, region.radius, *corners]

    (kind, mine), (other, theirs) = parts(one), parts(two)
    return kind == other and all(map(np.array_equal, mine, theirs))


def kind_of(region: Region) -> object:
    """Regions of one kind can be stacked."""
    if not isinstance(region, Ball):
        return type(region)
    return type(region), region.clip is not None, region.plain, region.norm.name


def is_box(region: Region) -> bool:
    """Whether a region is a box, as balls of the ℓ∞ norm are."""
    return isinstance(region, Box) or (isinstance(region, Ball) and isinstance(region.norm, LInf))


@dataclass(frozen=True, eq=False)
class Domain:
    """A stack of bounded regions: all z with ‖z - center‖ ≤ radius where there is a radius, and inside the box.

    ``center`` (count, inputs) is a point of the region, or the centre of the ball that it is a part of; ``radius``
    (count,) is None for boxes, ``lower`` and ``upper`` (count, inputs) are None for balls that are not clipped. The
    norm of the ball is ℓ2, or that of ``ball`` in ``units`` (count, inputs); balls of the ℓ∞ norm are boxes.
    ``halvings`` says how sharp the support function of a clipped ball is.
    """

    center: Array
    radius: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    halvings: int = 24
    units: Array | None = None
    ball: str = "l2"

    @staticmethod
    def of(regions: Sequence[Region]) -> Domain:
        """Bounded regions of one kind: balls, clipped balls or boxes."""
        center = np.stack([region.center for region in regions])
        balls = [region for region in regions if isinstance(region, Ball)]
        boxes = [ball.clip for ball in balls if ball.clip] if balls else regions
        lower, upper = (
            np.stack([getattr(box, side) for box in boxes]) if boxes else None for side in ("lower", "upper")
        )
        if not balls:
            return Domain(center, None, lower, upper)
        found = Domain(center, np.array([float(ball.radius) for ball in balls]), lower, upper).measured(balls)
        return Domain(center, None, *found.corners()) if is_box(regions[0]) else found

    def measured(self, balls: Sequence[Ball]) -> Domain:
        """The same in the norms of its balls, which differ in units only; one stands for all."""
        if balls[0].plain:
            return self
        units = np.broadcast_to(np.stack([ball.units for ball in balls]), self.center.shape)
        return replace(self, units=units, ball=balls[0].norm.name)

    def __len__(self) -> int:
        return len(self.center)

    @property
    def plain(self) -> bool:
        """Whether the regions are ℓ2 balls and nothing else."""
        return self.radius is not None and self.lower is None and self.units is None

    def take(self, which: Array) -> Domain:
        """Some of the regions."""
        parts = {name: getattr(self, name) for name in ("center", "radius", "lower", "upper", "units")}
        return replace(self, **{name: part[which] for name, part in parts.items() if part is not None})

    def extent(self, start: Array | None = None) -> Array:
        """At least ‖(z - center)/start‖₂ for every z of a region, (count,); no start is one."""
        found = np.full(len(self), np.inf)
        if self.radius is not None:
            if start is None and self.units is None:
                return self.radius
            units = 1.0 if self.units is None else self.units
            longest = np.max(units / (1.0 if start is None else start) * np.ones(self.center.shape[-1]), axis=-1)
            found = np.broadcast_to(up(self.radius * up(longest)), (len(self),))
        if self.lower is None or self.upper is None:
            return found
        reach = up(np.maximum(self.upper - self.center, self.center - self.lower))
        return np.fmin(found, norm_above(reach if start is None else up(reach / start)))

    def corners(self) -> tuple[Array, Array]:
        """The smallest box around each region, (count, inputs) each."""
        lower, upper = (-np.inf, np.inf) if self.lower is None or self.upper is None else (self.lower, self.upper)
        if self.radius is not None:
            reach = self.radius[:, None] if self.units is None else up(self.radius[:, None] * self.units)
            lower, upper = np.maximum(lower, down(self.center - reach)), np.minimum(upper, up(self.center + reach))
        return np.asarray(lower), np.asarray(upper)

    def sizes(self) -> Array:
        """At least |z_j| for every z of a region, (count, inputs)."""
        lower, upper = self.corners()
        return np.maximum(np.abs(lower), np.abs(upper))

    def outside(self) -> Array:
        """Regions that are proved to be empty: their box does not meet their ball, (count,)."""
        if self.lower is None or self.upper is None or self.radius is None:
            return np.zeros(len(self), dtype=bool)
        gap = np.maximum(down(np.maximum(self.lower - self.center, self.center - self.upper)), 0.0)
        if self.units is not None:
            gap = np.maximum(down(gap / self.units), 0.0)
        if self.ball == "l1":
            return np.asarray(Near.of(gap).sum().below > self.radius)
        return np.asarray(norm_below(gap) > self.radius)

    def inner_box(self) -> tuple[Array, Array]:
        """Boxes around the regions, which have boxes already: what they have of a ball may take up less room.

        The other coordinates of a point are at least the gap to their sides away from the centre, so along axis i a
        point is at most √(radius² - ‖gaps of the others‖²) away. A box that does not meet its ball is left as it is.
        """
        assert self.lower is not None
        assert self.upper is not None
        if self.radius is None or self.units is not None or self.center.shape[-1] > _FEW_INPUTS:
            return self.lower, self.upper
        gap = np.maximum(down(np.maximum(self.lower - self.center, self.center - self.upper)), 0.0)
        others = norm_below(gap[:, None, :] * (1.0 - np.eye(gap.shape[-1])))
        radius = self.radius[:, None]
        reach = up(root_above(np.maximum(radius - others, 0.0)) * root_above(radius + others))
        lower = np.maximum(self.lower, down(self.center - reach))
        upper = np.minimum(self.upper, up(self.center + reach))
        meets = (lower <= upper).all(axis=-1, keepdims=True)
        return np.where(meets, lower, self.lower), np.where(meets, upper, self.upper)

    def support(self, where: Array, rows: Array) -> tuple[Array, Array]:
        """A value and an error with max of row·z ≤ value + error over the region of each row, for rows (k, inputs).

        ``where`` (k,) numbers the regions. By the ball, by both together, or by the box: the smallest counts.
        """
        pick = Pick(len(self), where)
        box = None
        if self.lower is not None and self.upper is not None:
            box = pick.near(rows, Near.between(self.lower, self.upper))
            if self.radius is None:
                return box.value, box.error
        assert self.radius is not None
        center, radius = pick.near(rows, Near.of(self.center)), pick(self.radius)
        scaled = rows if self.units is None else up(np.abs(rows) * pick(self.units))
        dual = scaled.max(axis=-1) if self.ball == "l1" else norm_above(scaled)
        value, error = center.value, up(center.error + up(radius * dual))
        if box is None:
            return value, error
        if self.units is None:
            below, above = (pick(side - self.center) for side in (self.lower, self.upper))
            both = clipped_above(radius, below, above, rows, self.halvings)  # may be negative
            error = np.fmin(error, up(both + center.error))
        smaller = ~(value + error <= box.value + box.error)  # NaN gives way
        return np.where(smaller, box.value, value), np.where(smaller, box.error, error)


class Pick:
    """What belongs to the region of each row; of a single region without copies."""

    def __init__(self, count: int, where: Array) -> None:
        self.where, self.single = where, count == 1

    def __call__(self, values: Array) -> Array:
        """Values (count, ...) of the region of each row."""
        return values if self.single else values[self.where]

    def near(self, rows: Array, vectors: Near) -> Near:
        """row·vector for vectors (count, n), one per region."""
        if self.single:
            return Near.of(rows) @ vectors[0]
        return (Near.of(rows[:, None]) @ vectors[self.where][..., None])[:, 0, 0]

    def dots(self, rows: Array, vectors: Array) -> Array:
        """row·vector for vectors (count, n), one per region, rounded as it comes."""
        if self.single:
            return np.asarray(rows @ vectors[0])
        return np.einsum("rn,rn->r", rows, vectors[self.where])


def clipped_above(radius: Array, below: Array, above: Array, rows: Array, halvings: int = 24) -> Array:
    """At least max rows·(z - center) over a ball clipped to a box, from ``below`` to ``above`` around its centre."""
    q, boxed = _split(radius, below, above, rows, halvings)
    return up(up(radius * norm_above(q)) + boxed)


def split_by_box(ball: Ball, rows: Array) -> tuple[Array, Array]:
    """Two parts q + p of each row, p·d bounded by the box that the ball is clipped to: q, and at least p·d."""
    if ball.clip is None:
        return rows, np.zeros(len(rows))
    return _split(ball.radius, ball.clip.lower - ball.center, ball.clip.upper - ball.center, rows)


def _split(radius: Array, below: Array, above: Array, rows: Array, halvings: int = 24) -> tuple[Array, Array]:
    """The same for a box from ``below`` to ``above`` around the centre of the ball.

    Any q will do; where the rate of a search is no positive number, nothing is left to the box. The ends are
    differences with one rounding, made good here.
    """
    below, above = down(below), up(above)
    rate = split_rate(rows, radius, below, above, halvings)[..., None]
    told = (rate > 0.0) & (rate < np.inf)
    rate = np.where(told, rate, 1.0)
    y = rows / rate
    q = np.where(told & ((y < below) | (y > above)), rate * np.clip(y, below, above), rows)
    rest = Near.of(rows) - q  # its sign is the true one
    return q, (rest * np.where(rest.value > 0.0, above, below)).sum().above


def form_over_ball(g: Array, weight: Weight, B: Array, radius: float, most: float, mu: float, y: Array) -> float:
    """At least max of g·d + ½dᵀHd over ‖d‖ ≤ radius, H = WᵀBW, for most ≥ λmax(H) and any y near (μ - H)⁻¹g.

    B is a matrix, or the diagonal of one. For μ > most the maximum is at most ½(gᵀ(μ - H)⁻¹g + μ·radius²), and with the
    residual ρ = g - (μ - H)y the first term is at most y·g + |y|·|ρ| + ‖ρ‖²/(μ - most). For other μ nothing is known.
    """
    if not most < mu < np.inf:
        return np.inf
    inner = Near.of(y).through(weight)
    image = (Near.of(B) @ inner if B.ndim == 2 else B * inner).through(transpose(weight))
    rest = (g - mu * Near.of(y) + image).size
    length = norm_above(rest)
    square = length * (length / (Near.of(mu) - most))
    total = Near.of(y) @ g + Near.of(np.abs(y)) @ rest + square + twice_above(np.asarray(radius), np.asarray(mu))
    return float((0.5 * total).above)
