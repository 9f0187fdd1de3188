"""Sums and products block by block are those of whole matrices."""

from __future__ import annotations

import numpy as np
import pytest

from lipcert.proof import blocks


@pytest.fixture(params=[False, True], ids=["at once", "in blocks"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(blocks, "_BLOCK", 40)
        monkeypatch.setattr(blocks, "_PANEL", 3)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shape", [(7, 5), (1, 11, 11), (3, 8, 4)])
def test_sums_and_products(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal(shape)
    vector = rng.random((*shape[:-2], shape[-1]))
    np.testing.assert_allclose(blocks.row_sizes(matrix), np.abs(matrix).sum(axis=-1))
    np.testing.assert_allclose(blocks.column_sizes(matrix), np.abs(matrix).sum(axis=-2))
    np.testing.assert_allclose(blocks.apply_size(matrix, vector), np.einsum("...ij,...j->...i", np.abs(matrix), vector))
    rows = np.concatenate([np.arange(shape[-2])[some] for some in blocks.row_blocks(matrix)])
    np.testing.assert_array_equal(rows, np.arange(shape[-2]))


@pytest.mark.usefixtures("small")
def test_matrices_become_symmetric() -> None:
    matrix = np.random.default_rng(1).standard_normal((2, 8, 8))
    wanted = 0.5 * (matrix + np.swapaxes(matrix, -1, -2))
    found = blocks.symmetrised(np.array(matrix))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(found, np.swapaxes(found, -1, -2))


@pytest.mark.usefixtures("small")
def test_what_a_factor_misses() -> None:
    rng = np.random.default_rng(2)
    L = np.tril(rng.standard_normal((2, 10, 10)))
    C = L @ np.swapaxes(L, -1, -2)
    error = rng.standard_normal(C.shape)
    error = error + np.swapaxes(error, -1, -2)
    np.testing.assert_allclose(blocks.factor_sizes(C + error, L), np.abs(error).sum(axis=-1), rtol=1e-12)
