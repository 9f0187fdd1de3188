"""Whatever ``suggest`` returns, no bound that rests on it is wrong: the rules that test_chaos.py does not reach."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import ProofFailed
from lipcert.kernel.arithmetic import Near, largest_eigenvalue_above
from lipcert.kernel.domain import Domain, split_by_box
from lipcert.kernel.fourier import convolution_norm
from lipcert.kernel.norms import ellipsoid_above, induced_above
from lipcert.model.arrays import Array
from lipcert.model.regions import L1, L2, LInf, Norms

GARBAGE = {"nan": np.nan, "infinite": np.inf, "minus": -1.0, "zero": 0.0, "huge": 1e300, "tiny": 1e-300, "one": 1.0}
RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((4, 13))
SIGNS = np.array(list(itertools.product([-1.0, 1.0], repeat=13)))
CLIPPED = lc.Ball(np.zeros(4), 1.0, clip=(-0.3, 0.6))
ROWS = RNG.standard_normal((20, 4))
POINTS = CLIPPED.sample(500, RNG)
KERNEL = RNG.standard_normal((64, 64, 3))


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


def signs() -> tuple[Array, Array]:
    """Norms of matrices from ℓ∞ to ℓ2 and ℓ1, and of an ellipsoid to ℓ1, over signs that are too many to be tried."""
    S, images = MATRIX.T @ MATRIX, SIGNS @ MATRIX.T
    found = [induced_above(Near.of(MATRIX), Norms(LInf(), norm)) for norm in (L2(), L1())]
    true = [norm.of(images).max() for norm in (L2(), L1())]
    best = np.sqrt(np.einsum("ki,ij,kj->k", SIGNS, S, SIGNS).max())
    return np.array([*found, ellipsoid_above(S, L1())]), np.array([*true, best])


ASKED: dict[str, Callable[[], tuple[Any, Any]]] = {
    "fourier.largest_eigenvalue": eigenvalue,
    "domain.split_rate": clipped,
    "norms.diagonal_over": signs,
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


def test_norms_over_signs_that_are_too_many_to_be_tried() -> None:
    found, true = signs()
    assert (true <= found).all()
    assert (found <= 1.1 * true).all()
    assert ellipsoid_above(np.eye(13), L1()) <= 13.0 * (1.0 + 1e-9)
