"""How the Eclipse family chooses Λ: by a closed form, per layer or per neuron (Algorithms 3 to 5)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

import numpy as np
from scipy import sparse

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.published.base import NotApplicable
from lipcert.published.inequality import Inequality, Solution, SolverFailed
from lipcert.published.lmi import solve
from lipcert.published.messenger import Choice, Handover, messenger, positive, through

INACTIVE: Final = 100.0
"""The paper's l_i: neurons with one slope get so many times the mean of the others' Λ."""
_SHARP: Final = 1e-10
"""Tolerance of the small programs: the best λ is a flat place, known to about the root of this, and later layers
depend on it."""


def closed_form(hand: Handover) -> Choice:
    """Algorithm 5: Λ = λI with λ = 2/σmax(D S D), D = D_α + D_β after widening the slopes until α⊙β = 0."""
    if (hand.alpha * hand.beta < 0.0).any():
        raise NotApplicable(
            f"the closed form needs slopes of one sign and layer {hand.index + 1} has others; take 'Fast' or 'Acc'"
        )
    alpha, beta = np.where(hand.alpha >= 0.0, 0.0, hand.alpha), np.where(hand.alpha >= 0.0, hand.beta, 0.0)
    both = alpha + beta
    size = float(np.linalg.norm(both[:, None] * hand.S * both, 2))
    if size <= 0.0:
        raise ProofFailed(f"layer {hand.index + 1} does not move at all, so the closed form is not defined")
    Lambda = np.full(both.size, 2.0 / size)
    choice = Choice(Lambda, 0.0, alpha, beta)
    M = messenger(hand, choice)
    reach = float(np.linalg.norm(through(hand.ahead, M), 2)) if positive(M) else np.inf
    return replace(choice, c=1.0 / reach if reach > 0.0 else np.inf)  # C = 1/σmax(W⁺ M⁻¹ W⁺ᵀ)


def fast(hand: Handover, solver: str, cap: float) -> Choice:
    """Algorithm 4: one λ for the layer from a small semidefinite program; the closed form where that fails."""
    try:
        found = small_program(hand, np.zeros(hand.free.size, dtype=int), solver)
    except SolverFailed:
        return _last_resort(hand)
    Lambda = np.full(hand.alpha.size, min(cap, float(found.x[0])))
    choice = Choice(Lambda, found.c, hand.alpha, hand.beta)
    return choice if _feasible(hand, choice) else _last_resort(hand)


def acc(hand: Handover, solver: str, cap: float) -> Choice:
    """Algorithm 3: one λ per neuron from a small semidefinite program; where that fails the better of the other two."""
    with contextlib.suppress(SolverFailed):
        found = small_program(hand, np.arange(hand.free.size), solver)
        Lambda = np.full(hand.alpha.size, INACTIVE * float(found.x.mean()))
        Lambda[hand.free] = found.x
        choice = Choice(np.minimum(cap, Lambda), found.c, hand.alpha, hand.beta)
        if _feasible(hand, choice):
            return choice
    one = fast(hand, solver, cap)
    try:
        plain = closed_form(hand)
    except NotApplicable:
        return one
    return one if one.c >= plain.c else plain


def small_program(hand: Handover, groups: Array, solver: str) -> Solution:
    """The program of one layer on the neurons of M_i, in the coordinates (z_i, z_{i-1}):

    maximise c subject to M_{i-1} + Σ λ_k (e_k - α_k w_k)(e_k - β_k w_k) - c W⁺ᵀW⁺ ≽ 0.
    """
    free = hand.free
    count, before = free.size, hand.M.shape[0]
    constant = np.zeros((count + before, count + before))
    constant[count:, count:] = hand.M
    rows = hand.W[free]
    left, right = (np.vstack([np.eye(count), -(slope[free, None] * rows).T]) for slope in (hand.alpha, hand.beta))
    output = np.vstack([hand.ahead[:, free].T, np.zeros((before, hand.ahead.shape[0]))])
    r = 0.5 * (hand.beta - hand.alpha)[free]
    size = float(np.linalg.norm(r[:, None] * hand.S[np.ix_(free, free)] * r, 2))
    if size <= 0.0:
        raise SolverFailed(f"the neurons of layer {hand.index + 1} with more than one slope do not move")
    start = np.full(groups.max() + 1, 0.5 / size)
    inequality = Inequality(constant, sparse.csc_array(left), sparse.csc_array(right), output, groups, start)
    return solve(inequality, solver, _SHARP)


def _last_resort(hand: Handover) -> Choice:
    """The closed form in place of a program that failed."""
    try:
        return closed_form(hand)
    except NotApplicable as error:
        raise SolverFailed(
            f"the program of layer {hand.index + 1} was not solved, and its slopes differ in sign, which rules out the"
            " closed form; take LipSDP() or one of lipcert's own methods"
        ) from error


def _feasible(hand: Handover, choice: Choice) -> bool:
    if not ((choice.Lambda > 0.0) & np.isfinite(choice.Lambda)).all():
        return False
    try:
        return positive(messenger(hand, choice))
    except ProofFailed:
        return False
