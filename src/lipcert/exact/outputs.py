"""Where the outputs lie over a region, proved again in ball arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.check import with_enough_bits
from lipcert.exact.enclose import Centre, Interval, Lines, Trace, added, around, tightened, views_on
from lipcert.exact.functions import ball
from lipcert.exact.linear import at_least, column, positive_definite, signs, upward
from lipcert.exact.model import Inputs, Layer, Model, inputs_of, on_fewer, part_of, read
from lipcert.exact.tree import Cut, prove_leaves
from lipcert.exact.whole import Evidence, Whole, both, common, least_bound, number
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region

Slopes = Sequence[tuple[Array, Array]]
"""Of the lower and the upper line of each neuron, per hidden layer."""


@dataclass(frozen=True, eq=False)
class Claimed:
    """For every pre-activation y of layer ``layer``: lower ≤ y ≤ upper and (y - center)ᵀ shape⁻¹ (y - center) ≤ 1.

    ``bound`` is at least the Lipschitz constant of y; every y is in a box of the hull, corners (boxes, outputs).
    """

    layer: int
    lower: Array
    upper: Array
    center: Array
    shape: Array
    bound: float
    hull: tuple[Array, Array]


def verify_outputs(
    network: Network,
    region: Region,
    claim: Claimed,
    proofs: Sequence[Evidence],
    lines: Sequence[Slopes],
    cut: Cut | None = None,
) -> None:
    """Prove what is claimed of the outputs again, every rounding error inside a ball; ProofFailed if that fails.

    Each of the proofs is about the whole region. ``lines[k]`` are slopes for a linear relaxation on what proofs 0 to k
    tell together. ``cut`` says into which pieces the region was cut, if it was. If this returns, the claim holds for
    every network whose weights and biases each differ from the given ones by at most 2⁻⁵⁰ of their size.
    """
    n = network.layers[claim.layer - 1].weight.shape[0]
    if not np.array_equal(claim.shape, np.transpose(claim.shape)) or np.shape(claim.shape) != (n, n):
        raise ProofFailed("the matrix of the ellipsoid is not a symmetric one for the outputs")
    if any(np.shape(side) != (n,) for side in (claim.lower, claim.upper, claim.center)):
        raise ProofFailed("the box or its centre is for another number of outputs")
    below, above = (np.asarray(side) for side in claim.hull)
    if below.shape != above.shape or below.shape[1:] != (n,):
        raise ProofFailed("the boxes of the hull are for another number of outputs")
    with_enough_bits(lambda: _prove(network, region, claim, proofs, lines, cut))


def _prove(
    network: Network,
    region: Region,
    claim: Claimed,
    proofs: Sequence[Evidence],
    lines: Sequence[Slopes],
    cut: Cut | None,
) -> None:
    model = part_of(read(network), 0, claim.layer)
    inputs, n = inputs_of(region, network.inputs), model[-1].size
    if inputs is None or not proofs:
        raise ProofFailed("the outputs of an unbounded region, or without hints, cannot be enclosed")
    centre = Centre(model, column(inputs.center))
    value, error = [centre.step(index) for index in range(len(model))][-1]
    gap = [abs(v - ball(c)) + e for v, c, e in zip(value, claim.center, error, strict=True)]
    box: Interval = [arb.neg_inf()] * n, [arb.pos_inf()] * n
    claimed, held = number(claim.bound), False
    shape = arb_mat([[ball(x) for x in row] for row in np.asarray(claim.shape).tolist()])
    wholes: list[Whole] = []
    for told in proofs:
        one = Whole(model, inputs, told)
        wholes.append(one)
        for trace in one.traces:
            box = trace.interval(len(model) - 1, box, range(n))
        reach = [inputs.reach * one.S[k, k].sqrt() + e for k, e in enumerate(error)]
        box = tightened(box, range(n), *around(value, reach))
        if len(wholes) <= len(lines):
            box = _relaxed(model, inputs, common(wholes), lines[len(wholes) - 1], box)
        # y - center is within δ²S, moved by at most the gap
        Q = added(at_least(one.S * (inputs.reach * inputs.reach)), [x.upper() for x in gap])
        held = held or (Q is not None and positive_definite(shape - Q))
    if cut is None and not _inside(box, claim):
        raise ProofFailed("the box of the outputs is smaller than what its hints prove")
    if not held:
        raise ProofFailed("the ellipsoid of the outputs is smaller than what its hints prove")
    if not least_bound(wholes, claimed) <= claimed:
        raise ProofFailed("the Lipschitz bound of the outputs is smaller than what its hints prove")
    if cut is None:
        return
    if not 0 <= cut.base < len(wholes):
        raise ProofFailed("the pieces rest on a proof that is not there")
    if cut.first is not None:
        model, inputs, _ = on_fewer(model, inputs, cut.first)

    def holds(trace: Trace, _: object) -> bool:
        last = trace.lines[-1] if trace.lines else None
        ends = (column(inputs.lower), column(inputs.upper)) if last is None else (last.floor, last.roof)
        found = trace.interval(len(model) - 1, both(box, _affine(model[-1], *ends)), range(n))
        return _inside(found, claim)

    prove_leaves(model, inputs, wholes[cut.base].known, cut, holds, "the reach set claims a box")


def _inside(found: Interval, claim: Claimed) -> bool:
    """Whether a box is in the box that is claimed, and in one of the hull."""
    low, high = (np.array([-upward(-x) for x in found[0]]), np.array([upward(x) for x in found[1]]))
    below, above = claim.hull
    inside = (claim.lower <= low).all() and (high <= claim.upper).all()
    return bool(inside and ((below <= low) & (high <= above)).all(axis=1).any())


def _relaxed(model: Model, inputs: Inputs, known: Sequence[Interval], lines: Slopes, box: Interval) -> Interval:
    """The box, made smaller by interval arithmetic and by lines of given slopes, on intervals that are known."""
    if [(np.shape(down), np.shape(up)) for down, up in lines] != [((x.size,), (x.size,)) for x in model[:-1]]:
        raise ProofFailed("the slopes of lines are not those of the network's neurons")
    trace, low, high = Trace(model, inputs), column(inputs.lower), column(inputs.upper)
    for layer, interval, (down, up) in zip(model[:-1], known, lines, strict=True):
        interval = both(interval, _affine(layer, low, high))
        if any(below > above for below, above in zip(*interval, strict=True)):
            raise ProofFailed("the intervals of a layer are empty: the hints contradict themselves")
        held = Lines(layer, views_on(layer.functions, interval), [ball(x) for x in down], [ball(x) for x in up])
        trace.lines.append(held)
        low, high = held.floor, held.roof
    box = both(box, _affine(model[-1], low, high))
    return trace.interval(len(model) - 1, box, range(model[-1].size))


def _affine(layer: Layer, low: arb_mat, high: arb_mat) -> Interval:
    """Where W z + b lies for low ≤ z ≤ high: W's midpoints by sign, the rest, which is tiny, as balls."""
    middle = layer.weight.mid()
    positive, negative = signs(middle)
    wide = column([x.union(y) for x, y in zip(low.entries(), high.entries(), strict=True)])
    rest = (layer.weight - middle) * wide + layer.bias
    lower, upper = positive * low + negative * high + rest, positive * high + negative * low + rest
    return [x.lower() for x in lower.entries()], [x.upper() for x in upper.entries()]
