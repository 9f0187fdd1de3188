"""Reach sets, sensitivities and radii in ball arithmetic: it agrees with what was proved, and refuses what is false."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from flint import arb

import lipcert as lc
from lipcert.answers.proofs import Proof
from lipcert.audit import engine, second_order
from lipcert.audit.answers import Whole
from lipcert.audit.balls import balls, floats, root, sizes_within, upper
from lipcert.audit.engine import centre_values, jacobian
from lipcert.audit.second_order import secants
from lipcert.definitions.functions import precision
from lipcert.definitions.rows import function
from lipcert.methods.second_order import _Objective
from lipcert.model.activations import Activation
from lipcert.model.network import Network
from lipcert.questions.prove_outputs import prove_outputs
from lipcert.suggest.chain import Chain
from lipcert.suggest.hints import LEAF, Tree
from networks import NAMED_ROWS, named, random_network, spread
from second_opinion import refusal, refused

CENTER = np.array([0.3, -0.2, 0.9])
REGIONS = {
    "ball": lc.Ball(CENTER, 0.3),
    "tiny": lc.Ball(CENTER, 1e-7),
    "point": lc.Ball(CENTER, 0.0),
    "clip": lc.Ball(CENTER, 0.3, clip=(CENTER - 0.1, CENTER + 0.25)),
    "box": lc.Box(CENTER - 0.2, CENTER + 0.3),
}
SPLIT = lc.Split(lc.ClosedForm(), np.inf, 1e-3, pieces=24)
METHODS = {"closed form": lc.ClosedForm(), "joint": lc.Joint(iterations=4), "scalar": lc.Scalar(), "pieces": SPLIT}
GROUPS: dict[str, Any] = {"single": None, "groups": [(0, 1), 2]}
QUESTIONS: dict[str, Callable[..., Any]] = {
    "reach": lc.reach,
    **{
        f"sensitivity, {name}": lambda *asked, groups=groups: lc.sensitivity(*asked, inputs=groups, outputs=groups)
        for name, groups in GROUPS.items()
    },
}
ACTIVATIONS = named("relu", "tanh", "gelu", "elu", "sin", "hardswish")


def small(activation: str) -> Network:
    return random_network(5, (3, 7, 6, 3), activation, gain=1.5)


@pytest.mark.parametrize(
    ("question", "activation", "region", "method"), spread(11, named(*QUESTIONS), ACTIVATIONS, REGIONS, METHODS)
)
def test_it_agrees(question: str, activation: str, region: Any, method: Any) -> None:
    network = small(activation)
    found = QUESTIONS[question](network, region, method)
    assert lc.verify(network, found, exact=True) is found


def without_a_leaf(tree: Tree | None) -> Tree:
    assert tree is not None
    return replace(tree, **{name: getattr(tree, name)[:-1] for name in ("layer", "index", "value", "child")})


# reach sets


@cache
def reached(activation: str, method: str) -> tuple[Network, lc.Reach]:
    network = small(activation)
    return network, lc.reach(network, REGIONS["ball"], METHODS[method])


def with_tree(found: lc.Reach, tree: Tree) -> lc.Reach:
    *others, last = found.proofs
    return replace(found, proofs=(*others, replace(last, tree=tree)))


def test_less_is_refused_by_the_second_opinion_alone() -> None:
    network, found = reached("tanh", "closed form")
    width = 1e-7 * (found.upper - found.lower)
    changes: list[dict[str, Any]] = [
        {"lower": found.lower + width},
        {"upper": found.upper - width},
        {"hull": (found.hull[0] + width, found.hull[1])},
        {"center": found.center + 0.1 * found.upper},
        {"shape": (1.0 - 1e-7) * found.shape},
        {"shape": found.shape + np.triu(found.shape, 1) - np.tril(found.shape, -1)},
        {"bound": (1.0 - 1e-7) * found.bound},
    ]
    assert lc.verify(network, found, exact=True) is found
    assert [one for one in changes if not refused(network, replace(found, **one))] == []


@pytest.mark.parametrize("method", ["closed form", "pieces"])
def test_no_lines_prove_what_is_false(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes that miss an output are refused whatever slopes are suggested, and much larger ones are not."""
    rng = np.random.default_rng(1)
    network, found = reached("relu", method)
    values = network(found.region.sample(20_000, rng))
    lower, upper = values.min(axis=0), values.max(axis=0)

    def boxed(low: Any, high: Any) -> lc.Reach:
        return replace(found, lower=low, upper=high, hull=(low[None], high[None]))

    monkeypatch.setattr(
        engine, "suggested_lines", lambda layer, *_, **__: tuple(balls(rng.normal(size=(2, layer.size))))
    )
    for moved in 1e-3 * np.eye(3):
        assert refused(network, boxed(lower + moved, upper))
        assert refused(network, boxed(lower, upper - moved))
    assert not refused(network, boxed(found.lower - 100.0, found.upper + 100.0))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_false_pieces_are_refused_by_the_second_opinion_alone(activation: str) -> None:
    network, found = reached(activation, "pieces")
    values = network(found.region.sample(20_000, np.random.default_rng(0)))
    less, (low, high) = values.max(axis=0) - 1e-3 * np.ptp(values, axis=0), found.hull
    tree = found.proofs[-1].tree
    assert tree is not None
    false = {
        "box": replace(found, upper=less),
        "hull": replace(found, upper=less, hull=(low, np.minimum(high, less))),
        "boxes lost": replace(found, hull=(low[:1], high[:1])),
        "no boxes": replace(found, hull=(low[:0], high[:0])),
        "leaf lost": with_tree(found, without_a_leaf(tree)),
        "stray cuts": with_tree(found, replace(tree, layer=np.where(tree.layer == LEAF, LEAF, 99))),
        "base": replace(found, proofs=(*found.proofs[:-1], replace(found.proofs[-1], base=7))),
    }
    assert lc.verify(network, found, exact=True) is found
    assert {name for name, claim in false.items() if not refused(network, claim)} == set()


