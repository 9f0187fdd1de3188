"""Whatever the functions outside the trusted packages return, nothing false is called verified.

Every function and method of the suggestions, the searches, the questions and the runtime is replaced by one that
returns garbage of the right shape: one at a time, then all at once. The questions that users ask stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from chaos import DECOY, KINDS, Garbage, Target, chaos, reached, targets
from lipcert.errors import ProofFailed
from lipcert.kernel.classes import ClassBounds
from lipcert.kernel.cover import Leaf, covering
from lipcert.kernel.guide import View
from lipcert.kernel.hints import Part
from lipcert.kernel.outputs import output_at
from lipcert.kernel.piece_bounds import PieceBounds
from lipcert.methods import guide as asking
from lipcert.methods import problem, split
from lipcert.methods.candidate import Candidate
from lipcert.methods.directions import Stretch
from lipcert.model.arrays import Array
from lipcert.model.regions import Ball
from lipcert.questions import radius_certifier
from lipcert.questions.prove_outputs import prove_outputs
from networks import random_network

NETWORK = random_network(5, (3, 5, 4, 2), "relu", gain=2.5)
WIDE = random_network(6, (17, 4, 3, 2), ["leaky_relu", "relu"], gain=2.5)
SMOOTH = random_network(8, (17, 16, 12, 2), "tanh", gain=2.5)
CLASSIFIER = random_network(6, (3, 4, 3, 2), "tanh", gain=2.5)
CALM = lc.Network.from_weights([1e-3 * np.eye(3), np.eye(2, 3)], [None, [-9.0, 9.0]], "tanh")
BALL, SMALL = Ball(np.zeros(3), 0.5), Ball([0.5, 0.5, -1.0], 1e-3)
WIDE_BALL, SMOOTH_BALL = Ball(np.zeros(17), 0.5), Ball(np.full(17, 0.1), 0.05)
POINT, RADII = np.full(3, 0.1), (0.3,)
LABEL = int(np.argmax(CLASSIFIER(POINT)))
CURVED_BALL = Ball(np.full(3, 0.1), 0.6)
REGIONS = [(NETWORK, BALL), (NETWORK, SMALL), (WIDE, WIDE_BALL), (SMOOTH, SMOOTH_BALL), (CLASSIFIER, CURVED_BALL)]
SPLIT = lc.Split(lc.ClosedForm(), seconds=np.inf, tolerance=1e-4, pieces=24)

JOINT = lc.Joint(iterations=1, tolerance=5e-3)

QUESTIONS: dict[str, Callable[[], Any]] = {
    "closed form": lambda: lc.certify(NETWORK, BALL, lc.ClosedForm()),
    "scalar": lambda: lc.certify(NETWORK, BALL, lc.Scalar()),
    "part": lambda: lc.certify(NETWORK, BALL, lc.Joint(iterations=1, tolerance=1e-2), layers=(1, 3), outputs=[1]),
    "joint": lambda: lc.certify(NETWORK, BALL, lc.Joint(iterations=1, tolerance=5e-3)),
    "split": lambda: lc.certify(NETWORK, BALL, SPLIT),
    "split, smooth": lambda: lc.certify(CLASSIFIER, CURVED_BALL, SPLIT),
    "auto": lambda: lc.certify(WIDE, WIDE_BALL, lc.Auto(seconds=np.inf, pieces=5)),
    "second order": lambda: lc.certify(SMOOTH, SMOOTH_BALL, lc.Auto(seconds=np.inf, pieces=5)),
    "norms": lambda: lc.certify(NETWORK, BALL, lc.Scalar(), input_norm="linf", output_norm=lc.L1(scale=[0.5, 3.0])),
    "norms, jointly": lambda: lc.certify(NETWORK, BALL, JOINT, input_norm=lc.LInf(scale=[1.0, 2.0, 0.1])),
    "many": lambda: lc.certify_many(NETWORK, [BALL, SMALL]),
    "reach": lambda: lc.reach(NETWORK, BALL, lc.Scalar()),
    "reach by pieces": lambda: lc.reach(NETWORK, BALL, SPLIT),
    "sensitivity": lambda: lc.sensitivity(NETWORK, BALL, lc.Scalar()),
    "sensitivity by pieces": lambda: lc.sensitivity(NETWORK, BALL, SPLIT, inputs=[0], outputs=[1]),
    "radius": lambda: lc.certified_radius(CLASSIFIER, POINT, radii=RADII),
    "radius, by value functions": lambda: lc.certified_radius(
        CLASSIFIER, POINT, radii=[0.1935, 0.25], curvature=False, values=True
    ),
    "radius, for all inputs": lambda: lc.certified_radius(CLASSIFIER, POINT, radii=[0.02, 6.0], everywhere=True),
    "reach by values": lambda: lc.reach(NETWORK, BALL, lc.ClosedForm(), values=True),
    "radius, searched for": lambda: lc.certified_radius(CLASSIFIER, POINT, tolerance=0.5),
}
HONEST = {
    "certify.certify",
    "certify.certify_many",
    "reach.reach",
    "sensitivity.sensitivity",
    "radius.certified_radius",
}
"""The questions themselves: what is asked must reach the proof."""
SLOW = [
    "norms",
    "joint",
    "reach",
    "sensitivity",
    "norms, jointly",
    "part",
    "split",
    "split, smooth",
    "auto",
    "second order",
    "reach by pieces",
    "sensitivity by pieces",
    "radius, searched for",
    "radius, by value functions",
    "radius, for all inputs",
    "reach by values",
]
TARGETS = [one for one in targets() if one.label.removeprefix("questions.") not in HONEST]
SUGGESTED = [one for one in TARGETS if one.label.startswith("suggest.")]
OFFERED = [one for one in SUGGESTED if not one.owner and not one.name.startswith("_")]
"""Functions that the proofs call; of others the garbage may end in an error before it gets there."""


@cache
def asked(question: str) -> list[Target]:
    """The functions that a question calls."""
    return reached(QUESTIONS[question], TARGETS)


# What is true, found beforehand.


@cache
def points() -> dict[int, Array]:
    rng = np.random.default_rng(0)
    return {id(region): region.sample(200, rng) for _, region in REGIONS}


@cache
def least(network: int, region: int) -> float:
    """At most the Lipschitz constant, proved."""
    (pair,) = [pair for pair in REGIONS if (id(pair[0]), id(pair[1])) == (network, region)]
    return lc.lower_bound(*pair).value


def check_certificate(certificate: lc.Certificate) -> bool:
    """Whether a bound was proved; it must then be true of what the certificate says it is about."""
    if not certificate.verified:
        return False
    ((network, region),) = [pair for pair in REGIONS if pair[1] is certificate.region]
    assert certificate.network == network.digest
    part = certificate.part
    if part == Part((0, network.depth)):
        assert certificate.bound >= least(id(network), id(region))
        return True
    x = points()[id(region)]
    first, last = part.layers
    if first:
        neurons = network.layers[first - 1].neurons
        assert neurons is not None
        x = neurons.value(network.preactivations(x)[first - 1])
    jacobians = network.slice(first, last).select(None, part.outputs).jacobian(x)
    columns = slice(None) if part.inputs is None else list(part.inputs)
    norms, *_ = Stretch(part.norms).most(jacobians[..., columns])
    assert certificate.bound >= norms.max() * (1.0 - 1e-9)
    return True


def check_reach(found: lc.Reach) -> bool:
    (network,) = [network for network, region in REGIONS if region is found.region]
    assert found.bound >= least(id(network), id(found.region))
    output = output_at(network, points()[id(found.region)])
    assert ((found.lower <= output.above) & (output.below <= found.upper)).all()
    assert np.linalg.eigvalsh(found.shape).min() > 0.0
    away = (output.value - found.center) * (1.0 - 1e-9)
    assert ((away @ np.linalg.inv(found.shape)) * away).sum(axis=-1).max() <= 1.0
    return True


def check_sensitivity(found: lc.Sensitivity) -> bool:
    (network,) = [network for network, region in REGIONS if region is found.region]
    assert found.bound >= least(id(network), id(found.region))
    jacobians = np.abs(network.jacobian(points()[id(found.region)])).max(axis=0)
    for row, outputs in enumerate(found.outputs):
        for column, inputs in enumerate(found.inputs):
            slopes = jacobians[np.ix_(outputs, inputs)]
            assert found.matrix[row, column] >= slopes.max() * (1.0 - 1e-9)
    return True


@cache
def nearest() -> float:
    """An input of another class is at most so far from the point."""
    found = lc.attack(CLASSIFIER, POINT, LABEL, 5.0, steps=200)
    assert found.found
    output = output_at(CLASSIFIER, found.points[None])[0]
    assert output.below.max() > output.above[LABEL]
    return float(found.distances) * (1.0 + 1e-12)


def check_radius(found: lc.CertifiedRadius) -> bool:
    assert 0.0 <= found.radius <= (nearest() if found.label == LABEL else 0.0)
    if found.broken is not None:
        assert found.broken.distance >= np.linalg.norm(found.broken.point - POINT)
        output = output_at(CLASSIFIER, found.broken.point[None])[0]
        assert found.label == found.broken.label
        assert output.below[found.broken.rival] > output.above[found.label]
    return found.radius > 0.0


def check(answer: Any) -> bool:
    """Whether an answer proves anything; an assertion fails if that is false."""
    if isinstance(answer, list):
        return min(map(check, answer))
    checks: list[tuple[type, Callable[[Any], bool]]] = [
        (lc.Certificate, check_certificate),
        (lc.Reach, check_reach),
        (lc.Sensitivity, check_sensitivity),
        (lc.CertifiedRadius, check_radius),
    ]
    return next(rule for kind, rule in checks if isinstance(answer, kind))(answer)


@cache
def decoys(question: str) -> tuple[Any, ...]:
    """True statements about a small region or a calm network; for what is asked they would be false."""
    if question.startswith("radius"):
        outputs = prove_outputs(CALM, Ball(POINT, 0.3), lc.ClosedForm())
        return outputs, ClassBounds(outputs, LABEL, LABEL, True, True)
    certificate = lc.certify(NETWORK, SMALL, lc.ClosedForm())
    with covering(PieceBounds(NETWORK, SMALL, certificate.sweeps)) as pieces:
        return certificate, pieces, prove_outputs(NETWORK, SMALL, lc.ClosedForm())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@dataclass
class Outcomes:
    """What became of questions; ``false`` names the functions whose garbage made an answer untrue, and how."""

    proved: int = 0
    refused: int = 0
    false: list[str] = field(default_factory=list)

    def ask(self, question: str, chosen: list[Target], garbage: Garbage) -> None:
        radius_certifier._everywhere.clear()
        try:
            with chaos(chosen, garbage):
                answer = QUESTIONS[question]()
        except Exception:  # an error is no answer, and does no harm
            self.refused += 1
            return
        try:
            self.proved += check(answer)
        except AssertionError:
            self.false.append(f"{garbage.kind}: {', '.join(target.label for target in chosen[:3])}")


def test_the_questions_reach_what_can_be_reached() -> None:
    labels = {target.label for question in QUESTIONS for target in asked(question)}
    expected = {"methods.witness.witness", "methods.split._Search.cuts", "methods.lower.jacobian_norms"}
    expected |= {"methods.joint.Joint.optimised", "methods.auto.Auto.candidates", "methods.guide.MethodGuide.lines"}
    expected |= {"methods.problem.Problem.sweep", "runtime.threads.suited_to"}
    expected |= {f"methods.second_order_jacobian.{name}" for name in ("improved", "_Search.hints", "_parabola")}
    expected |= {"methods.quadratic.suggest", "methods.dual.DualSearch.find"}
    expected |= {"methods.second_order.PairSearch.hints", "methods.split.RowSearch.cuts"}
    expected |= {"suggest.lines.suggested_lines", "suggest.lines.touching", "suggest.multipliers.advised"}
    expected |= {"suggest.algebra.lowest", "suggest.ellipsoids.start_near", "suggest.fits.slope_parabola"}
    assert labels >= expected, expected - labels


@pytest.mark.parametrize("question", QUESTIONS)
def test_honest_answers_pass(question: str) -> None:
    assert check(QUESTIONS[question]())


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_mistake_in_the_trusted_base_is_seen(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the checks of this file can fail."""
    monkeypatch.setattr("lipcert.kernel.checker.ROOM", 0.2)
    monkeypatch.setattr("lipcert.kernel.outputs.ROOM", 0.2)
    monkeypatch.setattr("lipcert.kernel.outputs.OutputBounds.above", lambda facts, rows: np.full(len(rows), -1.0))
    with pytest.raises(AssertionError):
        check(QUESTIONS[question]())


