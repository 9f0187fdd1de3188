"""How far an activation, or its slope, is from a polynomial on an interval; and its secants from a point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from flint import arb, arb_poly, arb_series, ctx

from lipcert.definitions.functions import Formula, Function, View, least, most

Wanted = tuple[int, arb, Sequence[arb]]
_SHARES, _SHRINK = 60, 0.8
"""Cells on each side of a point, and how the distances of their ends shrink towards it."""
_HALVINGS = 16
_FAR = 2**20
"""A side is cut into cells if it is so many times longer than the point is uncertain."""


def remainder(
    view: View, about: arb, wanted: Sequence[Wanted], cells: int = 1, sharp: bool = False
) -> list[tuple[arb, arb]]:
    """Numbers between which scale·φ(v) - p(v - about) lies on the interval, for each (0, scale, coefficients of p).

    With (1, …) the same of φ'. On a cell of half width w around m the difference is a series Σ g_k (v - m)^k whose last
    coefficient is one of all of the cell; its quadratic part is largest at an end or at its vertex, and the other terms
    are at most |g_k| w^k. If it has to be ``sharp``, cells where these terms matter are halved.
    """
    if not view.arcs:
        return [(arb.neg_inf(), arb.pos_inf())] * len(wanted)
    todo, found, inner = [], [], list[list[arb]]()
    for arc in view.arcs:
        width = arc.stop - arc.start
        share = max(1, math.ceil(cells * float(width / (view.high - view.low)))) if view.low < view.high else 1
        marks = [arc.start + width * k / share for k in range(share + 1)]
        todo += [(arc.formula, *ends) for ends in pairwise(marks)]
    for left in range(_HALVINGS if sharp else 0, -1, -1):
        seen = [(cell, _on_cell(*cell, about, wanted)) for cell in todo]
        inner += [[end - 2 * rest for end, rest in ends] for _, ends in seen]
        reached = [most([x.lower() for x in column]) for column in zip(*inner, strict=True)]
        todo = []
        for (formula, one, two), ends in seen:
            if left and any(end > x + abs(x) * arb(2) ** -45 for (end, _), x in zip(ends, reached, strict=True)):
                middle = ((one + two) / 2).mid()
                todo += [(formula, one, middle), (formula, middle, two)]
            else:
                found.append([end for end, _ in ends])
    tops = [most(list(column)) for column in zip(*found, strict=True)]
    return [(-below, above) for below, above in zip(tops[::2], tops[1::2], strict=True)]


def _on_cell(formula: Formula, one: arb, two: arb, about: arb, wanted: Sequence[Wanted]) -> list[tuple[arb, arb]]:
    """At least the negative and the value of each difference on a cell, and what the terms of higher order add."""
    count, cap, found = max(3, *(len(p) for *_, p in wanted)), ctx.cap, list[tuple[arb, arb]]()
    m = ((one + two) / 2).mid()
    w = most([(two - m).upper(), (m - one).upper()])
    ctx.cap = count + 2
    try:
        here, there = (arb_poly(formula(arb_series([x, 1])).coeffs()) for x in (m, one.union(two)))
    finally:
        ctx.cap = cap
    shift, series = arb_poly([m - about, 1]), (here, here.derivative())
    tails = there[count], (count + 1) * there[count + 1]
    for order, scale, p in wanted:
        g, rest = scale * series[order] - arb_poly(list(p))(shift), abs(scale * tails[order]) * w
        for k in range(count - 1, 2, -1):
            rest = (rest + abs(g[k])) * w
        rest = (rest * w * w).upper()
        found += [((_peak(s * g[0], s * g[1], s * g[2], w) + rest).upper(), rest) for s in (-1, 1)]
    return found


def _peak(a: arb, b: arb, c: arb, w: arb) -> arb:
    """At least the largest a + bx + cx² for |x| ≤ w."""
    end = (a + abs(b) * w + c * w * w).upper()
    if c >= 0 or abs(b) >= -2 * c * w:
        return end
    vertex = (a - b * b / (4 * c)).upper()
    return most([end, vertex if vertex.is_finite() else (a + abs(b) * w).upper()])


def secants(f: Function, low: arb, high: arb, center: arb, error: arb) -> tuple[arb, arb]:
    """Bounds of (φ(v) - φ(c))/(v - c) for all v of an interval and |c - center| ≤ error; all are numbers.

    On a cell at a distance of at least t a secant of the centre is at most s + max |φ - φ(center) - s·(v - center)|/t.
    One of c is (N + x)/(D + y), N/D one of the centre, |x| ≤ size·error, |y| ≤ error.
    """
    low, high = least([low, (center - error).lower()]), most([high, (center + error).upper()])
    alpha, beta = f.on(low, high).slopes()
    if alpha == beta:  # a straight line
        return alpha, beta
    value, size, found = f.value(center), most([abs(alpha).upper(), abs(beta).upper()]), list[arb]()
    for end, sign in ((low, -1), (high, 1)):
        fine = bool(abs(end - center) > _FAR * error)
        shares = [arb(_SHRINK) ** k for k in range(_SHARES - 1, 0, -1)] if fine else []
        points = [*((center + (end - center) * share).mid() for share in shares), end]
        found += f.on(*sorted([points[0], (center - sign * error).mid()], key=float)).slopes()
        for one, two in pairwise(points):
            away, view = abs(one - center).lower(), f.on(*sorted([one, two], key=float))
            seen = [((f.value(v) - value) / (v - center)).mid() for v in (one, ((one + two) / 2).mid(), two)]
            ends = least(seen), most(seen)
            wanted: list[Wanted] = [(0, arb(sign), [sign * value, sign * s]) for s in ends]
            (below, _), (_, above) = remainder(view, center, wanted)
            ends = least([ends[0], (ends[0] + below / away).lower()]), most([ends[1], (ends[1] + above / away).upper()])
            room = 2 * (size + most([abs(x).upper() for x in ends])) * error / away
            found += [(ends[0] - room).lower(), (ends[1] + room).upper()]
    return most([alpha, least(found)]), least([beta, most(found)])