def test_an_output_outside_all_boxes_of_the_hull_is_seen() -> None:
    """f(x) = x on [-1, 1], cut in two: each half is needed, though the box holds both."""
    network = Network.from_weights([[[1.0], [-1.0]], [[1.0, -1.0]]])
    whole = lc.reach(network, lc.Box([-1.0], [1.0]), lc.ClosedForm())
    none = np.zeros(3, dtype=int)
    tree = Tree(np.array([-1, LEAF, LEAF]), none, np.zeros(3), np.array([1, 0, 0]), 1.0)
    low, high = np.array([[-1.0], [0.0]]) - 1e-9, np.array([[0.0], [1.0]]) + 1e-9
    cut = replace(whole, hull=(low, high), proofs=(*whole.proofs, Proof("outputs", tree=tree)))
    assert not refused(network, cut)
    for hull in ((low[:1], high[:1]), (low[1:], high[1:]), (low + np.array([[0.0], [1e-3]]), high)):
        assert "claims a box" in refusal(network, replace(cut, hull=hull))


# sensitivities


def largest(network: Network, found: lc.Sensitivity) -> Any:
    """The largest norms of blocks of Jacobians at points of the region."""
    jacobians = network.jacobian(found.region.sample(3000, np.random.default_rng(0)))
    blocks = [[jacobians[:, list(out)][:, :, list(into)] for into in found.inputs] for out in found.outputs]
    return np.array([[np.linalg.norm(block, 2, axis=(1, 2)).max() for block in row] for row in blocks])


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("method", ["closed form", "pieces"])
def test_an_entry_below_the_truth_is_refused_by_the_second_opinion_alone(method: str, groups: str) -> None:
    network = small("relu")
    found = QUESTIONS[f"sensitivity, {groups}"](network, REGIONS["box"], METHODS[method])
    truth = largest(network, found)
    assert (truth <= found.matrix).all()
    for number, place in enumerate(np.ndindex(truth.shape)):
        for value in (truth[place] * (1.0 - 1e-9), (0.5 * truth[place], 0.0, np.nan)[number % 3]):
            matrix = found.matrix.copy()
            matrix[place] = value
            assert refused(network, replace(found, matrix=matrix))
    for changes in (
        {"bound": 0.5 * float(truth.max())},
        {"matrix": found.matrix[1:]},
        {"outputs": ((0,), (3,), (1,))[: len(found.outputs)]},
        {"inputs": ((0, 0), (1,), (2,))[: len(found.inputs)]},
        {"proofs": ()},
    ):
        assert refused(network, replace(found, **changes))


def of_kinds(found: lc.Sensitivity, *kinds: str, **changes: Any) -> lc.Sensitivity:
    """The same claim with some of its proofs, those that are not about the whole changed."""
    told = [one if one.kind == "whole" else replace(one, **changes) for one in found.proofs if one.kind in kinds]
    return replace(found, proofs=tuple(told))