def share(question: str, thorough: bool) -> list[Target]:
    """Whom to replace: for a slow question only the functions that no other calls."""
    if question not in SLOW or (thorough and question in SLOW[:4]):
        return asked(question)
    before = [name for name in QUESTIONS if name not in SLOW] + SLOW[: SLOW.index(question)]
    known = {target for name in before for target in asked(name)}
    return [target for target in asked(question) if target not in known]


def garble_one_by_one(question: str, thorough: bool) -> Outcomes:
    """Each function in turn; thoroughly with several kinds of garbage, else every second with one."""
    outcomes = Outcomes()
    for number, target in [*enumerate(share(question, thorough))][:: 1 if thorough else 2]:
        kinds = ["any", DECOY, KINDS[number % len(KINDS)]]
        for kind in kinds if thorough else [kinds[number % 3]]:
            garbage = Garbage(np.random.default_rng(number), kind, decoys=decoys(question) if kind == DECOY else ())
            outcomes.ask(question, [target], garbage)
    assert outcomes.false == []
    assert outcomes.proved > 0 or outcomes.proved + outcomes.refused < 6
    return outcomes


@pytest.mark.parametrize("question", QUESTIONS)
def test_one_function_returns_garbage(question: str) -> None:
    outcomes = garble_one_by_one(question, thorough=False)
    assert outcomes.proved + outcomes.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_one_function_of_all_that_are_called_returns_garbage(question: str) -> None:
    outcomes = garble_one_by_one(question, thorough=True)
    assert outcomes.refused > 0 or question in ("closed form", "many", *SLOW)  # repaired there


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_function_returns_garbage(question: str) -> None:
    outcomes = Outcomes()
    for number, part in enumerate((1.0, 1.0, 0.3, 0.1, 0.03, 0.01)):
        outcomes.ask(question, TARGETS, Garbage(np.random.default_rng(number), "any", part))
    for number, kind in enumerate(("halved", "tiny", DECOY)):
        garbage = Garbage(np.random.default_rng(number), kind, decoys=decoys(question) if kind == DECOY else ())
        outcomes.ask(question, TARGETS, garbage)
    assert outcomes.false == []
    # reach sets always have an answer of the trusted package's own
    assert outcomes.refused > 0 or question in ("reach", "reach by values")


