"""Products with sparse weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from lipcert.model import arrays
from lipcert.model.arrays import product, times


def convolution_like(rng: np.random.Generator) -> sparse.csr_array:
    """Groups of rows that see the same columns, rows that see columns of their own, and rows that see none."""
    dense = np.zeros((40, 30))
    for place in range(5):
        dense[place:25:5, 3 * place : 3 * place + 9] = rng.standard_normal((5, 9))
    dense[25:35] = rng.standard_normal((10, 30)) * (rng.random((10, 30)) < 0.3)
    return sparse.csr_array(dense)


@pytest.mark.parametrize("turned", [False, True])
def test_blocks_give_the_product(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_WORK", 1)
    monkeypatch.setattr(arrays, "_COLUMNS", 1)
    rng = np.random.default_rng(0)
    weight = convolution_like(rng)
    blocks = list(arrays.same_columns(weight))
    assert sorted(len(rows) for rows, _, _ in blocks) == [5] * 5
    matrix = weight.T if turned else weight
    columns = rng.standard_normal((matrix.shape[1], 7))
    np.testing.assert_allclose(product(matrix, columns), matrix.toarray() @ columns, rtol=0, atol=1e-13)
    rows = rng.standard_normal((2, 7, matrix.shape[0]))
    np.testing.assert_allclose(times(rows, matrix), rows @ matrix.toarray(), rtol=0, atol=1e-13)


def test_rows_that_only_look_alike_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns 0 and 3 add up to the same number as 1 and 2 where marks are the columns themselves."""

    class Marks:
        def integers(self, low: int, high: int, count: int, dtype: type) -> np.ndarray:
            return np.arange(count, dtype=dtype)

    monkeypatch.setattr(arrays, "_WORK", 1)
    monkeypatch.setattr(arrays, "_COLUMNS", 1)
    monkeypatch.setattr("numpy.random.default_rng", lambda seed: Marks())
    dense = np.zeros((8, 4))
    dense[::2, [0, 3]], dense[1::2, [1, 2]] = 2.0, 3.0
    np.testing.assert_array_equal(product(sparse.csr_array(dense), np.eye(4)), dense)
