"""Certified radii and attacks: the one never beyond the other, pairs of classes never worse than the plain rule."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from digits import classifier
from lipcert.answers.radius import recheck_radius
from lipcert.errors import Interrupted
from lipcert.kernel.outputs import OutputBounds
from lipcert.model.regions import Norm
from lipcert.questions.prove_outputs import prove_outputs_many
from lipcert.suggest.hints import QuadraticHints
from networks import random_network


def compare(count: int, activation: str = "relu") -> None:
    """For digits that were not trained on: attacks against the certified radius."""
    network, x, y = classifier(activation)
    found = [lc.certified_radius(network, point, label) for point, label in zip(x[:count], y, strict=False)]
    radii = np.array([one.radius for one in found])
    right = network(x[:count]).argmax(axis=1) == y[:count]
    np.testing.assert_array_equal(radii > 0, right)
    assert 0.8 < right.mean() <= 1.0
    inside = lc.attack(network, x[:count], y[:count], radii, restarts=2)
    np.testing.assert_array_equal(inside.found, ~right)
    beyond = lc.attack(network, x[:count], y[:count], 4.0)
    assert beyond.found.all()
    assert (beyond.distances[right] > radii[right]).all()
    # broken where a certificate says nothing, but not far from there
    assert np.median(radii[right] / beyond.distances[right]) > 0.4


def test_digits() -> None:
    compare(6)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_thousand_digits(activation: str) -> None:
    compare(1000, activation)


def test_a_plane_is_as_far_as_it_is() -> None:
    network = lc.Network.from_weights([[[2.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]])
    found = lc.certified_radius(network, [1.0, 1.0])
    assert (found.label, found.rival) == (0, 1)
    assert found.margin == pytest.approx(1.0)
    assert found.bound == pytest.approx(np.sqrt(5.0))
    assert found.radius == pytest.approx(1.0 / np.sqrt(5.0), rel=2e-3)
    assert found.radius <= 1.0 / np.sqrt(5.0)
    broken = lc.attack(network, [1.0, 1.0], 0, 1.0)
    assert broken.distances == pytest.approx(1.0 / np.sqrt(5.0), rel=1e-3)
    assert network(broken.points).argmax() == 1


def test_a_wrong_prediction_has_radius_zero() -> None:
    network = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]]])
    found = lc.certified_radius(network, [2.0, 1.0], label=1)
    assert (found.radius, found.label, found.predicted) == (0.0, 1, 0)
    assert -1.0 - 1e-12 < found.margin <= -1.0
    tie = lc.certified_radius(network, [1.0, 1.0])
    assert tie.radius == 0.0


class Looked:
    """Notes the radii of the balls that are looked at, and stops after some of them."""

    def __init__(self, patch: pytest.MonkeyPatch, most: float = np.inf) -> None:
        self.most = most
        self.calls: list[list[float]] = []
        patch.setattr("lipcert.questions.radius.prove_outputs_many", self)

    def __call__(self, net: lc.Network, balls: list[lc.Ball], *rest: Any) -> list[OutputBounds | lc.ProofFailed]:
        if len(self.calls) == self.most:
            raise KeyboardInterrupt
        self.calls.append([float(ball.radius) for ball in balls])
        return prove_outputs_many(net, balls, *rest)

    @property
    def radii(self) -> list[float]:
        return [radius for call in self.calls for radius in call]


def test_given_radii_are_the_only_ones_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, y = classifier()
    looked = Looked(monkeypatch)
    lc.certified_radius(network, x[0], y[0], radii=[0.3, 0.1])
    assert sorted(looked.radii) == [0.1, 0.3]


def test_a_network_that_never_changes_its_mind() -> None:
    network = lc.Network.from_weights([[[0.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]])
    assert lc.certified_radius(network, [0.0, 0.0]).radius > 1e5
    clipped = lc.Network.from_weights([[[0.1, 0.0], [0.0, 0.1]]], [[1.0, 0.0]])
    assert lc.certified_radius(clipped, [0.5, 0.5], clip=(0, 1)).radius > 1e5  # all of the box is of one class


def test_a_narrowed_margin_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """If margins were a little too large, an attack would find an input inside a certified radius."""
    leads = OutputBounds.leads
    wide = lambda facts, label: replace(told := leads(facts, label), limits=1.05 * told.limits)  # noqa: E731
    monkeypatch.setattr(OutputBounds, "leads", wide)
    network = lc.Network.from_weights([[[2.0, 0.0], [0.0, 1.0]]])
    found = lc.certified_radius(network, [1.0, 1.0], radii=[1.0])
    assert found.basis == "lipschitz"
    assert lc.attack(network, [1.0, 1.0], 0, found.radius).found


def test_radii_say_what_they_rest_on() -> None:
    """Each basis occurs, and what is said of it holds, exactly."""
    network, x, y = classifier("tanh")
    seen: dict[str, int] = {}
    wrong = np.flatnonzero(network(x).argmax(axis=1) != y)[:1]
    for point, label in zip(x[[*range(8), *wrong]], y[[*range(8), *wrong]], strict=True):
        for radius in (0.05, 0.2, 0.3, 0.4, 0.5, 0.7):
            found = lc.certified_radius(network, point, label, radii=[radius])
            seen[found.basis] = seen.get(found.basis, 0) + 1
            assert (found.basis == "") == (found.radius == 0.0) == (found.predicted != label)
            if found.radius == 0.0:
                continue
            assert found.ball == radius
            used_up = Fraction(found.radius) * Fraction(found.bound)
            if found.basis == "lipschitz":
                assert found.radius == pytest.approx(min(radius, found.margin / found.bound), rel=1e-14)
                assert used_up <= Fraction(found.margin)
                continue
            assert found.radius == radius
            assert used_up > Fraction(found.margin)  # the bound alone does not reach so far
            if found.basis == "second order":
                weaker = lc.certified_radius(network, point, label, radii=[radius], curvature=False)
                assert weaker.radius < radius
                assert weaker.basis == "lipschitz"
    assert set(seen) == {"", "lipschitz", "relaxation", "second order"}


def test_wrong_use() -> None:
    network = random_network(0, (3, 4, 2))
    with pytest.raises(lc.InvalidInput, match="label must be from 0 to 1, got 2"):
        lc.certified_radius(network, [0.0] * 3, label=2)
    with pytest.raises(lc.InvalidInput, match="x must be one point"):
        lc.certified_radius(network, np.zeros((2, 3)))
    with pytest.raises(lc.InvalidInput, match="radii must be positive"):
        lc.certified_radius(network, np.zeros(3), radii=[])
    with pytest.raises(lc.InvalidInput, match="inside clip"):
        lc.certified_radius(network, np.full(3, 2.0), clip=(0, 1))
    with pytest.raises(lc.InvalidInput, match="label must be from 0 to 1"):
        lc.attack(network, np.zeros(3), 5, 1.0)


@cache
def answers() -> list[tuple[lc.Network, lc.CertifiedRadius]]:
    """Radii on every basis, by several rules and methods."""
    network, x, _ = classifier("tanh")
    options: list[dict[str, Any]] = [
        {},
        {"curvature": False},
        {"radii": [2.0]},
        {"clip": (0, 1)},
        {"radii": [0.05, 0.2, 0.4]},
        {"method": lc.Joint(), "radii": [0.2], "curvature": False},
    ]
    return [(network, lc.certified_radius(network, x[k], **some)) for k in (0,) for some in options]


def test_a_radius_that_is_not_implied_is_refused() -> None:
    for network, one in answers():
        assert one.proof is not None
        ball, other = one.proof.ball, random_network(3, network.sizes, "tanh")
        wider = replace(one.proof, ball=lc.Ball(ball.center, 4.0 * one.ball, ball.clip))
        forged = [
            replace(one, radius=one.ball * (1.0 + 1e-9)),
            replace(one, radius=4.0 * one.radius, ball=4.0 * one.ball, proof=wider),
            replace(one, bound=one.bound * (1.0 - 1e-9)),
            replace(one, proof=replace(one.proof, sweeps=())),
            replace(one, proof=None),
            replace(one, label=one.rival, rival=one.label),
            replace(one, predicted=one.rival),
        ]
        if one.basis == "second order":
            few = one.proof.rows[:-1]
            zeros = [replace(row, mu=0.0) for row in one.proof.rows if isinstance(row, QuadraticHints)]
            forged += [replace(one, proof=replace(one.proof, rows=rows)) for rows in ((), few, tuple(zeros))]
        for lie in forged:
            with pytest.raises(lc.ProofFailed):
                recheck_radius(network, lie)
        with pytest.raises(lc.ProofFailed, match="another network or point"):
            recheck_radius(other, one)


def test_time_that_is_up_leaves_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, _ = classifier("tanh")
    whole, looked = lc.certified_radius(network, x[0]), Looked(monkeypatch)
    told: list[str] = []
    found = lc.certified_radius(network, x[0], seconds=1e-9, progress=told.append)
    assert len(looked.calls) == 1
    assert 0.0 < found.radius < whole.radius
    assert told[0].startswith("radius ")
    recheck_radius(network, found)


@pytest.mark.parametrize("balls", [0, 2, 9])
def test_an_interrupt_brings_the_best_so_far(monkeypatch: pytest.MonkeyPatch, balls: int) -> None:
    network, x, _ = classifier("tanh")
    Looked(monkeypatch, balls)
    with pytest.raises(Interrupted) as caught:
        lc.certified_radius(network, x[0])
    best = caught.value.best
    assert isinstance(best, lc.CertifiedRadius)
    assert (best.radius > 0.0) == (balls > 0)
    recheck_radius(network, best)


def test_a_single_logit_is_a_classifier_of_two_classes(tmp_path: Path) -> None:
    """Class 1 is where the logit is positive; the radius is that of the network with outputs (0, logit)."""
    network = random_network(4, (3, 8, 1), "tanh")
    last = network.layers[-1]
    both = lc.Network(
        (*network.layers[:-1], type(last)(np.vstack([0 * last.weight, last.weight]), np.r_[0, last.bias], None))
    )
    for x in np.random.default_rng(0).normal(size=(2, 3)):
        found, pair = lc.certified_radius(network, x), lc.certified_radius(both, x)
        assert found.predicted == int(network(x)[0] > 0)
        assert found.radius == pair.radius > 0.0
        found.save(tmp_path / "radius.json")
        assert lc.verify(network, lc.CertifiedRadius.load(tmp_path / "radius.json")) == found.radius
        inside = x + found.radius * 0.999 * (lambda d: d / np.linalg.norm(d, axis=1)[:, None])(
            np.random.default_rng(1).normal(size=(200, 3))
        )
        assert (np.sign(network(inside)[:, 0]) == np.sign(network(x)[0])).all()
        broken = lc.attack(network, x, found.predicted, 3.0)
        assert not broken.found or float(broken.distances) >= found.radius
    points = np.random.default_rng(2).normal(size=(3, 3))
    rows = lc.campaign(network, points, [0, 1, 1], radii=[0.05], out=tmp_path / "run.sqlite", progress=False).rows
    assert len(rows) == 3


def test_a_single_probability_is_no_classifier() -> None:
    """It is positive everywhere, so that class 1 would be everywhere."""
    network = lc.Network.from_weights([[[1.0, 2.0]], [[3.0]]], activation=["relu", "sigmoid"])
    for question in (lambda: lc.certified_radius(network, [1.0, 1.0]), lambda: lc.attack(network, [1.0, 1.0], 1, 0.5)):
        with pytest.raises(lc.InvalidInput, match=r"one output, of sigmoid, between 0 and 1.*Take the logit"):
            question()
    other = lc.Network.from_weights([[[1.0, 2.0]], [[3.0]]], activation=["relu", "tanh"])
    assert lc.certified_radius(other, [1.0, 1.0]).radius > 0.0
    with pytest.raises(lc.InvalidInput, match=r"got str; read it with lipcert\.load"):
        lc.attack("network", [1.0, 1.0], 1, 0.5)  # type: ignore[arg-type]


POINT = np.array([0.3, -0.2, 0.5])


@pytest.mark.parametrize("norm", [None, lc.LInf(), lc.L1(scale=2.0)])
def test_the_product_of_norms_certifies_a_radius_where_a_ball_takes_too_long(
    norm: Norm | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lipcert.questions.radius._WIDE", 5)
    monkeypatch.setattr("lipcert.questions.radius.enclosing_seconds", lambda network: 1e6)
    network, said = random_network(4, (3, 8, 6, 4), "relu"), list[str]()
    found = lc.certified_radius(network, POINT, norm=norm, seconds=1e3, progress=said.append)
    assert not any("radius" in line for line in said)  # no ball was looked at
    assert 0.0 < found.radius < lc.certified_radius(network, POINT, norm=norm).radius
    found.save(tmp_path / "radius.json")
    saved = lc.CertifiedRadius.load(tmp_path / "radius.json")
    assert all(lc.verify(network, saved, exact=exact) >= found.radius for exact in (False, True))
    assert found.proof is not None
    for name, factor in (("radius", 1.01), ("bound", 0.99), ("margin", 1.01)):
        more: dict[str, Any] = {name: factor * getattr(found, name)}
        for exact in (False, True):
            with pytest.raises(lc.ProofFailed):
                lc.verify(network, replace(found, **more), exact=exact)


def test_radii_whose_squares_overflow_are_certified_or_not() -> None:
    """The search for parabolas ended in an OverflowError."""
    network = lc.Network.from_weights([[[1e-3], [2e-3]], [[1.0, 0.0], [0.0, 0.5]]], [[1.0, 1.0], [5.0, 0.0]])
    found = lc.certified_radius(network, [0.0], radii=[1e160])
    assert 0.0 < found.radius < 1e5
