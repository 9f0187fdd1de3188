"""Bounds over balls of several radii, from the largest to the smallest."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lipcert.answers.certificate import Certificate
from lipcert.arguments.numbers import numbers
from lipcert.errors import Interrupted, InvalidInput
from lipcert.methods.joint import Joint
from lipcert.methods.lower import lower_bound
from lipcert.methods.method import Method
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Norm, norm_in
from lipcert.published import Trivial
from lipcert.questions.certify import certify, method_of
from lipcert.runtime.clock import Progress, timed

_LEAST = 1e-3
"""Least time limit of a radius; its first bound may take longer."""
_SHARE = 0.2
"""Share of the time of a radius for its lower bound."""


@dataclass(frozen=True, eq=False)
class SweepRow:
    """One radius.

    Attributes
    ----------
    radius : radius of the ball.
    bound : certified bound over that ball.
    lower : a lower bound of the same constant.
    trivial : the product of the layers' norms, the same for every radius.
    seconds : time of this row.
    certificate : the proof. Its region is a larger ball if that gave the smaller bound.
    """

    radius: float
    bound: float
    lower: float
    trivial: float
    seconds: float
    certificate: Certificate


def sweep(
    network: Network,
    around: Any,
    radii: Iterable[float],
    method: Method | str | None = None,
    *,
    input_norm: Norm | str | None = None,
    output_norm: Norm | str | None = None,
    lower: bool = True,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[SweepRow, ...]:
    """Bound the Lipschitz constant over balls of several radii.

    The largest radius comes first. A bound also holds for smaller balls, so it never grows as the radius falls.

    Parameters
    ----------
    network
        What :meth:`Network.from_weights` or an importer built.
    around
        The centre of the balls, or a :class:`Ball`, whose centre, clip and norm are used. ``LInf()`` balls are boxes.
    radii
        In any order, at least 0.
    method
        As for :func:`certify`, and for each radius; default ``Joint()``.
    input_norm, output_norm
        As for :func:`certify`. ``trivial`` is there for ℓ2 norms, with units or without, and networks
        without products and softmax of signals; else it is infinite.
    lower
        Search for lower bounds too; without, they are 0.
    seconds
        Time limit for all radii together; default: that of the method for each radius.
    progress
        As for :func:`certify`.

    Returns
    -------
    tuple of SweepRow
        One for each radius, in the given order.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 2.0], [0.0, 1.0]], [[1.0, -1.0]]], activation="relu")
    >>> [round(row.bound, 3) for row in lc.sweep(net, [3.0, 3.0], [0.1, 10.0])]
    [1.414, 2.236]
    """
    if isinstance(around, Ball) and isinstance(network, Network):
        around = around.fitted(network)
    shape = around if isinstance(around, Ball) else Ball(np.atleast_1d(numbers("around", around)), 0.0)
    sizes = np.atleast_1d(numbers("radii", list(radii) if isinstance(radii, Iterable) else radii)).astype(float)
    if not sizes.size or sizes.ndim != 1 or (sizes < 0).any():
        raise InvalidInput(f"radii must be one or more numbers of at least 0, got {sizes.tolist()}")
    chosen = Joint() if method is None else method_of(method)
    ends: dict[str, Any] = {
        "input_norm": norm_in("input_norm", input_norm),
        "output_norm": norm_in("output_norm", output_norm),
    }
    euclidean = all(norm.name == "l2" for norm in ends.values())
    known = euclidean and not network.coupled
    trivial = certify(network, method=Trivial(), **ends).bound if known else np.inf
    falling = np.argsort(-sizes, kind="stable").tolist()
    rows: list[SweepRow] = []
    with timed(seconds, progress) as now:
        for index in falling:
            started, larger = time.perf_counter(), rows[-1] if rows else None
            ball = Ball(shape.center, float(sizes[index]), shape.clip, shape.norm)
            with timed(max(now.left, _LEAST) / (sizes.size - len(rows))) as mine:
                try:
                    with mine.keeping(_SHARE * mine.left if lower and np.isfinite(mine.left) else 0.0):
                        certificate = certify(network, ball, chosen, **ends)
                    least = lower_bound(network, ball, **ends).value if lower else 0.0
                except KeyboardInterrupt as interrupt:
                    raise Interrupted(tuple(rows) or None) from interrupt
            if larger is not None and larger.bound < certificate.bound:
                certificate = larger.certificate  # a bound over a larger ball also holds here
            took = time.perf_counter() - started
            rows.append(SweepRow(float(ball.radius), certificate.bound, least, trivial, took, certificate))
            now.say(f"{len(rows)} of {sizes.size} radii: {rows[-1].radius:.4g} has bound {rows[-1].bound:.4g}")
    # a lower bound in a smaller ball also holds for larger ones
    lowers = np.maximum.accumulate([row.lower for row in reversed(rows)])[::-1]
    rows = [replace(row, lower=float(below)) for row, below in zip(rows, lowers, strict=True)]
    return tuple(rows[falling.index(index)] for index in range(sizes.size))
