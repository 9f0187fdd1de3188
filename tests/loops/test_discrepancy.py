"""How far evaluations are apart: at least what is met in fractions and by numpy, at most a few times that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from attack.evaluations import computed
from closed_loops import controller
from lipcert.errors import ProofFailed
from lipcert.kernel import discrepancy
from lipcert.kernel.discrepancy import PROGRAMS, Program
from lipcert.model.arrays import Array, dense
from lipcert.questions.loops.discrepancy import _proved
from networks import random_network
from rational import fractions
from second_opinion import refused

BOX = lc.Box([-1.0, -1.0], [1.0, 1.0])


def grid(depth: int, axis: int = 1) -> tuple[int, ...]:
    """The cuts of a square, so many one after the other, along its axes in turn."""
    return (axis, *grid(depth - 1, 3 - axis), *grid(depth - 1, 3 - axis)) if depth else (0,)


def exactly(network: lc.Network, x: Array) -> list[Fraction]:
    """The outputs of a ReLU network, without rounding."""
    z = [Fraction(float(one)) for one in x]
    for layer in network.layers:
        rows = zip(fractions(layer.weight), map(Fraction, layer.bias.tolist()), strict=True)
        z = [sum((a * b for a, b in zip(row, z, strict=True)), bias) for row, bias in rows]
        z = z if layer.neurons is None else [max(v, Fraction(0)) for v in z]
    return z


def rounded(network: lc.Network, steps: int) -> lc.Network:
    """The network with weights on a grid, as integers have them."""
    tops = [np.abs(dense(layer.weight)).max() for layer in network.layers]
    weights = [
        np.round(dense(layer.weight) / top * steps) / steps * top
        for layer, top in zip(network.layers, tops, strict=True)
    ]
    rows = [layer.neurons for layer in network.layers if layer.neurons]
    return lc.Network.from_weights(weights, [layer.bias for layer in network.layers], rows)


SMOOTH = random_network(5, (2, 6, 6, 1), "tanh")
RELU = random_network(4, (2, 12, 10, 2), "relu", gain=1.5)


def attained(precision: str, ulps: float = 0.0) -> tuple[lc.Discrepancy, Array, Array]:
    """The bounds, and the least and largest error of evaluations against fractions."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 2)).astype(precision)
    found = _proved(RELU, None, BOX, grid(6), precision, ulps)
    outputs = [computed(RELU, x, precision, rng) for _ in range(3)]
    errors = np.array(
        [[float(Fraction(a) - b) for a, b in zip(row, exactly(RELU, p))] for y in outputs for row, p in zip(y, x)]
    )
    return found, errors.min(axis=0), errors.max(axis=0)


@pytest.mark.parametrize("precision", PROGRAMS)
def test_evaluations_are_off_by_no_more(precision: str) -> None:
    found, least, most = attained(precision)
    assert (found.lower <= least).all()
    assert (most <= found.upper).all()
    assert found.bound.max() < 60.0 * np.maximum(-least, most).max()
    lc.verify(RELU, found)


def test_two_networks_are_apart_by_no_more() -> None:
    network, other = controller(), rounded(controller(), 127)
    found = _proved(network, other, BOX, grid(8), "", 0.0)
    assert lc.difference(network, other, BOX, seconds=0.5).bound <= _proved(network, other, BOX, grid(0), "", 0.0).bound
    x = np.random.default_rng(1).uniform(-1, 1, (100_000, 2))
    apart = other(x) - network(x)
    assert (found.lower <= apart.min(axis=0)).all()
    assert (apart.max(axis=0) <= found.upper).all()
    assert found.bound.max() < 4.0 * np.abs(apart).max()
    lc.verify(network, found, other=other)
    for wrong in (None, network, RELU):
        with pytest.raises(ProofFailed, match="other"):
            lc.verify(network, found, other=wrong)
    same = lc.difference(network, network, BOX, seconds=0.0)
    assert 0.0 < same.bound.max() < 1e-11  # the real weights of each are known to 2⁻⁵⁰


def test_a_linear_difference_is_known_exactly() -> None:
    one, two = (lc.Network.from_weights([[[1.0, w]]], [[b]]) for w, b in ((2.0, 0.5), (2.5, 0.75)))
    found = lc.difference(one, two, lc.Box([0.0, -1.0], [1.0, 3.0]))
    np.testing.assert_allclose([found.lower[0], found.upper[0]], [-0.25, 1.75], rtol=1e-7)


def no_sums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Program, "sum_error", lambda self, layer, low, high: np.zeros((len(low), layer.size)))


def test_planted_mistakes_of_rounding_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    no_sums(monkeypatch)
    with pytest.raises(AssertionError):
        test_evaluations_are_off_by_no_more("float32")
    third = lc.Network.from_weights([[[1.0 / 3.0]]])  # at 1 a program errs by what its weight is off, and by no more
    error = float(np.float32(1.0 / 3.0)) - 1.0 / 3.0

    def holds() -> bool:
        return bool(lc.evaluation_error(third, lc.Box([0.0], [1.0])).upper[0] >= error > 0.0)

    assert holds()
    monkeypatch.setattr(Program, "weights", lambda self, layer: layer)
    assert not holds()


