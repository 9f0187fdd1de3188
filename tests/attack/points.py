"""Points of a region at which to look, as fractions: exactly inside, some next to kinks of the first layer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from flint import arb, fmpq

from attack.truth import Model, Point, Witness, decided, jacobian, rough, stretch
from exact import precision, rational
from lipcert.definitions.rows import function
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box, Region

_SHARES = (1.0 - 2.0**-30, 0.999, 0.7, 0.5, 0.3, 0.01, 2.0**-20)


def fractions(x: Array) -> Point:
    """A vector of floats, exactly."""
    return [rational(float(c)) for c in np.ravel(x)]


def inside(region: Region, x: Point) -> bool:
    """Whether x is in the region together with its neighbourhood; in a flat direction the point itself will do."""
    if isinstance(region, Box):
        ends = zip(x, fractions(region.lower), fractions(region.upper), strict=True)
        return all((low < c < high) or low == c == high for c, low, high in ends)
    if isinstance(region, Ball):
        distance, radius = _distance(region, x), rational(float(region.radius))
        near = distance < _power(region, radius) or distance == radius == 0
        return near and (region.clip is None or inside(region.clip, x))
    return True


def belongs(region: Region, x: Point) -> bool:
    """Whether x is in the region, its boundary included."""
    if isinstance(region, Box):
        ends = zip(x, fractions(region.lower), fractions(region.upper), strict=True)
        return all(low <= c <= high for c, low, high in ends)
    if isinstance(region, Ball):
        near = _distance(region, x) <= _power(region, rational(float(region.radius)))
        return near and (region.clip is None or belongs(region.clip, x))
    return True


def _distance(ball: Ball, x: Point) -> fmpq:
    """The distance from the centre in the norm of a ball, squared for ℓ2."""
    triples = zip(x, fractions(ball.center), fractions(ball.units), strict=True)
    parts = [abs(c - m) / u for c, m, u in triples]
    if ball.norm.name == "l2":
        return sum((part**2 for part in parts), fmpq(0))
    return max(parts) if ball.norm.name == "linf" else sum(parts, fmpq(0))


def _power(ball: Ball, radius: fmpq) -> fmpq:
    return radius**2 if ball.norm.name == "l2" else radius


def candidates(network: Network, region: Region, rng: np.random.Generator, count: int = 12) -> Iterator[Point]:
    """Points that may be inside a region: its centre, near its boundary, near kinks of the first layer."""
    d = network.inputs
    middle = fractions(region.center) if region.bounded else [fmpq(0)] * d
    size = rational(_shorter(region))
    yield middle
    yield from _near_kinks(network, middle)
    for k in range(count):
        direction = rng.standard_normal(d) if k % 2 else np.eye(d)[rng.integers(d)] * rng.choice([-1.0, 1.0])
        direction = direction / np.linalg.norm(direction)
        share = rational(float(rng.choice(_SHARES)) if k % 3 else float(rng.random()))
        if isinstance(region, Box):
            half = [(high - low) / 2 for low, high in zip(fractions(region.lower), fractions(region.upper))]
            signs = rng.choice([-1, 1], d)
            yield [
                (low + high) / 2 + share * int(s) * h
                for low, high, s, h in zip(fractions(region.lower), fractions(region.upper), signs, half)
            ]
        yield [m + share * size * rational(float(c)) for m, c in zip(middle, direction)]


def _shorter(region: Region) -> float:
    radius = float(region.radius) if region.bounded else 10.0
    return radius if np.isfinite(radius) else 1.0


def _near_kinks(network: Network, middle: Point, most: int = 24) -> Iterator[Point]:
    """Points where a neuron of the first layer is at, between, or just off its kinks, moved along its row."""
    model = Model.of(network)
    found = 0
    for row, bias, (name, parameters) in zip(model.weights[0], model.biases[0], model.neurons[0], strict=True):
        if found >= most or not row:
            return
        marks = _marks(name, parameters)
        weights = {j: as_fraction(w) for j, w in row}
        square = sum((w * w for w in weights.values()), fmpq(0))
        at = sum((w * middle[j] for j, w in weights.items()), as_fraction(bias))
        for mark in marks:
            found += 1
            move = (mark - at) / square
            yield [c + move * weights.get(j, fmpq(0)) for j, c in enumerate(middle)]


def _marks(name: str, parameters: tuple[float, ...]) -> list[fmpq]:
    """Kinks of an activation and where its slope turns, about, and points between and beside them."""
    with precision(256):
        known = () if name == "identity" else function(name, parameters).marks
        breaks = [as_fraction(mark.mid()) for mark in known] or [fmpq(0)]
    marks = [(one + two) / 2 for one, two in itertools.pairwise(breaks)]
    for mark in breaks:
        width = abs(mark) / 2**40 if mark else fmpq(1, 2**300)
        marks += [mark, mark + width, mark - width]
    return marks


def as_fraction(x: arb) -> fmpq:
    """A ball without radius as a fraction."""
    mantissa, exponent = x.man_exp()
    power = int(exponent)
    return fmpq(int(mantissa)) * (fmpq(2**power) if power >= 0 else fmpq(1, 2**-power))


def steepest(
    network: Network, region: Region, rng: np.random.Generator, count: int = 12, perturbed: bool = False
) -> Witness | None:
    """The largest stretch met at a few points of a region."""
    model = Model.of(network)
    best: Witness | None = None
    for x in candidates(network, region, rng, count):
        if not inside(region, x):
            continue
        probe = fractions(rng.standard_normal(network.inputs))
        for d in _directions(model, x, probe):
            found = stretch(model, x, d)
            if found is not None and (best is None or found > best.stretch):
                best = Witness(x, d, found)
    if best is not None and perturbed:
        best = _worsened(model, best)
    return best


def _directions(model: Model, x: Point, probe: Point) -> list[Point]:
    if model.inputs == 1:
        return [[fmpq(1)], [fmpq(-1)]]
    matrix = jacobian(model, x, probe)
    if matrix is None:
        return [probe]
    _, _, right = np.linalg.svd(rough(matrix))
    return [fractions(right[0]), fractions(-right[0])]


def _worsened(model: Model, witness: Witness) -> Witness:
    """The same point for the worst network whose weights are off by one unit in the last place."""
    best = witness
    for sign in (1, -1):

        def question(sign: int = sign) -> Model:
            _, (moved,) = model.run(witness.x, [witness.d])
            toward = [sign * c for c in moved]
            if all(c.is_zero() for c in toward):
                toward = [arb(sign)] * len(toward)
            return model.moved(witness.x, witness.d, toward)

        other = decided(question)
        found = None if other is None else stretch(other, witness.x, witness.d)
        if found is not None and found > best.stretch:
            best = Witness(witness.x, witness.d, found)
    return best
