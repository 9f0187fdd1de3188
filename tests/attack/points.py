"""Points of a region at which to look, as fractions: exactly inside, some next to kinks of the first layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

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
    return _is_in(region, x, lambda one, two: one < two, lambda low, c, high: low < c < high or low == c == high)


def belongs(region: Region, x: Point) -> bool:
    """Whether x is in the region, its boundary included."""
    return _is_in(region, x, lambda one, two: one <= two, lambda low, c, high: low <= c <= high)


def _is_in(region: Region, x: Point, near: Callable[[Any, Any], Any], between: Callable[[Any, Any, Any], Any]) -> bool:
    if isinstance(region, Box):
        return all(map(between, fractions(region.lower), x, fractions(region.upper)))
    if not isinstance(region, Ball):
        return True
    parts = [abs(c - m) / u for c, m, u in zip(x, fractions(region.center), fractions(region.units), strict=True)]
    radius, name = rational(float(region.radius)), region.norm.name
    away = max(parts) if name == "linf" else sum((p * p if name == "l2" else p for p in parts), fmpq(0))
    within = near(away, radius**2 if name == "l2" else radius) or away == radius == 0
    return within and (region.clip is None or _is_in(region.clip, x, near, between))


def candidates(network: Network, region: Region, rng: np.random.Generator, count: int = 12) -> Iterator[Point]:
    """Points that may be inside a region: its centre, near its boundary, near kinks of the first layer."""
    d = network.inputs
    middle = fractions(region.center) if region.bounded else [fmpq(0)] * d
    radius = float(region.radius) if region.bounded else 10.0
    size = rational(radius if np.isfinite(radius) else 1.0)
    yield middle
    yield from _near_kinks(network, middle)
    for k in range(count):
        direction = rng.standard_normal(d) if k % 2 else np.eye(d)[rng.integers(d)] * rng.choice([-1.0, 1.0])
        direction = direction / np.linalg.norm(direction)
        share = rational(float(rng.choice(_SHARES)) if k % 3 else float(rng.random()))
        if isinstance(region, Box):
            ends = zip(fractions(region.lower), fractions(region.upper), rng.choice([-1, 1], d), strict=True)
            yield [(low + high) / 2 + share * int(sign) * (high - low) / 2 for low, high, sign in ends]
        yield [m + share * size * rational(float(c)) for m, c in zip(middle, direction)]


def seen(
    network: Network, region: Region, rng: np.random.Generator, count: int, start: int = 0, stop: int | None = None
) -> Iterator[tuple[Point, list[list[arb]]]]:
    """Points inside a region, and the Jacobian of v_stop by z_start there, on one side of kinks.

    Kinks are passed over where the values z_start may be a manifold, and the point its edge.
    """
    model = Model.of(network)
    for x in candidates(network, region, rng, count):
        if inside(region, x):
            probe = None if start else fractions(rng.standard_normal(network.inputs))
            matrix = None if start and jacobian(model, x) is None else jacobian(model, x, probe, start, stop)
            if matrix is not None:
                yield x, matrix


def _near_kinks(network: Network, middle: Point, most: int = 24) -> Iterator[Point]:
    """Points where a neuron of the first layer is at, between, or just off its kinks, moved along its row."""
    model = Model.of(network)
    for row, bias, (name, given) in zip(model.weights[0], model.biases[0], model.neurons[0], strict=True):
        weights = {j: as_fraction(w) for j, w in row}
        square = sum((w * w for w in weights.values()), fmpq(0))
        at = sum((w * middle[j] for j, w in weights.items()), as_fraction(bias))
        for mark in _marks(name, given) if weights and most > 0 else ():
            most -= 1
            yield [c + (mark - at) / square * weights.get(j, fmpq(0)) for j, c in enumerate(middle)]


def _marks(name: str, parameters: tuple[float, ...]) -> list[fmpq]:
    """Kinks of an activation and where its slope turns, about, and points between and beside them."""
    with precision(256):
        known = () if name == "identity" else function(name, parameters).marks
        breaks = [as_fraction(mark.mid()) for mark in known] or [fmpq(0)]
    widths = [abs(mark) / 2**40 if mark else fmpq(1, 2**300) for mark in breaks]
    beside = [mark + sign * width for mark, width in zip(breaks, widths, strict=True) for sign in (0, 1, -1)]
    return [*((one + two) / 2 for one, two in itertools.pairwise(breaks)), *beside]


def as_fraction(x: arb) -> fmpq:
    """A ball without radius as a fraction."""
    mantissa, exponent = x.man_exp()
    power = int(exponent)
    return fmpq(int(mantissa)) * (fmpq(2**power) if power >= 0 else fmpq(1, 2**-power))


def steepest(
    network: Network, region: Region, rng: np.random.Generator, count: int = 12, perturbed: bool = False
) -> Witness | None:
    """The largest stretch met at a few points of a region; if ``perturbed``, by a network a last place away."""
    model, best = Model.of(network), list[Witness]()
    for x in candidates(network, region, rng, count):
        if not inside(region, x):
            continue
        probe = fractions(rng.standard_normal(network.inputs))
        matrix = jacobian(model, x, probe)
        top = np.ones(1) if model.inputs == 1 else None if matrix is None else np.linalg.svd(rough(matrix))[2][0]
        for d in [probe] if top is None else [fractions(top), fractions(-top)]:
            _keep(best, model, x, d)
    for witness in best[:] if perturbed else ():
        for sign in (1, -1):

            def worse(sign: int = sign, witness: Witness = witness) -> Model:
                _, (moved,) = model.run(witness.x, [witness.d])
                toward = moved if any(not c.is_zero() for c in moved) else [arb(1)] * len(moved)
                return model.moved(witness.x, witness.d, [sign * c for c in toward])

            other = decided(worse)
            if other is not None:
                _keep(best, other, witness.x, witness.d)
    return best[0] if best else None


def _keep(best: list[Witness], model: Model, x: Point, d: Point) -> None:
    """Leave the witness of the larger stretch."""
    found = stretch(model, x, d)
    if found is not None and (not best or found > best[0].stretch):
        best[:] = [Witness(x, d, found)]