def on_the_way(terms: list[Fraction], rng: np.random.Generator, way: int) -> Fraction:
    """The sizes of all sums of two or more that are made while terms are added, in some order or other."""
    left, total = sorted(terms, reverse=way != 1), Fraction(0)
    while len(left) > 1:
        one, two = (0, 1) if way < 2 else rng.choice(len(left), 2, replace=False)
        left = [left[one] + left[two], *(x for k, x in enumerate(left) if k not in (one, two))]
        total += abs(left[0])
    return total


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_sums_in_any_order_lose_no_more(share: float) -> None:
    """In fractions, for random trees, and with all that is positive first; with a share of it that is noticed."""
    rng, worst, unit = np.random.default_rng(2), 0.0, 2.0**-40
    for number in range(40):
        terms = np.array([1.0, -1.0] * 3) if number == 0 else rng.standard_normal(int(rng.integers(2, 9))) ** 3
        layer = lc.Network.from_weights([terms[None, 1:]], [terms[:1]]).layers[0]
        ones = np.ones((1, len(terms) - 1))
        found = Program("float64", unit, 0.0, 0.0).sum_error(layer, ones, ones).item() / unit
        exact = [Fraction(x) for x in terms.tolist()]
        sizes = [on_the_way(exact, rng, way) + sum(map(abs, exact)) for way in range(60)]
        worst = max(worst, float(max(sizes)) / (share * found))
    assert (worst <= 1.0) == (share == 1.0)


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "slope_bounds": ("tanh", lambda real: lambda *asked: [0.5 * sum(real(*asked))] * 2),
    "fit": ("tanh", lambda real: lambda *asked: replace(real(*asked), error=0.0 * real(*asked).error)),
    "relax": ("relu", lambda real: lambda *asked: [x - 0.1 * (k == 3) for k, x in enumerate(real(*asked))]),
    "_strip": ("relu", lambda real: lambda *asked: [*real(*asked)[:2], 0.5 * real(*asked)[2]]),
    "_above": ("relu", lambda real: lambda *asked: 0.5 * real(*asked)),
    "activated": ("tanh", lambda real: lambda *asked: [0.5 * end for end in real(*asked)]),
}


@pytest.mark.parametrize("name", WRONG)
def test_planted_mistakes_of_differences_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Middles of slopes for slopes, lines that are lower, and sums, strips and values that are half of themselves."""
    kind, wrong = WRONG[name]
    large = random_network(7, (2, 8, 8, 1), kind, gain=2.0)
    small = [lc.Network.from_weights([np.eye(2), [[1.0, 1.0]]], [[b, b], [0.0]], kind) for b in (1.0, 0.8)]
    x = np.concatenate([np.random.default_rng(1).uniform(-1, 1, (20_000, 2)), [[1, 1], [1, -1], [-1, 1], [-1, -1]]])
    far = [lc.Network.from_weights([9.0 * np.eye(2), [[1.0, 1.0]]], [b * np.ones(2), [0.0]], kind) for b in (0.0, 40.0)]

    def holds() -> bool:
        found = []
        for one, two in [far, (large, rounded(large, 3)), (large, rounded(large, 5)), small, small[::-1]]:
            proved, apart = _proved(one, two, BOX, grid(4), "", 0.0), two(x) - one(x)
            found.append((proved.lower <= apart.min(axis=0)).all() and (apart.max(axis=0) <= proved.upper).all())
        return all(found)

    assert holds()
    monkeypatch.setattr(discrepancy, name, wrong(getattr(discrepancy, name)))
    assert not holds()


def test_slopes_reach_where_the_second_network_is(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (lc.Network.from_weights([[[1.0]], [[1.0]]], [[b], [0.0]], "relu") for b in (-1.0, 1.0))

    def holds() -> bool:
        found = lc.difference(one, two, lc.Box([0.0], [0.5]))
        return bool(found.upper[0] >= 1.5)

    assert holds()
    monkeypatch.setattr(discrepancy, "slope_bounds", lambda n, low, high: (np.zeros_like(low), (low > 0).astype(float)))
    assert not holds()


def test_what_overflows_has_no_bound() -> None:
    large = lc.Network.from_weights([[[300.0]], [[300.0]]], activation="relu")
    with pytest.raises(ProofFailed, match="another precision"):
        lc.evaluation_error(large, lc.Box([0.0], [1.0]), "float16")
    assert lc.evaluation_error(large, lc.Box([0.0], [1.0])).bound.item() < 0.1


CLAIMS: dict[str, tuple[lc.Network, lc.Network | None, Callable[[], lc.Discrepancy]]] = {
    "float32": (RELU, None, lambda: lc.evaluation_error(RELU, BOX, seconds=0.05)),
    "float16": (RELU, None, lambda: lc.evaluation_error(RELU, lc.Ball([0.1, 0.2], 0.4), "float16", seconds=0.05)),
    "smooth": (SMOOTH, rounded(SMOOTH, 127), lambda: lc.difference(SMOOTH, rounded(SMOOTH, 127), BOX, seconds=0.02)),
    "weights": (RELU, rounded(RELU, 127), lambda: lc.difference(RELU, rounded(RELU, 127), BOX, seconds=0.05)),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_the_second_opinion_agrees(case: str) -> None:
    network, other, ask = CLAIMS[case]
    found = ask()
    assert lc.verify(network, found, exact=True, other=other) is found
    share = 0.7 * (found.upper - found.lower)
    for less in (replace(found, lower=found.lower + share), replace(found, upper=found.upper - share)):
        assert refused(network, less, other)
        with pytest.raises(ProofFailed, match="claims more"):
            lc.verify(network, less, other=other)
