"""A certificate, proved again in ball arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from flint import arb, ctx

from lipcert.errors import ProofFailed
from lipcert.exact.enclose import Interval, slopes_on, views_on
from lipcert.exact.functions import ball, least
from lipcert.exact.linear import image, largest_eigenvalue, upward
from lipcert.exact.model import Model, inputs_of, part_of, read
from lipcert.exact.sweep import Swept
from lipcert.exact.tree import Exhausted, Pieces
from lipcert.model.network import Network
from lipcert.proof.certificate import Certificate

Proved = TypeVar("Proved")
BITS = (128, 384)
"""Precisions that are tried, one after the other."""


@contextmanager
def precision(bits: int, terms: int = 2) -> Iterator[None]:
    """Work with that many bits, and power series of that many terms."""
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = bits, terms
    try:
        yield
    finally:
        ctx.prec, ctx.cap = before


def with_enough_bits(prove: Callable[[], Proved]) -> Proved:
    """What is proved with some of the precisions."""
    failure = ProofFailed("nothing was tried")
    for bits in BITS:
        with precision(bits):
            try:
                return prove()
            except Exhausted:
                raise
            except ProofFailed as error:
                failure = error
    raise failure


def verify(network: Network, certificate: Certificate) -> float:
    """Prove a certificate's bound again, every rounding error inside a ball.

    Returns
    -------
    float
        The bound as proved now: ‖f(x) - f(y)‖₂ ≤ bound·‖x - y‖₂ for all x, y of the certificate's region, for every f
        whose weights and biases each differ from the network's by at most 2⁻⁵⁰ of their size.

    Raises
    ------
    ProofFailed
        If the network is another one, or the claimed bound could not be proved.
    """
    if certificate.network != network.digest:
        raise ProofFailed(
            f"the certificate is about another network: its digest is {certificate.network[:12]}…, "
            f"this network's is {network.digest[:12]}…"
        )
    if not certificate.part.norms.plain:
        raise ProofFailed(
            f"the bound is one from {certificate.part.norms}; ball arithmetic repeats bounds in plain ℓ2 norms only:"
            " verify without exact"
        )
    if certificate.curved is not None:
        raise ProofFailed("the bound rests on second order, which ball arithmetic does not repeat; verify without it")

    def proved() -> float:
        bound = _prove(network, certificate)
        if not bound <= ball(certificate.bound):
            raise ProofFailed(
                f"the certificate claims {certificate.bound!r}, its hints prove no better than {upward(bound)!r}"
            )
        return min(upward(bound), float(certificate.bound))

    return with_enough_bits(proved)


def _norm_product(model: Model) -> arb:
    """The norms of all layers, times their steepest slopes: layer by layer, skips and max pools not seen as such."""
    bound = arb(1)
    for number, layer in enumerate(model, 1):
        bound = bound * largest_eigenvalue(image(layer.weight, None)).sqrt()
        if number < len(model):
            everything = [arb.neg_inf()] * layer.size, [arb.pos_inf()] * layer.size
            alpha, beta = slopes_on(views_on(layer.functions, everything))
            sizes = [abs(slope) for slope in (*alpha, *beta)]
            bound = bound * -least([-size for size in sizes])
    return bound.upper()


def _prove(network: Network, certificate: Certificate) -> arb:
    """At least the constant that the certificate is about."""
    model, part = read(network), certificate.part
    inputs = inputs_of(certificate.region, network.inputs)
    (start, stop), hints = part.layers, certificate.part_sweeps
    end, piece = len(model), part_of(model, start, stop, part.inputs, part.outputs)
    if start == 0 and part.inputs is None:  # a network in its own right
        model = piece
    elif (start, stop) == (0, end):  # its bound is one for some of the inputs too
        model = part_of(model, start, stop, None, part.outputs)
    elif not hints and certificate.sweeps:
        raise ProofFailed(f"the hints are about the whole network, not about its layers {start} to {stop} of {end}")
    if not certificate.sweeps:
        if hints or certificate.tree is not None:
            raise ProofFailed("there are no multipliers to prove a bound from")
        return _norm_product(piece)
    known: list[Interval] = []
    bound = arb.pos_inf()
    for number, sweep in enumerate(certificate.sweeps, 1):
        last = number == len(certificate.sweeps) and not hints and certificate.tree is None
        swept = Swept(model, inputs, sweep, known, wants_bound=last)
        known, bound = swept.intervals, swept.bound
    for sweep in hints:
        if sweep.enclosures:
            raise ProofFailed("the hints of a part must not enclose it: the region is one of the whole network")
        bound = least([bound, Swept(piece, None, sweep, known[start : stop - 1]).bound])
    if certificate.tree is not None and not hints:
        if inputs is None:
            raise ProofFailed("exact has no rule for pieces of all of space; verify without exact")
        return Pieces(model, inputs, certificate.tree, certificate.bound, known).prove()
    return bound
