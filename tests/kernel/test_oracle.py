"""The checker against an oracle in ball arithmetic, and its step against exact fractions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq, fmpq_mat

import lipcert as lc
from exact import PRECISION, ball, diagonal, matrix, positive_semidefinite, precision, rational
from lipcert.audit.balls import Balls, balls, dot
from lipcert.kernel import arithmetic as near
from lipcert.kernel.domain import Domain
from lipcert.kernel.enclosures import stretch_below, trajectory
from lipcert.kernel.step import Step, activate
from lipcert.kernel.sweep import Sweep, proving
from lipcert.model.arrays import Array, Interval, dense
from lipcert.model.regions import Region
from lipcert.suggest.hints import Enclosure, Hints, Linear, Lipschitz, StoredGuide
from networks import ROWS
from oracle import Oracle, below, check_inside, exact_layers, norm, rules_of, single, value_over

CASES = 300


def random_weight(rng: np.random.Generator, out: int, into: int) -> Array:
    weight = rng.standard_normal((out, into)) * 10.0 ** rng.uniform(-0.7, 0.5)
    kind = rng.integers(0, 8)
    if kind == 0:
        return np.repeat(weight[:1], out, axis=0)
    if kind == 1:
        return np.outer(rng.standard_normal(out), rng.standard_normal(into))
    if kind == 2:
        return np.where(rng.random(weight.shape) < 0.4, 0.0, weight)
    if kind == 3:
        return weight * 10.0 ** rng.uniform(-6, 6)
    return weight


def random_region(rng: np.random.Generator, inputs: int) -> Region:
    center = rng.standard_normal(inputs)
    radius = float(10.0 ** rng.uniform(-4, 0.6))
    kind = rng.integers(0, 7)
    if kind == 0:
        return lc.Everywhere()
    if kind == 1:
        return lc.Box(center - radius * rng.random(inputs), center + radius * rng.random(inputs))
    if kind == 2:
        reach = radius * rng.random((2, inputs))
        return lc.Ball(center, radius, clip=(center - reach[0], center + reach[1]))
    return lc.Ball(center, 0.0 if kind == 3 else radius)


METHODS = [lc.ClosedForm(), lc.Scalar(), lc.Diagonal(), lc.Joint(iterations=8)]
ENCLOSURES: list[tuple[Enclosure, ...]] = [
    (Lipschitz(), Linear()),
    (Lipschitz(),),
    (Linear(depth=None),),
    (Lipschitz(), Linear(depth=1)),
    (Linear(depth=2), Linear(depth=None, tilt=0.3), Lipschitz()),
]


def random_case(number: int) -> tuple[lc.Network, Region, Any, tuple[Enclosure, ...]]:
    """A network of up to 4 layers × 6 neurons; every activation comes up, in every kind of region."""
    rng = np.random.default_rng(number)
    sizes = rng.integers(1, 7, int(rng.integers(3, 6)))
    weights = [random_weight(rng, b, a) for a, b in itertools.pairwise(sizes.tolist())]
    biases = [rng.standard_normal(len(w)) * np.abs(w).max() for w in weights]
    row = ROWS[number % len(ROWS)]
    specs: list[Any] = [row for _ in weights[1:]]
    if number % 5 == 0:
        specs = [[ROWS[k] for k in rng.integers(0, len(ROWS), len(w))] for w in weights[:-1]]
    network = lc.Network.from_weights(weights, biases, specs)
    return network, random_region(rng, network.inputs), METHODS[number % 4], ENCLOSURES[int(rng.integers(0, 5))]


def compare(network: lc.Network, region: Region, sweeps: tuple[Hints, ...]) -> tuple[float, Balls]:
    """Prove the sweeps in both ways; every interval and slope range of the oracle must lie inside the proof's."""
    proved, S = np.inf, None
    known: Sequence[Interval] = ()
    exact_known: list[Any] = []
    domain = Domain.of([region]) if region.bounded else None
    for hints in sweeps:
        with proving():
            sweep = Sweep(network, domain, StoredGuide(hints, network, region.bounded), known).run()
            proved = min(proved, float(sweep.bounds[0]))
        oracle = Oracle(network, region, hints, exact_known, rules_of(sweep))
        check_inside(sweep, 0, oracle)
        S, known, exact_known = oracle.S, sweep.intervals, oracle.intervals
    assert S is not None
    return proved, S


