"""Slopes, values and lines of every activation against ball arithmetic: never violated, and with room to spare."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from flint import arb

import lipcert as lc
from exact import PRECISION, at, ball, exact, highest, precision, slope_range
from lipcert.kernel import neuron_bounds as relaxation
from lipcert.kernel.neuron_bounds import Fit, fit, relax, slope_bounds, value_error
from lipcert.model.activations import TABLE, USUAL, Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from networks import ROWS, STEEP, label

EXTREME = [
    lc.activation("celu", alpha=1e-3),
    lc.activation("softplus", beta=1e4),
    lc.activation("softplus", beta=0.3),
    lc.activation("hardsigmoid", alpha=100.0, beta=0.3),
    lc.activation("hardsigmoid", alpha=1e-3, beta=7.0),
    lc.activation("leaky_relu", negative_slope=-1e3),
    lc.activation("elu", alpha=1e-4),
]
ALL = [*ROWS, *EXTREME, *STEEP]


class Lines(NamedTuple):
    """What ``relax`` returns, by name."""

    lower_slope: Array
    lower_offset: Array
    upper_slope: Array
    upper_offset: Array
    floor: Array
    roof: Array


every_row = pytest.mark.parametrize("row", ALL, ids=map(label, ALL))
ROOM = 4
"""Errors of values and slopes must be at most this fraction of what is charged for them."""


def knots(row: Activation) -> list[float]:
    return [float(np.ravel(k)[0]) for k in row.knots(np.array([-4.0]))]


def zeros_of_the_slope(row: Activation) -> list[float]:
    """Where φ' changes sign, by looking at a grid."""
    grid = np.linspace(-6.0, 6.0, 4001)
    signs = np.sign(row.slope(grid))
    return [float(grid[k]) for k in np.flatnonzero(signs[:-1] * signs[1:] < 0)]


