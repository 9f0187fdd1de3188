"""The sweep again, in ball arithmetic and from definitions: an oracle for the checker.

It takes a network, a region, slopes of bounding lines and multipliers, and derives intervals, slopes, ellipsoids and
the final matrix on its own, every rounding error inside a radius of some 2⁻²⁰⁰. It shares no code with the package: the
activations are those of exact.py, and the rest is below. Any lines and multipliers will do, so taking those of a
certificate costs no independence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flint import arb, arb_mat

import lipcert as lc
from exact import ball, exact, highest, least, most, slope_range
from lipcert.activations import Activation
from lipcert.network import Layer, dense
from lipcert.regions import Region

Interval = tuple[list[arb], list[arb]]
Numbers = list[arb]
BEYOND = arb(2) ** -120
"""More than the search for a maximum can miss, relative to its size."""


def neurons(layer: Layer) -> list[Activation]:
    """The activation of each neuron, with single numbers as parameters."""
    assert layer.neurons is not None
    rows: dict[int, Activation] = {}
    for row, index in layer.neurons.groups:
        for place, neuron in enumerate(index):
            one = row.take(slice(place, place + 1))  # type: ignore[arg-type]
            rows[int(neuron)] = Activation(one.name, tuple(float(_single(p)) for p in one.parameters))
    return [rows[k] for k in range(layer.size)]


def _single(parameter: Any) -> Any:
    return parameter if isinstance(parameter, float) else parameter[0]


def exact_matrix(weight: Any) -> arb_mat:
    return arb_mat([[ball(x) for x in row] for row in dense(weight)])


def dot(a: Sequence[arb], b: Sequence[arb]) -> arb:
    return sum((x * y for x, y in zip(a, b, strict=True)), arb(0))


def norm(a: Sequence[arb]) -> arb:
    return dot(a, a).sqrt() if any(not x.is_zero() for x in a) else arb(0)


def support(region: Region, row: Numbers) -> arb:
    """At least max of row·z over the region, to within a rounding."""
    center = [ball(x) for x in region.center]
    if isinstance(region, lc.Box):
        ends = zip(row, region.lower, region.upper, strict=True)
        return sum((most([a * ball(low), a * ball(high)]) for a, low, high in ends), arb(0))
    assert isinstance(region, lc.Ball)
    radius = ball(float(region.radius))
    middle = dot(row, center)
    if region.clip is None or radius == 0:
        return middle + radius * norm(row)
    low = [ball(x) - c for x, c in zip(region.clip.lower, center, strict=True)]
    high = [ball(x) - c for x, c in zip(region.clip.upper, center, strict=True)]
    corner = [b if a > 0 else c for a, c, b in zip(row, low, high, strict=True)]
    if norm(corner) <= radius:
        return middle + dot(row, corner)
    # a = λy + (a - λy) for any λ > 0: the ball bounds the first part, the box the second; sharp where ‖y‖ = δ
    small, large = arb(0), (norm(row) / radius).mid() + 1

    def pulled(rate: arb) -> Numbers:
        return [least([most([a / rate, c]), b]) for a, c, b in zip(row, low, high, strict=True)]

    for _ in range(120):
        rate = ((small + large) / 2).mid()
        small, large = (small, rate) if norm(pulled(rate)) < radius else (rate, large)
    y = pulled(large)
    rest = [a - large * x for a, x in zip(row, y, strict=True)]
    return (
        middle
        + radius * large * norm(y)
        + sum((most([a * c, a * b]) for a, c, b in zip(rest, low, high, strict=True)), arb(0))
    )


def farthest(region: Region) -> arb:
    """The largest distance of a point of the region from its centre."""
    if isinstance(region, lc.Box):
        corners = zip(region.lower, region.upper, region.center, strict=True)
        return norm([most([ball(high) - ball(c), ball(c) - ball(low)]) for low, high, c in corners])
    return ball(float(region.radius))


def positive_definite(matrix: arb_mat) -> bool:
    """Whether elimination proves a symmetric matrix positive definite: every pivot's ball is above zero."""
    rows = matrix.tolist()
    n = len(rows)
    for k in range(n):
        if not rows[k][k] > 0:
            return False
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return True


