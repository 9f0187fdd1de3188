"""Whatever the package ``suggest`` returns, no bound that rests on it is wrong: it is loose, NaN, or an error."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, largest_eigenvalue_above
from lipcert.kernel.domain import Domain, split_by_box
from lipcert.kernel.fourier import convolution_norm
from lipcert.kernel.neuron_bounds import relax
from lipcert.kernel.norms import ellipsoid_above, induced_above
from lipcert.kernel.remainder import fit
from lipcert.kernel.step import activate
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.model.norms import L1, L2, LInf, Norms

GARBAGE = {"nan": np.nan, "infinite": np.inf, "minus": -1.0, "zero": 0.0, "huge": 1e300, "tiny": 1e-300, "one": 1.0}
RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((4, 13))
SIGNS = RNG.choice([-1.0, 1.0], (500, 13))
CLIPPED = lc.Ball(np.zeros(4), 1.0, clip=(-0.3, 0.6))
ROWS = RNG.standard_normal((20, 4))
POINTS = CLIPPED.sample(500, RNG)
ENDS = np.array([-2.0, -0.5, 0.3]), np.array([1.5, 0.7, 2.0])
V = np.linspace(*ENDS, 101)
TANH = Neurons.of("tanh", 3)
KERNEL = RNG.standard_normal((64, 64, 3))


def cube() -> tuple[Array, Array]:
    """Norms of matrices and of an ellipsoid, over signs that are too many to be tried."""
    images = SIGNS @ MATRIX.T
    found = [float(induced_above(Near.of(MATRIX), Norms(LInf(), norm))) for norm in (L2(), L1())]
    least = [float(norm.of(images).max()) for norm in (L2(), L1())]
    S = MATRIX.T @ MATRIX
    found.append(float(ellipsoid_above(S, L1())))
    return np.array(found), np.array([*least, np.sqrt(np.einsum("ki,ij,kj->k", SIGNS, S, SIGNS).max())])


def eigenvalue() -> tuple[Array, Array]:
    """The norm of a convolution of many channels."""
    one = lc.Convolution.of(KERNEL, (4,), circular=True)
    return np.array(convolution_norm(one)), np.array(np.linalg.norm(one.sparse().toarray(), 2) * (1.0 - 1e-12))


def clipped() -> tuple[Array, Array]:
    """Support functions of a clipped ball."""
    reached = (POINTS @ ROWS.T).max(axis=0)
    value, error = Domain.of([CLIPPED]).support(np.zeros(len(ROWS), dtype=int), ROWS)
    q, boxed = split_by_box(CLIPPED, ROWS)
    return np.stack([value + error, np.linalg.norm(q, axis=-1) * (1 + 1e-14) + boxed]), np.stack([reached, reached])


def lines() -> tuple[Array, Array]:
    """Lines above an activation and below it."""
    slopes = np.full(3, 0.4)
    low, under, high, over, floor, roof = relax(TANH, *ENDS, slopes, slopes)
    value = TANH.value(V)
    return np.stack([high * V + over, -(low * V + under), roof + 0 * V, -floor + 0 * V]), np.stack([value, -value] * 2)


def fits() -> tuple[Array, Array]:
    """A parabola near a slope, and one near a value."""
    center = 0.5 * ENDS[0] + 0.5 * ENDS[1]
    one = fit(TANH, center, ENDS, np.ones(3))
    s = V - center
    slope = np.abs(TANH.slope(V) - one.slope - one.rate * s - 0.5 * one.bow * s * s)
    value = np.abs(TANH.value(V) - one.value - one.slope * s - one.rate * s * s / 2 - one.bow * s**3 / 6)
    room = 1e-12 * (1.0 + np.abs(one.rate) + np.abs(one.bow))  # of the computation here
    return np.stack([one.error + room, one.rest + room])[:, None], np.stack([slope, value])


def steps() -> tuple[Array, Array]:
    """The ellipsoid after neurons, by the differences of their values along random directions."""
    A = RNG.standard_normal((5, 5))
    P = activate((A @ A.T)[None], np.zeros((1, 5)), np.ones((1, 5)), np.zeros((1, 5))).P[0]
    before = RNG.standard_normal((400, 5))
    moved = (before / np.linalg.norm(before, axis=-1, keepdims=True)) @ A.T * RNG.random((400, 5))
    rows = RNG.standard_normal((6, 5))
    return np.einsum("ki,ij,kj->k", rows, P, rows), ((moved @ rows.T) ** 2).max(axis=0)


ASKED: dict[str, Callable[[], tuple[Any, Any]]] = {
    "norms.shares_around": cube,
    "fourier.largest_eigenvalue": eigenvalue,
    "domain.split_rate": clipped,
    "neuron_bounds.touching": lines,
    "remainder.slope_parabola": fits,
    "step.dominating": steps,
}


def spoiled(answer: Any, garbage: float) -> Any:
    if isinstance(answer, tuple):
        return tuple(spoiled(part, garbage) for part in answer)
    return np.full(np.shape(answer), garbage) if isinstance(answer, np.ndarray) else garbage


@pytest.mark.parametrize("garbage", [*GARBAGE, "none"])
@pytest.mark.parametrize("name", ASKED)
def test_a_bound_holds_for_garbage(name: str, garbage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function = name.split(".")
    home, called = importlib.import_module(f"lipcert.kernel.{module}"), []
    honest = getattr(home, function)

    def wrong(*arguments: Any, **options: Any) -> Any:
        called.append(function)
        answer = honest(*arguments, **options)
        return answer if garbage == "none" else spoiled(answer, GARBAGE[garbage])

    monkeypatch.setattr(home, function, wrong)
    with np.errstate(all="ignore"):
        try:
            above, least = ASKED[name]()
        except (ProofFailed, np.linalg.LinAlgError):
            assert garbage != "none"
        else:
            assert not (above < least).any()
            assert garbage != "none" or (np.isfinite(above).all() and (above >= least).all())
    assert called


@pytest.mark.parametrize("garbage", GARBAGE.values())
def test_a_guess_of_an_eigenvalue(garbage: float) -> None:
    S = MATRIX @ MATRIX.T
    try:
        assert float(largest_eigenvalue_above(S, np.asarray(garbage))) >= np.linalg.eigvalsh(S)[-1]
    except ProofFailed:
        assert garbage < np.linalg.eigvalsh(S)[-1]
