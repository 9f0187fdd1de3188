"""How far a classified point may be moved: certified radii."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput
from lipcert.model.arguments import numbers
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.outputs import OutputBounds, output_at
from lipcert.proof.rounding import down, gamma, stretched
from lipcert.questions.establish import establish_many
from lipcert.runtime.threads import suited_to
from lipcert.search.closed_form import ClosedForm
from lipcert.search.method import Method
from lipcert.search.second_order import Bends, suits

_ROUNDS = 60
_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)
"""Where a search looks first, as shares of the radius at which the linearised network would change its mind."""
_GROWTH = 1.25
"""How fast a search with curvature goes beyond what is known without it."""


@dataclass(frozen=True)
class CertifiedRadius:
    """No input closer than ``radius`` is classified differently; true in real arithmetic.

    Attributes
    ----------
    radius : in the ℓ2 norm; 0 where the point is not classified as it should be.
    bound : the Lipschitz bound it rests on: of f_label - f_rival, or of the whole network without ``pairwise``.
    margin : at most f_label - f_rival at the point, rounded down.
    label, predicted, rival : the class asked for, the class computed, and the class that limits the radius.
    ball : radius of the ball over which the bound was proved.
    """

    radius: float
    bound: float
    margin: float
    label: int
    predicted: int
    rival: int
    ball: float


def certified_radius(
    network: Network,
    x: Any,
    label: int | None = None,
    method: Method | None = None,
    *,
    clip: Any = None,
    radii: Iterable[float] | float | None = None,
    pairwise: bool = True,
    relaxation: bool = True,
    curvature: bool = True,
    tolerance: float = 1e-3,
    enclosures: Sequence[Enclosure] = BOTH,
) -> CertifiedRadius:
    """The radius around a point within which the largest output stays the same, proved with outward rounding.

    Over a ball of radius ε around the point, let L_j bound the Lipschitz constant of f_label - f_j and m_j be that
    function's value at the point. Then no input closer than min(ε, m_j/L_j) is taken for class j. ε itself will do
    where f_label - f_j is shown to be positive all over the ball: by linear relaxation, or by its gradient at the
    point and a bound of its curvature over the ball. The smallest over j counts, and the best ε is searched for.

    Parameters
    ----------
    network
        At least two outputs; the largest is the class.
    x
        The point, (inputs,).
    label
        Its class; default: what the network says.
    method
        How multipliers are chosen; default ``ClosedForm()``.
    clip
        A pair (lower, upper): only inputs between them count, as in ``clip=(0, 1)`` for images.
    radii
        Try these ε only; default: search.
    pairwise
        False gives the rule min(ε, margin/(√2·L)) with the bound L of the whole network.
    relaxation
        Whether linear relaxation may settle a pair.
    curvature
        Whether a bound to second order may settle pairs, in networks that are not too large for it (up to ten hidden
        layers of 150 neurons, or three of 250). Most of the time goes into this. It needs ``pairwise``.
    tolerance
        Relative, of the search for ε.
    enclosures
        As for :func:`certify`.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], activation="relu")
    >>> round(lc.certified_radius(net, [5.0, 3.0]).radius, 2)  # the line where both are equal is √2 away
    1.41
    """
    if not isinstance(network, Network):
        raise InvalidInput(f"network must be a lipcert.Network, got {type(network).__name__}")
    if not np.asarray(tolerance).dtype.kind == "f" or not 0.0 < tolerance < np.inf:
        raise InvalidInput(f"tolerance must be a positive number, got {tolerance!r}")
    point = network.point("x", x)
    if point.ndim != 1:
        raise InvalidInput(f"x must be one point, ({network.inputs},); got shape {point.shape}. For many, see campaign")
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        predicted = int(np.argmax(network(point)))
    chosen = class_of(network, predicted if label is None else label)
    method = ClosedForm() if method is None else method
    rule = _Rule(chosen, predicted, pairwise, relaxation)
    Ball(point, 0.0, clip)  # says what is wrong with the clip, if anything
    if predicted != chosen:
        value, error = output_at(network, point[None])
        rivals, margins = _margins(value[0], error[0], chosen)
        margin = float(margins[rivals == predicted][0])
        return CertifiedRadius(0.0, np.inf, margin, chosen, predicted, predicted, 0.0)

    def trial(sizes: Sequence[float]) -> list[CertifiedRadius]:
        found = establish_many(network, [Ball(point, size, clip) for size in sizes], method, enclosures)
        return [rule(facts) for facts in found if isinstance(facts, OutputBounds)]

    second = curvature and pairwise and suits(network)
    bends = Bends()

    def bent(size: float) -> CertifiedRadius | None:
        """What is found for one ε if curvature settles the pairs that are open, else None."""
        (facts,) = establish_many(network, [Ball(point, size, clip)], method, enclosures)
        if not isinstance(facts, OutputBounds):
            return None
        rows = np.delete(np.eye(network.outputs)[chosen] - np.eye(network.outputs), chosen, axis=0)
        open_ = pairwise_radii(facts, chosen, relaxation)[1] < size
        return replace(rule(facts), radius=size) if bends.stay_positive(facts, rows[open_]) else None

    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        if radii is not None:
            grid = np.atleast_1d(numbers("radii", _listed(radii))).tolist()
            if not grid or np.ndim(grid) != 1 or min(grid) <= 0:
                raise InvalidInput("radii must be positive numbers, at least one")
            best = max(trial(sorted(grid)), key=lambda found: found.radius, default=rule.nothing)
            larger = sorted((size for size in grid if size > best.radius), reverse=True) if second else []
            return next((found for size in larger if (found := bent(size)) is not None), best)
        best = _search(trial, _first_guess(network, point, chosen), tolerance, rule.nothing)
        return _extended(bent, best, tolerance) if second else best


def _listed(radii: Any) -> Any:
    """One radius, an array or whatever can be gone through."""
    return radii if isinstance(radii, (str, np.ndarray)) or not isinstance(radii, Iterable) else list(radii)


def _search(
    trial: Callable[[Sequence[float]], list[CertifiedRadius]], guess: float, tolerance: float, nothing: CertifiedRadius
) -> CertifiedRadius:
    """The largest radius over ε: it is ε itself up to some point, and falls from there on."""
    best, failed = nothing, np.inf

    def look(sizes: Sequence[float]) -> None:
        nonlocal best, failed
        certified = 0.0
        for found in trial(sizes):
            best = max(best, found, key=lambda one: one.radius)
            certified = max(certified, found.ball if found.radius >= found.ball else 0.0)
        failed = min([failed, *(size for size in sizes if size > certified)])

    look([guess * share for share in _SHARES])
    for _ in range(_ROUNDS):
        low = best.radius
        if not np.isfinite(failed):
            if low > 1e6 * guess:
                break
            look([low * factor for factor in (1.5, 2.5, 4.0)])
        elif low == 0.0:
            if failed < 1e-12 * guess:
                break
            look([failed * factor for factor in (0.3, 0.1, 0.01)])
        elif failed <= low * (1.0 + tolerance):
            break
        else:
            look([float(size) for size in np.geomspace(low, failed, 4)[1:-1]])
    return best


def _extended(
    bent: Callable[[float], CertifiedRadius | None], best: CertifiedRadius, tolerance: float
) -> CertifiedRadius:
    """The largest ε beyond what is known for which curvature settles all pairs."""
    failed = np.inf
    for _ in range(_ROUNDS):
        low = best.radius
        if not failed > low * (1.0 + tolerance) or not 0.0 < low < np.inf:
            break
        size = _GROWTH * low if np.isinf(failed) else float(np.sqrt(low * failed))
        found = bent(size)
        if found is None:
            failed = size
        else:
            best = found
    return best


def _first_guess(network: Network, point: Array, label: int) -> float:
    """Where the linearised network would change its mind."""
    value, jacobian = network(point), network.jacobian(point)
    others = np.arange(network.outputs) != label
    slopes = np.linalg.norm(jacobian[label] - jacobian[others], axis=-1)
    margins = value[label] - value[others]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nanmin(np.where(slopes > 0, margins / slopes, np.nan), initial=np.inf))
    return ratio if 0.0 < ratio < np.inf else 1.0


@dataclass(frozen=True)
class _Rule:
    """What facts over a ball say about the class of its centre."""

    label: int
    predicted: int
    pairwise: bool
    relaxation: bool

    @property
    def nothing(self) -> CertifiedRadius:
        return CertifiedRadius(0.0, np.inf, 0.0, self.label, self.predicted, self.predicted, 0.0)

    def __call__(self, facts: OutputBounds) -> CertifiedRadius:
        rivals, margins = pair_margins(facts, self.label)
        size = float(facts.region.radius)
        if self.pairwise:
            bounds, radii = pairwise_radii(facts, self.label, self.relaxation)
        else:
            bounds, radii = np.full(rivals.shape, facts.bound), plain_radii(facts, margins)
        worst = int(np.argmin(np.where(radii < size, radii, size + np.maximum(margins, 0.0))))
        margin, bound = float(margins[worst]), float(bounds[worst])
        radius = max(float(radii.min()), 0.0)
        return CertifiedRadius(radius, bound, margin, self.label, self.predicted, int(rivals[worst]), size)


def pair_margins(facts: OutputBounds, label: int) -> tuple[Array, Array]:
    """The other classes j, and at most f_label - f_j at the centre."""
    return _margins(facts.value, facts.error, label)


def _margins(value: Array, error: Array, label: int) -> tuple[Array, Array]:
    """The other classes j, and at most f_label - f_j, for outputs as computed and their errors."""
    rivals = np.flatnonzero(np.arange(len(value)) != label)
    gap = value[label] - value[rivals]
    slack = stretched(error[label] + error[rivals] + 2.0 * gamma(1) * np.abs(gap), 3)
    return rivals, np.fmax(down(gap - slack), -np.inf)  # an overflow gives NaN, which says nothing


def pairwise_radii(facts: OutputBounds, label: int, relaxation: bool = True) -> tuple[Array, Array]:
    """The bounds of f_label - f_j, and the radius up to which no input is taken for class j; for all other j."""
    rivals, margins = pair_margins(facts, label)
    eye = np.eye(facts.network.outputs)
    rows = eye[label] - eye[rivals]
    bounds = facts.lipschitz(rows)
    radii = _within(facts, margins, bounds)
    if relaxation and (radii < facts.region.radius).any():
        radii = np.where(facts.above(-rows) < 0.0, float(facts.region.radius), radii)
    return bounds, radii


def plain_radii(facts: OutputBounds, margins: Array) -> Array:
    """min(ε, margin/(√2·L)) for each of the margins, with the bound L of the whole network."""
    return _within(facts, margins, np.full(margins.shape, stretched(np.sqrt(2.0) * np.asarray(facts.bound), 3)))


def _within(facts: OutputBounds, margins: Array, bounds: Array) -> Array:
    """min(ε, margin/bound), rounded down."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(margins > 0, down(down(margins / bounds)), 0.0)
    return np.minimum(float(facts.region.radius), ratio)


def class_of(network: Network, label: Any) -> int:
    """A label that the network has an output for."""
    if network.outputs < 2:
        raise InvalidInput(f"a classifier needs at least two outputs, the network has {network.outputs}")
    given = np.asarray(label)
    if given.ndim or given.dtype.kind not in "iuf" or given not in range(network.outputs):
        raise InvalidInput(f"label must be from 0 to {network.outputs - 1}, got {label!r}")
    return int(given)
