"""Pieces to second order: never below the truth, near it when small, and caught when something is left out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.kernel import remainder, taylor
from lipcert.kernel.arithmetic import largest_norm_above
from lipcert.kernel.taylor import Monomials, Second, SecondOrder
from lipcert.model.arrays import Array
from networks import named, random_network, spread

SIZES = [(1, 5, 1), (2, 7, 6, 3), (3, 9, 2), (4, 8, 8, 1), (6, 10, 9, 3), (3, 6, 6, 6, 2), (2, 5, 5, 5, 5, 4)]
DEEP = [(1, 1, 1), (1, 2, 1, 1), (2, 4, 4, 2), (3, *[8] * 9, 2), (5, *[12] * 16, 2), (2, *[3] * 30, 1)]
ROWS = ["tanh", "sigmoid", "softplus", "silu", "gelu", "elu", "celu", "selu", "mish", "arctan", "softsign", "sin"]


def bounded(network: lc.Network, lower: Array, upper: Array) -> Second:
    ends = [np.full((len(lower), n), np.inf) for n in network.sizes[1:-1]]
    return SecondOrder(network).bound(lower, upper, [-end for end in ends], ends)


def largest(network: lc.Network, lower: Array, upper: Array, rng: np.random.Generator, many: int = 300) -> Array:
    """The largest Jacobian norm that is met in each box, its corners among the points."""
    shares = rng.uniform(size=(many, 1, lower.shape[-1]))
    shares[: many // 2] = np.round(shares[: many // 2])
    points = np.clip(lower + shares * (upper - lower), lower, upper)
    norms = np.linalg.norm(network.jacobian(points.reshape(-1, lower.shape[-1])), 2, axis=(-2, -1))
    return norms.reshape(many, -1).max(axis=0)


HALVES = {str(half): half for half in (1e-12, 1e-4, 0.03, 0.2, 1.0, 4.0)}


@pytest.mark.parametrize(("row", "half"), spread(6, named(*ROWS), HALVES))
def test_never_below_the_truth(row: str, half: float) -> None:
    """Norms, outputs, entries and pre-activations."""
    rng = np.random.default_rng(len(row))
    for seed, one in enumerate([*SIZES, *DEEP]):
        network = random_network(seed, one, row, gain=2.0 if one in SIZES else 1.5)
        center = rng.uniform(-1.0, 1.0, (6, one[0]))
        sides = half * rng.uniform(0.2, 1.0, center.shape)
        lower, upper = center - sides, center + sides
        found = bounded(network, lower, upper)
        assert (found.bounds * (1.0 + 1e-12) >= largest(network, lower, upper, rng)).all()
        assert not found.empty.any()
        for points in (lower, upper, center, lower + rng.uniform(size=center.shape) * (upper - lower)):
            values, outputs = np.concatenate(network.preactivations(points)[:-1], axis=-1), network(points)
            room = 1e-12 * (1.0 + np.abs(outputs))
            assert (np.concatenate([outputs - room, -outputs - room], axis=-1) <= found.outputs).all()
            assert (np.abs(network.jacobian(points)) <= found.entries * (1.0 + 1e-12)).all()
            assert ((found.low - 1e-12 <= values) & (values <= found.high + 1e-12)).all()


def test_a_flat_box_and_a_long_one() -> None:
    rng = np.random.default_rng(6)
    network = random_network(2, (3, 9, 9, 2), "tanh", gain=2.0)
    center = rng.uniform(-1.0, 1.0, (8, 3))
    for sides in ([0.0, 0.1, 0.1], [1e-9, 0.3, 1e-3], [0.0, 0.0, 1e-6]):
        lower, upper = center - sides, center + np.array(sides)
        found = bounded(network, lower, upper)
        truth = largest(network, lower, upper, rng)
        assert (found.bounds * (1.0 + 1e-13) >= truth).all()
        assert (found.bounds <= 1.6 * truth).all()
    assert np.isinf(bounded(network, center, center).bounds).all()


@pytest.mark.parametrize(("bias", "radius", "gain"), [(5.9e-108, 8e-123, 3.7e78), (4.9e-109, 7.6e-121, 1e20)])
def test_what_underflows_is_charged_with_the_weights_it_meets(bias: float, radius: float, gain: float) -> None:
    network = lc.Network.from_weights([[[1.0]], [[gain]]], [[bias], [0.0]], activation="cube")
    truth = 3 * Fraction(gain) * (Fraction(bias) + Fraction(radius)) ** 2
    assert Fraction(float(bounded(network, np.array([[-radius]]), np.array([[radius]])).bounds[0])) >= truth
    assert Fraction(lc.certify(network, lc.Ball([0.0], radius), lc.Auto(np.inf, 12)).bound) >= truth


@pytest.mark.parametrize(("row", "name"), [("elu", "alpha"), ("celu", "alpha"), ("softplus", "beta")])
def test_parameters_may_differ_from_neuron_to_neuron(row: str, name: str) -> None:
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal((3, 2)), rng.standard_normal((1, 3))]
    network = lc.Network.from_weights(weights, activation=lc.activation(row, **{name: [0.5, 1.0, 2.0]}))
    lower, upper = np.full((1, 2), -0.3), np.full((1, 2), 0.4)
    assert largest(network, lower, upper, rng) <= bounded(network, lower, upper).bounds < np.inf


def test_intervals_that_contradict_each_other_say_that_there_is_no_input() -> None:
    network = random_network(5, (2, 6, 6, 1), "tanh", gain=1.0)
    ends = [np.full((1, n), 50.0) for n in (6, 6)]
    found = SecondOrder(network).bound(np.zeros((1, 2)), np.ones((1, 2)), ends, [2.0 * end for end in ends])
    assert found.empty.all()


def no_rest(patch: pytest.MonkeyPatch) -> None:
    honest = remainder.fit
    patch.setattr(taylor, "fit", lambda *a: replace(found := honest(*a), rest=0.0 * found.rest))


def half_an_error(patch: pytest.MonkeyPatch) -> None:
    honest = remainder.fit
    patch.setattr(taylor, "fit", lambda *a: replace(found := honest(*a), error=0.5 * found.error))


def of_the_tables(change: Callable[[Monomials], dict[str, Any]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Polynomials whose tables are changed."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = SecondOrder.__init__

        def init(order: SecondOrder, network: lc.Network) -> None:
            honest(order, network)
            vars(order.poly).update(change(order.poly))

        patch.setattr(SecondOrder, "__init__", init)

    return plant


def no_third_order(patch: pytest.MonkeyPatch) -> None:
    honest: Any = SecondOrder._total
    patch.setattr(SecondOrder, "_total", lambda order, *a: honest(order, *a[:-1], 0.0 * a[-1]))


def no_quartic(patch: pytest.MonkeyPatch) -> None:
    honest: Any = SecondOrder._total
    patch.setattr(SecondOrder, "_total", lambda order, half, last, four, *a: honest(order, half, last, 0 * four, *a))


def no_remainders_of_layers_before(patch: pytest.MonkeyPatch) -> None:
    honest = SecondOrder.__init__

    def init(order: SecondOrder, network: lc.Network) -> None:
        honest(order, network)
        order.sizes = [0.0 * size for size in order.sizes]

    patch.setattr(SecondOrder, "__init__", init)


def intervals_of_another_piece(patch: pytest.MonkeyPatch) -> None:
    """What is known of a piece serves its parts, and nothing else."""
    honest = SecondOrder.bound

    def bound(order: SecondOrder, lower: Array, upper: Array, low: list[Array], high: list[Array]) -> Second:
        found = honest(order, lower, upper, low, high)
        starts = np.cumsum([end.shape[-1] for end in low])[:-1]
        floor, roof = (np.split(np.roll(side, 1, axis=0), starts, axis=-1) for side in (found.low, found.high))
        return honest(order, lower, upper, floor, roof)

    patch.setattr(SecondOrder, "bound", bound)


PLANTED = [
    no_rest,
    half_an_error,
    of_the_tables(lambda poly: {"values": poly.values[:, : poly.values.shape[1] // 2]}),  # half of the corners
    of_the_tables(
        lambda poly: {
            "slack": 0.0 * poly.slack,
            "slacks": [0.0 * part for part in poly.slacks],
        }
    ),
    of_the_tables(lambda poly: {"touched": [0.0 * part for part in poly.touched]}),  # no fifth degree
    of_the_tables(lambda poly: {"sides": [0.5 * side for side in poly.sides]}),  # half of an interval
    no_third_order,
    no_quartic,
    no_remainders_of_layers_before,
    intervals_of_another_piece,
]


@functools.cache
def met() -> list[tuple[lc.Network, Array, float, Array, Array]]:
    """Networks with boxes, the largest Jacobian norms there, and the largest outputs and negatives."""
    rng, found = np.random.default_rng(9), []
    for seed in range(16):
        sizes = [(1, 1, 1), (1, 2, 1), (1, 1, 1, 1), (2, 2, 2, 1)][seed % 4]
        network = random_network(seed, sizes, "tanh" if seed % 8 < 4 else "sin", gain=3.0)
        for half in (0.05, 0.2, 0.6):
            center = rng.uniform(-1.0, 1.0, (40, sizes[0]))
            truth = largest(network, center - half, center + half, rng, 300)
            points = center + half * np.round(rng.uniform(-1.0, 1.0, (60, 1, sizes[0])), 1)
            outputs = network(points.reshape(-1, sizes[0])).reshape(60, 40, -1)
            found.append((network, center, half, truth, np.concatenate([outputs, -outputs], axis=-1).max(axis=0)))
    return found


def too_low() -> int:
    """How many bounds are below what is met."""
    count = 0
    for network, center, half, truth, outputs in met():
        found = bounded(network, center - half, center + half)
        count += int((found.bounds * (1.0 + 1e-13) < truth).sum())
        count += int((found.outputs < outputs - 1e-12 * (1.0 + np.abs(outputs))).sum())
    return count


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_mistake_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some bound in many is below the truth; without the mistake none is."""
    plant(monkeypatch)
    assert too_low() > 0


def test_the_largest_of_many_norms() -> None:
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((6, 40, 3, 5)) * np.exp(rng.standard_normal((6, 40, 1, 1)))
    truth = np.linalg.norm(matrices, ord=2, axis=(-2, -1)).max(axis=1)
    found = largest_norm_above(matrices, 7)
    assert (found >= truth * (1.0 - 1e-14)).all()
    np.testing.assert_allclose(found, truth, rtol=3e-3)
