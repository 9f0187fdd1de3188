"""Parabolas near the slope of an activation: they hold everywhere on the interval, and come close."""

from __future__ import annotations

import numpy as np
import pytest

from lipcert.model.activation_table import TABLE
from lipcert.model.activations import Activation
from lipcert.model.arrays import Array
from lipcert.model.network import Neurons
from lipcert.proof.slope_fits import Fit, fit

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
