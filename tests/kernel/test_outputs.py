"""What is proved beyond a bound: ellipsoids, boxes, several balls at once, fewer inputs."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from exact import matrix, positive_semidefinite
from lipcert.model.arrays import Array
from lipcert.questions.prove_outputs import prove_outputs
from networks import random_network, spread


def test_a_method_without_multipliers_is_refused() -> None:
    with pytest.raises(lc.InvalidInput, match="keeps no multipliers"):
        prove_outputs(random_network(0, (2, 3, 2)), lc.Ball([0.0, 0.0], 1.0), lc.published.Trivial())


# bounds of outputs against exact arithmetic


SEEDS = range(12)


def exact(array: Array) -> Any:
    """A matrix or vector of rational numbers."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(array, dtype=float))


def chain(seed: int, cancel: bool = False) -> tuple[lc.Network, Any, Any]:
    """A linear network, its matrix and its offset; ``cancel`` makes entries far smaller than the products they sum."""
    rng = np.random.default_rng(seed)
    sizes = (4, 7, 6, 3)
    weights = [rng.standard_normal((out, into)) for into, out in itertools.pairwise(sizes)]
    biases = [rng.standard_normal(size) for size in sizes[1:]]
    if cancel:
        weights[0][4:] = -weights[0][1:4]
        weights[1][:, 4:] = weights[1][:, 1:4] * (1.0 + 1e-13)
    network = lc.Network.from_weights(weights, biases, "identity")
    product, offset = exact(weights[0]), exact(biases[0])
    for weight, bias in zip(weights[1:], biases[1:], strict=True):
        product, offset = exact(weight).dot(product), exact(weight).dot(offset) + exact(bias)
    return network, product, offset


@pytest.mark.parametrize(
    ("seed", "cancel"), spread(4, {str(seed): seed for seed in SEEDS}, {"plain": False, "cancelling": True})
)
def test_entries_of_a_linear_network(seed: int, cancel: bool) -> None:
    network, product, _ = chain(seed, cancel)
    found = exact(lc.sensitivity(network).matrix)
    assert (found >= abs(product)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_box_of_a_linear_network(seed: int) -> None:
    network, product, offset = chain(seed)
    rng = np.random.default_rng(seed)
    low = rng.standard_normal(4)
    high = low + 10.0 ** rng.uniform(-17.0, 0.0, 4)
    found = lc.reach(network, lc.Box(low, high), lc.ClosedForm())
    corners = [product * exact(low), product * exact(high)]
    assert (exact(found.upper) >= np.maximum(*corners).sum(axis=1) + offset).all()
    assert (exact(found.lower) <= np.minimum(*corners).sum(axis=1) + offset).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ellipsoid_of_a_linear_network(seed: int) -> None:
    """shape - (y - center)(y - center)ᵀ is positive semidefinite for outputs y at the edge of the region."""
    network, product, offset = chain(seed)
    rng = np.random.default_rng(seed)
    center, radius = rng.standard_normal(4), float(10.0 ** rng.uniform(-9.0, 1.0))
    found = lc.reach(network, lc.Ball(center, radius), lc.ClosedForm())
    for _ in range(5):
        away = rng.integers(-9, 10, 4)
        if not away.any():
            continue
        # a rational point of the ball, as far out as a float factor allows
        factor = Fraction(float(np.nextafter(radius / np.linalg.norm(away), 0.0)))
        moved = np.array([factor * int(k) for k in away], dtype=object)
        while sum(moved**2) > Fraction(radius) ** 2:
            moved = moved * Fraction(2**52 - 1, 2**52)
        gap = product.dot(exact(center) + moved) + offset - exact(found.center)
        rest = exact(found.shape) - np.outer(gap, gap)
        assert positive_semidefinite(matrix(rest))


@pytest.mark.parametrize("seed", [pytest.param(k, marks=pytest.mark.slow if k % 2 else ()) for k in SEEDS])
def test_margins_and_radii_of_a_linear_network(seed: int) -> None:
    network, product, offset = chain(seed)
    x = np.random.default_rng(seed).standard_normal(4)
    values = product.dot(exact(x)) + offset
    found = lc.certified_radius(network, x)
    fact = prove_outputs(network, lc.Ball(x, 0.1), lc.ClosedForm()).leads(found.label)
    rivals = np.delete(np.arange(network.outputs), found.label)
    for rival, margin in zip(rivals, -fact.limits[0], strict=True):
        gap, row = values[found.label] - values[rival], product[found.label] - product[rival]
        assert Fraction(float(margin)) <= gap
        assert Fraction(found.radius) ** 2 * sum(row**2) <= gap**2  # the plane is at least that far away
    assert found.radius > 0
