"""The checker: intervals, slopes, ellipsoids and the bound again, from hints, in real arithmetic.

Notation as in certify.py. A matrix inequality P ≼ P̂ between the real P and a float matrix P̂ is kept true from layer
to layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from lipcert.certificate import Certificate, Part, Sweep
from lipcert.enclosures import Linear, Lipschitz
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.network import Network
from lipcert.regions import Region
from lipcert.threads import suited_to
from lipcert.typing import Array, Weight
from lipcert.verify.backward import Backward, Interval
from lipcert.verify.carried import Near, carried
from lipcert.verify.relaxation import slope_bounds
from lipcert.verify.rounding import (
    TINY,
    down,
    largest_eigenvalue_above,
    raise_diagonal,
    stretched,
    up,
)
from lipcert.verify.step import Step, activate
from lipcert.verify.support import check_region, radius_above
from lipcert.verify.trajectory import trajectory
from lipcert.verify.tree import prove_tree

ROOM = 1.0 + 2.0**-40
"""A certified bound is enlarged by this, so that another machine's rounding can confirm it."""
_WIDE = 2.0**200
"""Weights beyond this, or below its inverse, are brought near one before they are squared."""


def verify(network: Network, certificate: Certificate, exact: bool = False) -> float:
    """Re-derive a certificate's bound from its hints.

    Parameters
    ----------
    network
        The network that the certificate is about.
    certificate
        What :func:`certify` returned or :meth:`Certificate.load` read; nothing in it is believed.
    exact
        Ask for a second opinion: the proof is made in ball arithmetic, by other code, which takes longer. It needs
        python-flint, ``pip install "lipcert[exact]"``.

    Returns
    -------
    float
        The bound as proved now: ‖f(x) - f(y)‖₂ ≤ bound·‖x - y‖₂ for all x, y of the certificate's region, in real
        arithmetic, for the function given by the network's float64 weights.

    Raises
    ------
    ProofFailed
        If the network is another one, or the hints do not prove the bound that the certificate claims.
    """
    if not isinstance(network, Network) or not isinstance(certificate, Certificate):
        raise InvalidInput(
            f"verify takes a Network and a Certificate, got {type(network).__name__} and {type(certificate).__name__};"
            " read them with load and Certificate.load"
        )
    if exact:
        from lipcert.exact import verify as second_opinion

        return second_opinion(network, certificate)
    check_region(certificate.region, network.inputs)
    if certificate.network != network.digest:
        raise ProofFailed(
            f"the certificate is about another network: its digest is {certificate.network[:12]}…, "
            f"this network's is {network.digest[:12]}…"
        )
    try:
        network, part = certificate.part.reduced(network)
    except InvalidInput as error:
        raise ProofFailed(f"the network has no such part: {error}") from None
    bound = prove(network, certificate.region, certificate.sweeps, part, certificate.part_sweeps)
    if certificate.tree is not None and not certificate.part_sweeps:
        known = intervals(network, certificate.region, certificate.sweeps)
        with proving(network):
            bound = min(bound, prove_tree(network, certificate.region, certificate.tree, certificate.sweeps[-1], known))
    if not bound <= certificate.bound:
        raise ProofFailed(f"the certificate claims {certificate.bound!r}, its hints prove no better than {bound!r}")
    return bound


def prove(
    network: Network,
    region: Region,
    sweeps: Sequence[Sweep],
    part: Part | None = None,
    part_sweeps: Sequence[Sweep] = (),
) -> float:
    """The bound that hints prove, rounded up.

    Each of ``sweeps`` is about the whole network and starts from the intervals of the ones before; ``part_sweeps`` are
    about the part, and take the intervals from there.
    """
    if not sweeps:
        raise ProofFailed("there are no multipliers to prove a bound from")
    check_region(region, network.inputs)
    _check_weights(network)
    piece = network if part is None else _piece(network, part, bool(part_sweeps))
    if any(hints.enclosures for hints in part_sweeps):
        raise ProofFailed("the hints of a part must not enclose it: the region is one of the whole network's inputs")
    intervals: list[Interval] | None = None
    bound = np.inf
    with proving(network):
        for position, hints in enumerate(sweeps):
            last = position == len(sweeps) - 1 and not part_sweeps
            check = Check(network, region, hints, intervals)
            bound = min(bound, check.run(needs_bound=last))
            intervals = check.intervals
        for hints in part_sweeps:
            start, stop = (0, network.depth) if part is None else part.layers
            known = (intervals or [])[start : stop - 1]
            bound = min(bound, Check(piece, region, hints, known).run(needs_bound=True))
    return float(bound)


