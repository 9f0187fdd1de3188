"""Networks in exact arithmetic: values and derivatives at points, in balls that hold every rounding error.

Points are fractions. Numbers are balls, computed at a precision that is raised until a question is decided; numbers of
a piecewise linear network become exact that way, so kinks that are met exactly are no obstacle. A derivative is taken
along a direction: at a kink it is the one of the side that the direction leads to. So with x in the region and x + td
in it for small t, ‖f'(x; d)‖/‖d‖ is at most the Lipschitz constant, without any tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from flint import arb, fmpq

from exact import precision, rational
from lipcert.definitions.functions import jet
from lipcert.definitions.rows import function
from lipcert.model.arrays import dense
from lipcert.model.network import Network

Point = list[fmpq]
Rows = tuple[tuple[tuple[int, arb], ...], ...]
_PRECISIONS = (256, 1024, 4096, 12288)
_T = TypeVar("_T")


class Undecided(Exception):
    """The precision was too low to say on which side of a kink a number is."""


def decided(question: Callable[[], _T], precisions: Sequence[int] = _PRECISIONS) -> _T | None:
    """The answer at the first precision that decides; None where none does."""
    for bits in precisions:
        with precision(bits, 2):
            try:
                return question()
            except Undecided:
                continue
    return None


def phi(name: str, parameters: tuple[float, ...], v: arb, side: int) -> tuple[arb, arb]:
    """The value and the derivative from one side."""
    if name == "identity":
        return v, arb(1)
    known = function(name, parameters)
    index = 0
    for at in known.marks:
        if v > at:
            index += 1
        elif not v < at:
            if not (v.is_exact() and at.is_exact()):
                raise Undecided
            index += side > 0
    try:
        return jet(known.formulas[index], v)
    except ValueError:  # a ball so wide that a denominator may vanish
        raise Undecided from None


def _sign(x: arb) -> int:
    if x > 0:
        return 1
    if x < 0:
        return -1
    if x.is_exact():
        return 0
    raise Undecided


@dataclass(frozen=True, eq=False)
class Model:
    """A network's numbers, exactly: nonzero weights row by row, biases, and per neuron a name with parameters."""

    weights: tuple[Rows, ...]
    biases: tuple[tuple[arb, ...], ...]
    neurons: tuple[tuple[tuple[str, tuple[float, ...]], ...], ...]
    inputs: int

    @staticmethod
    def of(network: Network) -> Model:
        with precision(256):
            rows = [
                [[(j, arb(rational(w))) for j, w in enumerate(row) if w] for row in dense(layer.weight)]
                for layer in network.layers
            ]
            biases = tuple(tuple(arb(rational(b)) for b in layer.bias) for layer in network.layers)
        neurons = []
        for layer in network.layers:
            names: list[Any] = [("identity", ())] * layer.size
            for row, index in layer.neurons.groups if layer.neurons else ():
                columns = [np.broadcast_to(np.asarray(p, dtype=float), np.shape(index)) for p in row.parameters]
                for place, neuron in enumerate(index):
                    names[int(neuron)] = (row.name, tuple(float(values[place]) for values in columns))
            neurons.append(tuple(names))
        return Model(tuple(tuple(map(tuple, layer)) for layer in rows), biases, tuple(neurons), network.inputs)

    def run(
        self, x: Point, directions: Sequence[Point] = (), start: int = 0, stop: int | None = None
    ) -> tuple[list[list[arb]], list[list[arb]]]:
        """Pre-activations of all layers at x, and the derivatives of v_stop by z_start along directions.

        The first direction decides the sides of kinks that x meets.
        """
        z = [arb(c) for c in x]
        moved = [[arb(c) for c in d] for d in directions]
        if start:
            moved = [[arb(0)] * len(z) for _ in directions]
        values: list[list[arb]] = []
        last = len(self.weights) if stop is None else stop
        for k in range(last):
            if k == start and start:
                moved = [[arb(c) for c in d] for d in directions]
            v = [_dot(row, z) + b for row, b in zip(self.weights[k], self.biases[k], strict=True)]
            values.append(v)
            moved = [[_dot(row, d) for row in self.weights[k]] for d in moved]
            if k == last - 1:
                break
            z = []
            for neuron, (name, parameters) in enumerate(self.neurons[k]):
                value, slope = self._at(name, parameters, v[neuron], moved[0][neuron] if moved else None)
                z.append(value)
                for d in moved:
                    d[neuron] = d[neuron] * slope
        return values, moved

    @staticmethod
    def _at(name: str, parameters: tuple[float, ...], v: arb, along: arb | None) -> tuple[arb, arb]:
        if along is None or not v.is_exact():  # a ball is never known to be at a kink
            return phi(name, parameters, v, 1)
        at_kink = name != "identity" and any(v == mark for mark in function(name, parameters).marks)
        return phi(name, parameters, v, (_sign(along) or 1) if at_kink else 1)

    def moved(self, x: Point, d: Point, toward: Sequence[arb]) -> Model:
        """The network with every weight off by 2⁻⁵⁰ relatively, so that toward·f'(x; d) grows."""
        forward, slopes = [[arb(c) for c in d]], list[list[arb]]()
        values, _ = self.run(x)
        for rows, here, neurons in zip(self.weights, values, self.neurons):
            v = [_dot(row, forward[-1]) for row in rows]
            slopes.append([self._at(*one, at, along)[1] for one, at, along in zip(neurons, here, v, strict=True)])
            forward.append([s * c for s, c in zip(slopes[-1], v, strict=True)])
        back, weights = list(toward), list[Rows]()
        for k in reversed(range(len(self.weights))):
            z, before = forward[k], [arb(0)] * len(forward[k])
            rows = self.weights[k]
            off = [[1 + _lean(b * z[j] * w) * arb(2) ** -50 for j, w in row] for b, row in zip(back, rows, strict=True)]
            weights.insert(0, tuple(tuple((j, w * e) for (j, w), e in zip(*pair)) for pair in zip(rows, off)))
            for b, row in zip(back, rows, strict=True):
                for j, w in row:
                    before[j] = before[j] + w * b
            back = [c * s for c, s in zip(before, slopes[k - 1], strict=True)] if k else before
        return Model(tuple(weights), self.biases, self.neurons, self.inputs)


