"""Where the pre-activations of hidden neurons lie: back-substitution, and the trajectory of the centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.ellipsoid import Slopes, advance
from lipcert.exact.functions import Function, View, ball, least, most
from lipcert.exact.linear import at_least, column, image, plus_diagonal, scaled, signs
from lipcert.exact.model import Inputs, Layer, Model

Interval = tuple[list[arb], list[arb]]
_LOOKS = 9
"""Points at which a curved function is looked at before its lines are drawn."""


def views_on(functions: Sequence[Function], interval: Interval) -> list[View]:
    """Each neuron's function on its interval."""
    return [f.on(low, high) for f, low, high in zip(functions, *interval, strict=True)]


def slopes_on(views: Sequence[View]) -> Slopes:
    """The slope range of each neuron."""
    ranges = [view.slopes() for view in views]
    return [alpha for alpha, _ in ranges], [beta for _, beta in ranges]


def tightened(known: Interval, rows: Sequence[int], lower: Sequence[arb], upper: Sequence[arb]) -> Interval:
    """The known interval, with new bounds for some neurons."""
    low, high = list(known[0]), list(known[1])
    for k, new_low, new_high in zip(rows, lower, upper, strict=True):
        if not (new_low.is_nan() or new_high.is_nan()):
            low[k], high[k] = most([low[k], new_low]), least([high[k], new_high])
    return low, high


def around(middle: Sequence[arb], reach: Sequence[arb]) -> Interval:
    """What is within reach of a middle."""
    ends = list(zip(middle, reach, strict=True))
    return [(v - x).lower() for v, x in ends], [(v + x).upper() for v, x in ends]


class Lines:
    """A layer between lines: down·v + low ≤ φ(v) ≤ up·v + high on each neuron's interval, and floor ≤ φ ≤ roof.

    ``weights`` and ``offsets`` are the lines composed with v = Wz + b, the upper ones first.
    """

    def __init__(self, layer: Layer, views: Sequence[View], down: Sequence[arb], up: Sequence[arb]) -> None:
        if not all(view.low.is_finite() and view.high.is_finite() for view in views):
            raise ProofFailed("a line needs a bounded interval: a layer before has none")
        self.roof = column([view.top(1, arb(0)) for view in views])
        self.floor = -column([view.top(-1, arb(0)) for view in views])
        above = [view.top(1, a) for view, a in zip(views, up, strict=True)]
        below = [-view.top(-1, -a) for view, a in zip(views, down, strict=True)]
        self.weights = scaled(layer.weight, up), scaled(layer.weight, down)
        self.offsets = column(above) + scaled(layer.bias, up), column(below) + scaled(layer.bias, down)
        self.balls = column([x.union(y) for x, y in zip(self.floor.entries(), self.roof.entries(), strict=True)])


def suggested_lines(f: Function, view: View, alpha: arb, beta: arb) -> tuple[arb, arb]:
    """Slopes for the lower and the upper line: those of the envelopes of some points of φ, at the interval's midpoint.

    For relu that is the slope of the longer side below, and the chord above.
    """
    if not alpha < beta or not view.low < view.high:
        return alpha, alpha
    start, stop = float(view.low), float(view.high)
    if not abs(start) + abs(stop) < 1e300:
        return alpha, alpha
    marks = [float(x.mid()) for x in view.marks]
    curved = any(arc.bend for arc in view.arcs)
    looks = np.linspace(start, stop, 2 * _LOOKS)[1:-1].tolist() if curved else []
    x = np.array(sorted({start, stop, *marks, *looks}))
    y = np.array([float(f.value(arb(at)).mid()) for at in x])
    middle = 0.5 * (start + stop)
    left, right = np.flatnonzero(x < middle), np.flatnonzero(x > middle)
    if not (left.size and right.size):
        return alpha, alpha
    with np.errstate(all="ignore"):
        slope = (y[right] - y[left][:, None]) / (x[right] - x[left][:, None])
        height = y[left][:, None] + slope * (middle - x[left][:, None])
    lower, upper = (float(slope.flat[pick(height)]) for pick in (np.argmin, np.argmax))
    return ball(lower), ball(upper)


