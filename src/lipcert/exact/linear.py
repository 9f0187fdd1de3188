"""Matrices of balls: what is at least a matrix, whether one is positive definite, how large its eigenvalues are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flint import arb, arb_mat

from lipcert.errors import ProofFailed
from lipcert.exact.functions import most
from lipcert.model.arrays import Array

_SLACK = (2.0**-45, 2.0**-30, 2.0**-10)


def column(entries: Sequence[arb]) -> arb_mat:
    return arb_mat([[x] for x in entries])


def scaled(matrix: arb_mat, left: Sequence[arb], right: Sequence[arb] | None = None) -> arb_mat:
    """diag(left)·matrix·diag(right)."""
    if right is None:
        return arb_mat([[a * x for x in row] for a, row in zip(left, matrix.tolist(), strict=True)])
    rows = zip(left, matrix.tolist(), strict=True)
    return arb_mat([[a * x * b for x, b in zip(row, right, strict=True)] for a, row in rows])


def plus_diagonal(matrix: arb_mat, entries: Sequence[arb]) -> arb_mat:
    rows = matrix.tolist()
    for k, x in enumerate(entries):
        rows[k][k] += x
    return arb_mat(rows)


def signs(matrix: arb_mat) -> tuple[arb_mat, arb_mat]:
    """The positive and the negative part of a matrix of numbers without radius."""
    positive = arb_mat([[x if x > 0 else arb(0) for x in row] for row in matrix.tolist()])
    return positive, matrix - positive


def at_least(matrix: arb_mat) -> arb_mat:
    """A matrix without radii that is at least every symmetric one in the balls: mid M + diag(row sums of radii)."""
    half = (matrix + matrix.transpose()) * (arb(1) / 2)
    middle = half.mid()
    sums = (half - middle) * column([arb(1)] * half.nrows())
    rows = middle.tolist()
    for k, x in enumerate(sums.entries()):
        rows[k][k] = (rows[k][k] + x.abs_upper()).upper()
    found = arb_mat(rows)
    if not found.trace().is_finite():  # a row with anything but numbers shows up there
        raise ProofFailed("the ellipsoid of a layer is not finite")
    return found


def image(weight: arb_mat, P: arb_mat | None) -> arb_mat:
    """At least W P Wᵀ, for every W in the balls; None is the identity."""
    turned = weight.transpose()
    return at_least(weight * turned if P is None else weight * (P * turned))


def positive_definite(matrix: arb_mat) -> bool:
    """Whether a symmetric matrix is proved positive definite: its first block is, and what elimination leaves."""
    n = matrix.nrows()
    if n <= 1:
        return all(x > 0 for x in matrix.entries())
    rows, half = matrix.tolist(), n // 2
    first, side = arb_mat([row[:half] for row in rows[:half]]), arb_mat([row[half:] for row in rows[:half]])
    if not positive_definite(first):
        return False
    try:
        rest = arb_mat([row[half:] for row in rows[half:]]) - side.transpose() * first.solve(side)
    except ZeroDivisionError:  # flint could not separate it from a singular matrix
        return False
    return positive_definite(rest)


def floats(matrix: arb_mat) -> tuple[Array, int]:
    """About the matrix, as floats near one times 2**exponent."""
    size = most([abs(x).upper() for x in matrix.entries()])
    exponent = (
        0 if size.is_zero() or not size.is_finite() else int(size.man_exp()[1]) + int(size.man_exp()[0]).bit_length()
    )
    shifted = matrix * arb(2) ** -exponent
    return np.array([[float(x.mid()) for x in row] for row in shifted.tolist()]), exponent


def largest_eigenvalue(matrix: arb_mat) -> arb:
    """At least λmax of a symmetric matrix without radii, and at least 0."""
    n = matrix.nrows()
    worst = most([sum((abs(x) for x in row), arb(0)).upper() for row in matrix.tolist()])
    if worst.is_zero() or (n == 1 and matrix[0, 0] > 0):
        return worst
    near, exponent = floats(matrix)
    try:
        values = np.linalg.eigvalsh(near)
    except np.linalg.LinAlgError:
        return worst
    top, size = max(float(values[-1]), 0.0), float(np.abs(values).max())
    for slack in _SLACK:
        candidate = ((arb(top) + arb(slack) * arb(size)) * arb(2) ** exponent).upper()
        if candidate < worst and positive_definite(plus_diagonal(-matrix, [candidate] * n)):
            return candidate
    return worst


def norm(entries: Sequence[arb]) -> arb:
    """At least the Euclidean norm."""
    return sum((x * x for x in entries), arb(0)).upper().sqrt().upper()


def upward(x: arb) -> float:
    """The smallest float (or nearly) that is not below x."""
    found = float(x.upper())
    while not arb(found) >= x:
        found = float(np.nextafter(found, np.inf))
    return found