def intervals(network: Network, region: Region, sweeps: Sequence[Sweep]) -> list[Interval]:
    """What the sweeps prove of the pre-activations of every hidden layer."""
    known: list[Interval] | None = None
    with proving(network):
        for hints in sweeps:
            check = Check(network, region, hints, known)
            check.run(needs_bound=False)
            known = check.intervals
    return known or []


@contextmanager
def proving(network: Network) -> Iterator[None]:
    """Threads that suit the network; overflows give infinity or NaN, which prove nothing; a factor may not exist."""
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        try:
            yield
        except np.linalg.LinAlgError as error:
            raise ProofFailed(f"a matrix of the proof could not be factored: {error}") from error


def _piece(network: Network, part: Part, has_hints: bool) -> Network:
    """The part of the network that a bound is about."""
    start, stop = part.layers
    if not has_hints and (start, stop) != (0, network.depth):
        raise ProofFailed(f"the hints are about the whole network, not about its layers {start} to {stop}")
    try:
        return network.slice(start, stop).select(part.inputs, part.outputs)
    except InvalidInput as error:
        raise ProofFailed(f"the network has no such part: {error}") from None


def _check_weights(network: Network) -> None:
    """The error bounds of products hold for float64, and for sparse weights that name each entry once."""
    for number, layer in enumerate(network.layers, 1):
        weight = layer.weight
        canonical = isinstance(weight, np.ndarray) or weight.has_canonical_format
        if weight.dtype != np.float64 or layer.bias.dtype != np.float64 or not canonical:
            raise ProofFailed(
                f"layer {number} must have weights and biases of float64, sparse ones without repeated entries;"
                " build the network with Network.from_weights"
            )


@dataclass(frozen=True, eq=False)
class Proved:
    """A step relative to 4**exponent, and the numbers of its neurons; what else it carries has one slope."""

    step: Step
    neurons: Array
    exponent: int