@pytest.mark.parametrize("kind", ["nan", "infinite", "negative", "huge", "random"])
@pytest.mark.parametrize("question", ["split", "split, smooth", "second order", "norms", "radius", "reach by values"])
def test_all_suggestions_are_garbage(question: str, kind: str) -> None:
    """Those that a proof itself asks for, while it runs."""
    outcomes = Outcomes()
    outcomes.ask(question, SUGGESTED, Garbage(np.random.default_rng(0), kind))
    outcomes.ask(question, OFFERED, Garbage(np.random.default_rng(1), kind))
    assert outcomes.false == []


# Mistakes of a search, by name; those of the search for pieces are in test_cover.py.


def narrow_intervals(patch: pytest.MonkeyPatch) -> None:
    """A pass is told to have proved more than it did."""
    honest = problem.Problem.guided

    def guided(one: problem.Problem, *arguments: Any) -> Candidate:
        found = honest(one, *arguments)
        layers = [replace(layer, upper=0.5 * layer.lower + 0.5 * layer.upper) for layer in found.layers]
        return replace(found, bound=0.1 * found.bound, layers=tuple(layers))

    patch.setattr(problem.Problem, "guided", guided)


def small_multipliers(patch: pytest.MonkeyPatch) -> None:
    for method in (lc.ClosedForm, lc.Scalar):
        for name in ("choose", "choose_all"):
            honest = getattr(method, name)
            patch.setattr(method, name, lambda *arguments, honest=honest: 1e-3 * honest(*arguments))


