"""A certificate, proved again in ball arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb

from lipcert.answers.certificate import Certificate
from lipcert.audit.balls import Balls, Interval, both, known_smaller, upward, with_enough_bits
from lipcert.audit.curved import prove_curved
from lipcert.audit.engine import Pass, gain, least_of, norm_product
from lipcert.audit.model import Inputs, Model, fewer, in_units, inputs_of, part_of, read
from lipcert.audit.pieces import LipschitzCover
from lipcert.definitions.functions import ball
from lipcert.errors import ProofFailed
from lipcert.kernel.hints import Hints, Part
from lipcert.model.network import Network
from lipcert.model.norms import L2
from lipcert.model.regions import Ball, Region

_WORTH = 1.5
"""Inputs a neuron of the first layer from which trees are about fewer inputs."""


def verify(network: Network, certificate: Certificate) -> float:
    """Prove a certificate's bound again, every rounding error inside a ball.

    Returns
    -------
    float
        The bound as proved now: ‖f(x) - f(y)‖ ≤ bound·‖x - y‖ in the certificate's norms for all x, y of its region,
        for every f whose weights and biases each differ from the network's by at most 2⁻⁵⁰ of their size.

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

    def proved() -> float:
        bound = _prove(network, certificate)
        if not bound <= ball(certificate.bound):
            raise ProofFailed(
                f"the certificate claims {certificate.bound!r}, its hints prove no better than {upward(bound)!r}"
            )
        return min(upward(bound), float(certificate.bound))

    return with_enough_bits(proved)


def _prove(network: Network, certificate: Certificate) -> arb:
    """At least the constant that the certificate is about."""
    whole, part, claim = read(network), certificate.part, ball(certificate.bound)
    (start, stop), norms, hints = part.layers, part.norms, certificate.part_sweeps
    _check_norms(network, part)
    piece = in_units(part_of(whole, start, stop, part.inputs, part.outputs), norms.input, norms.output)
    units, model = None, whole
    if start == 0 and part.inputs is None and not norms.shaped:  # a network in its own right, in its own units
        model, units = piece, norms.input.units(network.inputs)
    elif (start, stop) == (0, len(whole)) and (hints or not norms.has_units):  # its bound serves some of the inputs
        model = part_of(whole, start, stop, None, part.outputs)
    elif not hints and certificate.sweeps:
        raise ProofFailed(f"the hints are about the whole network, not about its layers {start} to {stop}")
    inputs = inputs_of(certificate.region, network.inputs, units)
    bare = norms.bare
    if not certificate.sweeps:
        if hints or certificate.tree is not None:
            raise ProofFailed("there are no multipliers to prove a bound from")
        more = arb(piece[-1].size).sqrt() if bare.output.name == "l1" else arb(1)
        bound = (norm_product(piece) * gain(bare, None, piece[0].weight.shape[1]) * more).upper()
    else:
        told = Whole(model, inputs, certificate.sweeps, carry=not hints)
        bound = arb.pos_inf() if hints else least_of(told.last.bounds(bare), claim)
        for sweep in hints:
            if sweep.enclosures:
                raise ProofFailed("the hints of a part must not enclose it: the region is one of the whole network")
            mine = Pass(piece, None, _without_shapes(sweep, part), told.known[start : stop - 1])
            bound = known_smaller(bound, least_of(mine.bounds(bare), claim))
        if certificate.tree is not None and not hints and not bound <= claim:
            limit = float(certificate.bound)
            first = told.last.start
            if bare.input.name == "linf" and first is None:
                first = gain_start(model)
            return LipschitzCover(model, inputs, told.known, certificate.tree, limit, bare, first).bound()
    if certificate.curved is not None and not bound <= claim:
        if replace(part, inputs=None) != Part((0, network.depth), None, part.outputs):
            raise ProofFailed("hints to second order are about a whole network in ℓ2 norms; this certificate is not")
        bound = known_smaller(bound, prove_curved(model, inputs, certificate.curved))
    return bound