@pytest.mark.parametrize("batch", [0, 1, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 10))])
def test_oracle_is_never_above_the_proved_bound(batch: int) -> None:
    tight = 0
    for number in range(batch * CASES // 10, (batch + 1) * CASES // 10):
        network, region, method, enclosures = random_case(number)
        certificate = lc.certify(network, region, method, enclosures=enclosures)
        if certificate.found_by == "Trivial":  # the product of norms was less, and has tests of its own
            continue
        with precision(PRECISION):
            proved, S = compare(network, region, certificate.sweeps)
            assert proved <= certificate.bound
            assert below(S, proved), number
            tight += not below(S, proved * (1.0 - 1e-9))
    assert tight >= 0.6 * CASES / 10  # others have no slope at all, or only slopes that rounding opens


def block(S: Array, step: Step) -> fmpq_mat:
    """The matrix of the step's condition, exactly, for the floats that the step names."""
    n, k = len(S), len(step.active)
    h, lifted = diagonal(step.h), diagonal(step.lifted)
    T = [fmpq(0)] * n
    for place, up, g in zip(step.active, step.lifted, step.g, strict=True):
        T[place] = rational(up) / rational(g) ** 2
    exact, m = matrix(S), diagonal(step.m)
    rows = fmpq_mat([[exact[int(i), j] for j in range(n)] for i in step.active]) if k else fmpq_mat(0, n)
    corner = fmpq_mat([[exact[int(i), int(j)] for j in step.active] for i in step.active]) if k else fmpq_mat(0, 0)
    side = h * rows * m if k else rows
    first = lifted - h * corner * h if k else corner
    last = matrix(step.P) - diagonal(T) - m * exact * m
    top = [[*first.table()[i], *side.table()[i]] for i in range(k)]
    return fmpq_mat(top + [[*(side[i, j] for i in range(k)), *last.table()[j]] for j in range(n)])


def random_step(rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """S, slopes and multipliers, many awkward: near the edge of what is feasible, ill-scaled, or no hint at all."""
    n = int(rng.integers(1, 7))
    factor = rng.standard_normal((n, int(rng.integers(1, n + 2))))
    kind = rng.integers(0, 5)
    if kind == 0:
        factor = factor * 10.0 ** rng.uniform(-8, 8, (n, 1))
    if kind == 1:
        factor = np.repeat(factor[:1], n, axis=0)
    S = factor @ factor.T
    S = 0.5 * (S + S.T)
    S[np.arange(n), np.arange(n)] += 1e-16 * np.trace(S)
    ends = np.sort(rng.normal(0.5, 0.6, (2, n)), axis=0)
    alpha, beta = ends[0], np.where(rng.random(n) < 0.2, ends[0], ends[1])
    close = rng.random(n) < 0.2
    beta = np.where(close & (beta > alpha), alpha + 1e-14, beta)
    r = 0.5 * (beta - alpha)
    edge = np.linalg.eigvalsh(r[:, None] * S * r)[-1]
    T = edge * (1.0 + 10.0 ** rng.uniform(-16, 1)) * np.ones(n)
    T = np.where(rng.random(n) < 0.1, 0.0, T) if rng.random() < 0.5 else T
    return S, alpha, beta, T * (10.0 ** rng.uniform(-12, 0) if rng.random() < 0.1 else 1.0)


def step_of(S: Array, alpha: Array, beta: Array, T: Array) -> Step:
    """The step of a single region."""
    return single(activate(S[None], alpha[None], beta[None], T[None]), 0)


def step_is_valid(S: Array, alpha: Array, beta: Array, step: Step) -> bool:
    """The slopes are inside, and the matrix inequality of the step holds exactly."""
    for k, h, g in zip(step.active, step.h, step.g, strict=True):
        reach = rational(h) / rational(g)
        assert rational(step.m[k]) - reach <= rational(alpha[k])
        assert rational(step.m[k]) + reach >= rational(beta[k])
    settled = np.setdiff1d(np.arange(len(S)), step.active)
    assert (alpha[settled] == beta[settled]).all()
    assert (step.m[settled] == alpha[settled]).all()
    return positive_semidefinite(block(S, step))


def test_the_step_satisfies_its_matrix_inequality_exactly() -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        S, alpha, beta, T = random_step(rng)
        assert step_is_valid(S, alpha, beta, step_of(S, alpha, beta, T))


def test_a_step_without_its_inflation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Array] = []

    honest = near.raised

    def bare(matrix: Array, amount: Array) -> Array:
        computed.append(matrix.copy())
        return honest(matrix, amount)

    monkeypatch.setattr(near, "raised", bare)
    rng = np.random.default_rng(2)
    caught = 0
    for _ in range(40):
        S, alpha, beta, T = random_step(rng)
        step = step_of(S, alpha, beta, T)
        P = computed[-1][0].copy()
        P[step.active, step.active] += 1.0 / step.g**2
        flawed = replace(step, P=P, lifted=np.ones(len(step.active)))
        caught += not positive_semidefinite(block(S, flawed))
    assert caught > 20


def exact_values(network: lc.Network, point: Array) -> list[list[arb]]:
    """The pre-activations of the hidden layers at a point."""
    z, found = balls(point), []
    for layer in exact_layers(network)[:-1]:
        v = dot(layer.weight, z) + layer.bias
        z = np.array([value_over(f, x) for f, x in zip(layer.functions, v, strict=True)], dtype=object)
        found.append(list(v))
    return found


def test_values_at_a_point_are_within_their_errors() -> None:
    """And the errors are small: of the size that rounding has, carried through the layers."""
    for number in range(60):
        network, region, _, _ = random_case(number)
        point = region.center if region.bounded else np.zeros(network.inputs)
        others = np.random.default_rng(number).standard_normal((2, network.inputs))
        path = [(v[1], e[1]) for v, e in trajectory(network, np.stack([others[0], point, others[1]]))]
        with precision(PRECISION):
            exact = exact_values(network, point)
            for (v, error), true in zip(path, exact, strict=True):
                assert all(abs(ball(a) - t) <= ball(e) for a, e, t in zip(v, error, true, strict=True))
        if network.depth < 4:
            scale = max(1.0, *(float(np.abs(v).max()) for v, _ in path))
            gain = np.prod([1.0 + np.linalg.norm(dense(layer.weight), 2) for layer in network.layers])
            assert all((error <= 1e-11 * scale * gain).all() for _, error in path)


def test_stretches_are_attained() -> None:
    """stretch_below is at most ‖J d‖/‖d‖ of the exact Jacobian, and hardly less away from kinks."""
    rng = np.random.default_rng(0)
    tight = 0
    for number in range(80):
        network, region, _, _ = random_case(number)
        where = region if region.bounded else lc.Ball(np.zeros(network.inputs), 1.0)
        point, direction = where.sample(2, rng)[1], rng.standard_normal(network.inputs)
        with precision(PRECISION):
            y = balls(direction)
            layers = exact_layers(network)
            for layer, v in zip(layers, exact_values(network, point)):
                slopes = [f.on(x.lower(), x.upper()).slopes()[0] for f, x in zip(layer.functions, v, strict=True)]
                y = np.array(slopes, dtype=object) * dot(layer.weight, y)
            true = norm(dot(layers[-1].weight, y)) / norm(balls(direction))
            found = stretch_below(network, point, direction)
            assert ball(found) <= true.upper()
            tight += bool(ball(found) >= true * (1 - ball(1e-9)))
    assert tight > 50
