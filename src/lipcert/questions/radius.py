"""How far a classified point may be moved: certified radii."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arguments import numbers
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.proof.classes import CertifiedRadius, margins_of, pairs
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.proof.outputs import output_at
from lipcert.questions.verdict import Judge, Rules, Verdict
from lipcert.runtime.threads import suited_to
from lipcert.search.closed_form import ClosedForm
from lipcert.search.method import Method
from lipcert.search.second_order import PairSearch

_ROUNDS = 60
_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)
"""Where a search looks first, as shares of the radius at which the linearised network would change its mind."""
_GROWTH = 1.25
"""How fast a search with curvature goes beyond what is known without it."""


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
    curvature: bool | None = None,
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
        Try these ε only, as the rows of a :func:`campaign` do, and take the largest answer; default: search.
    pairwise
        False gives the rule min(ε, margin/(√2·L)) with the bound L of the whole network.
    relaxation
        Whether linear relaxation may settle a pair.
    curvature
        Whether a bound to second order may settle pairs that are open. Most of the time goes into this. It needs
        ``pairwise``, and networks that are not too large for it: up to ten hidden layers of 150 neurons, or three of
        250. By default, networks for given ``radii`` must be smaller still: up to ten layers of 110, or three of 150.
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
    here = Ball(point, 0.0, clip)  # says what is wrong with the clip, if anything
    rules = Rules(clip, tuple(enclosures), pairwise, relaxation, curvature)
    judge = Judge(network, point, chosen, predicted, method, rules)
    if predicted != chosen:
        value, error = output_at(network, point[None])
        rivals, margins = margins_of(value[0], error[0], chosen)
        return replace(judge.nothing, margin=float(margins[rivals == predicted][0]))
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        if radii is None:
            return _searched(judge, tolerance).about(network, here)
        grid = np.atleast_1d(numbers("radii", _listed(radii))).tolist()
        if not grid or np.ndim(grid) != 1 or min(grid) <= 0:
            raise InvalidInput("radii must be positive numbers, at least one")
        return _largest(judge, grid).about(network, here)


def _listed(radii: Any) -> Any:
    """One radius, an array or whatever can be gone through."""
    return radii if isinstance(radii, (str, np.ndarray)) or not isinstance(radii, Iterable) else list(radii)


def _largest(judge: Judge, grid: Sequence[float]) -> CertifiedRadius:
    """The largest of the answers for each ε; those that cannot be larger are not completed."""
    verdicts = [found for found in judge.over(sorted(grid)) if isinstance(found, Verdict)]
    firsts = [verdict.first_order() for verdict in verdicts]
    best = max(firsts, key=lambda found: found.radius, default=judge.nothing)
    for verdict in reversed(verdicts):
        if verdict.proved.size <= best.radius:
            break
        best = max(best, verdict.answer(), key=lambda found: found.radius)
    return best


def _searched(judge: Judge, tolerance: float) -> CertifiedRadius:
    """The best over all ε, nearly."""
    best = _search(judge, _first_guess(judge), tolerance)
    return _extended(judge, best, tolerance) if judge.rules.second_order(judge.network, searching=True) else best


def _search(judge: Judge, guess: float, tolerance: float) -> CertifiedRadius:
    """The largest radius over ε to first order: it is ε itself up to some point, and falls from there on."""
    best, failed = judge.nothing, np.inf

    def look(sizes: Sequence[float]) -> None:
        nonlocal best, failed
        certified = 0.0
        for verdict in judge.over(sizes):
            if isinstance(verdict, Verdict):
                found = verdict.first_order()
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


def _extended(judge: Judge, best: CertifiedRadius, tolerance: float) -> CertifiedRadius:
    """The largest ε beyond what is known for which second order settles all pairs."""
    failed, search = np.inf, PairSearch()
    for _ in range(_ROUNDS):
        low = best.radius
        if not failed > low * (1.0 + tolerance) or not 0.0 < low < np.inf:
            break
        size = _GROWTH * low if np.isinf(failed) else float(np.sqrt(low * failed))
        (verdict,) = judge.over([size])
        found = judge.nothing if isinstance(verdict, ProofFailed) else verdict.searched(search)
        if found.radius >= size:
            best = found
        else:
            failed = size
    return best


def _first_guess(judge: Judge) -> float:
    """Where the linearised network would change its mind."""
    rows = pairs(judge.network.outputs, judge.label)
    slopes = np.linalg.norm(rows @ judge.network.jacobian(judge.point), axis=-1)
    margins = rows @ judge.network(judge.point)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nanmin(np.where(slopes > 0, margins / slopes, np.nan), initial=np.inf))
    return ratio if 0.0 < ratio < np.inf else 1.0


def class_of(network: Network, label: Any) -> int:
    """A label that the network has an output for."""
    if network.outputs < 2:
        raise InvalidInput(f"a classifier needs at least two outputs, the network has {network.outputs}")
    given = np.asarray(label)
    if given.ndim or given.dtype.kind not in "iuf" or given not in range(network.outputs):
        raise InvalidInput(f"label must be from 0 to {network.outputs - 1}, got {label!r}")
    return int(given)
