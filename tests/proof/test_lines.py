"""Bounding lines: on the right side of φ everywhere on the interval, and as close as a line can be."""

from __future__ import annotations

import numpy as np
import pytest

from lipcert.model.activations import Activation
from lipcert.model.network import Neurons
from lipcert.suggest.lines import bounding_lines


@pytest.mark.parametrize(
    ("name", "low", "high", "upper", "lower"),
    [
        ("relu", -1.0, 3.0, (0.75, 0.75), (1.0, 0.0)),
        ("relu", -3.0, 1.0, (0.25, 0.75), (0.0, 0.0)),
        ("relu", 1.0, 2.0, (1.0, 0.0), (1.0, 0.0)),
        ("relu", -2.0, -1.0, (0.0, 0.0), (0.0, 0.0)),
        ("identity", -5.0, 7.0, (1.0, 0.0), (1.0, 0.0)),
        ("hardtanh", -3.0, 3.0, (0.5, 0.5), (0.5, -0.5)),
        ("softsign", 0.0, 2.0, (0.25, 0.25), (1 / 3, 0.0)),
        ("elu", -1.0, -1.0 + 1e-9, (np.exp(-1.0), 2 * np.exp(-1.0) - 1), (np.exp(-1.0), 2 * np.exp(-1.0) - 1)),
    ],
)
def test_lines_known_in_closed_form(
    name: str, low: float, high: float, upper: tuple[float, float], lower: tuple[float, float]
) -> None:
    lines = bounding_lines(Neurons.of(name, 1), np.array([low]), np.array([high]))
    tolerance = 1e-6 if high - low < 1e-3 else 1e-10
    assert (float(lines.upper_slope[0]), float(lines.upper_offset[0])) == pytest.approx(upper, abs=tolerance)
    assert (float(lines.lower_slope[0]), float(lines.lower_offset[0])) == pytest.approx(lower, abs=tolerance)


@every_row
def test_infinite_intervals_get_level_lines_at_the_extent(row: Activation) -> None:
    lower, upper = np.array([-np.inf, -np.inf, 1.0]), np.array([np.inf, 2.0, np.inf])
    lines = bounding_lines(Neurons.of(row, 3), lower, upper)
    least, most = (np.broadcast_to(np.asarray(e, float), 3) for e in row.row.extent(*row.parameters))
    assert (lines.upper_slope == row.row.drift).all()
    assert (lines.lower_slope == row.row.drift).all()
    np.testing.assert_array_equal(lines.lower_offset, least)
    np.testing.assert_array_equal(lines.upper_offset, most)