def narrow(model: Model, inputs: Inputs, region: Region) -> tuple[Model, Inputs, arb]:
    """The model and the inputs that trees cut: over a ball on fewer inputs where the first layer is narrow."""
    whole_ball = isinstance(region, Ball) and region.clip is None and region.plain
    return fewer(model, inputs, _WORTH) if whole_ball else (model, inputs, arb(1))


def gain_start(model: Model) -> Balls:
    """A start of ones."""
    return np.full(model[0].weight.shape[1], arb(1), dtype=object)


def _check_norms(network: Network, part: Part) -> None:
    """ProofFailed unless the norms are such of the coordinates at both ends."""
    ends = zip((part.norms.input, part.norms.output), (part.inputs, part.outputs), part.layers, strict=True)
    for norm, chosen, layer in ends:
        count = len(chosen) if chosen is not None else (network.sizes[layer] if 0 <= layer <= network.depth else 0)
        shape = norm.matrix
        if (isinstance(norm.scale, tuple) and len(norm.scale) != count) or (shape is not None and len(shape) != count):
            raise ProofFailed(f"the norm {norm} is not one of {count} coordinates")


def _without_shapes(hints: Hints, part: Part) -> Hints:
    """The hints without the layers of identity neurons that stand for shapes elsewhere."""
    begin = int(isinstance(part.norms.input, L2) and part.norms.input.shape is not None)
    end = len(hints.multipliers) - int(isinstance(part.norms.output, L2) and part.norms.output.shape is not None)
    return replace(hints, multipliers=hints.multipliers[begin:end], exponents=hints.exponents[begin:end])


class Whole:
    """What the sweeps over a whole region prove: ``known`` intervals, ``traces``, and the ``last`` of the passes."""

    def __init__(self, model: Model, inputs: Inputs | None, sweeps: Sequence[Hints], carry: bool = True) -> None:
        if not sweeps:
            raise ProofFailed("there are no multipliers to prove a bound from")
        self.model, self.inputs, self.known = model, inputs, list[Interval]()
        passes = []
        for place, hints in enumerate(sweeps, 1):
            passes.append(Pass(model, inputs, hints, self.known, carry=carry and place == len(sweeps)))
            self.known = passes[-1].intervals
        self.last = passes[-1]
        self.traces = [trace for one in passes for trace in one.traces]
        self.bound = self.last.by_ellipsoid() if carry else arb.pos_inf()

    def by_pieces(self, tree: Any, region: Region, claim: arb) -> arb:
        """The bound that a tree proves, at most the claim."""
        if self.inputs is None:
            return LipschitzCover(self.model, None, self.known, tree, -upward(-claim)).bound()
        model, inputs, stretch = narrow(self.model, self.inputs, region)
        target = -upward(-(claim / stretch).lower())
        return (LipschitzCover(model, inputs, self.known, tree, target).bound() * stretch).upper()


def least_bound(wholes: Sequence[Whole], trees: Sequence[Any], region: Region, claim: arb) -> arb:
    """The least of the bounds; trees are asked where it is above the claim."""
    bound = arb.pos_inf()
    for one in wholes:
        bound = known_smaller(bound, one.bound)
    for one, tree in zip(wholes, trees, strict=True):
        if not bound <= claim and tree is not None:
            bound = known_smaller(bound, one.by_pieces(tree, region, claim))
    return bound


def wholes_of(model: Model, inputs: Inputs | None, proofs: Sequence[Any]) -> tuple[list[Whole], list[Any]]:
    """What the proofs about a whole region prove, and their trees."""
    told = [one for one in proofs if one.kind == "whole"]
    if not told:
        raise ProofFailed("there is nothing to prove an answer from")
    return [Whole(model, inputs, one.sweeps) for one in told], [one.tree for one in told]


def common(wholes: Sequence[Whole]) -> list[Interval]:
    """The intervals that all of them prove together."""
    found = list(wholes[0].known)
    for one in wholes[1:]:
        found = [both(a, b) for a, b in zip(found, one.known, strict=True)]
    return found
