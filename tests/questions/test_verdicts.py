"""Verdicts by value functions: one answer for single points and campaigns, in time, and never beyond an attack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from command import Command
from lipcert.model.arrays import Array
from lipcert.questions.campaign import summarise
from lipcert.questions.radius import RadiusCertifier
from networks import random_network

NETWORK = random_network(0, (4, 8, 7, 3), gain=2.5)
X = np.random.default_rng(0).standard_normal((6, 4))


def radii() -> Array:
    """A little more than what is certified without value functions."""
    return np.array([1.2 * lc.certified_radius(NETWORK, x, curvature=False).radius for x in X])


def test_campaigns_say_what_single_calls_say(tmp_path: Path) -> None:
    size = float(np.median(radii()))
    before = lc.campaign(NETWORK, X, radii=[size], out=tmp_path / "plain.sqlite", curvature=False, attack=True)
    after = lc.campaign(
        NETWORK, X, radii=[size], out=tmp_path / "run.sqlite", curvature=False, attack=True, values=True
    )
    for row in after.rows:
        alone = lc.certified_radius(NETWORK, X[row.point], radii=[size], curvature=False, values=True)
        assert (row.robust, row.basis) == (alone.radius >= size, alone.basis)
        assert not (row.robust and row.broken is not None)
    gained = sum(row.robust and not old.robust for old, row in zip(before, after, strict=True))
    assert gained == sum(row.basis == "value functions" for row in after.rows) > 0
    assert all(row.certified >= old.certified for old, row in zip(before, after, strict=True))
    (summary,) = summarise(after)
    assert summary.bases["value functions"] == gained
    assert summary.broken is not None
    assert summary.undecided is not None
    assert summary.certified + summary.broken + summary.undecided == pytest.approx(summary.correct)
    with pytest.raises(lc.errors.LipcertError, match="other values"):
        lc.campaign(NETWORK, X, radii=[size], out=tmp_path / "run.sqlite", curvature=False, attack=True, values=False)


def test_a_search_goes_further_with_value_functions() -> None:
    grown = 0
    for x in X[:3]:
        first = lc.certified_radius(NETWORK, x, curvature=False)
        found = lc.certified_radius(NETWORK, x, curvature=False, values=True, tolerance=0.05)
        assert found.radius >= first.radius
        assert not lc.attack(NETWORK, x, found.label, found.radius).found
        assert lc.verify(NETWORK, found) == found.radius
        grown += found.basis == "value functions"
    assert grown > 0


def test_no_time_is_no_harm() -> None:
    """Time that is up leaves what was known before."""
    x, size = X[0], float(radii()[0])
    known = lc.certified_radius(NETWORK, x, radii=[size], curvature=False)
    found = lc.certified_radius(NETWORK, x, radii=[size], curvature=False, values=True, seconds=0.0)
    assert found == known


def test_clipped_and_wide_inputs() -> None:
    """A network with more inputs than neurons is looked at on fewer; a clip counts in the intervals."""
    network = random_network(3, (30, 6, 5, 2), gain=3.0)
    x = np.random.default_rng(3).random(30)
    first = lc.certified_radius(network, x, curvature=False)
    for clip in (None, (0.0, 1.0)):
        found = lc.certified_radius(network, x, radii=[1.1 * first.radius], curvature=False, values=True, clip=clip)
        assert found.radius == 1.1 * first.radius
        assert lc.verify(network, found, exact=True) == found.radius


def test_the_command_line(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    NETWORK.save("model.npz")
    np.savez("data.npz", x=X)
    size = f"{np.median(radii()):.6f}"
    arguments = ("robust", "model.npz", "data.npz", "--eps", size, "--attack", "--no-curvature", "--out")
    shown = lipcert(*arguments, "new.sqlite", "--seconds-per-point", "30")
    assert "by value functions" in shown.out
    assert "undecided" in shown.out
    far = f"{3.0 * np.median(radii()):.6f}"
    alone = ("robust", "model.npz", "data.npz", "--eps", far, "--no-curvature", "--seconds-per-point", "30", "--out")
    shown = lipcert(*alone, "far.sqlite")  # without --attack
    assert "broken" in shown.out
    assert "undecided 0.00%" in shown.out


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other class is seen a few steps downhill, so that only the search for multipliers may meet one."""
    monkeypatch.setattr(RadiusCertifier, "_descend", lambda _, proved, __: X[:0] if proved.open.any() else None)


@pytest.mark.parametrize("hidden", [False, True], ids=["downhill", "maximiser"])
def test_most_balls_get_a_verdict_where_few_neurons_are_open(hidden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certified, or broken with a point of another class that is in the ball; near what an attack finds, too."""
    if hidden:
        blind(monkeypatch)
    said = {"certified": 0, "broken": 0, "open": 0}
    for x in X:
        label = int(NETWORK(x).argmax())
        far = float(lc.attack(NETWORK, x, label, 5.0).distances)
        for share in (0.7, 0.97, 1.03, 1.5):
            found = lc.certified_radius(NETWORK, x, radii=[share * far], curvature=False, values=True)
            if found.radius >= share * far:
                assert found.broken is None
                assert share < 1.0
                said["certified"] += 1
                continue
            if found.broken is None:
                said["open"] += 1
                continue
            assert found.radius < found.broken.distance <= share * far
            outputs = NETWORK(found.broken.point)
            assert outputs[found.broken.rival] > outputs[label]
            assert np.linalg.norm(found.broken.point - x) <= found.broken.distance
            said["broken"] += 1
    assert min(said["certified"], said["broken"]) >= 6
    assert said["open"] <= 4


def test_a_point_is_handed_back_on_more_inputs_than_neurons(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form has fewer inputs than the network; and within the clip only."""
    network = random_network(3, (30, 6, 5, 2), gain=3.0)
    x = np.random.default_rng(3).random(30)
    blind(monkeypatch)
    far = float(lc.attack(network, x, int(network(x).argmax()), 5.0).distances)
    found = lc.certified_radius(network, x, radii=[1.05 * far], curvature=False, values=True)
    assert found.broken is not None
    assert found.broken.distance <= 1.05 * far
    assert network(found.broken.point).argmax() != found.label
    for claim, point in ((found, x + 1e-9), (replace(found, label=1 - found.label), x)):
        with pytest.raises(lc.ProofFailed, match="another network or point"):
            replace(claim, radius=0.0).about(network, lc.Ball(point, 1.0))
    inside = lc.certified_radius(network, x, radii=[1.05 * far], curvature=False, values=True, clip=(0.0, 1.0))
    assert inside.broken is None or ((inside.broken.point >= 0.0) & (inside.broken.point <= 1.0)).all()
