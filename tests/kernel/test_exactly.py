"""Bounds by every rule are at least the exact norm of a Jacobian, in fractions; and hardly more, so less is false."""

from __future__ import annotations

import importlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpq

import lipcert as lc
from exact import precision
from lipcert.audit.taylor import Taylor, _basis, norms_above
from lipcert.errors import ProofFailed
from lipcert.kernel.fourier import prove_symbols
from lipcert.model.arrays import dense
from lipcert.model.network import Network
from lipcert.model.regions import Region
from lipcert.questions.verify import proved
from lipcert.suggest.hints import Hints
from networks import random_network

Row = list[Fraction]


def squared_norm(network: Network, x: Row) -> Fraction:
    """‖J(x)‖² for one output; activations are relu, right of its kink, and square."""
    z, J = x, [[Fraction(int(i == j)) for j in range(len(x))] for i in range(len(x))]
    for layer in network.layers:
        weight = [[Fraction(w) for w in row] for row in dense(layer.weight).tolist()]
        z = [sum((a * b for a, b in zip(row, z)), Fraction(c)) for row, c in zip(weight, layer.bias.tolist())]
        J = [[sum((a * b for a, b in zip(row, column)), Fraction(0)) for column in zip(*J)] for row in weight]
        if layer.neurons is not None:
            squares = layer.neurons.groups[0][0].name == "square"
            slopes = [2 * v if squares else Fraction(int(v >= 0)) for v in z]
            z = [v * v if squares else max(v, Fraction(0)) for v in z]
            J = [[s * entry for entry in row] for s, row in zip(slopes, J)]
    return sum((entry * entry for entry in J[0]), Fraction(0))


SQUARE = random_network(3, (2, 4, 1), "square")
WIDE = random_network(4, (10, 3, 1), "square")
RELU = random_network(1, (2, 6, 1), "relu", gain=2.0)
ROUND = lc.conv_stack(
    [np.random.default_rng(0).uniform(0.1, 1.0, (2, 1, 3, 3))], image=(4, 4), activation="relu", head=[np.ones((1, 32))]
)
SPLIT = lc.Split(lc.ClosedForm(), np.inf, 1e-3, pieces=200)
CASES: dict[str, tuple[Network, Region, dict[str, Any], str, float]] = {
    "product of norms": (random_network(0, (3, 1)), lc.Everywhere(), {}, "product of norms", 1.0 + 1e-9),
    "fourier": (ROUND, lc.Everywhere(), {}, "fourier", 3.0),
    "branch and bound": (RELU, lc.Box([-1.0, -1.0], [1.0, 1.0]), {"method": SPLIT}, "branch and bound", 1.01),
    "half-spaces": (RELU, lc.Everywhere(), {"method": SPLIT}, "branch and bound", 1.1),
    "taylor": (SQUARE, lc.Box([-1.0, 0.0], [0.5, 1.0]), {"method": SPLIT}, "taylor", 1.01),
    "second order": (WIDE, lc.Ball(np.full(10, 0.3), 0.1), {"method": lc.Auto(np.inf, 1)}, "second order", 1.15),
}


def corners(region: Region, count: int) -> list[Row]:
    """Points of a region, as fractions: corners of a box, or points near the boundary of a ball; and some others."""
    rng = np.random.default_rng(0)
    if isinstance(region, lc.Box):
        ends = np.array(np.meshgrid(*zip(region.lower, region.upper))).reshape(count, -1).T
        return [[Fraction(c) for c in x] for x in [*ends.tolist(), *region.sample(60, rng).tolist()]]
    if isinstance(region, lc.Ball):
        steps = rng.standard_normal((400, count))
        steps *= 0.999 * float(region.radius) / np.linalg.norm(steps, axis=1, keepdims=True)
        return [[Fraction(c) for c in x] for x in (region.center + steps).tolist()]
    return [[Fraction(c) for c in x] for x in (3.0 * rng.standard_normal((400, count))).tolist()]


@pytest.mark.parametrize("name", CASES)
def test_bounds_are_above_exact_jacobians_and_less_is_refused(name: str) -> None:
    network, region, options, rule, sharp = CASES[name]
    found = lc.certify(network, region, **({"method": lc.ClosedForm()} | options))
    if rule == "product of norms":
        found = replace(found, sweeps=(), tree=None, bound=found.bound * (1.0 + 1e-10))
    if rule == "fourier":
        sweep = Hints((), (np.array([200.0, 200.0]),), (0,))
        found = replace(found, sweeps=(sweep,), bound=prove_symbols(network, sweep))
    bound, rules = proved(network, found)
    assert rule in rules
    worst = max(squared_norm(network, x) for x in corners(region, network.inputs))
    assert worst <= Fraction(bound) ** 2
    assert Fraction(bound) ** 2 <= Fraction(sharp) ** 2 * worst, float(bound / np.sqrt(float(worst)))
    for exact in (False, True):
        with pytest.raises(ProofFailed):
            lc.verify(network, replace(found, bound=np.sqrt(float(worst)) * (1.0 - 1e-9)), exact=exact)


