"""Sensitivities in ball arithmetic: it agrees with what was proved, each way by itself, and refuses what is false."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert import audit
from lipcert.answers.sensitivity import Sensitivity
from lipcert.audit import engine
from lipcert.audit.balls import balls, floats, sizes_within
from lipcert.audit.engine import Entries, jacobian
from lipcert.definitions.functions import precision
from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region
from networks import named, random_network, spread
from second_opinion import refused

CENTER = np.array([0.3, -0.2, 0.9])
REGIONS: dict[str, Region] = {
    "ball": lc.Ball(CENTER, 0.3),
    "clip": lc.Ball(CENTER, 0.3, clip=(CENTER - 0.1, CENTER + 0.25)),
    "box": lc.Box(CENTER - 0.2, CENTER + 0.3),
    "everywhere": lc.Everywhere(),
}
SPLIT = lc.Split(lc.ClosedForm(), np.inf, 1e-3, pieces=16)
GROUPS: dict[str, Any] = {"single": None, "groups": [(0, 1), 2]}


CASES = {
    f"{activation}, {groups}": (activation, groups)
    for activation, groups in [
        ("relu", "single"),
        ("relu", "groups"),
        ("tanh", "groups"),
        ("gelu", "single"),
        ("sin", "groups"),
    ]
}


@pytest.mark.parametrize(("case", "region"), spread(4, CASES, named(*REGIONS)))
def test_it_agrees(case: tuple[str, str], region: str) -> None:
    activation, groups = case
    network = random_network(5, (3, 7, 6, 3), activation, gain=1.5)
    for method in (
        lc.ClosedForm(),
        lc.Joint(iterations=4),
        *([SPLIT] if activation in ("relu", "gelu") and REGIONS[region].bounded else []),
    ):
        found = lc.sensitivity(network, REGIONS[region], method, inputs=GROUPS[groups], outputs=GROUPS[groups])
        assert lc.verify(network, found, exact=True) is found


def largest(network: Network, region: Region, found: Sensitivity) -> Array:
    """The largest norms of blocks of Jacobians at points of the region."""
    jacobians = network.jacobian(region.sample(3000, np.random.default_rng(0)))
    return np.array(
        [
            [
                np.linalg.norm(jacobians[:, rows][:, :, columns], 2, axis=(1, 2)).max()
                for columns in map(list, found.inputs)
            ]
            for rows in map(list, found.outputs)
        ]
    )


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("method", [lc.ClosedForm(), SPLIT], ids=["whole", "pieces"])
def test_an_entry_below_the_truth_is_refused_by_the_second_opinion_alone(method: Any, groups: str) -> None:
    network = random_network(5, (3, 7, 6, 3), "relu", gain=1.5)
    found = lc.sensitivity(network, REGIONS["box"], method, inputs=GROUPS[groups], outputs=GROUPS[groups])
    truth = largest(network, REGIONS["box"], found)
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


def tightest(attempt: Any, above: float, below: float) -> float:
    """About the least number that an attempt proves."""
    for _ in range(12):
        middle = 0.5 * (above + below)
        try:
            attempt(middle)
            above = middle
        except ProofFailed:
            below = middle
    return above


def of_kinds(found: Sensitivity, *kinds: str, **changes: Any) -> Sensitivity:
    """The same claim with some of its proofs, those that are not about the whole changed."""
    told = [one if one.kind == "whole" else replace(one, **changes) for one in found.proofs if one.kind in kinds]
    return replace(found, proofs=tuple(told))


@pytest.mark.parametrize("groups", GROUPS)
def test_pairs_are_needed(groups: str) -> None:
    network, region = random_network(0, (3, 9, 8, 8, 3), "relu", gain=1.5), lc.Everywhere()
    found = lc.sensitivity(network, region, lc.ClosedForm(), inputs=GROUPS[groups], outputs=GROUPS[groups])
    audit.verify_sensitivity(network, found)
    with pytest.raises(ProofFailed, match="is smaller than what its hints prove"):
        audit.verify_sensitivity(network, of_kinds(found, "whole"))
    with pytest.raises(ProofFailed, match="rest on a proof that is not there"):
        audit.verify_sensitivity(network, of_kinds(found, "whole", "pair", base=5))


@cache
def by_pieces() -> tuple[Network, Sensitivity]:
    network = random_network(5, (3, 7, 6, 3), "tanh", gain=1.5)
    return network, lc.sensitivity(network, REGIONS["box"], SPLIT)


def test_pieces_are_needed_and_do_not_go_below_the_truth() -> None:
    network, found = by_pieces()
    truth = largest(network, found.region, found)
    place = np.unravel_index(np.argmax(truth), truth.shape)

    def attempt(kinds: tuple[str, ...], value: float) -> None:
        matrix = np.full(truth.shape, 100.0)
        matrix[place] = value
        audit.verify_sensitivity(network, replace(of_kinds(found, *kinds), matrix=matrix, bound=100.0))

    whole = tightest(partial(attempt, ("whole",)), 1.0, 0.0)
    attempt(("whole", "entries"), float(found.matrix[place]))
    assert found.matrix[place] < 0.97 * whole
    with pytest.raises(ProofFailed):
        attempt(("whole", "entries"), truth[place] * (1.0 - 1e-9))


def test_a_tree_that_lacks_a_leaf_is_refused() -> None:
    network, found = by_pieces()
    tree = next(one.tree for one in found.proofs if one.kind == "entries")
    assert tree is not None
    columns = ("layer", "index", "value", "child")
    shorter = replace(tree, **{name: getattr(tree, name)[:-1] for name in columns})
    with pytest.raises(ProofFailed, match="do not cover the region"):
        audit.verify_sensitivity(network, of_kinds(found, "whole", "entries", tree=shorter))


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
        found = Entries(layers, slopes, [balls(rng.uniform(0.0 if number % 2 else 0.1, 3.0, n)) for n in (6, 5)])
        bounds = [floats(found.sizes()), floats(sizes_within(jacobian(layers, slopes)))]
    for trial in range(300):
        product: Any = np.array(network.layers[0].weight)
        for (low, high), layer in zip(ranges, network.layers[1:], strict=True):
            share = rng.random(len(low)) if trial % 2 else rng.integers(0, 2, len(low))
            moved = np.array(layer.weight) * (1.0 + 2.0**-50 * rng.uniform(-1, 1, layer.weight.shape))
            product = moved @ ((low + share * (high - low))[:, None] * product)
        for bound in bounds:
            assert (np.abs(product) <= bound + 1e-12).all()
