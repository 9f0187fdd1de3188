"""A step and the map after it, proved together: the matrix inequality of both holds exactly, and is the usual one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import linalg, sparse
from test_oracle import random_step

import lipcert as lc
from exact import diagonal, matrix, positive_semidefinite, rational
from lipcert.model.arrays import Array
from lipcert.proof import image as module
from lipcert.proof import sweep
from lipcert.proof.folding import Near
from lipcert.proof.image import Image
from lipcert.proof.step import Step, activate

NONE = np.zeros(1, dtype=int)


def together(S: Array, step: Step, weight: Array, found: Array) -> bool:
    """Whether the condition of the step, seen through the weight, holds exactly for the matrix that was found."""
    n, a = len(S), step.active.shape[-1]
    spread = np.zeros((n, a))
    spread[step.active[0], np.arange(a)] = step.h[0]
    h, m, W = matrix(spread), diagonal(step.m[0]), matrix(weight)
    T = [rational(0.0)] * n
    for place, neuron in enumerate(step.active[0]):
        T[neuron] = rational(step.lifted[0, place]) / rational(step.g[0, place]) ** 2
    corner = diagonal(step.lifted[0]) - h.transpose() * matrix(S) * h
    side = h.transpose() * matrix(S) * m * W.transpose()
    rest = matrix(found) - W * (m * matrix(S) * m + diagonal(T)) * W.transpose()
    whole = matrix(np.zeros((a + len(weight), a + len(weight))))
    for i in range(a + len(weight)):
        for j in range(a + len(weight)):
            if i < a:
                whole[i, j] = corner[i, j] if j < a else side[i, j - a]
            else:
                whole[i, j] = side[j, i - a] if j < a else rest[i - a, j - a]
    return positive_semidefinite(whole)


def unscaled(image: Image, kept: Array | None = None) -> Array:
    S, exponent = image.block(kept)
    return np.ldexp(S[0], 2 * int(exponent[0]))


def cases(count: int) -> list[tuple[Array, Step, Array]]:
    """An ellipsoid, a step that was proved apart, and a weight; some of them awkward."""
    rng = np.random.default_rng(3)
    found: list[tuple[Array, Step, Array]] = []
    while len(found) < count:
        S, alpha, beta, T = random_step(rng)
        step = activate(S[None], alpha[None], beta[None], T[None], apart=True)
        if step.active.size:
            weight = rng.standard_normal((3, len(S))) * 10.0 ** rng.uniform(-6, 6, (3, 1))
            found.append((S, step, weight))
    return found


def test_the_inequality_holds_exactly() -> None:
    for S, step, weight in cases(60):
        image = Image(step.P, NONE, Near(weight), apart=step)
        assert together(S, step, weight, unscaled(image))
        kept = np.array([[0, 2]])
        assert together(S, step, weight[kept[0]], unscaled(image, kept))


def test_axes_are_above_the_diagonal() -> None:
    for _, step, weight in cases(30):
        image = Image(step.P, NONE, Near(weight), apart=step)
        whole = image._rest
        assert whole is not None
        exact = matrix(whole.Z).transpose() * matrix(whole.Z)
        base = matrix(weight) * matrix(step.P[0]) * matrix(weight).transpose()
        for row, size in enumerate(image.axes()[0]):
            assert rational(size) ** 2 >= exact[row, row] + base[row, row]


def test_whatever_the_solver_returns_the_inequality_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solution that is wrong by a millionth costs sharpness; one that is wrong and not charged is seen."""
    honest = linalg.blas.dtrsm
    monkeypatch.setattr(linalg.blas, "dtrsm", lambda *a, **k: honest(*a, **k) * (1.0 - 1e-6))
    some = cases(20)
    assert all(together(S, s, W, unscaled(Image(s.P, NONE, Near(W), apart=s))) for S, s, W in some)
    monkeypatch.setattr(module, "raise_diagonal", lambda matrix, amount, fresh=False: matrix)
    assert not all(together(S, s, W, unscaled(Image(s.P, NONE, Near(W), apart=s))) for S, s, W in some)


def test_a_radius_of_the_weight_is_charged() -> None:
    rng = np.random.default_rng(0)
    for S, step, weight in cases(20):
        radius = 1e-3 * np.abs(weight)
        found = unscaled(Image(step.P, NONE, Near(weight, radius), apart=step))
        for _ in range(4):
            inside = weight + radius * np.sign(rng.standard_normal(weight.shape)) * (1.0 - 1e-9)
            assert together(S, step, inside, found)


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("method", [lc.ClosedForm(), lc.Scalar()])
def test_bounds_are_those_of_the_usual_way(thin: bool, method: object, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    sizes = (20, 40, 25, 12, 3)
    weights = [rng.standard_normal((b, a)) / np.sqrt(a) for a, b in pairwise(sizes)]
    given = [sparse.csr_array(w * (rng.random(w.shape) < 0.5)) for w in weights] if thin else weights
    network = lc.Network.from_weights(given, [0.1 * rng.standard_normal(b) for b in sizes[1:]])
    region = lc.Ball(rng.standard_normal(20), 0.3)
    usual = lc.certify(network, region, method).bound  # type: ignore[arg-type]
    used: list[Near] = []
    honest = module.Across.of

    def watched(step: Step, weight: Near) -> module.Across:
        used.append(weight)
        return honest(step, weight)

    monkeypatch.setattr(module.Across, "of", staticmethod(watched))
    monkeypatch.setattr(sweep, "_APART", 1)
    found = lc.certify(network, region, method).bound  # type: ignore[arg-type]
    assert used
    assert found == pytest.approx(usual, rel=1e-11)


@pytest.mark.parametrize("apart", [4, 10**6])
def test_neurons_that_do_not_move_have_no_multipliers(apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs of a pool that sees only dead neurons: their slopes are open, but their differences are zero."""
    monkeypatch.setattr(sweep, "_APART", apart)
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((12, 3)), np.zeros((12, 12))
    second[:6, :6], second[6:, 6:] = rng.standard_normal((2, 6, 6))
    third = np.zeros((4, 12))
    third[:2, :6], third[2:, 6:] = rng.standard_normal((2, 2, 6))
    biases = [np.repeat([0.0, -50.0], 6), None, None, None]
    network = lc.Network.from_weights([first, second, third, rng.standard_normal((2, 4))], biases)
    certificate = lc.certify(network, lc.Ball(np.zeros(3), 1.0), lc.ClosedForm())
    for layer, half in zip(certificate.layers[1:], (6, 2), strict=True):
        assert (layer.beta > layer.alpha).all()
        assert (layer.multiplier[:half] > 0.0).all()
        np.testing.assert_array_equal(layer.multiplier[half:], 0.0)
    alive = lc.Network.from_weights(
        [first[:6], second[:6, :6], third[:2, :6], network.layers[-1].weight[:, :2]], activation="relu"
    )
    assert certificate.bound == pytest.approx(lc.certify(alive, lc.Ball(np.zeros(3), 1.0), lc.ClosedForm()).bound)
