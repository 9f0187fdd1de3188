"""Bounds between other norms than ℓ2, and in other units."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.regions import NORMS, Norm, Norms
from networks import random_network
from patterns import jacobians

NAMES = ("l1", "l2", "linf")
PAIRS = [(p, q) for p in NAMES for q in NAMES]
SHAPES = ((2, 4, 2), (2, 5, 3), (3, 4, 2), (2, 3, 3, 2), (1, 5, 2), (3, 4, 1))
SCALE, UNITS = np.array([0.1, 100.0, 3.0]), np.array([2.0, 0.5])
ORDER = {"l1": 1, "l2": 2, "linf": np.inf}
DUAL = {"l1": np.inf, "l2": 2, "linf": 1}


def signs(n: int) -> Array:
    return np.array(list(itertools.product((1.0, -1.0), repeat=n)))


def norm_between(matrix: Array, p: str, q: str) -> float:
    """The norm of a matrix by its definition: columns, rows, or all corners of a cube."""
    if (p, q) == ("l2", "l2"):
        return float(np.linalg.norm(matrix, 2))
    if p == "l1":
        return float(np.linalg.norm(matrix, ORDER[q], axis=0).max())
    if q == "linf":
        return float(np.linalg.norm(matrix, DUAL[p], axis=1).max())
    if p == "linf":
        return float(np.linalg.norm(signs(matrix.shape[1]) @ matrix.T, ORDER[q], axis=1).max())
    return float(np.linalg.norm(signs(matrix.shape[0]) @ matrix, axis=1).max())


SEEDS = [
    *(pytest.param(k, PAIRS[k::3]) for k in range(3)),
    *(pytest.param(k, PAIRS, marks=pytest.mark.slow) for k in range(100)),
]


@pytest.mark.parametrize(("seed", "pairs"), SEEDS)
def test_all_nine_pairs_against_brute_force(seed: int, pairs: list[tuple[str, str]]) -> None:
    """Never below the truth, and by Split equal to 1e-6; three of the pairs each, in turn."""
    sizes = SHAPES[seed % len(SHAPES)]
    network, box = random_network(seed, sizes, "relu"), lc.Box(-np.ones(sizes[0]), np.ones(sizes[0]))
    jacobians_ = list(jacobians(network, box))
    for p, q in pairs:
        true = max(norm_between(one, p, q) for one in jacobians_)
        ends: dict[str, Any] = {"input_norm": p, "output_norm": q}
        split = lc.certify(network, box, lc.Split(lc.ClosedForm(), seconds=60.0, tolerance=1e-9), **ends)
        assert true * (1.0 - 1e-12) <= split.bound <= true * (1.0 + 1e-6)
        assert lc.verify(network, split) <= split.bound
        assert lc.certify(network, box, lc.ClosedForm(), **ends).bound >= true * (1.0 - 1e-12)
        lower = lc.lower_bound(network, box, samples=200, steps=5, **ends)
        assert lower.value <= true * (1.0 + 1e-12)
        assert lower.norms == Norms(NORMS[p](), NORMS[q]())


def test_a_part_has_norms_too() -> None:
    network, ball = random_network(4, (3, 10, 4), "tanh"), lc.Ball([0.1, 0.2, 0.3], 1e-6)
    J = network.jacobian(ball.center)[[1, 3]][:, [0, 2]]
    norms: dict[str, Any] = {"input_norm": lc.LInf(scale=[2.0, 5.0]), "output_norm": "l1"}
    found = lc.certify(network, ball, lc.ClosedForm(), inputs=[0, 2], outputs=[1, 3], **norms)
    assert found.bound == pytest.approx(norm_between(J * [2.0, 5.0], "linf", "l1"), rel=1e-4)
    assert lc.verify(network, found) <= found.bound


@pytest.mark.parametrize(
    ("norms", "others"),
    [
        (Norms(lc.L2(scale=[2.0, 3.0, 4.0]), lc.L2()), Norms(lc.L2(scale=[4.0, 9.0, 16.0]), lc.L2())),
        (Norms(lc.L1(), lc.LInf()), Norms(lc.LInf(), lc.L1())),
    ],
)
def test_a_claim_for_other_norms_is_refused(norms: Norms, others: Norms) -> None:
    """A scale applied once too often, the dual norm in the place of the norm: a verifier does not believe them."""
    network, ball = random_network(4, (3, 10, 2), "tanh"), lc.Ball([0.1, 0.2, 0.3], 0.5)
    found = lc.certify(network, ball, lc.ClosedForm(), input_norm=norms.input, output_norm=norms.output)
    with pytest.raises(ProofFailed):
        lc.verify(network, replace(found, part=replace(found.part, norms=others)))


def twice_scaled(patch: pytest.MonkeyPatch) -> None:
    old = Norm.units

    def squared(norm: Norm, size: int) -> Array | None:
        units = old(norm, size)
        return None if units is None else units**2

    patch.setattr(Norm, "units", squared)


def swapped_dual(patch: pytest.MonkeyPatch) -> None:
    for kind, other in ((lc.L1, "l1"), (lc.LInf, "linf")):
        patch.setattr(kind, "dual", other)


@pytest.mark.parametrize("mistake", [twice_scaled, swapped_dual])
def test_the_law_sees_planted_mistakes(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around a point the bound is the norm of the Jacobian there; with a mistake some are below it."""
    network, ball, scale = random_network(1, (2, 5, 3), "tanh"), lc.Ball([0.3, -0.4], 1e-9), np.array([0.2, 0.3])
    true = {pair: norm_between(network.jacobian(ball.center) * scale, *pair) for pair in PAIRS}

    def below() -> int:
        units = {name: norm(scale) for name, norm in NORMS.items()}  # type: ignore[call-arg]
        bounds = [
            lc.certify(network, ball, lc.ClosedForm(), input_norm=units[p], output_norm=q).bound for p, q in PAIRS
        ]
        return sum(bound < true[pair] * (1.0 - 1e-9) for bound, pair in zip(bounds, PAIRS, strict=True))

    assert below() == 0
    mistake(monkeypatch)
    assert below() > 0


