"""The table of activations, against its definitions in ball arithmetic and brute force."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb

import lipcert as lc
from exact import ball, exact, precision
from lipcert.arguments.numbers import ALIASES, PRESETS
from lipcert.errors import InvalidInput
from lipcert.model.activations import CONCAVE, CONVEX, TABLE, Activation
from lipcert.model.arrays import Array
from networks import ROW_LABELS, ROWS, STEEP, label

every_row = pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)
each_row = pytest.mark.parametrize("row", [*ROWS, *STEEP], ids=[*ROW_LABELS, *map(label, STEEP)])


def knots_of(row: Activation, start: float = -50.0) -> list[float]:
    return [float(np.ravel(k)[0]) for k in row.knots(np.array([start]))]


def points_of(row: Activation) -> Array:
    rng = np.random.default_rng(1)
    knots = knots_of(row, -0.5)
    spread = np.concatenate([rng.uniform(-8, 8, 40), rng.uniform(-40, 40, 10), [-0.0, 1e-9, -1e-9, 300.0, -300.0]])
    ulp = np.where(np.array(knots) == 0, 1e-18, np.spacing(np.abs(knots)))
    return np.concatenate([spread, knots, knots - ulp, knots + ulp])


def test_the_table_holds_the_rows_that_were_promised() -> None:
    promised = (
        "relu leaky_relu prelu relu6 hardtanh elu celu selu sigmoid tanh softplus softsign silu gelu gelu_tanh"
        " mish hardswish hardsigmoid arctan sin identity cos snake erf logsigmoid tanhshrink softshrink"
        " threshold quick_gelu square cube"
    )
    assert {lc.activation(name).name for name in promised.split()} == set(TABLE)
    assert set(ALIASES.values()) <= {*TABLE, *PRESETS}


@every_row
@pytest.mark.parametrize("side", [-1, 1])
def test_bend_is_the_one_sided_second_derivative(row: Activation, side: int) -> None:
    """To far less than 2⁻⁴⁰ of the largest there is."""
    points = points_of(row)
    turns = [float(np.ravel(turn)[0]) for turn in row.turns(np.zeros(1))]
    largest = max([abs(float(row.bend(np.array(turn), s))) for turn in turns for s in (-1, 1)], default=0.0)
    marks = [*knots_of(row), *turns]
    with precision(400):
        step = side * arb(2) ** -83
        for v, got in zip(points, row.bend(points, side), strict=True):
            if not row.row.exact and marks and min(abs(v - mark) for mark in marks) <= 4 * np.spacing(abs(v)):
                continue
            f = [exact(row).value(ball(v) + k * step) for k in range(4)]
            want = (2 * f[0] - 5 * f[1] + 4 * f[2] - f[3]) / step**2
            assert abs(ball(got) - want) <= largest * arb(2) ** -44 + 1e-20, v


@each_row
def test_the_bend_is_monotone_between_turns(row: Activation) -> None:
    if np.isfinite(row.row.period):
        turns = sorted({float(t) for k in range(3) for t in row.turns(np.array(k * row.row.period))})
        turns = [t for t, s in pairwise(turns) if s - t > 1e-9]  # the same one may come twice, rounded differently
    else:
        turns = [float(turn) for turn in row.turns(np.zeros(1))]
    unit = max((abs(turn) for turn in turns), default=0.0) or 1.0
    marks = [turns[0] - 20.0 * unit, *turns, turns[-1] + 20.0 * unit] if turns else [-20.0, 20.0]
    largest = max([abs(float(row.bend(np.array(turn), s))) for turn in turns for s in (-1, 1)], default=0.0)
    for left, right in pairwise(marks if not np.isfinite(row.row.period) else turns):
        grid = np.linspace(left, right, 4001)[1:-1]
        steps = np.diff(row.bend(grid)) / max(largest, 1e-300)
        assert (steps >= -1e-13).all() or (steps <= 1e-13).all()
    if not turns:
        assert not row.bend(np.linspace(-20.0, 20.0, 101)).any()


@pytest.mark.parametrize("row", [row for row in ROWS if not np.isfinite(row.row.period)], ids=label)
def test_limits_at_infinity(row: Activation) -> None:
    ends, far = np.array([-np.inf, np.inf]), np.array([-1e9, 1e9])
    slopes, limit = row.slope(ends), row.value(ends)
    np.testing.assert_allclose(slopes, row.slope(np.array([-1e300, 1e300])), atol=1e-15)
    settled = slopes == 0
    np.testing.assert_allclose(limit[settled], row.value(far)[settled], atol=1e-8)
    np.testing.assert_array_equal(limit[~settled], np.sign(row.value(far)[~settled]) * np.inf)


@each_row
def test_knots_are_where_the_slope_turns(row: Activation) -> None:
    """Between the knots φ' is monotone as the shape says; at a knot a smooth φ'' vanishes or φ' is not smooth."""
    start = np.array([-30.0])
    if np.isfinite(row.row.period):
        start = np.array([-1.0])
    knots = [knot for knot in knots_of(row, float(start[0])) if knot >= start[0]]
    assert knots == sorted(knots)
    shapes = [int(np.ravel(s)[0]) for s in row.shape][-len(knots) - 1 :]
    ends = [float(start[0]), *knots, knots[-1] + 0.3 * row.row.period if np.isfinite(row.row.period) else 30.0]
    assert len(shapes) == len(ends) - 1
    for low, high, shape in zip(ends[:-1], ends[1:], shapes, strict=True):
        slopes = row.slope(np.linspace(low, high, 2001)[1:-1])
        change = np.diff(slopes)
        tiny = 4 * np.finfo(float).eps * np.abs(slopes).max()
        if shape == CONVEX:
            assert (change >= -tiny).all()
        elif shape == CONCAVE:
            assert (change <= tiny).all()
        else:
            assert np.ptp(slopes) <= tiny


@pytest.mark.parametrize(("name", "drift"), [("sin", 0.0), ("cos", 0.0), ("snake", 1.0)])
def test_periodic_rows_stay_near_their_drift(name: str, drift: float) -> None:
    row, v = lc.activation(name), np.linspace(-60.0, 60.0, 240_001)
    away = np.abs(row.value(v) - drift * v).max()
    assert row.row.drift == drift
    assert away - 1e-13 <= row.row.swing <= away + 1e-6


def test_parameters_one_a_neuron() -> None:
    slopes = np.array([0.1, -0.5, 2.0])
    prelu = lc.activation("prelu", negative_slope=slopes)
    v = np.array([-1.0, -1.0, 3.0])
    assert prelu.value(v).tolist() == [-0.1, 0.5, 3.0]
    assert prelu.slope(v).tolist() == [0.1, -0.5, 1.0]
    least, most = prelu.slope_range(np.full(3, -1.0), np.full(3, 1.0))
    assert least.tolist() == [0.1, -0.5, 1.0]
    assert most.tolist() == [1.0, 1.0, 2.0]
    assert prelu.take(np.array([2, 0])).value(np.array([-1.0, -1.0])).tolist() == [-2.0, -0.1]
    slopes[0] = 9.0
    assert prelu.value(v)[0] == -0.1, "the activation keeps its own copy"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("ReLU", "relu"),
        ("Leaky ReLU", "leaky_relu"),
        ("PReLU", "leaky_relu"),
        ("swish", "silu"),
        ("linear", "identity"),
        ("GELU-tanh", "gelu_tanh"),
        ("Hard_Swish", "hardswish"),
        ("atan", "arctan"),
    ],
)
def test_names_are_forgiving(spelling: str, name: str) -> None:
    assert lc.activation(spelling).name == name


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("rellu", {}, "unknown activation 'rellu'; known are .*relu"),
        ("elu", {"alpha": -1.0}, "needs 1e-6 <= alpha <= 1e6, got .*-1.0"),
        ("hardtanh", {"min_val": 2.0, "max_val": 1.0}, "needs min_val < max_val"),
        ("leaky_relu", {"negative_slope": float("nan")}, "negative_slope must be finite, got nan"),
        ("leaky_relu", {"negative_slope": "steep"}, "negative_slope must be real numbers, got 'steep'"),
        ("relu", {"alpha": 1.0}, "has no parameter alpha; it takes none"),
        ("elu", {"negative_slope": 1.0}, "no parameter negative_slope; it takes alpha"),
        (lc.activation("elu"), {"alpha": 2.0}, "has its parameters already"),
        (7, {}, "must be a name or an Activation, got int"),
        ("leaky_relu(a)", {}, "'a' is not a number"),
        ("leaky_relu(0.2", {}, "as in leaky_relu.0.2."),
        ("leaky_relu(0.2, 3)", {}, "too many parameters; leaky_relu takes negative_slope"),
        ("leaky_relu(slope=2)", {}, "no parameter slope; it takes negative_slope"),
        ("leaky_relu(0.2, negative_slope=0.2)", {}, "says negative_slope twice"),
        ("relu(1)", {}, "relu takes nothing"),
    ],
)
def test_bad_activations_are_named(name: Any, parameters: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        lc.activation(name, **parameters)


def test_an_infinite_neighbour_changes_no_value() -> None:
    v = np.array([-np.inf, -1.7e308, -1e301, 0.5, 1e301, 1.7e308, np.inf])
    for name in TABLE:
        row = lc.activation(name)
        with np.errstate(all="ignore"):
            together, alone = row.value(v), np.array([row.value(x[None])[0] for x in v])
        np.testing.assert_array_equal(together, alone, err_msg=name)


def written(row: Activation, named: bool) -> str:
    """The activation as text, such as leaky_relu(0.2)."""
    pairs = zip(row.row.parameters, row.parameters, strict=True)
    return f"{row.name}({', '.join(f'{label}={value}' if named else str(value) for label, value in pairs)})"


@pytest.mark.parametrize("row", [row for row in ROWS if row.parameters], ids=[x for x in ROW_LABELS if "-" in x])
def test_names_carry_parameters(row: Activation, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", W1=np.eye(3), W2=np.eye(3), W3=np.eye(3))
    for spec in (written(row, False), written(row, True), [written(row, False), "tanh"], row):
        layers = lc.load(tmp_path / "a.npz", spec).layers
        first, second = (layer.neurons.groups[0][0] for layer in layers if layer.neurons)
        assert first == row
        assert second.name == ("tanh" if isinstance(spec, list) else row.name)
    with pytest.raises(InvalidInput, match="got int"):
        lc.load(tmp_path / "a.npz", ["relu", 3])