def negative_multipliers(patch: pytest.MonkeyPatch) -> None:
    for method in (lc.ClosedForm, lc.Scalar):
        for name in ("choose", "choose_all"):
            honest = getattr(method, name)
            patch.setattr(method, name, lambda *arguments, honest=honest: -honest(*arguments))


def steep_lines(patch: pytest.MonkeyPatch) -> None:
    def turned(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        return -3.0 * pair[0], 0.1 - 2.0 * pair[1]

    asked_for = asking.MethodGuide.lines
    patch.setattr(asking.MethodGuide, "lines", lambda *arguments: turned(asked_for(*arguments)))


def another_candidate(patch: pytest.MonkeyPatch) -> None:
    """Hints and bound of a small ball are taken for those of the large one."""
    honest = problem.Problem.guided
    patch.setattr(problem.Problem, "guided", lambda one, *asked: honest(replace(one, region=SMALL), *asked))


def intervals_of_another(patch: pytest.MonkeyPatch) -> None:
    """A pass over the large ball is asked to start from the intervals of a pass over a small one."""
    honest = problem.Problem.guided

    def guided(one: problem.Problem, *asked: Any) -> Candidate:
        before = honest(replace(one, region=SMALL, known=None, history=()), *asked)
        return honest(one.knowing(before), *asked)

    patch.setattr(problem.Problem, "guided", guided)


def intervals_that_are_written_to(patch: pytest.MonkeyPatch) -> None:
    """What a search is shown of a pass is what later passes start from."""
    honest = problem.Problem.guided

    def guided(one: problem.Problem, *asked: Any) -> Candidate:
        found = honest(one, *asked)
        for layer in found.layers:
            for end in (layer.lower, layer.upper):
                with suppress(ValueError):
                    end[...] = 1e-3
        return found

    patch.setattr(problem.Problem, "guided", guided)


MISTAKES = [narrow_intervals, small_multipliers, negative_multipliers, steep_lines, another_candidate]
MISTAKES += [intervals_of_another, intervals_that_are_written_to]


@pytest.mark.parametrize("question", ["closed form", "scalar", "joint", "split", "many"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_search_does_no_harm(
    mistake: Callable[[pytest.MonkeyPatch], None], question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    try:
        answer = QUESTIONS[question]()
    except ProofFailed:
        return
    assert check(answer)
    for certificate in answer if isinstance(answer, list) else [answer]:
        assert lc.verify(NETWORK, certificate) <= certificate.bound


# What is shown to a search is shown, not lent: writing into it is an error, or does no harm.


def harmless(question: str) -> bool:
    try:
        answer = QUESTIONS[question]()
    except ValueError as error:
        return "read-only" in str(error)
    return check(answer)


@pytest.mark.parametrize("name", ["S", "exponent", "alpha", "beta", "neurons", "ahead"])
def test_a_guide_that_writes_into_its_view(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = asking.MethodGuide.multipliers

    def multipliers(guide: asking.MethodGuide, view: View) -> Array:
        T = honest(guide, view)
        shown = getattr(view, name)
        if shown is not None:
            shown[...] = 0
        return T

    monkeypatch.setattr(asking.MethodGuide, "multipliers", multipliers)
    assert harmless("closed form")


@pytest.mark.parametrize("name", ["lower", "upper", "low", "high", "hints", "ceiling"])
def test_a_search_that_writes_into_a_piece(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = split._Search.cuts

    def cuts(search: Any, leaves: list[Leaf], starts: Array) -> tuple[Array, Array, Array]:
        where = honest(search, leaves, starts)
        for leaf in leaves:
            getattr(leaf.piece, name)[...] = {"lower": 0.4, "low": 5.0}.get(name, 1e-9)
        return where

    monkeypatch.setattr(split._Search, "cuts", cuts)
    assert harmless("split")