def taylor(rng: np.random.Generator, d: int, size: float) -> Taylor:
    basis = _basis(d)
    return Taylor(basis, size * rng.standard_normal((len(basis.monomials), 2)), size * rng.uniform(0.0, 1e-3, 2))


def value(model: Taylor, at: list[fmpq], k: int) -> fmpq:
    """The polynomial k at a point, exactly."""
    found = fmpq(0)
    for term, one in zip(model.terms[:, k].tolist(), model.basis.monomials, strict=True):
        product = fmpq(*float(term).as_integer_ratio())
        for i in one:
            product *= at[i]
        found += product
    return found


def taylor_mistake(seed: int) -> bool:
    """Whether a sum, product, multiple or linear image misses a value of what it is made of, in fractions."""
    rng = np.random.default_rng(seed)
    one, two = taylor(rng, 3, 10.0 ** rng.uniform(-8, 8)), taylor(rng, 3, 10.0 ** rng.uniform(-8, 8))
    factor, weight = rng.standard_normal(2), rng.standard_normal((2, 2))
    with precision(200):
        made = [
            one + two,
            one.times(factor),
            one.plus(factor),
            one.through(weight, 2.0**-50 * np.abs(weight)),
            one * two,
        ]
    fraction = np.vectorize(lambda x: fmpq(*float(x).as_integer_ratio()), otypes=[object])
    for _ in range(4):
        at = [fmpq(int(p), 64) for p in rng.integers(-64, 65, 3)]
        ends = [[value(m, at, k) + sign * fraction(m.rest[k]) for k in (0, 1)] for m, sign in ((one, 1), (two, -1))]
        x, y = np.array(ends, dtype=object)
        true = [x + y, x * fraction(factor), x + fraction(factor), fraction(weight) @ x, x * y]
        for exactly, model in zip(true, made, strict=True):
            if any(abs(exactly[k] - value(model, at, k)) > fraction(model.rest[k]) for k in (0, 1)):
                return True
    return False


def test_taylor_models_of_the_second_opinion_hold_in_fractions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(taylor_mistake(seed) for seed in range(12))
    monkeypatch.setattr("lipcert.audit.taylor._EPS", 0.0)
    assert any(taylor_mistake(seed) for seed in range(12))


def test_norms_of_the_second_opinion_are_above_in_fractions() -> None:
    """t²I - GGᵀ has no negative eigenvalue for rows that are almost one; a little less than t is too small."""
    rng = np.random.default_rng(0)
    for size in (1e-300, 1.0, 1e300):
        G = size * rng.standard_normal((40, 1, 5))
        for one, above in zip(G, norms_above(G), strict=True):
            square = sum((fmpq(*x.as_integer_ratio()) ** 2 for x in one[0].tolist()), fmpq(0))
            assert square <= fmpq(*float(above).as_integer_ratio()) ** 2 <= square * (1 + fmpq(1, 10**9))
    twice = np.repeat(rng.standard_normal((30, 3, 1)), 4, axis=2)
    exactly = 2.0 * np.linalg.norm(twice[:, :, 0], axis=1)
    assert (exactly <= norms_above(twice)).all()
    assert (norms_above(twice) <= exactly * (1.0 + 1e-9)).all()


INTO = {"plain": lc.L2(), "units": lc.L2(scale=(0.1, 3.0, 7.0))}


def too_small(into: Any, product: bool = False) -> bool:
    """Whether a bound of one row in units is below the norm of the row in them, or far above it."""
    network = Network.from_weights([[[0.3, -0.7, 1.1]]])  # a new one: what is proved of products is remembered
    units = np.ones(3) if into.units(3) is None else into.units(3)
    row = zip(network.layers[0].weight[0].tolist(), units.tolist(), strict=True)
    square = sum(((Fraction(w) * Fraction(unit)) ** 2 for w, unit in row), Fraction(0))
    claim = lc.certify(network, lc.Everywhere(), lc.ClosedForm(), input_norm=into)
    bound = claim.bound
    if product:
        bound = lc.verify(network, replace(claim, sweeps=(), part_sweeps=(), bound=10.0))
    return not square <= Fraction(bound) ** 2 <= square * (1 + Fraction(1, 10**6))


@pytest.mark.parametrize("name", INTO)
def test_units_in_fractions(name: str) -> None:
    assert not too_small(INTO[name])
    assert not too_small(INTO["plain"], product=True)


@pytest.mark.parametrize(
    ("where", "name", "product"),
    [
        ("norms.largest_eigenvalue_above", "plain", False),
        ("norms.columns_times", "units", False),
        ("norm_product.largest_eigenvalue_above", "plain", True),
    ],
)
def test_a_norm_that_is_understated_is_seen(
    where: str, name: str, product: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, function = where.split(".")
    kernel = importlib.import_module(f"lipcert.kernel.{module}")
    honest = getattr(kernel, function)
    monkeypatch.setattr(kernel, function, lambda *given: honest(*given) * (1.0 - 1e-6))
    assert too_small(INTO[name], product)
