"""Where the outputs lie over a region, proved again in ball arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.check import BITS, precision
from lipcert.exact.enclose import Centre, Interval, Lines, Trace, added, tightened, views_on
from lipcert.exact.functions import ball, least
from lipcert.exact.linear import at_least, column, positive_definite, signs
from lipcert.exact.model import Inputs, Layer, Model, inputs_of, part_of, read
from lipcert.exact.sweep import Swept
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.proof.hints import Hints

Slopes = Sequence[tuple[Array, Array]]
"""Of the lower and the upper line of each neuron, per hidden layer."""


@dataclass(frozen=True, eq=False)
class Claimed:
    """For every pre-activation y of layer ``layer``: lower ≤ y ≤ upper and (y - center)ᵀ shape⁻¹ (y - center) ≤ 1.

    ``bound`` is at least the Lipschitz constant of y.
    """

    layer: int
    lower: Array
    upper: Array
    center: Array
    shape: Array
    bound: float


def verify_outputs(
    network: Network, region: Region, claim: Claimed, proofs: Sequence[Sequence[Hints]], lines: Sequence[Slopes]
) -> None:
    """Prove what is claimed of the outputs again, every rounding error inside a ball; ProofFailed if that fails.

    Each of the proofs is a row of sweeps over the whole region. ``lines[k]`` are slopes for a linear relaxation on what
    proofs 0 to k tell together. If this returns, the claim holds for every network whose weights and biases each differ
    from the given ones by at most 2⁻⁵² of their size.
    """
    n = network.layers[claim.layer - 1].weight.shape[0]
    if not np.array_equal(claim.shape, np.transpose(claim.shape)) or np.shape(claim.shape) != (n, n):
        raise ProofFailed("the matrix of the ellipsoid is not a symmetric one for the outputs")
    if any(np.shape(side) != (n,) for side in (claim.lower, claim.upper, claim.center)):
        raise ProofFailed("the box or its centre is for another number of outputs")
    failure = ProofFailed("nothing was tried")
    for bits in BITS:
        with precision(bits):
            try:
                return _prove(network, region, claim, proofs, lines)
            except ProofFailed as error:
                failure = error
    raise failure


def _prove(
    network: Network, region: Region, claim: Claimed, proofs: Sequence[Sequence[Hints]], lines: Sequence[Slopes]
) -> None:
    model = part_of(read(network), 0, claim.layer)
    inputs, n = inputs_of(region, network.inputs), model[-1].size
    if inputs is None or not proofs or not all(proofs):
        raise ProofFailed("the outputs of an unbounded region, or without hints, cannot be enclosed")
    centre = Centre(model, column(inputs.center))
    value, error = [centre.step(index) for index in range(len(model))][-1]
    gap = [abs(v - ball(c)) + e for v, c, e in zip(value, claim.center, error, strict=True)]
    box: Interval = [arb.neg_inf()] * n, [arb.pos_inf()] * n
    common: list[Interval] = []
    bound, held = arb.pos_inf(), False
    shape = arb_mat([[ball(x) for x in row] for row in np.asarray(claim.shape).tolist()])
    for number, sweeps in enumerate(proofs):
        known: list[Interval] = []
        for place, hints in enumerate(sweeps, 1):
            swept = Swept(model, inputs, hints, known, wants_bound=place == len(sweeps))
            known = swept.intervals
            for trace in swept.traces:
                box = trace.interval(len(model) - 1, box, range(n))
        S = swept.S
        assert S is not None  # the last one wants its bound
        reach = [inputs.reach * S[k, k].sqrt() + e for k, e in enumerate(error)]
        lower = [(v - x).lower() for v, x in zip(value, reach, strict=True)]
        upper = [(v + x).upper() for v, x in zip(value, reach, strict=True)]
        box = tightened(box, range(n), lower, upper)
        bound = least([bound, swept.bound])
        common = [_both(a, b) for a, b in zip(common, known, strict=True)] if number else known
        if number < len(lines):
            box = _relaxed(model, inputs, common, lines[number], box)
        # y - center is within δ²S, moved by at most the gap
        Q = added(at_least(S * (inputs.reach * inputs.reach)), [x.upper() for x in gap])
        held = held or (Q is not None and positive_definite(shape - Q))
    inside = all(ball(a) <= b for a, b in zip(claim.lower, box[0], strict=True))
    inside = inside and all(b <= ball(a) for a, b in zip(claim.upper, box[1], strict=True))
    if not inside:
        raise ProofFailed("the box of the outputs is smaller than what its hints prove")
    if not held:
        raise ProofFailed("the ellipsoid of the outputs is smaller than what its hints prove")
    if not bound <= ball(claim.bound):
        raise ProofFailed("the Lipschitz bound of the outputs is smaller than what its hints prove")


def _both(one: Interval, other: Interval) -> Interval:
    return tightened(one, range(len(other[0])), *other)


def _relaxed(model: Model, inputs: Inputs, known: Sequence[Interval], lines: Slopes, box: Interval) -> Interval:
    """The box, made smaller by interval arithmetic and by lines of given slopes, on intervals that are known."""
    if [(np.shape(down), np.shape(up)) for down, up in lines] != [((x.size,), (x.size,)) for x in model[:-1]]:
        raise ProofFailed("the slopes of lines are not those of the network's neurons")
    trace, low, high = Trace(model, inputs), column(inputs.lower), column(inputs.upper)
    for layer, interval, (down, up) in zip(model[:-1], known, lines, strict=True):
        interval = _both(interval, _affine(layer, low, high))
        if any(below > above for below, above in zip(*interval, strict=True)):
            raise ProofFailed("the intervals of a layer are empty: the hints contradict themselves")
        held = Lines(layer, views_on(layer.functions, interval), [ball(x) for x in down], [ball(x) for x in up])
        trace.lines.append(held)
        low, high = held.floor, held.roof
    box = _both(box, _affine(model[-1], low, high))
    return trace.interval(len(model) - 1, box, range(model[-1].size))


def _affine(layer: Layer, low: arb_mat, high: arb_mat) -> Interval:
    """Where W z + b lies for low ≤ z ≤ high: W's midpoints by sign, the rest, which is tiny, as balls."""
    middle = layer.weight.mid()
    positive, negative = signs(middle)
    wide = column([x.union(y) for x, y in zip(low.entries(), high.entries(), strict=True)])
    rest = (layer.weight - middle) * wide + layer.bias
    lower, upper = positive * low + negative * high + rest, positive * high + negative * low + rest
    return [x.lower() for x in lower.entries()], [x.upper() for x in upper.entries()]
