"""Split: equal to the truth where that is known, valid whenever it stops, and trees that cannot be made to lie."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput, ProofFailed
from lipcert.kernel import branch_and_bound as ledger
from lipcert.kernel.branch_and_bound import AXIS, PieceBounds, children, leaf_values
from lipcert.methods import split as module
from lipcert.model.regions import Region
from lipcert.suggest.hints import LEAF, Tree
from networks import named, random_network, sampled_norms, spread
from patterns import true_constant

SIZES = ((2, 6, 6, 2), (2, 6, 2), (1, 5, 6, 1), (2, 4, 4, 4, 2), (3, 5, 4, 2), (2, 6, 5, 6, 1), (3, 6, 6, 1))


def quick(seconds: float = np.inf, tolerance: float = 1e-7) -> lc.Split:
    return lc.Split(method=lc.Scalar(), seconds=seconds, tolerance=tolerance)


def tree_of(certificate: lc.Certificate) -> Tree:
    assert certificate.tree is not None
    return certificate.tree


def holds(network: lc.Network, certificate: lc.Certificate) -> None:
    """The bound is not below what a search finds, and it proves again."""
    assert lc.lower_bound(network, certificate.region).value <= certificate.bound
    assert lc.verify(network, certificate) <= certificate.bound


@pytest.mark.parametrize(
    "seed", [pytest.param(k, marks=pytest.mark.slow if k >= len(SIZES) else ()) for k in range(200)]
)
def test_tiny_networks_against_all_patterns(seed: int) -> None:
    sizes = SIZES[seed % len(SIZES)]
    network = random_network(seed, sizes, "relu", gain=2.0)
    rng = np.random.default_rng(seed)
    lower = rng.normal(0, 0.3, sizes[0]) - 1.0
    box = lc.Box(lower, lower + 1.0 + rng.random(sizes[0]))
    truth = true_constant(network, box)
    certificate = lc.certify(network, box, quick())
    assert truth * (1 - 1e-12) <= certificate.bound <= truth * (1 + 1e-6) + 1e-12
    assert lc.verify(network, certificate) <= certificate.bound


REGIONS: dict[str, Region] = {
    "ball": lc.Ball([0.1, -0.3, 0.2], 0.8),
    "clipped": lc.Ball([0.1, -0.3, 0.2], 0.8, clip=(-0.5, 0.4)),
    "box": lc.Box([-0.5, -0.6, 0.0], [0.5, 0.1, 0.4]),
    "flat": lc.Box([-0.5, -0.3, 0.0], [0.5, -0.3, 0.4]),
    "point": lc.Ball([0.1, -0.3, 0.2], 0.0),
}


def test_intervals_of_pieces_contain_what_their_neurons_see() -> None:
    network = random_network(8, (3, 9, 8, 2), "relu", gain=2.5)
    region = REGIONS["clipped"]
    points = region.sample(4000, np.random.default_rng(1))
    seen = np.concatenate(network.preactivations(points)[:-1], axis=-1)
    stack = PieceBounds(network, region)
    pieces = stack.root
    for layer, index, value in ((AXIS, 0, 0.1), (0, 4, 0.0), (1, 2, 0.0), (AXIS, 2, 0.1)):
        found = stack.bound(pieces)
        for number in range(len(pieces)):
            inside = np.asarray(((pieces.lower[number] <= points) & (points <= pieces.upper[number])).all(axis=-1))
            inside &= np.asarray(((pieces.low[number] <= seen) & (seen <= pieces.high[number])).all(axis=-1))
            assert (seen[inside] >= found.low[number] - 1e-12).all()
            assert (seen[inside] <= found.high[number] + 1e-12).all()
            norms, error = sampled_norms(network, points[inside])
            assert (norms - error <= found.values[number, 0]).all()
        count = np.ones(len(pieces), dtype=int)
        pieces = children(found, stack.starts, layer * count, index * count, value * np.ones(len(pieces)))


def best(network: lc.Network, region: Region, method: lc.Split) -> lc.Certificate:
    """The best answer so far of a question that may be interrupted."""
    try:
        return lc.certify(network, region, method)
    except lc.Interrupted as interrupt:
        found = interrupt.best
    assert isinstance(found, lc.Certificate)
    return found


@pytest.mark.parametrize(
    ("place", "calls", "event"),
    spread(
        3,
        named("heappop", "heappush", "advised", "Leaf", "jacobian_norms"),
        {"first call": 1, "later": 30},
        {one.__name__: one for one in (KeyboardInterrupt, ProofFailed, np.linalg.LinAlgError)},
    ),
)
def test_interrupts_anywhere_leave_a_true_bound(place: str, calls: int, event: type[BaseException]) -> None:
    """The tree is whole at every moment, also when a batch has been taken from the queue and not been put back."""
    network = random_network(5, (3, 10, 10, 2), "relu", gain=2.5)
    region = REGIONS["ball"]
    owner: Any = heapq if place.startswith("heap") else ledger if hasattr(ledger, place) else module
    original: Callable[..., Any] = getattr(owner, place)
    left = [calls]

    def stopping(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise event
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, place, stopping)
        certificate = best(network, region, quick(0.5, 1e-3))
    holds(network, certificate)


def interrupt(_: int, frame: FrameType | None) -> None:
    """Send the signal of Ctrl-C; a little later where Python would ignore it, in what follows the end of an object."""
    if frame is not None and frame.f_code.co_filename.endswith("weakref.py"):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        os.kill(os.getpid(), signal.SIGINT)


def test_all_inputs_cannot_be_cut_where_slopes_bend() -> None:
    with pytest.raises(InvalidInput, match="bounded region"):
        lc.certify(random_network(5, (3, 4, 2), "tanh"), None, quick())


@pytest.fixture(scope="module")
def proved() -> tuple[lc.Network, lc.Certificate]:
    network = random_network(10, (3, 14, 12, 2), "relu", gain=2.5)
    return network, lc.certify(network, lc.Box([-1.0, -0.5, -0.3], [0.9, 0.8, 0.4]), quick(20.0, 1e-3))


def edited(certificate: lc.Certificate, **columns: Any) -> lc.Certificate:
    return replace(certificate, tree=replace(tree_of(certificate), **columns))


def test_a_claim_below_the_proof_is_refused(proved: tuple[lc.Network, lc.Certificate]) -> None:
    network, certificate = proved
    lowered = replace(certificate, bound=certificate.bound * (1 - 1e-6))
    with pytest.raises(ProofFailed, match="prove no better"):
        lc.verify(network, lowered)
    tree = replace(tree_of(certificate), bound=0.5 * certificate.bound)  # what a tree says of itself does not count
    with pytest.raises(ProofFailed, match="prove no better"):
        lc.verify(network, replace(lowered, tree=tree))


def forged_trees(tree: Tree) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Columns of trees that do not cover the region, or cut what is not there, and perhaps a word of the refusal."""
    names, cut = ("layer", "index", "value", "child"), np.flatnonzero(tree.layer != LEAF)
    yield None, {name: getattr(tree, name)[:0] for name in names}
    for leaf in np.flatnonzero(tree.layer == LEAF)[::19]:  # a leaf dropped, without and with the pointers mended
        fewer = {name: np.delete(getattr(tree, name), leaf) for name in names}
        yield None, fewer
        yield None, fewer | {"child": fewer["child"] - (fewer["child"] > leaf)}

    def changed(column: str, node: int, value: float) -> dict[str, Any]:
        numbers = getattr(tree, column).copy()
        numbers[node] = value
        return {column: numbers}

    for kind in (tree.layer == AXIS, tree.layer >= 0):  # one half, or one sign, named twice instead of the other
        for node, move in itertools.product(np.flatnonzero(kind)[::9], (-1, 1)):
            yield "cover", changed("child", node, tree.child[node] + move)
    for node in np.flatnonzero(tree.layer == AXIS)[::9]:
        yield "outside", changed("value", node, 7.0)
    node, other = int(cut[len(cut) // 2]), int(cut[-1])
    for pointer in (node, 0, len(tree.child), -5, 2**62, int(tree.child[other])):
        yield None, changed("child", node, pointer)
    cycle = changed("child", node, int(tree.child[other]))
    cycle["child"][other] = node
    yield None, cycle
    for column, values in {"layer": (-3, 2, 2**40), "index": (-1, 99), "value": (np.nan, np.inf)}.items():
        yield from ((None, changed(column, int(cut[3]), value)) for value in values)


def test_forged_trees_are_refused(proved: tuple[lc.Network, lc.Certificate]) -> None:
    network, certificate = proved
    for word, columns in forged_trees(tree_of(certificate)):
        with pytest.raises(ProofFailed, match=word):
            lc.verify(network, edited(certificate, **columns))


def test_a_tree_proves_again_what_other_batches_of_pieces_proved() -> None:
    network = random_network(6, (4, 20, 20, 2), "relu", gain=2.5)
    certificate = lc.certify(network, lc.Ball(np.zeros(4), 1.0), replace(quick(60.0, 1e-9), pieces=2100))
    assert tree_of(certificate).leaves > 1000
    assert lc.verify(network, certificate) <= certificate.bound


def many_inputs() -> tuple[lc.Network, lc.Ball]:
    """More inputs than axes are worth halving, and a clip that empties many patterns of signs."""
    network = random_network(1, (30, 12, 10, 3), "relu", gain=2.0)
    return network, lc.Ball(np.where(np.arange(30) % 2, 0.0, 0.02), 0.6, clip=(0, 1))


@pytest.fixture(scope="module")
def signed() -> lc.Certificate:
    return lc.certify(*many_inputs(), quick(30.0, 1e-6))


def test_with_many_inputs_signs_lead_to_the_constant_itself(signed: lc.Certificate) -> None:
    (network, ball), certificate = many_inputs(), signed
    tree = tree_of(certificate)
    assert (tree.layer != AXIS).all()
    assert tree.void.size
    lower = lc.lower_bound(network, ball, points=certificate.witness).value
    assert lower <= certificate.bound <= lower * (1 + 1e-5)
    assert lower > lc.lower_bound(network, ball).value
    assert lc.verify(network, certificate) <= certificate.bound


def test_an_unproved_void_does_not_count(signed: lc.Certificate) -> None:
    (network, ball), certificate = many_inputs(), signed
    tree = tree_of(certificate)
    nothing = np.zeros(0, dtype=int)
    truth = lc.lower_bound(network, ball, points=certificate.witness).value

    def proved_from(**columns: Any) -> float:
        cuts = replace(tree, **columns)
        return float(leaf_values(PieceBounds, cuts, network, ball, certificate.sweeps).max(initial=0.0))

    assert proved_from() <= certificate.bound
    assert proved_from(void=nothing, neuron=nothing, weight=np.zeros(0)) > truth * (1 + 1e-3)
    assert proved_from(weight=np.zeros(tree.weight.shape)) > truth * (1 + 1e-3)
    for scale in (-1.0, 1e12):
        assert proved_from(weight=scale * tree.weight) >= truth
    for shift in (1, 11):
        assert proved_from(neuron=(tree.neuron + shift) % 22) >= truth
    leaves = np.flatnonzero(tree.layer == LEAF)
    columns = {"void": np.repeat(leaves, 22), "neuron": np.tile(np.arange(22), len(leaves))}
    for sign in (-1.0, 1.0):
        assert proved_from(**columns, weight=np.full(22 * len(leaves), sign)) >= truth
    with pytest.raises(ProofFailed, match="weighs"):
        proved_from(neuron=tree.neuron + 22)


@pytest.mark.parametrize("last", [[[1.0, -1.0]], [[1.0, -1.0], [2.0, -2.0]], [[0.0, 0.0]]])
def test_rows_that_add_up_to_zero(last: list[list[float]]) -> None:
    """Without hints multipliers are found from estimates of norms, also where those begin in a bad direction."""
    network = lc.Network.from_weights([[[1.0, 2.0, 0.5], [0.5, -1.0, 2.0]], last], activation="relu")
    region = lc.Ball([0.1, 0.1, 0.2], 1.0)
    stack = PieceBounds(network, region)
    assert lc.lower_bound(network, region).value <= stack.bound(stack.root).values[0, 0] < np.inf


def test_nothing_is_cut_where_nothing_varies() -> None:
    """There is no limit but that bounds are as good as can be told."""
    split, box = lc.Split(seconds=np.inf), lc.Box([-1.0] * 3, [1.0] * 3)
    constant = lc.Network.from_weights([np.zeros((5, 3)), np.zeros((2, 5))])
    found = lc.certify(constant, box, split)
    assert found.bound < 1e-250
    assert found.tree is None
    assert lc.sensitivity(constant, box, split).matrix.max() < 1e-250
    network = random_network(0, (3, 9, 9, 2), "tanh")
    point = lc.reach(network, lc.Ball([0.3, -0.2, 0.1], 0.0), split)
    assert (point.upper - point.lower).max() < 1e-11


# all of space: equal to the largest norm of any linear piece, proved again, and hard to fool


def everywhere_by(tolerance: float = 1e-6) -> lc.Split:
    return lc.Split(method=lc.Scalar(), seconds=np.inf, tolerance=tolerance, pieces=20_000)


CASES = [(0, (2, 6, 6, 2)), (1, (2, 6, 2)), (2, (1, 5, 6, 1)), (4, (3, 5, 4, 2)), (12, (2, 4, 4, 4, 2))]


@pytest.mark.parametrize(("seed", "sizes"), CASES)
def test_the_constant_of_all_of_space_is_reached(seed: int, sizes: tuple[int, ...], tmp_path: Path) -> None:
    network = random_network(seed, sizes, "relu", gain=2.0)
    certificate = lc.certify(network, None, everywhere_by())
    corner = np.full(network.inputs, 1e4)
    truth = true_constant(network, lc.Box(-corner, corner))
    assert truth * (1.0 - 1e-12) <= certificate.bound <= truth * (1.0 + 2e-6)
    assert lc.verify(network, certificate) <= certificate.bound
    certificate.save(tmp_path / "bound.json")
    claim = lc.Certificate.load(tmp_path / "bound.json")
    assert isinstance(claim.region, lc.Everywhere)
    assert lc.verify(network, claim) <= certificate.bound


@pytest.mark.parametrize("activation", ["relu", "abs", "hardtanh"])
def test_other_trees_of_all_of_space_prove_no_less_than_the_truth(activation: str) -> None:
    network = random_network(3, (4, 7, 5, 2), activation, gain=2.0)
    certificate = lc.certify(network, None, everywhere_by())
    tree, lower = tree_of(certificate), lc.lower_bound(network, lc.Everywhere(), points=certificate.witness).value
    assert lower <= certificate.bound <= lower * (1.0 + 2e-6)
    assert tree.void.size
    assert lc.verify(network, certificate, exact=True) <= certificate.bound
    changes: list[dict[str, Any]] = [{"weight": sign * tree.weight} for sign in (-1.0, 0.0, 1e200)]
    changes += [{"weight": np.abs(tree.weight)}, {"void": np.roll(tree.void, 1)}, {"passed": tree.passed[:-1]}]
    changes += [{"neuron": (tree.neuron + 1) % 12}, {"value": tree.value + 0.5}, {"passed": np.arange(len(tree.layer))}]
    for change, exact in itertools.product(changes, (False, True)):
        with suppress(ProofFailed):
            assert lc.verify(network, edited(certificate, **change), exact=exact) >= lower