@dataclass(eq=False)
class Trace:
    """Back-substitution: each activation, last first, is replaced by the line on the safe side.

    ``depth`` says how many layers to go back at most; None is all the way.
    """

    model: Model
    inputs: Inputs
    depth: int | None = None
    lines: list[Lines] = field(default_factory=list)

    def interval(self, index: int, known: Interval, rows: Sequence[int]) -> Interval:
        """The known interval of a layer, made smaller for some neurons."""
        if not rows:
            return known
        layer = self.model[index]
        entries, bias = layer.weight.tolist(), layer.bias.entries()
        weight = arb_mat([entries[k] for k in rows])
        found = self.above(index, arb_mat([*weight.tolist(), *(-weight).tolist()]))
        upper = [(x + bias[k]).upper() for x, k in zip(found[: len(rows)], rows, strict=True)]
        lower = [(bias[k] - x).lower() for x, k in zip(found[len(rows) :], rows, strict=True)]
        return tightened(known, rows, lower, upper)

    def seen(self, index: int) -> arb_mat:
        """Balls that hold what enters a layer."""
        return self.lines[index - 1].balls if index else self.inputs.balls

    def above(self, index: int, rows: arb_mat, extra: Sequence[arb_mat] = ()) -> list[arb]:
        """At least max of rows·z, z what enters the layer ``index``; ``extra`` adds multiples of earlier v.

        Rows are cut to their midpoints at every layer; the rest, a multiple of what enters there, goes to the offset.
        """
        stop = 0 if self.depth is None else max(0, index - self.depth)
        offset = (rows - rows.mid()) * self.seen(index)
        rows = rows.mid()
        for back in range(index - 1, stop - 1, -1):
            layer, lines = self.model[back], self.lines[back]
            positive, negative = signs(rows)
            moved = positive * lines.weights[0] + negative * lines.weights[1]
            offset += positive * lines.offsets[0] + negative * lines.offsets[1]
            if extra:
                moved, offset = moved + extra[back] * layer.weight, offset + extra[back] * layer.bias
            rows = moved.mid()
            offset += (moved - rows) * self.seen(back)
        if not stop:
            return [(x + y).upper() for x, y in zip(offset.entries(), self.inputs.support(rows), strict=True)]
        positive, negative = signs(rows)
        closed = positive * self.lines[stop - 1].roof + negative * self.lines[stop - 1].floor
        return [x.upper() for x in (offset + closed).entries()]


@dataclass(eq=False)
class Centre:
    """The pre-activations at one input: numbers v̂ near them, and an ellipsoid that holds the difference.

    A ball a neuron would grow with every layer, by the norm of |W|; the ellipsoid grows by that of W only.
    """

    model: Model
    z: arb_mat
    error: arb_mat | None = None

    def step(self, index: int) -> tuple[list[arb], list[arb]]:
        """v̂ and at least |v - v̂| in a layer; goes on to the next, if there is one."""
        layer = self.model[index]
        v = layer.weight * self.z + layer.bias
        fresh = [x.rad().upper() for x in v.entries()]
        S = None if self.error is None else image(layer.weight, self.error)
        middle = v.mid().entries()
        carried = [arb(0)] * layer.size if S is None else [S[k, k].sqrt() for k in range(layer.size)]
        error = [(a + b).upper() for a, b in zip(carried, fresh, strict=True)]
        if not layer.functions:
            return middle, error
        z = column([f.value(a) for f, a in zip(layer.functions, middle, strict=True)])
        S = added(S, fresh)
        P = None if S is None else advance(S, slopes_on(views_on(layer.functions, around(middle, error))))
        self.z, self.error = z.mid(), added(P, [x.rad().upper() for x in z.entries()])
        return middle, error


def added(S: arb_mat | None, sizes: list[arb]) -> arb_mat | None:
    """At least (x + y)(x + y)ᵀ for x xᵀ ≼ S and |y_j| ≤ sizes_j, as y yᵀ ≼ diag(sizes)·Σ sizes; None is zero.

    (x + y)(x + y)ᵀ ≼ (1 + c) x xᵀ + (1 + 1/c) y yᵀ for every c > 0.
    """
    total = sum(sizes, arb(0))
    if total.is_zero():
        return S
    box = [(x * total).upper() for x in sizes]
    if S is None or S.trace().is_zero():
        n = len(sizes)
        return at_least(plus_diagonal(arb_mat(n, n) if S is None else S, box))
    c = (sum(box, arb(0)) / S.trace()).sqrt().mid()
    return at_least(plus_diagonal(S * (1 + c), [(1 + 1 / c) * x for x in box]))
