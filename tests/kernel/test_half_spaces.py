"""Contradicting half-spaces over all of space: what is said to have no input has none, for all weights near these."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.audit import engine, pieces
from lipcert.audit.balls import balls
from lipcert.kernel import half_spaces
from lipcert.kernel.arithmetic import Near
from lipcert.kernel.sweep import proving
from lipcert.methods.half_spaces import Cell
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from networks import random_network
from planted import plant

Ends = list[tuple[Array, Array]]


def by_balls(network: Network, ends: Ends, told: list[Array]) -> bool:
    """The second opinion."""
    return pieces.no_input(engine.read(network), [(balls(a), balls(b)) for a, b in ends], [balls(row) for row in told])


def by_floats(network: Network, ends: Ends, told: list[Array]) -> bool:
    contradict = half_spaces.contradict
    rows, (low, high) = np.concatenate(told), (np.concatenate(side) for side in zip(*ends, strict=True))
    with proving():
        stacks = [(one[None], other[None]) for one, other in ends]
        found = contradict(network, stacks, rows[None], np.where(rows > 0.0, low, high)[None], np.zeros(1, dtype=int))
        return bool(found[0])


WAYS: list[Callable[..., bool]] = [by_floats, by_balls]


def perturbed(x: Array, rng: np.random.Generator) -> list[Any]:
    """Fractions within the tolerance of weights, most of them at its ends."""
    share = rng.choice([-1, 1, 0], x.shape).astype(object)
    return np.vectorize(lambda w, s: Fraction(float(w)) * (1 + Fraction(int(s), 2**50)), otypes=[object])(x, share)


def contradicts(network: Network, ends: Ends, told: list[Array], rng: np.random.Generator) -> bool:
    """Whether factors u > 0 make Σ u_j λ_j a_j zero and Σ u_j λ_j (c_j - t_j) negative, for some weights near these."""
    rows: list[Any] = []
    v: Any = np.vectorize(Fraction, otypes=[object])(np.eye(network.inputs + 1)[:-1].astype(int))
    for layer, (low, high), row in zip(network.layers, ends, told, strict=False):
        v = perturbed(np.asarray(layer.weight), rng) @ v
        v[:, -1] += perturbed(layer.bias, rng)
        for j in np.flatnonzero(row):
            a = v[j] * Fraction(float(row[j]))
            a[-1] -= Fraction(float(row[j])) * Fraction(float(low[j] if row[j] > 0 else high[j]))
            rows.append(a)
        assert layer.neurons is not None
        at = np.clip(0.0, low, high)
        slope = layer.neurons.slope_range(low, high)
        shift = np.vectorize(Fraction, otypes=[object])(layer.neurons.value(at) - slope[0] * at)
        v = np.vectorize(Fraction, otypes=[object])(slope[0])[:, None] * v
        v[:, -1] += shift
        if (slope[0] < slope[1]).any():
            break
    *A, gaps = [list(column) for column in zip(*rows, strict=True)]
    u = null_vector(A)
    return u is not None and all(x > 0 for x in u) and sum(x * g for x, g in zip(u, gaps, strict=True)) < 0


def null_vector(A: list[list[Fraction]]) -> list[Fraction] | None:
    """An x ≠ 0 with Ax = 0, one entry of which is one, if there is only one such line."""
    pivots: list[int] = []
    for column in range(len(A[0])):
        done = len(pivots)
        pivot = next((i for i in range(done, len(A)) if A[i][column]), None)
        if pivot is None:
            continue
        A[done], A[pivot] = A[pivot], A[done]
        head = A[done] = [x / A[done][column] for x in A[done]]
        A = [row if i == done else [x - row[column] * y for x, y in zip(row, head)] for i, row in enumerate(A)]
        pivots.append(column)
    free = set(range(len(A[0]))) - set(pivots)
    if len(free) != 1:
        return None
    (last,) = free
    return [Fraction(1) if k == last else -A[pivots.index(k)][last] for k in range(len(A[0]))]


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs", "hardtanh", "relu6"])
def test_what_has_no_input_has_none_for_any_weights(activation: str) -> None:
    """Cells of random signs: multipliers of a linear program, proved twice, hold in fractions; others prove no lie."""
    rng, found = np.random.default_rng(0), 0
    for seed in range(6):
        network = random_network(seed, (3, 6, 5, 1), activation, gain=2.0)
        for _ in range(12):
            x = 2.0 * rng.standard_normal(3)
            seen, ends = network.preactivations(x), []
            for layer, v in zip(network.layers, seen[:-1], strict=False):
                assert layer.neurons is not None
                knots = np.sort(
                    np.append(np.array(layer.neurons.groups[0][0].knots(v), dtype=float), [-np.inf, np.inf])
                )
                place = np.searchsorted(knots, v)
                ends.append((knots[place - 1], knots[place]))
            told = [rng.standard_normal(len(v)) * (rng.random(len(v)) < 0.4) for v in seen[:-1]]
            assert not any(way(network, ends, told) for way in WAYS)
            j = int(rng.integers(5))
            other = rng.choice(knots[[k for k in range(len(knots) - 1) if k != place[j] - 1]])
            ends[1][0][j], ends[1][1][j] = other, knots[np.searchsorted(knots, other) + 1]
            if (weights := Cell(network, ends).void()) is not None:
                told = np.split(weights, [6])
                assert all(way(network, ends, told) for way in WAYS)
                assert contradicts(network, ends, told, rng)
                found += 1
    assert found > 3


INF = np.inf
FREE = (np.array([-INF, -INF]), np.array([INF, INF]))
TIE = 1.0 - 2.0**-50


def cell(low: list[float], high: list[float]) -> tuple[Array, Array]:
    return np.array(low), np.array(high)


def no_bias(honest: Any, network: Network, *given: Any) -> Any:
    rest = [layer.neurons.groups[0][0] for layer in network.layers[:-1] if layer.neurons]
    return honest(lc.Network.from_weights([layer.weight for layer in network.layers], None, rest), *given)


def no_signs(honest: Any, *given: Any) -> Near:
    found = honest(*given)
    return Near(np.abs(found.value), found.error)


LINE, FLAT = [[1.0], [1.0]], [0.0, 0.0]
CASES: dict[str, tuple[Any, Any, list[Any], list[Any], Ends, list[list[float]]]] = {
    # x ≤ 0 and x + 1 ≥ 1/2
    "b dropped": ("half_spaces.contradict", no_bias, [LINE], [[0.0, 1.0]],
                  [cell([-INF, 0.5], [0.0, INF])], [[-1.0, 1.0]]),
    # x ≥ 0 and x ≥ 1, which have no positive multipliers
    "λ negative": ("half_spaces.solution", no_signs, [LINE], [FLAT], [cell([0.0, 1.0], [INF, INF])], [[1.0, 1.0]]),
    # x ≥ 1 and x ≤ 1 - 2⁻⁵⁰, which some weights within 2⁻⁵⁰ allow
    "errors dropped": ("half_spaces.solution", lambda honest, *given: Near.of(honest(*given).value), [LINE], [FLAT],
                       [cell([1.0, -INF], [INF, TIE])], [[1.0, -1.0]]),
    # x ≤ -1 and relu(x) ≥ 0, with an open slope taken for 1/2
    "open slopes": ("half_spaces.slope_bounds", lambda honest, *given: (sum(honest(*given)) / 2,) * 2,
                    [LINE, [[1.0, 0.0], [0.0, 1.0]]], [FLAT, FLAT],
                    [cell([-INF, -INF], [INF, -1.0]), cell([0.0, -INF], [INF, INF])], [[0.0, -0.5], [1.0, 0.0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_planted_mistakes_make_cells_void_that_have_inputs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, wrong, weights, biases, ends, told = CASES[name]
    network = lc.Network.from_weights([*weights, [[1.0, 1.0]]], [*biases, None])
    rows = [np.array(row) for row in told]
    assert not any(way(network, ends, rows) for way in WAYS)
    plant(where, wrong)(monkeypatch)
    assert by_floats(network, ends, rows)
