"""The step of a wide first layer: as the usual one, but for rounding, and true for every slope."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.model.arrays import Weight
from lipcert.proof import sweep
from lipcert.proof.rounding import congruence
from lipcert.proof.step import activate, thin_step


def layer(seed: int, thin: bool) -> tuple[Weight, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((700, 30)) / 30.0
    weight[::50] = 0.0
    alpha = np.where(rng.random(700) < 0.1, 1.0, rng.uniform(0.0, 0.4, 700))
    beta = np.where(alpha == 1.0, 1.0, rng.uniform(0.5, 1.0, 700))
    hint = np.where(alpha < beta, rng.uniform(0.5, 1.5, 700), 0.0)
    return (sparse.csr_array(weight * (rng.random(weight.shape) < 0.3)) if thin else weight), alpha, beta, hint


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("power", [-3, 0, 2])
def test_it_is_the_usual_step(thin: bool, power: int) -> None:
    weight, alpha, beta, hint = layer(0, thin)
    hint = hint * 4.0**power
    found = thin_step(weight, power, alpha[None], beta[None], hint[None])
    assert found is not None
    S = congruence(None, weight * 2.0**power)
    usual = activate(S[None], alpha[None], beta[None], hint[None])
    moving = np.flatnonzero(np.asarray(abs(weight).sum(axis=1)).ravel())  # a row of zeros adds nothing here
    assert 0 < 700 - moving.size < 20
    block = np.ix_(moving, moving)
    np.testing.assert_allclose(found.P[0][block], usual.P[0][block], rtol=0, atol=1e-11 * float(np.abs(usual.P).max()))
    np.testing.assert_array_equal(found.P, np.swapaxes(found.P, -1, -2))
    np.testing.assert_allclose(found.multipliers[:, moving], usual.multipliers[:, moving], rtol=1e-12)


def test_no_slopes_leave_the_ellipsoid() -> None:
    """z Δz ≤ ‖d‖² zᵀPz for the worst directions; a matrix that were a thousandth smaller would not hold it."""
    weight, alpha, beta, hint = layer(1, False)
    found = thin_step(weight, 0, alpha[None], beta[None], hint[None])
    assert found is not None
    rng, tightest = np.random.default_rng(2), 0.0
    P = found.P[0] + 1e-9 * np.eye(700)
    for _ in range(20):
        slopes = np.where(rng.random(700) < 0.5, alpha, beta)
        moved = slopes[:, None] * np.asarray(weight)
        # max over d of Δzᵀ P⁻¹ Δz, which must not exceed ‖d‖²
        tightest = max(tightest, float(np.linalg.eigvalsh(moved.T @ np.linalg.solve(P, moved))[-1]))
    assert 0.2 < tightest <= 1.0


def test_what_it_cannot_do_is_left_to_the_usual_step() -> None:
    weight, alpha, beta, hint = layer(0, False)
    slopes = alpha[None], beta[None]
    assert thin_step(weight, 0, *slopes, hint[None] * 1e-6) is None  # I - N is not positive definite
    assert thin_step(weight, 0, *slopes, hint[None] * np.nan) is None
    assert thin_step(np.asarray(weight) * 1e-100, 0, *slopes, hint[None]) is None
    assert thin_step(np.asarray(weight)[:400], 0, alpha[None, :400], beta[None, :400], hint[None, :400]) is None


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_bounds_are_the_same(monkeypatch: pytest.MonkeyPatch, activation: str) -> None:
    rng, used = np.random.default_rng(0), [0]
    shapes = [(700, 20), (30, 700), (3, 30)]
    network = lc.Network.from_weights([rng.standard_normal(s) / np.sqrt(s[1]) for s in shapes], activation=activation)
    ball = lc.Ball(0.1 * rng.standard_normal(20), 0.5)

    def noting(*arguments: object) -> object:
        found = thin_step(*arguments)  # type: ignore[arg-type]
        used[0] += found is not None
        return found

    monkeypatch.setattr(sweep, "thin_step", noting)
    found = lc.certify(network, ball, lc.ClosedForm())
    lc.verify(network, found)
    assert used[0] >= 2
    monkeypatch.setattr(sweep, "thin_step", lambda *arguments: None)
    usual = lc.certify(network, ball, lc.ClosedForm())
    assert found.bound == pytest.approx(usual.bound, rel=1e-10)
    assert found.bound >= lc.lower_bound(network, ball, samples=50, steps=5, starts=4).value
