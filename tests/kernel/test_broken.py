"""Inputs of another class: what is said of them holds in exact arithmetic, and what does not hold is not said."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import lipcert as lc
from exact import exact_outputs
from lipcert.answers.radius import nearest_counterexample
from lipcert.kernel.arithmetic import Near
from lipcert.kernel.outputs import output_at
from lipcert.model.arrays import Array
from lipcert.model.regions import L1, L2, LInf, Norm
from networks import random_network

LINE = lc.Network.from_weights([np.eye(2), np.eye(2)], activation="relu")
"""Of positive inputs the larger one is the class."""


def fractions(x: Array) -> list[Fraction]:
    return [Fraction(v) for v in x.tolist()]


def exactly_within(norm: Norm, offset: list[Fraction], distance: float) -> bool:
    """Whether a vector is no longer than a number; the norm's scale is a power of two."""
    scaled = [abs(v) / Fraction(norm.scale) for v in offset]
    if isinstance(norm, L2):
        return sum(v * v for v in scaled) <= Fraction(distance) ** 2
    return (sum(scaled) if isinstance(norm, L1) else max(scaled)) <= Fraction(distance)


@pytest.mark.parametrize("norm", [L2(), L2(scale=0.5), L1(), LInf(scale=2.0)], ids=str)
def test_what_is_said_holds_exactly(norm: Norm) -> None:
    found = 0
    for seed in range(40):
        network = random_network(seed, (3, 6, 5, 3), gain=2.5)
        rng = np.random.default_rng(seed)
        center = rng.standard_normal(3)
        points = center + 0.7 * rng.standard_normal((90, 3))
        label = int(network(center).argmax())
        ball = lc.Ball(center, 1.5, norm=norm)
        told = nearest_counterexample(network, ball, label, points)
        inside = ball.contains(points) & (network(points).argmax(axis=1) != label)
        assert (told is not None) == inside.any()
        if told is None:
            continue
        outputs = exact_outputs(network, fractions(told.point))
        assert outputs[told.rival] > outputs[label]
        offset = [Fraction(a) - Fraction(b) for a, b in zip(told.point.tolist(), center.tolist(), strict=True)]
        assert exactly_within(norm, offset, told.distance)
        assert told.distance <= 1.5
        assert told.distance == pytest.approx(float(norm.of(points[inside] - center).min()))
        found += 1
    assert found > 5


@pytest.mark.parametrize("norm", [L2(scale=0.5), L1(), LInf()], ids=str)
def test_what_an_attack_finds_holds_exactly(norm: Norm) -> None:
    """Several points at once, one of them of another class to begin with; distances are rounded up."""
    network = random_network(3, (3, 6, 5, 3), gain=2.5)
    points = np.random.default_rng(0).standard_normal((9, 3))
    labels = network(points).argmax(axis=1)
    labels[4] = (labels[4] + 1) % 3
    found = lc.attack(network, points, labels, 3.0, norm=norm, restarts=3)
    assert found.distances[4] == 0.0
    assert found.found.sum() > 4
    assert (found.found == np.isfinite(found.distances)).all()
    for k in np.flatnonzero(found.found):
        outputs = exact_outputs(network, fractions(found.points[k]))
        assert max(outputs) > outputs[labels[k]]
        offset = [Fraction(a) - Fraction(b) for a, b in zip(found.points[k].tolist(), points[k].tolist(), strict=True)]
        assert exactly_within(norm, offset, float(found.distances[k]))


def test_an_attack_does_not_find_ties() -> None:
    """The second row is the first up to what rounding hides, so that the classes of its inputs are noise."""
    one = np.array([0.1, 0.2, 0.3])
    network = lc.Network.from_weights([np.array([one, one])])
    found = lc.attack(network, [1.0, 1.0, 1.0], 1, 2.0)
    assert not found.found
    assert found.distances == np.inf


def test_what_is_outside_does_not_count() -> None:
    """Neither beyond the ball by a unit of the last place, nor beyond the clip."""
    center, point = np.array([2.0, 1.0]), np.array([[1.0, 2.0]])
    root = np.nextafter(np.sqrt(2.0), 0.0)  # below the square root of two
    assert nearest_counterexample(LINE, lc.Ball(center, root), 0, point) is None
    assert nearest_counterexample(LINE, lc.Ball(center, 1.5), 0, point) is not None
    assert nearest_counterexample(LINE, lc.Ball(center, 1.5, clip=([1.0, 0.0], [3.0, 1.99])), 0, point) is None
    assert nearest_counterexample(LINE, lc.Ball(center, 1.5, clip=([1.0, 0.0], [3.0, 2.0])), 0, point) is not None


def test_ties_and_what_is_no_number_do_not_count() -> None:
    center = np.array([2.0, 1.0])
    ball = lc.Ball(center, 5.0)
    tie, close = np.array([[1.5, 1.5]]), np.array([[1.5, np.nextafter(1.5, 2.0)]])
    assert nearest_counterexample(LINE, ball, 0, tie) is None
    assert LINE(close[0]).argmax() == 1
    assert nearest_counterexample(LINE, ball, 0, close) is None  # weights a unit away may decide
    assert nearest_counterexample(LINE, ball, 0, np.array([[1.5, 1.5 + 1e-12]])) is not None
    with np.errstate(all="ignore"):
        assert nearest_counterexample(LINE, ball, 0, np.array([[np.nan, 3.0], [1.0, np.inf]])) is None
    assert nearest_counterexample(LINE, ball, 0, np.zeros((0, 2))) is None


def test_an_error_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rounding errors the pair that is nearly a tie counts, and the test above would fail."""
    monkeypatch.setattr("lipcert.kernel.outputs.output_at", lambda *asked: Near.of(output_at(*asked).value))
    close = np.array([[1.5, 1.5 + 10 * np.spacing(1.5)]])
    assert nearest_counterexample(LINE, lc.Ball(np.array([2.0, 1.0]), 5.0), 0, close) is not None
    monkeypatch.undo()
    assert nearest_counterexample(LINE, lc.Ball(np.array([2.0, 1.0]), 5.0), 0, close) is None