def test_pieces_are_needed_and_do_not_go_below_the_truth() -> None:
    network = small("tanh")
    found, truth = lc.sensitivity(network, REGIONS["box"], SPLIT), 0.0
    truth = largest(network, found)
    place = np.unravel_index(np.argmax(truth), truth.shape)

    def claim(value: float, *kinds: str) -> lc.Sensitivity:
        matrix = np.full(truth.shape, 100.0)
        matrix[place] = value
        return replace(of_kinds(found, *kinds), matrix=matrix, bound=100.0)

    assert not refused(network, claim(found.matrix[place], "whole", "entries"))
    assert refused(network, claim(found.matrix[place] / 0.97, "whole"))
    assert refused(network, claim(truth[place] * (1.0 - 1e-9), "whole", "entries"))
    tree = next(one.tree for one in found.proofs if one.kind == "entries")
    shorter = of_kinds(found, "whole", "entries", tree=without_a_leaf(tree))
    assert "do not cover the region" in refusal(network, shorter)


@pytest.mark.parametrize("number", range(8))
def test_entries_hold_for_slopes_and_weights_within_their_ranges(number: int) -> None:
    """Any multipliers: entries of the product are below what is proved, at corners too."""
    rng = np.random.default_rng(number)
    network = random_network(number, (4, 6, 5, 3), "relu")
    ranges = [np.sort(rng.normal(0.5, 0.6, (2, count)), axis=0) for count in (6, 5)]
    for ends in ranges:
        ends[1, 0] = ends[0, 0]
    with precision(128):
        layers, slopes = engine.read(network), [(balls(alpha), balls(beta)) for alpha, beta in ranges]
        chain = Chain.of([floats(layer.weight) for layer in layers])
        told = [rng.uniform(0.0 if number % 2 else 0.1, 3.0, n) for n in (6, 5)]
        S = engine.carry(engine.part_of(layers, 0, 3, [1]), slopes, chain, told)
        bounds = [floats(sizes_within(jacobian(layers, slopes))), np.full((3, 4), np.inf)]
        bounds[1][:, 1] = floats(upper(root(np.diagonal(S))))
    for trial in range(300):
        product: Any = np.array(network.layers[0].weight)
        for (low, high), layer in zip(ranges, network.layers[1:], strict=True):
            share = rng.random(len(low)) if trial % 2 else rng.integers(0, 2, len(low))
            moved = np.array(layer.weight) * (1.0 + 2.0**-50 * rng.uniform(-1, 1, layer.weight.shape))
            product = moved @ ((low + share * (high - low))[:, None] * product)
        for bound in bounds:
            assert (np.abs(product) <= bound + 1e-12).all()


# certified radii


WAYS: dict[str, dict[str, Any]] = {
    "first order": {"curvature": False},
    "second order": {},
    "clip": {"clip": (-1.0, 1.0)},
    "pieces": {"method": replace(SPLIT, pieces=8), "radii": [3.0], "curvature": False},
}
CASES = {
    f"{activation} {inputs}": (activation, inputs)
    for activation, inputs in [("relu", 3), ("relu", 20), ("tanh", 3), ("gelu", 3), ("elu", 20), ("sin", 3)]
}


def classifier(activation: Any, inputs: int = 3) -> Network:
    return random_network(5, (inputs, 9, 8, 7, 3), activation, gain=1.5)


@pytest.mark.parametrize(("case", "way"), spread(10, CASES, WAYS))
def test_radii_agree(case: tuple[str, int], way: dict[str, Any]) -> None:
    activation, inputs = case
    network, point = classifier(activation, inputs), np.resize(CENTER, inputs)
    found = lc.certified_radius(network, point, **way)
    assert lc.verify(network, found, exact=True) == found.radius > 0.0
    nothing = lc.certified_radius(network, point, int(np.argmin(network(point))))
    assert lc.verify(network, nothing, exact=True) == 0.0


def proof_of(found: lc.CertifiedRadius) -> Any:
    assert found.proof is not None
    return found.proof


def beyond_the_nearest(network: Network, found: lc.CertifiedRadius, share: float) -> lc.CertifiedRadius:
    """The same claim with the same hints over a ball that holds an input of another class."""
    ball = proof_of(found).ball
    attacks = lc.attack(network, ball.center[None], found.label, np.array([50.0 * found.radius]), restarts=9)
    assert attacks.found[0]
    radius = share * float(attacks.distances[0])
    larger = replace(proof_of(found), ball=lc.Ball(ball.center, radius, ball.clip))
    return replace(found, radius=radius, ball=radius, proof=larger)


