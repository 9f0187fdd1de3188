"""Certified radii: how far a point may be moved before its class changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lipcert.answers.radius import CertifiedRadius
from lipcert.arguments.numbers import numbers
from lipcert.errors import Interrupted, InvalidInput
from lipcert.kernel.hints import BOTH, Enclosure
from lipcert.methods.closed_form import ClosedForm
from lipcert.methods.method import Method
from lipcert.model.network import Network, network_in
from lipcert.model.norms import Norm, norm_in
from lipcert.questions.names import method_of
from lipcert.questions.radius_certifier import RadiusCertifier, Rules
from lipcert.questions.radius_search import TOLERANCE, RadiusSearch
from lipcert.runtime.clock import Progress, timed
from lipcert.runtime.threads import suited_to


def certified_radius(
    network: Network,
    x: Any,
    label: int | None = None,
    method: Method | str | None = None,
    *,
    clip: Any = None,
    norm: Norm | str | None = None,
    radii: Iterable[float] | float | None = None,
    pairwise: bool = True,
    relaxation: bool = True,
    curvature: bool | None = None,
    values: bool | None = None,
    everywhere: bool = False,
    tolerance: float = TOLERANCE,
    enclosures: Sequence[Enclosure] = BOTH,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> CertifiedRadius:
    """A radius around a point within which the class does not change, proved with outward rounding.

    Over a ball of radius ε around the point, let L_j bound the Lipschitz constant of f_label - f_j, and let m_j be the
    value of that function at the point. Then no input closer than min(ε, m_j/L_j) is of class j. If f_label - f_j is
    proved to be positive on the whole ball, ε itself is certified for class j. Proofs of that are linear relaxation, a
    bound to second order (the gradient at the point and a bound of the curvature), and value functions. The smallest
    radius over j counts, and the best ε is searched.

    Parameters
    ----------
    network
        The class is the largest output. Of a single output f it is the sign: class 1 is where f is positive.
    x
        The point, (inputs,), or in the shape of the model's inputs, such as (1, 28, 28).
    label
        Its class; default: the predicted class.
    method
        How multipliers are chosen; default ``ClosedForm()``.
    clip
        A pair (lower, upper): only inputs between them count, as in ``clip=(0, 1)`` for images.
    norm
        Norm of the radius: ``L1()``, ``L2()`` or ``LInf()``, with a ``scale`` where units differ; default ℓ2. Bounds to
        second order exist for ℓ2 without units only.
    radii
        Try only these ε, as the rows of a :func:`campaign` do, and return the largest radius; default: search ε.
    pairwise
        False: the rule min(ε, margin/(√2·L)) with the bound L of the whole network.
    relaxation
        Whether linear relaxation may be used.
    curvature
        Whether bounds to second order may be used. They take most of the time. They need ``pairwise``, and at most ten
        hidden layers of 150 neurons or three of 250. Default: always in a search; for given ``radii`` up to ten layers
        of 110 neurons or three of 150.
    values
        Whether value functions may be used. They take seconds per pair of classes, and suit networks with up to some
        hundred open neurons. Default: only if ``seconds`` and ``radii`` are given. A counterexample that they meet is
        in ``broken`` of the answer.
    everywhere
        Whether to try bounds over all inputs first. They are found once per network, which may take longer than one
        ball, and then cost nothing. If they suffice, ``bound`` is the one over all inputs.
    tolerance
        Relative tolerance of the search for ε.
    enclosures
        As for :func:`certify`.
    seconds
        Time limit; the best radius so far is returned. The first ball is always finished.
    progress
        Called with a line of text for each ball.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``best`` is the best radius so far.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], activation="relu")
    >>> round(lc.certified_radius(net, [5.0, 3.0]).radius, 2)  # the line where both are equal is √2 away
    1.41
    """
    network_in(network)
    network = network.classifier
    if not np.asarray(tolerance).dtype.kind == "f" or not 0.0 < tolerance < np.inf:
        raise InvalidInput(f"tolerance must be a positive number, got {tolerance!r}")
    point = network.point("x", x)
    point = point.reshape(-1) if point.size == network.inputs else point
    if point.ndim != 1:
        raise InvalidInput(f"x must be one point, ({network.inputs},); got shape {point.shape}. For many, see campaign")
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        predicted = int(np.argmax(network(point)))
    chosen = class_of(network, predicted if label is None else label)
    chosen_method = ClosedForm() if method is None else method_of(method)
    valued = seconds is not None if values is None else bool(values)
    rules = Rules(
        clip,
        tuple(enclosures),
        pairwise,
        relaxation,
        curvature,
        norm_in("norm", norm),
        valued,
        values_in_search=bool(values),
        everywhere=bool(everywhere),
    )
    here = rules.ball(point, 0.0)  # checks the clip and the norm
    certifier = RadiusCertifier(network, point, chosen, predicted, chosen_method, rules)
    if predicted != chosen:
        return certifier.nothing
    grid = None if radii is None else _grid(radii)
    with timed(seconds, progress), suited_to(max(network.sizes)), np.errstate(all="ignore"):
        search = RadiusSearch(certifier, tolerance)
        try:
            search.search() if grid is None else search.over(grid)
        except KeyboardInterrupt:
            raise Interrupted(search.answer.about(network, here)) from None
    return search.answer.about(network, here)


def _grid(radii: Any) -> list[float]:
    several = isinstance(radii, Iterable) and not isinstance(radii, (str, np.ndarray))
    grid = np.atleast_1d(numbers("radii", list(radii) if several else radii)).tolist()
    if not grid or np.ndim(grid) != 1 or min(grid) <= 0:
        raise InvalidInput("radii must be positive numbers, at least one")
    return sorted(grid)


def class_of(network: Network, label: Any) -> int:
    """The label as an integer, checked against the outputs of the network."""
    value = np.asarray(label)
    if value.ndim or value.dtype.kind not in "iuf" or value not in range(network.outputs):
        raise InvalidInput(f"label must be from 0 to {network.outputs - 1}, got {label!r}")
    return int(value)
