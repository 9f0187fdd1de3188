"""The attack itself: every kind runs and asks exact questions, and planted mistakes do not escape it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

import lipcert as lc
from attack.__main__ import main
from attack.points import belongs, fractions, inside, steepest
from attack.run import KINDS, run
from attack.truth import Model, norm_is_below, stretch
from exact import precision, rational
from lipcert.errors import ProofFailed
from planted import other_powers, without_epsilon

CASES = {
    "digest": 40,
    "cancel": 6,
    "radius": 4,
    "sensitivity": 2,
    "reach": 12,
    "files": 4,
    "mutants": 4,
    "campaigns": 3,
    "torch": 12,
    "onnx": 12,
}


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_cases_of_every_kind_find_nothing(kind: str, times: int) -> None:
    cases = times * CASES.get(kind, 4)
    (log,) = run([kind], 20, 600.0, cases=cases)
    assert log.cases == cases
    assert log.checks > 0
    assert log.violations == []


def verify_modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("lipcert")]


def everywhere(patch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """Replace a name in every module of lipcert that has it."""
    for module in verify_modules():
        if name in vars(module):
            patch.setattr(module, name, value)


def no_rounding(patch: pytest.MonkeyPatch) -> None:
    """Rounding errors cost nothing."""
    everywhere(patch, "gamma", lambda n: 0.0)
    for charge in ("TINY", "ETA", "U"):
        everywhere(patch, charge, 0.0)


def no_charges(patch: pytest.MonkeyPatch) -> None:
    """What rounding may have lost is charged nowhere in ellipsoids either."""
    no_rounding(patch)
    everywhere(patch, "UP", 1.0)
    everywhere(patch, "raised", lambda matrix, amount: matrix)


def narrow_slopes(patch: pytest.MonkeyPatch) -> None:
    """Slopes are rounded inwards."""
    old = sys.modules["lipcert.kernel.neuron_bounds"].slope_bounds

    def narrower(*given: Any) -> tuple[Any, Any]:
        alpha, beta = old(*given)
        return alpha + 1e-6 * np.abs(alpha), beta - 1e-6 * np.abs(beta)

    everywhere(patch, "slope_bounds", narrower)


def small_radius(patch: pytest.MonkeyPatch) -> None:
    """The region is taken for a little smaller."""
    old = sys.modules["lipcert.kernel.domain"].radius_above
    everywhere(patch, "radius_above", lambda region: old(region) * (1.0 - 1e-6))


def generous_stretch(patch: pytest.MonkeyPatch) -> None:
    """Lower bounds are rounded up."""
    old = sys.modules["lipcert.kernel.enclosures"].stretch_below
    everywhere(patch, "stretch_below", lambda *given: old(*given) * (1.0 + 1e-9))


def short_distances(patch: pytest.MonkeyPatch) -> None:
    """How far a counterexample is, is rounded down."""
    old = sys.modules["lipcert.kernel.norms"].length_above
    everywhere(patch, "length_above", lambda *given: old(*given) * (1.0 - 1e-9))


def scaled_twice(patch: pytest.MonkeyPatch) -> None:
    """The units of the inputs are taken into the weights once too often."""
    old = sys.modules["lipcert.kernel.norms"].columns_times
    everywhere(patch, "columns_times", lambda weight, units: old(old(weight, units), units))


@pytest.mark.parametrize(
    ("plant", "kind", "cases"),
    [
        (no_rounding, "trees", range(100)),
        (no_charges, "cancel", range(40)),
        (other_powers, "cancel", range(40)),
        (narrow_slopes, "parameters", range(40)),
        (narrow_slopes, "ties", range(40)),
        (small_radius, "reach", range(40)),
        (generous_stretch, "lower", range(20)),
        (scaled_twice, "norms", range(60)),
        (without_epsilon, "couplings", range(89, 100)),
        (no_charges, "rules", range(60)),
        (short_distances, "rules", range(60)),
    ],
)
def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], kind: str, cases: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    seen = 0
    for case in cases:
        (log,) = run([kind], 20, 60.0, case=case)
        seen += len(log.violations)
        if seen:
            break
    assert seen > 0


def test_a_foreign_exception_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise IndexError("no such thing")

    monkeypatch.setattr(lc, "verify", broken)
    (log,) = run(["ties"], 20, 60.0, case=0)
    assert "foreign exception IndexError: no such thing" in log.violations[0]


def test_a_refusal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise ProofFailed("not today")

    monkeypatch.setattr(lc, "certify", refused)
    (log,) = run(["scales"], 20, 60.0, case=0)
    assert (log.refusals, log.answers, log.violations) == (1, 0, [])


def test_the_exit_code_and_the_seed_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attack", "--seconds", "20", "--seed", "20", "--kinds", "lower", "--case", "1"])
    assert main() == 0
    generous_stretch(monkeypatch)
    assert main() == 1
    told = capsys.readouterr().out
    assert told.startswith("seed 20\n")
    assert "VIOLATION: the lower bound is" in told
    assert "python -m attack --seed 20 --kinds lower --case 1" in told


def test_directions_decide_the_side_of_a_kink() -> None:
    model = Model.of(lc.Network.from_weights([[[1.0]], [[2.0]]], [[-0.5], None], "relu"))
    half, one = fmpq(1, 2), fmpq(1)
    assert stretch(model, [half], [one]) == 2
    assert stretch(model, [half], [-one]) == 0


def test_exact_values_survive_cancellation() -> None:
    net = lc.Network.from_weights(
        [[[1e200], [1.0]], [[1.0, -1e200]], [[1e-190]]], [[1e-300, 0.0], None, None], "identity"
    )
    model = Model.of(net)
    assert stretch(model, [fmpq(1)], [fmpq(1)]) == 0
    with precision(256):
        assert model.run([fmpq(0)])[0][-1][0] == arb(rational(1e-300)) * arb(rational(1e-190))


def test_one_unit_in_the_last_place_counts_where_it_is_asked_for() -> None:
    net, ball = lc.Network.from_weights([[[3.0]], [[5.0]]], None, "identity"), lc.Ball([0.0], 1.0)
    rng = np.random.default_rng(0)
    plain, moved = (steepest(net, ball, rng, perturbed=perturbed) for perturbed in (False, True))
    assert plain is not None
    assert moved is not None
    assert plain.stretch == 15
    with precision(256):
        assert abs(moved.stretch - 15 * (1 + arb(2) ** -50) ** 2) < 1e-60


def test_points_are_inside_exactly() -> None:
    ball = lc.Ball([0.1], 0.2)
    edge = rational(0.1) + rational(0.2)
    assert belongs(ball, [edge])
    assert not inside(ball, [edge])
    assert not belongs(ball, [edge + fmpq(1, 2**200)])
    assert inside(lc.Box([1.0, 2.0], [1.0, 3.0]), fractions(np.array([1.0, 2.5])))


def test_a_norm_is_below_only_if_it_is() -> None:
    matrix = [[arb(3), arb(0)], [arb(0), arb(4)]]
    assert norm_is_below(matrix, np.nextafter(4.0, 5.0))
    assert not norm_is_below(matrix, 4.0)
