"""Bounding lines: on the right side of φ everywhere on the interval, and as close as a line can be."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.suggest.lines import Lines, bounding_lines
from networks import ROW_LABELS, ROWS

every_row = pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)


def knots_of(row: Activation, lower: Array) -> list[Array]:
    return [np.broadcast_to(np.asarray(k, float), lower.shape) for k in row.row.knots(lower, *row.parameters)]


def intervals_of(row: Activation, count: int, seed: int) -> tuple[Array, Array]:
    """From 1e-9 to 1e4 wide; straddling knots, ending at them, far out in the tails."""
    rng = np.random.default_rng(seed)
    knots = np.array([0.0, *(float(k[0]) for k in knots_of(row, np.array([-4.0])))])
    middle = np.where(rng.random(count) < 0.5, rng.choice(knots, count), rng.normal(0, 5, count))
    middle = np.where(rng.random(count) < 0.1, 100 * middle, middle)
    width = 10.0 ** rng.uniform(-9, 4, count)
    share = np.where(rng.random(count) < 0.4, rng.choice([0.0, 1.0], count), rng.random(count))
    lower = np.where(share == 0, middle, middle - share * width)
    return lower, np.where(share == 1, middle, middle + (1 - share) * width)


def samples_of(row: Activation, lower: Array, upper: Array, count: int) -> Array:
    """Points of each interval: evenly, towards both ends, where the table's features are, and the knots."""
    share = np.linspace(0, 1, count)
    reach = (upper - lower)[:, None]
    parts = [
        lower[:, None] + share * reach,
        lower[:, None] + share**6 * reach,
        upper[:, None] - share**6 * reach,
        np.broadcast_to(np.sinh(np.linspace(-12, 12, count)), (lower.size, count)),
        *(k[:, None] for k in knots_of(row, lower)),
    ]
    return np.clip(np.concatenate(parts, axis=1), lower[:, None], upper[:, None])


def gaps(row: Activation, lines: Lines, v: Array) -> tuple[Array, Array]:
    """How far the lines are above and below φ at v, relative to the rounding of φ(v) itself; never negative."""
    upper = lines.upper_slope[:, None] * v + lines.upper_offset[:, None]
    lower = lines.lower_slope[:, None] * v + lines.lower_offset[:, None]
    value = row.value(v)
    scale = np.abs(value) + np.abs(v * row.slope(v)) + (row.name == "hardsigmoid")
    rounding = 4 * np.finfo(float).eps * scale + 1e-300
    return upper - value + rounding, value - lower + rounding


@every_row
@pytest.mark.parametrize("tilt", [0.0, 0.2, 0.5, 1.0])
def test_lines_enclose(row: Activation, tilt: float) -> None:
    """Also where an interval is a point, a knot or another; several intervals at once, in a stack."""
    lower, upper = (end.reshape(2, 200) for end in intervals_of(row, 400, seed=1))
    upper = np.where(np.arange(200) % 20 == 0, lower, upper)
    found = bounding_lines(Neurons.of(row, 200), lower, upper, tilt)
    lines = Lines(*(np.ravel(getattr(found, field.name)) for field in fields(found)))
    above, below = gaps(row, lines, samples_of(row, lower.ravel(), upper.ravel(), 150))
    assert above.min() >= 0
    assert below.min() >= 0


def envelope_height(v: Array, height: Array, middle: Array) -> Array:
    """Value at the middle of the concave envelope of sampled points, by bisection on the slope of its support."""
    low, high = np.full(middle.shape, -10.0), np.full(middle.shape, 10.0)
    away = v - middle[:, None]
    for _ in range(55):
        slope = 0.5 * (low + high)
        best = np.argmax(height - slope[:, None] * away, axis=1)
        right = away[np.arange(middle.size), best] > 0
        low, high = np.where(right, slope, low), np.where(right, high, slope)
    return np.asarray((height - high[:, None] * away).max(axis=1))


@every_row
def test_lines_have_the_least_area(row: Activation) -> None:
    """The area under a line is its value at the midpoint; no line above φ is lower there than the envelope."""
    lower, upper = intervals_of(row, 120, seed=3)
    apart = lower < upper
    apart &= ~row.whole_period(lower, upper)  # a level line then: the extent, plain and simple
    lower, upper = lower[apart], upper[apart]
    middle = 0.5 * lower + 0.5 * upper
    lines = bounding_lines(Neurons.of(row, lower.size), lower, upper)
    v = samples_of(row, lower, upper, 400)
    value = row.value(v)
    roof, floor = envelope_height(v, value, middle), -envelope_height(v, -value, middle)
    steepest = np.maximum(np.abs(lines.upper_slope), np.abs(lines.lower_slope))
    rounding = 3e-14 * (np.abs(value).max(axis=1) + np.abs(v).max(axis=1) * steepest)
    gap = roof - floor
    assert (lines.upper_slope * middle + lines.upper_offset - roof <= 0.01 * gap + rounding).all()
    assert (floor - lines.lower_slope * middle - lines.lower_offset <= 0.01 * gap + rounding).all()


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
