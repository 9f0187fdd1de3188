"""Stacks of regions: each is proved as if it were alone, the oracle agrees, and mistakes in the stack are seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from test_oracle import ENCLOSURES, random_weight

import lipcert as lc
from exact import PRECISION, precision
from lipcert.kernel import sweep as sweep_module
from lipcert.kernel.domain import Domain, Pick
from lipcert.kernel.neuron_bounds import slope_bounds
from lipcert.kernel.step import Image
from lipcert.kernel.sweep import Sweep, at_centers, proving
from lipcert.methods.method import Greedy, MethodGuide
from lipcert.model.arrays import Array
from lipcert.model.network import Network, Neurons
from lipcert.model.regions import Region
from lipcert.suggest.hints import BOTH, Enclosure
from networks import ROWS
from oracle import Oracle, below, check_inside, rules_of

SAME = 1e-11
METHODS: list[Greedy] = [lc.ClosedForm(), lc.Scalar(), lc.Diagonal()]


def regions_of(kind: str, inputs: int, count: int, rng: np.random.Generator) -> list[Region]:
    """Regions of one kind with centres and sizes of their own, points and flat ones among them."""
    found: list[Region] = []
    for number in range(count):
        center = rng.standard_normal(inputs)
        size = 0.0 if number == 2 else float(10.0 ** rng.uniform(-4, 0.5))
        corners = center - size * rng.random(inputs), center + size * rng.random(inputs)
        if kind == "ball":
            found.append(lc.Ball(center, size))
        elif kind == "clipped":
            found.append(lc.Ball(center, size, clip=corners))
        else:
            found.append(lc.Box(*corners))
    return found


def swept(
    network: Network,
    regions: Sequence[Region],
    method: Greedy = METHODS[0],
    enclosures: Sequence[Enclosure] = BOTH,
) -> Sweep:
    with proving():
        return Sweep(network, Domain.of(regions), MethodGuide(method.choose_all, tuple(enclosures))).run()


# The oracle, which shares no code with the proofs, for every region of a stack.


def random_stack(number: int) -> tuple[Network, list[Region], Greedy, tuple[Enclosure, ...]]:
    rng = np.random.default_rng(1000 + number)
    sizes = rng.integers(1, 6, int(rng.integers(3, 6))).tolist()
    weights = [random_weight(rng, out, into) for into, out in itertools.pairwise(sizes)]
    biases = [rng.standard_normal(len(w)) * np.abs(w).max() for w in weights]
    network = Network.from_weights(weights, biases, [ROWS[number % len(ROWS)] for _ in weights[1:]])
    kind = ("ball", "clipped", "box")[number % 3]
    return network, regions_of(kind, network.inputs, 3, rng), METHODS[number % 3], ENCLOSURES[number % len(ENCLOSURES)]


def agrees_with_the_oracle(number: int) -> None:
    network, regions, method, enclosures = random_stack(number)
    with np.errstate(all="ignore"):
        stack = swept(network, regions, method, enclosures)
    with precision(PRECISION):
        for which, region in enumerate(regions):
            oracle = Oracle(network, region, stack.hints(which), [], rules_of(stack, which))
            check_inside(stack, which, oracle)
            assert oracle.S is not None
            assert below(oracle.S, float(stack.bounds[which])), which


@pytest.mark.parametrize("batch", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
def test_the_oracle_is_never_above_what_a_stack_proves(batch: int) -> None:
    """In each batch every activation, kind of region, method and enclosure."""
    for number in range(48 * batch, 48 * batch + 48):
        agrees_with_the_oracle(number)


# Mistakes that only a stack can have, planted: what is one region's is taken for another's.


def first_region_everywhere(patch: pytest.MonkeyPatch) -> None:
    def init(pick: Pick, count: int, where: Array) -> None:
        pick.where, pick.single = np.zeros_like(where), count == 1

    patch.setattr(Pick, "__init__", init)


def first_exponent(patch: pytest.MonkeyPatch) -> None:
    honest = Image.block

    def block(image: Image, kept: Array | None = None) -> tuple[Array, Array]:
        S, exponent = honest(image, kept)
        return S, np.full_like(exponent, exponent[0])

    patch.setattr(Image, "block", block)


def first_slopes(patch: pytest.MonkeyPatch) -> None:
    def slopes(neurons: Neurons, lower: Array, upper: Array, *_: object) -> tuple[Array, ...]:
        return tuple(np.broadcast_to(end[:1], end.shape) for end in slope_bounds(neurons, lower, upper))

    patch.setattr(sweep_module, "slope_bounds", slopes)


def turned_centres(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        sweep_module, "at_centers", lambda net, domain: [(v[::-1], e[::-1]) for v, e in at_centers(net, domain)]
    )


def first_extent(patch: pytest.MonkeyPatch) -> None:
    honest = Domain.extent
    patch.setattr(Domain, "extent", lambda domain, *start: np.full(len(domain), honest(domain, *start).min()))


def a_neuron_left_out(patch: pytest.MonkeyPatch) -> None:
    """Neurons of the first region are kept, whatever the others need."""
    honest = sweep_module._kept

    def kept(wanted: Array) -> Array | None:
        return honest(np.broadcast_to(wanted[:1], wanted.shape))

    patch.setattr(sweep_module, "_kept", kept)


def rows_of_another(patch: pytest.MonkeyPatch) -> None:
    """The step of each region from the ellipsoid of the next."""
    honest = import_module("lipcert.kernel.step").activate

    def activate(S: Array, *rest: Any, **named: Any) -> Any:
        return honest(np.roll(S, 1, axis=0), *rest, **named)

    patch.setattr(sweep_module, "activate", activate)


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    first_region_everywhere,
    first_exponent,
    first_slopes,
    turned_centres,
    first_extent,
    a_neuron_left_out,
    rows_of_another,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_regions_that_are_mixed_up_are_seen(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    seen = 0
    for number in range(400):
        try:
            agrees_with_the_oracle(number)
        except (AssertionError, KeyError, lc.ProofFailed):
            seen += 1
        if seen == 3:
            return
    raise AssertionError(f"only {seen} times")


def test_sparse_weights_of_which_some_rows_are_kept() -> None:
    """All neurons of the first layer are kept, of the second only some, which differ from ball to ball."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape) for shape in ((12, 3), (12, 12), (2, 12))]
    biases = [np.zeros(12), np.where(np.arange(12) % 2, -50.0, 0.5), np.zeros(2)]
    stored = [weights[0], sparse.csr_array(np.where(rng.random((12, 12)) < 0.5, weights[1], 0.0)), weights[2]]
    network = Network.from_weights(stored, biases, ["tanh", "relu"])
    balls: list[Region] = [lc.Ball(rng.standard_normal(3), 0.1) for _ in range(3)]
    stack = swept(network, balls)
    for bound, ball in zip(stack.bounds, balls, strict=True):
        assert bound == pytest.approx(swept(network, [ball]).bounds[0], rel=SAME)