@dataclass
class Oracle:
    """One sweep; ``lines`` are those of each linear enclosure in turn, with the number of layers it goes back."""

    network: lc.Network
    region: Region
    lipschitz: bool
    lines: Sequence[tuple[int | None, Sequence[tuple[Any, Any]]]]
    known: list[Interval] | None = None
    intervals: list[Interval] = field(default_factory=list)
    slopes: list[Interval] = field(default_factory=list)
    offsets: list[list[tuple[Numbers, Numbers]]] = field(default_factory=list)
    values: list[Interval] = field(default_factory=list)

    def run(self, multipliers: Sequence[Sequence[Any]]) -> arb_mat:
        """S of the output, true scale; L² is its largest eigenvalue. Multipliers are functions of (r, neuron)."""
        weights = [exact_matrix(layer.weight) for layer in self.network.layers]
        biases = [[ball(x) for x in layer.bias] for layer in self.network.layers]
        self.weights, self.biases = weights, biases
        center = [ball(x) for x in self.region.center]
        P: arb_mat | None = None
        for index, layer in enumerate(self.network.layers[:-1]):
            S = (
                weights[index] * weights[index].transpose()
                if P is None
                else weights[index] * P * weights[index].transpose()
            )
            rows = neurons(layer)
            if self.lipschitz:
                center = [
                    v + b for v, b in zip((weights[index] * _column(center)).entries(), biases[index], strict=True)
                ]
            interval = self._interval(index, S, center)
            self._settle(index, rows, interval)
            center = [value_over(row, v) for row, v in zip(rows, center, strict=True)] if self.lipschitz else center
            P = _step(S, *self.slopes[index], multipliers[index])
        last = weights[-1]
        return last * last.transpose() if P is None else last * P * last.transpose()

    def _interval(self, index: int, S: arb_mat, center: Numbers) -> Interval:
        size = self.network.layers[index].size
        lower, upper = ([arb.neg_inf()] * size, [arb.pos_inf()] * size)
        if self.known is not None:
            lower, upper = list(self.known[index][0]), list(self.known[index][1])
        weight, bias = self.weights[index].tolist(), self.biases[index]
        for k in range(size):
            above, below = [], []
            if self.lipschitz:
                reach = farthest(self.region) * S[k, k].sqrt() if S[k, k] > 0 else arb(0)
                above.append(center[k] + reach)
                below.append(center[k] - reach)
            for run, (depth, _) in enumerate(self.lines):
                above.append(self._above(run, depth, index, list(weight[k])) + bias[k])
                below.append(bias[k] - self._above(run, depth, index, [-w for w in weight[k]]))
            upper[k] = least([upper[k], *(x.upper() for x in above)])
            lower[k] = most([lower[k], *(x.lower() for x in below)])
        return lower, upper

    def _settle(self, index: int, rows: list[Activation], interval: Interval) -> None:
        self.intervals.append(interval)
        ends = list(zip(rows, *interval, strict=True))
        ranges = [_slopes(row, low, high) for row, low, high in ends]
        self.slopes.append(([low.lower() for low, _ in ranges], [high.upper() for _, high in ranges]))
        if not self.lines:
            return
        floor, roof = ([sign * _top(*end, sign, arb(0)) for end in ends] for sign in (-1, 1))
        self.values.append((floor, roof))
        self.offsets.append([])
        for _, pairs in self.lines:
            below, above = ([ball(x) for x in side] for side in pairs[index])
            low = [-_top(*end, -1, -a) for end, a in zip(ends, below, strict=True)]
            high = [_top(*end, 1, a) for end, a in zip(ends, above, strict=True)]
            self.offsets[-1].append((low, high))

    def _above(self, run: int, depth: int | None, index: int, row: Numbers) -> arb:
        """At least max of row·z, z the values that enter a layer."""
        stop = 0 if depth is None else max(0, index - depth)
        offset = arb(0)
        for back in range(index - 1, stop - 1, -1):
            below, above = ([ball(x) for x in side] for side in self.lines[run][1][back])
            low, high = self.offsets[back][run]
            offset += sum((a * (high[k] if a > 0 else low[k]) for k, a in enumerate(row)), arb(0))
            row = [a * (above[k] if a > 0 else below[k]) for k, a in enumerate(row)]
            offset += dot(row, self.biases[back])
            row = (arb_mat([row]) * self.weights[back]).entries()
        if stop == 0:
            return offset + support(self.region, row)
        low, high = self.values[stop - 1]
        return offset + sum((a * (high[k] if a > 0 else low[k]) for k, a in enumerate(row)), arb(0))


def _column(vector: Numbers) -> arb_mat:
    return arb_mat([[x] for x in vector])


def value_over(row: Activation, v: arb) -> arb:
    """φ over the small ball v: at its ends and between, by what the slope allows."""
    low, high = slope_range(row, v.lower(), v.upper())
    return exact(row).value(v.mid()) + (v - v.mid()) * most([abs(low), abs(high)])


def _slopes(row: Activation, low: arb, high: arb) -> tuple[arb, arb]:
    if low.is_finite() and high.is_finite():
        return slope_range(row, low, high)
    # all of the line: far out the derivative is within 1e-6000 of its limit, or the function is one of two slow ones
    limits = {"softsign": [arb(0)], "arctan": [arb(0)], "sin": [arb(-1), arb(1)]}.get(row.name, [])
    bound = arb(1) if row.name == "sin" else arb(30_000)
    inner = slope_range(row, -bound, bound)
    return least([*inner, *limits]), most([*inner, *limits])


def _top(row: Activation, low: arb, high: arb, sign: int, slope: arb) -> arb:
    """The largest sign·φ - slope·v, and a little more than the search may have missed."""
    found = highest(row, sign, low, high, slope)
    return (found + BEYOND * (1 + abs(found))).upper()


def _step(S: arb_mat, alpha: Numbers, beta: Numbers, multipliers: Any) -> arb_mat:
    """P = D_m S D_m + D_m S D_r (T - D_r S D_r)⁻¹ D_r S D_m + T."""
    n = S.nrows()
    m = [(a + b) / 2 for a, b in zip(alpha, beta, strict=True)]
    r = [((b - a) / 2).upper() for a, b in zip(alpha, beta, strict=True)]
    active = [k for k in range(n) if r[k] > 0 and S[k, k] > 0]
    P = arb_mat([[m[i] * S[i, j] * m[j] for j in range(n)] for i in range(n)])
    if not active:
        return P
    T = {k: multipliers(k, r[k]) for k in active}
    core = arb_mat([[(T[i] if i == j else 0) - r[i] * S[i, j] * r[j] for j in active] for i in active])
    assert positive_definite(core), "the multipliers are not feasible"
    side = arb_mat([[r[i] * S[i, j] * m[j] for j in range(n)] for i in active])
    P = P + side.transpose() * core.solve(side)
    return P + arb_mat([[T.get(i, arb(0)) if i == j else arb(0) for j in range(n)] for i in range(n)])
