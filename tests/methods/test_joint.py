"""All multipliers together: gradients, values, the optimum of LipSDP, and everything that can be degenerate."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.methods.joint import Chain, Value, chosen, log_multipliers
from lipcert.methods.method import Candidate, Kept, Problem
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.reproduce.cells import paper_network
from lipcert.reproduce.printed import paper_table
from lipcert.suggest.hints import BOTH
from networks import random_network

Slopes = tuple[Array, Array]


def problem(network: lc.Network, region: Region | None = None) -> Problem:
    return Problem(network, region or lc.Everywhere(), BOTH)


def scalar(network: lc.Network, region: Region | None = None) -> Candidate:
    return lc.Scalar().solve(problem(network, region))


def chain_of(network: lc.Network, slopes: list[Slopes]) -> Chain:
    """The chain of all neurons with the given slopes."""
    parts = zip(slopes, network.layers[1:], strict=True)
    kept = [Kept(alpha, beta, ahead.weight, np.arange(alpha.size)) for (alpha, beta), ahead in parts]
    return Chain(network.layers[0].weight, kept)


def at(chain: Chain, x: Array, mu: float) -> Value:
    value = chain(x, mu)
    assert value is not None
    return value


def mixed(seed: int, sizes: tuple[int, ...]) -> tuple[lc.Network, list[Slopes]]:
    """A random network and random slope ranges: layers with all neurons active, some, and none."""
    rng = np.random.default_rng(seed)
    network = random_network(seed, sizes)
    slopes = []
    for number, size in enumerate(sizes[1:-1]):
        alpha = rng.uniform(-0.5, 0.8, size)
        width = rng.uniform(0.05, 0.8, size) * 10.0 ** rng.uniform(-4, 0, size)
        active = rng.random(size) < (1.0, 0.5, 0.0)[number % 3]
        slopes.append((alpha, alpha + np.where(active, width, 0.0)))
    return network, slopes


def derivative(function: Any, h: float) -> float:
    """The derivative at 0 by the central difference of order 8."""
    weights = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
    return float(sum(w * (function(k * h) - function(-k * h)) for k, w in enumerate(weights, 1)) / h)


CHAINS = {
    "one layer": mixed(0, (3, 6, 2)),
    "all, some, none": mixed(1, (4, 7, 6, 5, 3)),
    "deep": mixed(2, (3, 8, 8, 8, 8, 8, 8, 8, 2)),
    "wide output": mixed(3, (2, 5, 4, 9)),
    "narrow middle": mixed(4, (5, 9, 1, 9, 3)),
}
CHAINS["none first"] = CHAINS["deep"][0], CHAINS["deep"][1][2:] + CHAINS["deep"][1][:2]


@pytest.mark.parametrize("case", CHAINS)
@pytest.mark.parametrize("mu", [1e-2, 1e-4])
def test_the_gradient_is_the_derivative(case: str, mu: float) -> None:
    chain, rng = chain_of(*CHAINS[case]), np.random.default_rng(7)
    assert chain.size
    for distance in (1.5, 4.0):
        x = np.log(chain.size) + distance + 0.3 * rng.standard_normal(chain.size)  # above log n: feasible
        gradient = at(chain, x, mu).gradient
        directions = [*np.eye(chain.size)[rng.permutation(chain.size)[:4]], *rng.standard_normal((4, chain.size))]
        for u in directions:
            found = derivative(lambda t, x=x, u=u: at(chain, x + t * u, mu).f, 5e-3)
            # the value carries a rounding error of about 1e-15·|f|, which the difference divides by its step
            noise = 1e-12 * max(1.0, abs(at(chain, x, mu).f))
            assert gradient @ u == pytest.approx(found, rel=1e-9, abs=noise)


def test_the_check_above_can_fail() -> None:
    network, slopes = CHAINS["deep"]
    chain = chain_of(network, slopes)
    x = np.full(chain.size, np.log(chain.size) + 1.0)
    u = np.random.default_rng(0).standard_normal(chain.size)
    found = derivative(lambda t: at(chain, x + t * u, 1e-2).f, 5e-3)
    assert (at(chain, x, 1e-2).gradient * (1 + 1e-6)) @ u != pytest.approx(found, rel=1e-9, abs=1e-12)
    assert at(chain, x, 1.001e-2).gradient @ u != pytest.approx(found, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("powers", [(150.0, -150.0, 140.0, -120.0), (-140.0, -140.0, -150.0, 5.0)])
def test_scale_appears_nowhere(powers: tuple[float, ...]) -> None:
    network, slopes = CHAINS["all, some, none"]
    weights = [layer.weight * 10.0**p for layer, p in zip(network.layers, powers, strict=True)]
    one, two = chain_of(network, slopes), chain_of(lc.Network.from_weights(weights), slopes)
    x = np.full(one.size, np.log(one.size) + 1.0)
    here, there = at(one, x, 1e-3), at(two, x, 1e-3)
    shift = sum(powers) * np.log(10.0)
    assert there.log_bound - here.log_bound == pytest.approx(shift, rel=1e-12)
    assert there.f - here.f == pytest.approx(2.0 * shift, rel=1e-12)
    np.testing.assert_allclose(there.gradient, here.gradient, rtol=1e-7, atol=1e-13)


@pytest.mark.parametrize("region", [lc.Everywhere(), lc.Ball([0.2, -0.1, 0.3], 0.4)], ids=["everywhere", "ball"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
def test_the_value_is_the_bound_of_the_sweep(activation: str, region: Region) -> None:
    network = random_network(5, (3, 12, 10, 11, 2), activation)
    proof = scalar(network, region)
    chain = Chain(network.layers[0].weight, proof.kept)
    x = chain.coordinates(log_multipliers(proof))
    assert np.exp(at(chain, x, 1e-3).log_bound) == pytest.approx(proof.bound, rel=1e-9)
    x = x + 0.4 + 0.2 * np.random.default_rng(1).random(x.size)
    again = problem(network, region).knowing(proof).sweep(chosen(chain, x))
    assert np.exp(at(chain, x, 1e-3).log_bound) == pytest.approx(again.bound, rel=1e-9)
    np.testing.assert_allclose(chain.coordinates(log_multipliers(again)), x, atol=1e-8)


def test_outside_the_feasible_set_there_is_no_value() -> None:
    chain = chain_of(*CHAINS["one layer"])
    assert chain(np.full(chain.size, -0.01), 1e-3) is None  # e^x must exceed 1, the diagonal of a correlation matrix
    assert chain(np.full(chain.size, np.log(chain.size) + 1e-6), 1e-3) is not None


@pytest.mark.parametrize("cell", [(10, 5), (10, 10), (20, 5), (20, 10), (40, 5), (60, 5)])
def test_global_bounds_are_lipsdp_s(cell: tuple[int, int]) -> None:
    width, layers = cell
    table = paper_table("table1")["lipsdp-neuron", width, layers, 1.0].value
    assert table is not None
    bound = lc.certify(paper_network(width, layers, "relu"), method=lc.Joint()).bound
    assert table - 0.0005 <= bound <= table * 1.005 + 0.0005


@pytest.mark.parametrize("rows", [True, False], ids=["still", "unheard"])
def test_dead_neurons(rows: bool) -> None:
    """Neurons that never move, or that nobody listens to: the bound is that of the network without them."""
    weights = [layer.weight.copy() for layer in random_network(3, (4, 9, 9, 9, 2)).layers]
    for before, after in itertools.pairwise(weights):
        (before if rows else after.T)[::3] = 0.0
    alive = np.flatnonzero(np.arange(9) % 3)
    fewer = [weights[0][alive], *(w[np.ix_(alive, alive)] for w in weights[1:-1]), weights[-1][:, alive]]
    with_them, without = (lc.Joint().solve(problem(lc.Network.from_weights(part))).bound for part in (weights, fewer))
    assert with_them == pytest.approx(without, rel=1e-3)
    ball = lc.Ball(np.zeros(4), 0.5)
    network = lc.Network.from_weights(weights, activation="silu")
    assert lc.lower_bound(network, ball).value <= lc.certify(network, ball, lc.Joint()).bound