@pytest.mark.parametrize(
    "norm", [lc.L1(), lc.LInf(), lc.L2(scale=[0.5, 2.0, 1.0]), lc.LInf(scale=[0.5, 2.0, 1.0])], ids=str
)
def test_radii_in_other_norms(norm: Norm, tmp_path: Path) -> None:
    network, point = random_network(6, (3, 16, 16, 3), "elu"), np.array([0.3, -0.2, 0.9])
    found = lc.certified_radius(network, point, norm=norm)
    assert found.radius > 0.0
    lc.verify(network, found)
    found.save(tmp_path / "radius.json")
    lc.verify(network, lc.CertifiedRadius.load(tmp_path / "radius.json"))
    points = lc.Ball(point, found.radius, norm=norm).sample(3000, np.random.default_rng(0))
    assert (network(points).argmax(axis=1) == found.label).all()
    broken = lc.attack(network, point, found.label, 20.0 * found.radius, norm=norm)
    if broken.found:
        assert broken.distances >= found.radius
        assert norm.of(broken.points - point) == pytest.approx(broken.distances)


def test_the_norm_of_a_radius_is_not_believed() -> None:
    network, point = random_network(6, (3, 16, 16, 3), "elu"), np.array([0.3, -0.2, 0.9])
    found = lc.certified_radius(network, point, norm=lc.L1())
    assert found.proof is not None
    ball = found.proof.ball
    claim = replace(found, proof=replace(found.proof, ball=lc.Ball(ball.center, ball.radius, norm=lc.LInf())))
    with pytest.raises(ProofFailed, match="another network or point"):
        lc.verify(network, claim)