def points(row: Activation, count: int) -> Array:
    """Moderate and far points, both ends of the range of floats, and points ever closer to where something happens."""
    rng = np.random.default_rng(len(row.name) + 7 * len(row.parameters))
    special = [*knots(row), *zeros_of_the_slope(row)[:3], 0.0]
    near = [x + rng.choice([-1, 1], count // 8) * 10.0 ** rng.uniform(-17, 0, count // 8) for x in special]
    sign = rng.choice([-1.0, 1.0], count)
    found = np.concatenate(
        [
            rng.uniform(-4, 4, count),
            rng.uniform(-45, 45, count),
            rng.uniform(-800, 800, count // 2),
            sign[: count // 2] * 10.0 ** rng.uniform(-323, 300, count // 2),
            sign * 10.0 ** rng.uniform(-2, 20, count),
            [17.0, 18.5, 19.0, 19.06, -36.7, -37.5, -38.4, -708.0, -744.0],
            np.array(special),
            *near,
        ]
    )
    return found[np.abs(found) < 1e100] if row in STEEP else found  # their values overflow


def errors_in_use(row: Activation, v: Array) -> tuple[Array, Array]:
    """Error of value and slope at each point, as a fraction of what is charged."""
    neurons = Neurons.of(row, 1)
    values, slopes = row.value(v), row.slope(v, 1)
    allowed = value_error(neurons, values)
    after = np.nextafter(v, np.inf)
    widened, allowed_slopes = slope_bounds(neurons, v, after), relaxation._slope_error(row, slopes, v, after)
    used = np.zeros((2, len(v)))
    with precision(PRECISION):
        breaks = [float(b.mid()) for b in exact(row).marks]
    for k, x in enumerate(v):
        value, slope = at(row, float(x))
        with precision(3000):
            used[0, k] = float((abs(ball(values[k]) - value) / ball(allowed[k])).upper())
            if allowed_slopes[k] == 0 or any(abs(x - b) <= 4 * np.spacing(abs(b)) for b in breaks):
                assert widened[0][k] <= slope <= widened[1][k]
                continue
            charged = ball(float(allowed_slopes[k]))
            used[1, k] = float((abs(ball(slopes[k]) - slope) / charged).upper())
    return used[0], used[1]


@every_row
@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_elementary_functions_use_a_quarter_of_what_is_charged(row: Activation, count: int) -> None:
    v = points(row, count)
    value, slope = errors_in_use(row, v)
    assert value.max() <= 1 / ROOM, v[np.argmax(value)]
    assert slope.max() <= 1 / ROOM, v[np.argmax(slope)]


def test_that_check_sees_a_library_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    row = lc.activation("tanh")
    v = points(row, 30)
    with monkeypatch.context() as patch:
        patch.setattr(np, "tanh", lambda x, tanh=np.tanh: tanh(x) * (1 + 2.0**-49))
        assert errors_in_use(row, v)[0].max() > 1 / ROOM
    monkeypatch.setitem(TABLE, "gelu", replace(TABLE["gelu"], loss=USUAL))
    assert errors_in_use(lc.activation("gelu"), points(row, 60))[0].max() > 1


def intervals(row: Activation, count: int) -> tuple[Array, Array]:
    """Intervals of all widths, from one ulp on; many end at a knot, or an ulp beside it, or hold several."""
    rng = np.random.default_rng(3 + len(row.name))
    special = np.array([*knots(row), *zeros_of_the_slope(row)[:3], 0.0])
    middle = rng.choice(special, count)
    middle = np.where(rng.random(count) < 0.3, middle + rng.integers(-3, 4, count) * np.spacing(np.abs(middle)), middle)
    middle = np.where(rng.random(count) < 0.4, rng.normal(0, 5, count), middle)
    middle = np.where(rng.random(count) < 0.1, rng.uniform(-700, 700, count), middle)
    width = np.where(rng.random(count) < 0.2, 3 * np.spacing(np.abs(middle)), 10.0 ** rng.uniform(-15, 2, count))
    share = np.where(rng.random(count) < 0.5, rng.choice([0.0, 1.0], count), rng.random(count))
    lower, upper = middle - share * width, middle + (1 - share) * width
    lower, upper = np.where(share == 0, middle, lower), np.where(share == 1, middle, upper)
    point = rng.random(count) < 0.05
    return np.where(point, middle, np.minimum(lower, upper)), np.where(point, middle, np.maximum(lower, upper))


@every_row
def test_slope_bounds_hold_and_are_tight(row: Activation) -> None:
    lower, upper = intervals(row, 60)
    alpha, beta = slope_bounds(Neurons.of(row, 1), lower, upper)
    rounded = knots(row) if row.name == "hardsigmoid" else []
    with precision(PRECISION):
        for low, high, a, b in zip(lower, upper, alpha, beta, strict=True):
            least, most = slope_range(row, ball(low), ball(high))
            assert ball(a) <= least.upper(), (low, high)
            assert ball(b) >= most.lower(), (low, high)
            if any(min(abs(low - at), abs(high - at)) <= 8 * np.spacing(abs(at)) for at in rounded):
                continue  # a rounded kink counts as inside when an end touches it
            slack = 1e-13 * (1 + abs(b) + abs(a))
            assert float(least.mid()) - a <= slack
            assert b - float(most.mid()) <= slack


@every_row
def test_slope_bounds_of_infinite_intervals(row: Activation) -> None:
    ends = np.array([-np.inf, -1.0, 0.5, np.inf])
    lower, upper = (side.ravel() for side in np.meshgrid(ends[:3], ends[1:]))
    kept = lower < upper
    alpha, beta = slope_bounds(Neurons.of(row, 1), lower[kept], upper[kept])
    far = [(max(low, -1e6), min(high, 1e6)) for low, high in zip(lower[kept], upper[kept], strict=True)]
    with precision(3000):
        for (low, high), a, b in zip(far, alpha, beta, strict=True):
            if high - low > 1.5 * row.row.period:
                least, most = arb(row.row.drift - 1), arb(row.row.drift + 1)
            else:
                least, most = slope_range(row, ball(low), ball(high))
            assert ball(a) <= least.upper()
            assert ball(b) >= most.lower()


def lines(row: Activation, lower: Array, upper: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Slopes for two lines: some sensible, some not."""
    alpha, beta = row.slope_range(lower, upper)
    return tuple(
        np.where(
            rng.random(lower.size) < 0.7, alpha + rng.random(lower.size) * (beta - alpha), rng.normal(0, 2, lower.size)
        )
        for _ in "ab"
    )  # type: ignore[return-value]


def check_lines(row: Activation, count: int, tight: bool = True) -> int:
    """How many of the four bounds are violated on random intervals; fails where one is loose."""
    rng = np.random.default_rng(11)
    lower, upper = intervals(row, count)
    below, above = lines(row, lower, upper, rng)
    found = Lines(*relax(Neurons.of(row, 1), lower, upper, below, above))
    z_size = np.maximum(np.abs(found.floor), np.abs(found.roof))
    violated = 0
    with precision(PRECISION):
        for k in range(count):
            low, high = ball(lower[k]), ball(upper[k])
            size = 1 + max(abs(lower[k]), abs(upper[k])) * (1 + abs(below[k]) + abs(above[k])) + z_size[k]
            for sign, slope, stated in (
                (1, above[k], found.upper_offset[k]),
                (-1, -below[k], -found.lower_offset[k]),
                (1, 0.0, found.roof[k]),
                (-1, 0.0, -found.floor[k]),
            ):
                true = highest(row, sign, low, high, ball(slope))
                violated += bool(ball(stated) < true)
                if tight and upper[k] - lower[k] < 0.95 * row.row.period:
                    # a tangent point is sought by halving the interval, so that long ones cost some sharpness
                    room = 2e-13 * size * (1 + upper[k] - lower[k]) * (1e3 if row in EXTREME else 1)
                    assert stated - float(true.mid()) <= room, (lower[k], upper[k], sign, slope)
    return violated


@every_row
@pytest.mark.parametrize("count", [40, pytest.param(1500, marks=pytest.mark.slow)])
def test_lines_and_values_bound_the_activation_tightly(row: Activation, count: int) -> None:
    assert check_lines(row, count) == 0


@pytest.mark.parametrize("name", ["elu", "tanh", "silu", "sin", "hardswish"])
def test_a_line_moved_by_1e_minus_9_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = relaxation._highest
    monkeypatch.setattr(relaxation, "_highest", lambda *given: honest(*given) - 1e-9)
    assert check_lines(lc.activation(name), 30, tight=False) > 30


def test_sine_far_out() -> None:
    """Where a float no longer resolves multiples of π, slopes and lines still hold."""
    row = lc.activation("sin")
    rng = np.random.default_rng(0)
    lower = rng.choice([-1.0, 1.0], 60) * 10.0 ** rng.uniform(5, 17, 60)
    upper = lower + rng.uniform(0, 9, 60)
    slope = rng.uniform(-1, 1, 60)
    found = Lines(*relax(Neurons.of(row, 1), lower, upper, slope, slope))
    alpha, beta = slope_bounds(Neurons.of(row, 1), lower, upper)
    with precision(400):
        for k in range(60):
            low, high = ball(lower[k]), ball(upper[k])
            least, most = slope_range(row, low, high)
            assert ball(alpha[k]) <= least.upper()
            assert ball(beta[k]) >= most.lower()
            top = highest(row, 1, low, high, ball(slope[k]))
            bottom = highest(row, -1, low, high, ball(-slope[k]))
            assert ball(found.upper_offset[k]) >= top.lower()
            assert ball(-found.lower_offset[k]) >= bottom.lower()


def test_one_activation_a_neuron() -> None:
    """Groups of neurons are put back in place."""
    rows = [lc.activation(name) for name in TABLE]
    neurons = Neurons.of(rows, len(rows))
    lower, upper = np.full(len(rows), -1.3), np.full(len(rows), 0.9)
    alpha, beta = slope_bounds(neurons, lower, upper)
    found = Lines(*relax(neurons, lower, upper, alpha, beta))
    for k, row in enumerate(rows):
        one = Neurons.of(row, 1)
        at = slice(k, k + 1)
        assert (alpha[at], beta[at]) == slope_bounds(one, lower[at], upper[at])
        alone = Lines(*relax(one, lower[at], upper[at], alpha[at], beta[at]))
        assert [column[k] for column in found] == [column[0] for column in alone]
    assert (found.floor <= found.roof).all()


# parabolas near the slope of an activation: they hold everywhere on the interval


COUNT = 400


def gaps(neurons: Neurons, found: Fit, center: Array, v: Array) -> list[Array]:
    """How far each of the three statements is from being broken, at points v (points, neurons)."""
    s, slope = v - center, neurons.slope(v)
    line = found.slope + found.rate * s
    parabola = found.value + found.slope * s + 0.5 * found.rate * s * s
    return [
        found.error - np.abs(slope - line - 0.5 * found.bow * s * s),
        found.apart - np.abs(slope - found.slope),
        found.rest - np.abs(neurons.value(v) - parabola - found.bow * s**3 / 6.0),
    ]


def drawn(seed: int, width: float) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    center = rng.normal(size=(1, COUNT)) * 2.0
    low, high = center - width * rng.uniform(0, 1, center.shape), center + width * rng.uniform(0, 1, center.shape)
    return np.where(rng.uniform(size=center.shape) < 0.1, low, center), low, high


@pytest.mark.parametrize("width", [1e-9, 1e-3, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("name", list(TABLE))
def test_a_fit_holds_on_its_interval(name: str, width: float) -> None:
    neurons = Neurons.of(name, COUNT)
    center, low, high = drawn(len(name), width)
    found = fit(neurons, center, (low, high), np.zeros(center.shape))
    shares = np.linspace(0.0, 1.0, 301)[:, None]
    v = np.clip(low + (high - low) * shares, low, high)
    for gap in gaps(neurons, found, center, v):
        assert (gap >= -1e-15 * (1.0 + np.abs(v))).all()


def test_a_halved_error_is_not_enough() -> None:
    neurons = Neurons.of("tanh", COUNT)
    center, low, high = drawn(1, 1.0)
    v = np.clip(low + (high - low) * np.linspace(0.0, 1.0, 301)[:, None], low, high)
    found = fit(neurons, center, (low, high), np.zeros(center.shape))
    parts = [gap.min(axis=0) for gap in gaps(neurons, found, center, v)]
    sizes = [found.error, found.apart, found.rest]
    for gap, size in zip(parts, sizes, strict=True):
        assert (gap - 0.5 * size < 0.0).mean() > 0.3


def test_cells_are_told_of_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the turns of φ'' a fit across one of them is too close."""
    neurons = Neurons.of("tanh", COUNT)
    center = np.full((1, COUNT), 0.66) + np.linspace(-0.3, 0.3, COUNT)
    low, high = center - 2.0, center + 2.0
    honest = fit(neurons, center, (low, high), np.zeros(center.shape)).error
    monkeypatch.setattr(Activation, "turns_inside", lambda *_: [])
    assert (fit(neurons, center, (low, high), np.zeros(center.shape)).error < honest).any()
