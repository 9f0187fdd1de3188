"""The rows of the table: slopes are those of the values, and reach the ends."""

from __future__ import annotations

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.activation_table import TABLE

V = np.linspace(-6.0, 6.0, 241) + 0.0123


@pytest.mark.parametrize("name", TABLE)
def test_slopes_are_derivatives(name: str) -> None:
    row = lc.activation(name)
    step = 1e-6
    rate = (row.value(V + step) - row.value(V - step)) / (2.0 * step)
    assert row.slope(V) == pytest.approx(rate, rel=1e-5, abs=1e-6 * (1.0 + np.abs(rate).max()))


@pytest.mark.parametrize("name", TABLE)
def test_slopes_lie_in_the_range_that_is_promised(name: str) -> None:
    row = lc.activation(name)
    low, high = row.slope_range(np.full(1, V[0]), np.full(1, V[-1]))
    slopes = row.slope(V)
    assert low[0] <= slopes.min()
    assert slopes.max() <= high[0]
    assert high[0] - low[0] <= 1.1 * (slopes.max() - slopes.min()) + 1e-6  # and is not far larger
