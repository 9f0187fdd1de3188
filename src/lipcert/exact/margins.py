"""Value functions in ball arithmetic: a row of the outputs is negative all over a ball if one matrix is definite.

For neurons that are open and have one kink, at 0: with p = φ(v) - αv and m = βv - φ(v), α < β the slopes on both sides,
p(t - p) ≥ 0, m(b - m) ≥ 0 and pm = 0, where t = (β - α)·high and b = (β - α)·low.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.enclose import Interval, views_on
from lipcert.exact.functions import ball, least, most
from lipcert.exact.linear import positive_definite
from lipcert.exact.model import Inputs, Model
from lipcert.model.arrays import Array

_LARGEST = 300
_CLOSE = 1e-3
"""An end of an interval is moved out to this share of the other one; the hints were found for that."""
Row = list[arb]


def stays_negative(model: Model, inputs: Inputs, known: Sequence[Interval], row: Array, leaves: Sequence[Any]) -> bool:
    """Whether row·v_N < 0 all over the ball by hints (``cuts``, ``multipliers``, ``ball``), piece by piece."""

    def covered(cuts: tuple[Any, ...]) -> bool:
        below = [leaf for leaf in leaves if tuple(leaf.cuts)[: len(cuts)] == cuts]
        if not below:
            return False
        for leaf in below:
            if len(leaf.cuts) == len(cuts):
                return _definite(model, inputs, _confined(known, cuts), cuts, row, leaf)
        layer, neuron, _ = below[0].cuts[len(cuts)]
        return all(covered((*cuts, (layer, neuron, side))) for side in (-1, 1))

    return covered(())


def _confined(known: Sequence[Interval], cuts: Sequence[Any]) -> list[Interval]:
    parts = [(list(low), list(high)) for low, high in known]
    for layer, neuron, side in cuts:
        low, high = parts[layer]
        if side > 0:
            low[neuron] = most([low[neuron], arb(0)])
        else:
            high[neuron] = least([high[neuron], arb(0)])
    return parts


def _definite(
    model: Model, inputs: Inputs, known: Sequence[Interval], cuts: Sequence[Any], row: Array, leaf: Any
) -> bool:
    """Whether -row·v_N - Σ λq - λ_0(1 - ‖·‖²) is a positive definite form of 1, the input and the open neurons."""
    count, radius = len(inputs.center), inputs.radius
    assert radius is not None
    views = [views_on(layer.functions, ends) for layer, ends in zip(model[:-1], known, strict=True)]
    opens = [[k for k, view in enumerate(some) if not _straight(view)] for some in views]
    size = 1 + count + sum(map(len, opens))
    if size > _LARGEST:
        raise ProofFailed("the value functions are too large for ball arithmetic; verify without exact")
    z = [[x, *(radius if j == k else arb(0) for j in range(size - 1))] for k, x in enumerate(inputs.center)]
    at, left, right, free = 1 + count, [], [], []
    for number, (layer, some, open_) in enumerate(zip(model[:-1], views, opens, strict=True)):
        v = _through(layer, z)
        z = [_closed(view, form) for view, form in zip(some, v, strict=True)]
        products: list[list[tuple[Row, Row]]] = [[], [], []]
        for k in open_:
            z[k] = [arb(int(j == at)) for j in range(size)]
            for group, pair in zip(products, _kink(layer.functions[k], some[k], v[k], z[k]), strict=True):
                group.append(pair)
            at += 1
        cut = sorted({neuron for place, neuron, _ in cuts if place == number})
        ends = [(_shifted(v[k], -some[k].low), _shifted(_times(v[k], arb(-1)), some[k].high)) for k in cut]
        for group, zero in zip((*products, ends), (False, False, True, False), strict=True):
            left += [one for one, _ in group]
            right += [two for _, two in group]
            free += [zero] * len(group)
    weights = [ball(x) for x in leaf.multipliers.tolist()]
    if len(weights) != len(free):
        raise ProofFailed("the multipliers are not those of the products")
    weights = [x if zero or x > 0 else arb(0) for x, zero in zip(weights, free, strict=True)]
    outer = most([ball(float(leaf.ball)), arb(0)])
    c = (arb_mat([row.tolist()]) * arb_mat(_through(model[-1], z))).entries()
    M = [[arb(0)] * size for _ in range(size)]
    if left:
        X = arb_mat([_times(one, x) for one, x in zip(left, weights, strict=True)]).transpose() * arb_mat(right)
        M = ((X + X.transpose()) * (arb(-1) / 2)).tolist()
    for k in range(size):
        M[0][k] -= c[k] / 2
        M[k][0] -= c[k] / 2
    M[0][0] -= outer
    for k in range(1, 1 + count):
        M[k][k] += outer
    return positive_definite(arb_mat(M))


def _through(layer: Any, z: list[Row]) -> list[Row]:
    rows = (layer.weight * arb_mat(z)).tolist()
    return [_shifted(form, b) for form, b in zip(rows, layer.bias.entries(), strict=True)]


def _times(row: Row, x: arb) -> Row:
    return [x * entry for entry in row]


def _shifted(row: Row, x: arb) -> Row:
    return [row[0] + x, *row[1:]]


def _straight(view: Any) -> bool:
    alpha, beta = view.slopes()
    return bool(alpha == beta)


def _closed(view: Any, v: Row) -> Row:
    """φ(v) = slope·v + offset on the interval; for open neurons, which follow, this says nothing."""
    slope, (value, _) = view.slopes()[0], view.arcs[0].first
    return _shifted(_times(v, slope), value - slope * view.low)


def _kink(function: Any, view: Any, v: Row, z: Row) -> list[tuple[Row, Row]]:
    """The three products of an open neuron."""
    alpha, beta = function.kink(view.low, view.high)
    if not alpha < beta:
        raise ProofFailed(
            "value functions of concave neurons are not repeated in ball arithmetic; verify without exact"
        )
    p = [x - alpha * y for x, y in zip(z, v, strict=True)]
    m = [beta * y - x for x, y in zip(z, v, strict=True)]
    top, bottom = ((beta - alpha) * view.high).upper(), ((beta - alpha) * view.low).lower()
    top, bottom = most([top, (-bottom * _CLOSE).upper()]), least([bottom, (-top * _CLOSE).lower()])
    rest, less = _shifted(_times(p, arb(-1)), top), _shifted(_times(m, arb(-1)), bottom)
    return [(p, rest), (m, less), (p, m)]