@dataclass(eq=False)
class Check:
    """One sweep, checked; afterwards ``intervals`` and ``steps`` hold what was proved of each hidden layer."""

    network: Network
    region: Region
    hints: Sweep
    known: list[Interval] | None = None
    intervals: list[Interval] = field(default_factory=list)
    steps: list[Proved] = field(default_factory=list)

    def run(self, needs_bound: bool = True) -> float:
        """Prove the intervals of all layers, and the bound if it is needed; otherwise return infinity."""
        self._check_shapes()
        hidden = self.network.layers[:-1]
        enclosures = self.hints.enclosures if self.region.bounded else ()
        local = any(isinstance(enclosure, Lipschitz) for enclosure in enclosures)
        depths = [enclosure.depth for enclosure in enclosures if isinstance(enclosure, Linear)]
        traces = [
            Backward(self.network, self.region, depth, self.hints.lines[k * len(hidden) : (k + 1) * len(hidden)])
            for k, depth in enumerate(depths)
        ]
        centers = trajectory(self.network, self.region.center) if local else []
        carry = local or needs_bound
        P: Array | None = None
        exponent, weight = 0, Near(self.network.layers[0].weight)
        for index, layer in enumerate(hidden):
            assert layer.neurons is not None
            size = layer.size
            lower, upper = self.known[index] if self.known else (np.full(size, -np.inf), np.full(size, np.inf))
            if carry:
                whole = None if weight.may_pay else _through(P, weight, exponent)
                axes = _reach(P, weight, exponent) if whole is None else _axes(*whole)
            if local:
                value, error = centers[index]
                reach = stretched(radius_above(self.region) * axes + error, 2)
                lower, upper = np.fmax(lower, down(value - reach)), np.fmin(upper, up(value + reach))
            for trace in traces:
                lower, upper = trace.tightened(index, lower, upper, axes == 0.0 if carry else None)
            if not (lower <= upper).all():
                raise ProofFailed(f"the intervals of layer {index + 1} are empty: the hints contradict themselves")
            self.intervals.append((lower, upper))
            for trace in traces:
                trace.settle(index, lower, upper)
            if carry:
                alpha, beta = slope_bounds(layer.neurons, lower, upper)
                ahead, hint = self.network.layers[index + 1].weight, self.hints.multipliers[index]
                kept = carried(weight, alpha, beta, axes == 0.0, ahead) if whole is None else None
                if kept is None:
                    S, exponent = whole or _through(P, weight, exponent)
                    weight = Near(ahead)
                else:
                    S, exponent = _through(P, kept.rows, exponent)
                    alpha, beta, hint, weight = kept.alpha, kept.beta, kept.narrow(hint), kept.ahead
                step = activate(S, alpha, beta, np.ldexp(hint, 2 * (self.hints.exponents[index] - exponent)))
                self.steps.append(Proved(step, np.arange(size) if kept is None else kept.neurons, exponent))
                P = step.P
        if not needs_bound:
            return np.inf
        S, exponent = _through(P, weight, exponent)
        return float(up(np.ldexp(stretched(np.sqrt(largest_eigenvalue_above(S)), 2), exponent)))

    def _check_shapes(self) -> None:
        hidden = self.network.layers[:-1]
        linear = [enclosure for enclosure in self.hints.enclosures if isinstance(enclosure, Linear)]
        if {len(self.hints.multipliers), len(self.hints.exponents)} != {len(hidden)}:
            raise ProofFailed(f"the hints are for {len(self.hints.multipliers)} hidden layers, not {len(hidden)}")
        lines = self.hints.lines if self.region.bounded else ()
        if self.region.bounded and len(lines) != len(linear) * len(hidden):
            raise ProofFailed("the hints lack the slopes of the bounding lines, or have too many")
        if any(enclosure.depth is not None and enclosure.depth < 0 for enclosure in linear):
            raise ProofFailed("the depth of a linear enclosure must be at least 0")
        if any(abs(exponent) > 2**20 for exponent in self.hints.exponents):
            raise ProofFailed("an exponent of the hints is out of range")
        arrays = [(k, self.hints.multipliers[k]) for k in range(len(hidden))]
        arrays += [(k % len(hidden), slopes) for k, pair in enumerate(lines) for slopes in pair]
        for index, array in arrays:
            if np.shape(array) != (hidden[index].size,):
                raise ProofFailed(f"the hints of layer {index + 1} are not for its {hidden[index].size} neurons")


def _reach(P: Array | None, weight: Near, exponent: int) -> Array:
    """At least the Lipschitz constant of each neuron, without forming the ellipsoid; zero where it is known to be."""
    squares = weight.squares(P)
    return np.where(squares == 0.0, 0.0, up(np.ldexp(stretched(np.sqrt(squares), 1), exponent)))  # NaN stays NaN


def _through(P: Array | None, weight: Weight | Near, exponent: int) -> tuple[Array, int]:
    """Ŝ with W P Wᵀ ≼ 4^Δ·Ŝ, mean diagonal near one, and the exponent with Δ added.

    Powers of two are exact but for underflow. In W that moves an entry by at most η, so the product by at most
    2nη|W||P| with |W| ≤ 1 there; in S by at most η an entry. Both are charged to the diagonal.
    """
    weight = weight if isinstance(weight, Near) else Near(weight)
    largest = float(abs(weight.middle).max())
    power = int(np.frexp(largest)[1]) if largest > 0.0 and not 1.0 / _WIDE < largest < _WIDE else 0
    if power:
        weight = weight.shifted(-power)
    S = weight.image(P)
    if power and P is not None:
        S = raise_diagonal(S, np.asarray(TINY * float(np.abs(P).max())))
    mean = float(np.trace(S)) / len(S)
    if not np.isfinite(S).all() or not np.isfinite(mean):
        raise ProofFailed("the ellipsoid of a layer is not finite; weights may be too large")
    shift = int(np.round(0.5 * np.log2(mean))) if mean > 0 else 0
    return raise_diagonal(np.ldexp(S, -2 * shift), np.asarray(len(S) * TINY)), exponent + power + shift


def _axes(S: Array, exponent: int) -> Array:
    """At least the Lipschitz constant of each neuron, sqrt(S_ll)."""
    return up(np.ldexp(stretched(np.sqrt(np.diagonal(S)), 1), exponent))