@pytest.mark.parametrize("kind", [lc.L1, lc.L2, lc.LInf])
@pytest.mark.parametrize("clip", [None, (-0.5, 2.0)])
def test_balls_of_a_stack_have_units_of_their_own(kind: Any, clip: Any) -> None:
    network, rng = random_network(3, (3, 8, 2), "relu"), np.random.default_rng(0)
    scales = [0.01] * 3, [10.0, 0.011, 0.011], [0.1, 5.0, 1.0]
    balls = [lc.Ball(np.zeros(3), 1.0, clip, kind(scale=scale)) for scale in scales]
    for ball, found in zip(balls, lc.certify_many(network, balls), strict=True):
        most = np.linalg.norm(network.jacobian(ball.sample(500, rng)), ord=2, axis=(-2, -1)).max()
        assert most * (1.0 - 1e-9) <= found.bound
        assert lc.verify(network, found) <= found.bound


def test_published_methods_say_for_which_norms_they_are() -> None:
    network = random_network(4, (3, 6, 2), "relu")
    with pytest.raises(ProofFailed, match="is a method for ℓ2 norms"):
        lc.certify(network, None, lc.published.LipSDP(), input_norm="linf")
    scaled = lc.certify(network, None, lc.published.Trivial(), input_norm=lc.L2(scale=2.0)).bound
    assert scaled == pytest.approx(2.0 * lc.certify(network, None, lc.published.Trivial()).bound)
    box = lc.certify(network, None, lc.published.GeoLIP(), input_norm="linf", output_norm="linf").bound
    assert box >= lc.lower_bound(network, lc.Everywhere(), input_norm="linf", output_norm="linf").value


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"input_norm": "l3"}, "input_norm must be a norm such as"),
        ({"input_norm": lc.L2(scale=[1.0, 2.0])}, "scale of 2 numbers for 3 coordinates"),
        ({"input_norm": lc.L2(scale=1e-300)}, "out of the range of floats"),
    ],
)
def test_errors_name_the_norm(wrong: dict[str, Any], message: str) -> None:
    network = random_network(4, (3, 6, 2), "relu")
    with pytest.raises(InvalidInput, match=message):
        lc.certify(network, lc.Ball(np.zeros(3), 1.0), lc.ClosedForm(), **wrong)


@pytest.mark.parametrize("scale", [0.0, -1.0, [1.0, 0.0], np.nan, [[1.0]], "a"])
def test_a_scale_is_positive(scale: Any) -> None:
    with pytest.raises(InvalidInput, match="scale"):
        lc.LInf(scale=scale)


def test_units_that_cancel_lose_no_digits() -> None:
    """Of a single layer, the weights between both changes of units must not underflow either."""
    network, tiny = lc.Network.from_weights([[[1.2345678901234567e-160]]]), lc.L2(scale=1e-160)
    with pytest.raises(InvalidInput, match="out of the range of floats"):
        lc.certify(network, lc.Ball([0.0], 1.0), lc.ClosedForm(), input_norm=tiny, output_norm=tiny)


@pytest.mark.parametrize("size", [1e-100, 1e-30, 1e30, 1e60])
def test_extreme_units(size: float) -> None:
    """Units of any size either give a bound that holds, or an error."""
    network, ball = random_network(4, (3, 10, 2), "tanh"), lc.Ball([0.1, 0.2, 0.3], 0.0)
    scale = np.array([1.0, size, 1.0 / size])
    for p, q in PAIRS:
        norms: dict[str, Any] = {"input_norm": NORMS[p](scale), "output_norm": q}  # type: ignore[call-arg]
        try:
            found = lc.certify(network, ball, lc.ClosedForm(), **norms)
        except ProofFailed:
            continue
        true = norm_between(network.jacobian(ball.center) * scale, p, q)
        assert found.bound >= true * (1.0 - 1e-12)


# reach sets and sensitivities do not depend on where the inputs are brought to units
