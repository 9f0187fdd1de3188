"""Activation steps of a stack: each satisfies its matrix inequality exactly, and none disturbs another."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg
from test_oracle import random_step, step_is_valid

from lipcert.kernel import step as module
from lipcert.kernel.step import Step, activate, low_rank_step
from lipcert.model.arrays import Array
from oracle import single

Case = tuple[Array, Array, Array, Array]


def of_size(rng: np.random.Generator, n: int) -> Case:
    """A random step of n neurons."""
    while True:
        case = random_step(rng)
        if len(case[0]) == n:
            return case


def together(cases: list[Case], signed: bool = False) -> Step:
    S, alpha, beta, T = (np.stack(column) for column in zip(*cases, strict=True))
    return activate(S, alpha, beta, T, signed)


def alike(one: Step, two: Step, tolerance: float = 1e-9) -> None:
    np.testing.assert_array_equal(one.active, two.active)
    np.testing.assert_allclose(one.P, two.P, rtol=tolerance, atol=tolerance * np.abs(two.P).max())
    np.testing.assert_allclose(one.lifted / one.g**2, two.lifted / two.g**2, rtol=tolerance)


@pytest.mark.parametrize("n", range(1, 7))
def test_every_step_of_a_stack_is_valid(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(6):
        cases = [of_size(rng, n) for _ in range(5)]
        step = together(cases)
        for which, (S, alpha, beta, _) in enumerate(cases):
            assert step_is_valid(S, alpha, beta, single(step, which))


def tame(rng: np.random.Generator, n: int, open_: int, scale: float = 1.0) -> Case:
    """A well-conditioned step in which some neurons have an open slope, the multipliers well inside."""
    factor = rng.standard_normal((n, n))
    S = scale * (factor @ factor.T + np.eye(n))
    S = 0.5 * (S + S.T)
    alpha = rng.uniform(0.0, 0.5, n)
    beta = np.where(rng.permutation(n) < open_, alpha + rng.uniform(0.1, 0.5, n), alpha)
    r = 0.5 * (beta - alpha)
    return S, alpha, beta, np.where(beta > alpha, 2.0 * np.linalg.eigvalsh(r[:, None] * S * r)[-1], 0.0)


def test_a_stack_is_its_steps_one_by_one() -> None:
    """Also where the regions have different numbers of open neurons, so that rows fill up the stack."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        cases = [tame(rng, 6, open_, 4.0 ** rng.integers(-2, 3)) for open_ in (0, 1, 3, 6, 2)]
        step = together(cases)
        assert step.active.shape == (5, 6)
        for which, case in enumerate(cases):
            alike(single(step, which), single(together([case]), 0), 1e-12)


def test_multipliers_that_must_grow_leave_other_regions_alone() -> None:
    rng = np.random.default_rng(2)
    for shrink in (0.99, 0.5, 1e-3, 1e-12, 0.0):
        first, middle, last = (tame(rng, 5, open_) for open_ in (4, 5, 2))
        infeasible = (*middle[:3], 0.4 * shrink * middle[3])
        step = together([first, infeasible, last])
        for which, case in ((0, first), (2, last)):
            alike(single(step, which), single(together([case]), 0), 1e-12)
            np.testing.assert_allclose(step.multipliers[which], case[3], rtol=1e-9)
        grown = single(step, 1)
        assert step_is_valid(*middle[:3], grown)
        alike(grown, single(together([infeasible]), 0), 1e-12)


GARBAGE = [np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0, 1e300, 1e-300, 5e-324, -5e-324]


@pytest.mark.parametrize("value", GARBAGE)
def test_garbage_for_multipliers_is_safe(value: float) -> None:
    """All of a region's multipliers, or one of them; the step stays valid, and so do the others' steps."""
    rng = np.random.default_rng(3)
    for _ in range(4):
        cases = [tame(rng, 4, open_) for open_ in (4, 3, 2)]
        one, every = (case[3].copy() for case in cases[:2])
        one[int(np.argmax(one))], every[:] = value, value
        with np.errstate(all="ignore"):
            step = together([(*cases[0][:3], one), (*cases[1][:3], every), cases[2]])
        for which, (S, alpha, beta, _) in enumerate(cases):
            assert step_is_valid(S, alpha, beta, single(step, which))
        alike(single(step, 2), single(together([cases[2]]), 0), 1e-12)


def test_steps_of_matrices_that_are_not_semidefinite() -> None:
    """Where ``signed`` says so the inequality holds for any symmetric matrix, zeros and minus signs on its diagonal."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        cases = []
        for _ in range(3):
            S, alpha, beta, T = tame(rng, 4, 3)
            S = S - rng.uniform(0.0, 8.0) * np.eye(4)
            S[1, 1] = rng.choice([0.0, S[1, 1]])
            cases.append((S, alpha, beta, T))
        step = together(cases, signed=True)
        for which, (S, alpha, beta, _) in enumerate(cases):
            assert step_is_valid(S, alpha, beta, single(step, which))


def test_planted_a_residual_that_is_not_charged_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """X from the solver of another region: its residual is computed, so the step stays valid; uncharged it is not."""
    rng = np.random.default_rng(6)
    cases = [tame(rng, 4, 4) for _ in range(3)]
    honest = module._each
    turns = {linalg.blas.dtrsm: 1, linalg.blas.dtrmm: 0}
    monkeypatch.setattr(module, "_each", lambda of, L, M: np.roll(honest(of, L, M), turns[of], axis=0))
    step = together(cases)
    assert all(step_is_valid(*case[:3], single(step, which)) for which, case in enumerate(cases))
    monkeypatch.setattr("lipcert.kernel.arithmetic.raised", lambda matrix, amount: matrix)
    step = together(cases)
    assert not any(step_is_valid(*case[:3], single(step, which)) for which, case in enumerate(cases))


@pytest.mark.parametrize("planted", [False, True])
def test_many_neurons_that_see_few_inputs(planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The low-rank step is valid, and as good as the usual one; with an uncharged residual it is not valid."""
    monkeypatch.setattr(module, "_WIDE", 0)
    honest = linalg.solve_triangular
    if planted:
        monkeypatch.setattr(linalg, "solve_triangular", lambda *a, **b: 0.97 * honest(*a, **b))
        monkeypatch.setattr("lipcert.kernel.arithmetic.raised", lambda matrix, amount: matrix)
    rng = np.random.default_rng(8)
    valid = []
    for _ in range(20):
        W = np.stack([rng.integers(1, 5, 6), rng.integers(-4, 5, 6)], axis=1).astype(float)
        alpha = rng.integers(0, 4, (1, 6)) / 8.0
        beta = alpha + rng.integers(0, 4, (1, 6)) / 8.0
        S, r = W @ W.T, 0.5 * (beta - alpha)
        top = np.linalg.eigvalsh(r[0][:, None] * S * r[0])[-1]
        hint = np.where(r > 0, 1.0 + 2.0 * top, 0.0)
        step = low_rank_step(W, alpha, beta, hint)
        if step is None:
            assert np.count_nonzero(r) < 2
            continue
        valid.append(step_is_valid(S, alpha[0], beta[0], single(step, 0)))
        if not planted:
            usual = activate(S[None], alpha, beta, hint)
            np.testing.assert_allclose(step.P, usual.P, atol=1e-12 * usual.P.max())
    assert len(valid) > 15
    assert not any(valid) if planted else all(valid)