@pytest.mark.parametrize(
    ("activation", "way"), spread(2, named("relu", "elu"), named("pieces", "first order", "second order"))
)
def test_false_claims_are_refused_by_the_second_opinion_alone(activation: str, way: str) -> None:
    network = classifier(activation)
    found = lc.certified_radius(network, CENTER, **WAYS[way])
    lc.verify(network, found, exact=True)
    gradients, value = network.jacobian(CENTER), network(CENTER)
    slope = np.linalg.norm(gradients[found.label] - gradients[found.rival])
    false = {
        "radius": beyond_the_nearest(network, found, 1.001),
        "beyond the ball": replace(found, radius=1.001 * found.ball),
        "margin": replace(found, margin=1.001 * float(value[found.label] - value[found.rival])),
        "bound": replace(found, bound=0.5 * float(slope)),
        "label": replace(found, label=found.rival, rival=found.label),
        "rival": replace(found, rival=found.label),
        "classes": replace(found, rival=17),
        "nan": replace(found, radius=np.nan),
    }
    if way == "pieces":
        proof = proof_of(found)
        false["leaf lost"] = replace(found, proof=replace(proof, tree=without_a_leaf(proof.tree)))
        false["tree lost"] = replace(found, proof=replace(proof, tree=None))
    assert {name for name, claim in false.items() if not refused(network, claim)} == set()


def test_no_hints_to_second_order_prove_what_is_false() -> None:
    """Multipliers, μ and what is hoped for are hints: none of them proves a ball with an input of another class."""
    network = classifier("gelu")
    found = lc.certified_radius(network, CENTER)
    proof, rng = proof_of(found), np.random.default_rng(0)
    assert found.basis == "second order"
    halved = tuple(replace(one, mu=0.5 * one.mu) for one in proof.rows)
    short = tuple(replace(one, multipliers=()) for one in proof.rows)
    for rows in ((), proof.rows[1:], halved, short):
        assert refused(network, replace(found, proof=replace(proof, rows=rows)))
    far = beyond_the_nearest(network, found, 1.0001)
    for _ in range(6):
        pairs = []
        for one in proof.rows:
            told = tuple(T * rng.choice([0.0, 1e-3, 1.0, 30.0, -1.0, np.nan]) for T in one.multipliers or ())
            bends = tuple(np.asarray(b) * rng.choice([0.0, 0.5, 1.0, -1.0]) for b in one.bends)
            pairs.append(replace(one, multipliers=told, bends=bends, mu=one.mu * float(rng.choice([0.3, 1.0, 9.0]))))
        assert refused(network, replace(far, proof=replace(proof_of(far), rows=tuple(pairs))))


@pytest.mark.parametrize("row", spread(2, NAMED_ROWS))
def test_secants_hold(row: Activation) -> None:
    """Secants of every activation are within their range, at points that are sampled."""
    rng = np.random.default_rng(1)
    with precision(128):
        f = function(row.name, tuple(float(np.ravel(p)[0]) for p in row.parameters))
        for trial in range(12):
            ends = np.sort(rng.normal(0.0, 2.0, 2))
            center = float(rng.uniform(*ends)) if trial % 4 else float(ends[0])
            error = float(rng.choice([0.0, 1e-14, 1e-3]))
            alpha, beta = secants(f, arb(ends[0]), arb(ends[1]), arb(center), arb(error))
            for _ in range(12):
                c, v = arb(center + error * float(rng.uniform(-1, 1))), arb(float(rng.uniform(*ends)))
                if abs(v - c) > 1e-9:
                    assert alpha - arb(2) ** -60 < (f.value(v) - f.value(c)) / (v - c) < beta + arb(2) ** -60
            if error == 0.0 and row.name == "tanh" and trial % 4:
                assert beta - alpha < 0.8 * (f.on(arb(ends[0]), arb(ends[1])).slopes()[1] + 0.1)


@pytest.mark.parametrize("clip", [None, (-0.4, 0.95)])
def test_what_parabolas_say_is_above_what_is_sampled(clip: Any) -> None:
    """A row within the ball, with any multipliers."""
    network, rng = classifier("tanh"), np.random.default_rng(0)
    ball = lc.Ball(CENTER, 0.2, clip)
    found = lc.certify(network, ball, lc.ClosedForm())
    row = np.array([1.0, -1.0, 0.0])
    most = float((network(ball.sample(4000, rng)) @ row).max())
    relaxation = prove_outputs(network, ball, lc.ClosedForm()).quadratic_relaxation
    objective = _Objective(relaxation, row)
    drawn = objective.hints(objective.start())
    with precision(128):
        layers, inputs = engine.read(network), engine.inputs_of(ball, 3)
        assert inputs is not None
        whole = Whole(layers, inputs, found.sweeps)
        place = second_order.Place(layers, inputs, centre_values(layers, inputs.center), whole.known)
        for trial in range(4):
            multipliers = tuple(rng.uniform(0.1, 2.0, n) for n in network.sizes[1:-2])
            hints = replace(drawn, row=row, multipliers=multipliers, mu=50.0 * (trial + 1))
            above = float(second_order.by_parabolas(place, whole.last.spreads, hints))
            assert most <= above < 30.0
            assert above <= relaxation.above(hints) + 1e-6
