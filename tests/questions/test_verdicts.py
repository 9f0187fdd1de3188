"""Verdicts by value functions: one answer for single points and campaigns, in time, and never beyond an attack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import Command
from lipcert.model.arrays import Array
from lipcert.questions.campaign import summarise
from lipcert.questions.campaign.results import difference
from lipcert.questions.establish import establish
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
    changed = difference(before, after)
    assert changed.rows == len(X)
    assert changed.gained == sum(row.basis == "value functions" for row in after.rows) > 0
    assert changed.lost == 0
    assert changed.grown > 0
    (summary,) = summarise(after)
    assert summary.bases["value functions"] == changed.gained
    assert summary.broken is not None
    assert summary.undecided is not None
    assert summary.certified + summary.broken + summary.undecided == pytest.approx(summary.correct)
    with pytest.raises(lc.errors.LipcertError, match="other values"):
        lc.campaign(NETWORK, X, radii=[size], out=tmp_path / "run.sqlite", curvature=False, attack=True, values=False)
    with pytest.raises(lc.errors.InvalidInput, match="no rows about the same"):
        difference(before, lc.campaign(NETWORK, X, radii=[2 * size], out=tmp_path / "other.sqlite", curvature=False))


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


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    lipcert = Command(capsys)
    arrays: dict[str, Any] = {"activation": "relu"}
    for number, layer in enumerate(NETWORK.layers, 1):
        arrays |= {f"W{number}": layer.weight, f"b{number}": layer.bias}
    np.savez("model.npz", **arrays)
    np.savez("data.npz", x=X)
    size = f"{np.median(radii()):.6f}"
    arguments = ("robust", "model.npz", "data.npz", "--eps", size, "--attack", "--no-curvature", "--out")
    assert lipcert(*arguments, "old.sqlite").code == 0
    shown = lipcert(*arguments, "new.sqlite", "--seconds-per-point", "30")
    assert "by value functions" in shown.out
    assert "undecided" in shown.out
    changed = lipcert.json("results", "new.sqlite", "--against", "old.sqlite")["against"]
    assert changed["gained"] > 0
    assert "certified only now" in lipcert("results", "new.sqlite", "--against", "old.sqlite").out


def test_bounds_for_all_inputs_settle_small_balls(tmp_path: Path) -> None:
    """Without a look at the ball; such a radius is saved and derived again, and larger balls are looked at."""
    network = random_network(0, (5, 12, 8, 3), gain=1.2)
    x = np.random.default_rng(0).standard_normal(5)
    usual = lc.certified_radius(network, x, curvature=False)
    few, many = (lc.certified_radius(network, x, radii=[share * usual.radius], everywhere=True) for share in (0.2, 1.0))
    assert few.radius == 0.2 * usual.radius
    assert few.bound > many.bound  # the one for all inputs
    assert many.radius == usual.radius
    few.save(tmp_path / "radius.json")
    claim = lc.CertifiedRadius.load(tmp_path / "radius.json")
    for exact in (False, True):
        assert lc.verify(network, claim, exact=exact) == few.radius
    with pytest.raises(lc.ProofFailed):
        lc.verify(network, replace(claim, radius=3.0 * usual.radius, ball=3.0 * usual.radius))
    wide, point = random_network(1, (60, 12, 8, 3), gain=1.2), np.random.default_rng(1).standard_normal(60)
    found = lc.certified_radius(wide, point, radii=[0.01], everywhere=True)  # proved again on fewer inputs
    assert lc.verify(wide, found) == found.radius == 0.01
    facts = establish(network, lc.Ball(x, 1.0), lc.ClosedForm())
    with pytest.raises(lc.ProofFailed, match="all inputs"):
        facts.around(lc.Ball(x, 0.5))
