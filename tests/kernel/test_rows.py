"""Reach sets and sensitivities by pieces: true whatever the search does, and derived again from their proofs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.answers.reach import recheck_reach
from lipcert.answers.sensitivity import recheck_sensitivity
from lipcert.errors import ProofFailed
from lipcert.kernel import enclosures as interval_arithmetic
from lipcert.kernel.branch_and_bound import Cover, JacobianEntries, OutputRows, PieceBounds
from lipcert.model.regions import Region
from networks import random_network, spread

SPLIT = lc.Split(lc.ClosedForm(), seconds=np.inf, tolerance=1e-3, pieces=40)
NETWORK = random_network(4, (3, 8, 7, 2), "tanh", gain=3.0)
BALL = lc.Ball([0.1, -0.2, 0.3], 0.8)
REGIONS: dict[str, Region] = {
    "ball": BALL,
    "box": lc.Box([-1.0] * 3, [0.5] * 3),
    "clip": lc.Ball([0.1, -0.2, 0.3], 1.0, clip=(-0.6, 0.5)),
}


def test_covers_are_not_taken_for_each_other() -> None:
    outputs, entries = Cover(OutputRows(NETWORK, BALL)), Cover(JacobianEntries(NETWORK, BALL))
    for found in (outputs, entries):
        with pytest.raises(ProofFailed, match="something else"):
            found.check(NETWORK, BALL, PieceBounds)
    with pytest.raises(ProofFailed, match="something else"):
        entries.check(NETWORK, BALL, OutputRows)
    with pytest.raises(ProofFailed, match="another network or region"):
        outputs.check(NETWORK, REGIONS["box"], OutputRows)


@pytest.mark.parametrize(
    ("method", "told"),
    spread(
        3,
        {
            type(one).__name__: one
            for one in (lc.ClosedForm(), lc.Joint(iterations=3), replace(SPLIT, pieces=12), lc.Auto(np.inf, 4))
        },
        {f"lies {k}": slice(k, None, 3) for k in range(3)},
    ),
)
def test_answers_are_derived_again(method: Any, told: slice) -> None:
    for region in REGIONS.values() if isinstance(method, lc.ClosedForm) else [BALL]:
        found = lc.reach(NETWORK, region, method)
        recheck_reach(NETWORK, found)
        width = found.upper - found.lower
        lies: list[dict[str, Any]] = [
            {"lower": found.lower + 1e-6 * width},
            {"upper": found.upper - 1e-6 * width},
            {"shape": 0.999 * found.shape},
            {"bound": 0.999 * found.bound},
            {"center": found.center + 1e-3},
            {"hull": (found.hull[0] + 1e-6 * width, found.hull[1])},
            {"region": lc.Ball([0.1, -0.2, 0.3], 1.2)},
            {"proofs": ()},
            {"lower": found.lower[:1]},
            {"shape": found.shape + np.triu(found.shape, 1)},
            {"region": lc.Everywhere()},
        ]
        for lie in lies[told]:
            with pytest.raises(ProofFailed):
                recheck_reach(NETWORK, replace(found, **lie))
    rates = lc.sensitivity(NETWORK, BALL, method)
    recheck_sensitivity(NETWORK, rates)
    lies = [
        {"matrix": 0.9999 * rates.matrix},
        {"bound": 0.999 * rates.bound},
        {"network": "0" * 64},
        {"inputs": ((0,), (1,), (-1,))},
    ]
    for lie in lies:
        with pytest.raises(ProofFailed):
            recheck_sensitivity(NETWORK, replace(rates, **lie))


def test_an_interrupt_brings_the_best_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Cover.cut

    def cut(cover: Cover, *arguments: Any) -> Any:
        if cover.pieces > 20:
            raise KeyboardInterrupt
        return honest(cover, *arguments)

    monkeypatch.setattr(Cover, "cut", cut)
    for question in (lc.reach, lc.sensitivity):
        with pytest.raises(KeyboardInterrupt) as caught:
            question(NETWORK, BALL, lc.Split(lc.ClosedForm(), seconds=np.inf, tolerance=1e-3, pieces=120))
        best: Any = getattr(caught.value, "best", None)
        if question is lc.reach:
            assert recheck_reach(NETWORK, best).hull[0].shape[0] > 5
        else:
            recheck_sensitivity(NETWORK, best)


def test_sums_that_overflow_tell_nothing() -> None:
    """A part of W m + b may overflow where W m + b itself and all the errors are finite."""
    weight, bias = [[-1.6e148, -1.2e148]], [1.25e308]
    layer = lc.Network.from_weights([weight], [bias]).layers[0]
    low, high = np.array([[0.0, 1e160]]), np.array([[1e160, 1e160]])
    with np.errstate(all="ignore"):
        lower, upper = interval_arithmetic.affine(layer, (low, high))
    assert not lower[0, 0] > 5e306  # the value at the lower end
    assert not upper[0, 0] < 5e306