def _lean(x: arb) -> int:
    return 1 if x > 0 else -1 if x < 0 else 0


def _dot(row: Sequence[tuple[int, arb]], z: Sequence[arb]) -> arb:
    total = arb(0)
    for j, w in row:
        total += w * z[j]
    return total


def length(vector: Sequence[arb]) -> arb:
    """The Euclidean norm."""
    return sum((c * c for c in vector), arb(0)).sqrt()


def outputs(
    model: Model, x: Point, stop: int | None = None, precisions: Sequence[int] = _PRECISIONS
) -> list[arb] | None:
    """v_stop at x, or None where no precision will do."""
    return decided(lambda: model.run(x, stop=stop)[0][-1], precisions)


@dataclass(frozen=True, eq=False)
class Witness:
    """A point, a direction, and how much the network stretches it there."""

    x: Point
    d: Point
    stretch: arb

    def above(self, bound: float) -> bool:
        """Whether the Lipschitz constant is proved to exceed a number."""
        return bool(self.stretch > rational(bound)) if np.isfinite(bound) else False


def stretch(model: Model, x: Point, d: Point, start: int = 0, stop: int | None = None) -> arb | None:
    """‖f'(x; d)‖/‖d‖ to some digits, or None where no precision will do."""

    def question() -> arb:
        _, (moved,) = model.run(x, [d], start, stop)
        found = length(moved) / length([arb(c) for c in d])
        if not found.is_finite() or (found.rel_accuracy_bits() < 60 and not found.is_zero()):
            raise Undecided
        return found

    return decided(question)


def jacobian(model: Model, x: Point, probe: Point | None = None, start: int = 0, stop: int | None = None) -> Any:
    """The Jacobian at x as rows of balls, on the side of x that the probe leads to; None where undecided."""
    count = model.inputs if not start else len(model.weights[start - 1])
    units = [[fmpq(int(i == k)) for i in range(count)] for k in range(count)]

    def question() -> list[list[arb]]:
        _, moved = model.run(x, units if probe is None else [probe, *units], start, stop)
        columns = moved if probe is None else moved[1:]
        return [list(row) for row in zip(*columns, strict=True)]

    return decided(question)


def rough(matrix: Sequence[Sequence[arb]]) -> np.ndarray[Any, Any]:
    """The matrix in floats, divided by a power of two near its largest entry."""
    powers = [_exponent(c) for row in matrix for c in row if not c.is_zero() and c.is_finite()]
    top = max(powers, default=0)
    return np.array([[float((c * arb(2) ** -top).mid()) if c.is_finite() else 0.0 for c in row] for row in matrix])


def _exponent(x: arb) -> int:
    mantissa, exponent = x.mid().man_exp() if not x.mid().is_zero() else (0, -(10**6))
    return int(exponent) + int(mantissa).bit_length()


def norm_is_below(matrix: Sequence[Sequence[arb]], value: float) -> bool:
    """Whether ‖J‖₂ < value is proved: value² - JJᵀ (or JᵀJ) has positive pivots."""
    with precision(1024):
        J = np.array(matrix, dtype=object)
        J = J if len(J) <= J.shape[1] else J.T
        a = -(J @ J.T)
        a[np.diag_indices(len(a))] += arb(rational(value)) ** 2
        for k in range(len(a)):
            if not a[k, k] > 0:
                return False
            a[k + 1 :] = a[k + 1 :] - np.outer(a[k + 1 :, k] / a[k, k], a[k])
        return True
