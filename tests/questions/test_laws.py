"""The law: no bound is below anything the network does in the region. Every method, network and region goes through it.

A method added to METHODS is tested here with no further work.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

import lipcert as lc
from lipcert.methods.method import Method
from lipcert.model.activations import Activation
from lipcert.model.regions import NORMS, Region
from networks import (
    NAMED_ROWS,
    ROW_LABELS,
    ROWS,
    pairs,
    random_network,
    sampled_norms,
    sampled_quotients,
    spread,
)

METHODS: list[Method] = [
    lc.ClosedForm(),
    lc.Scalar(),
    lc.Diagonal(),
    lc.Joint(iterations=20),
    lc.Auto(seconds=np.inf, pieces=8),
    lc.Split(method=lc.ClosedForm(), seconds=np.inf, pieces=24),
]
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)


def suits(method: Method, region: Region) -> bool:
    """All of space cannot be cut into pieces."""
    return region.bounded or not isinstance(method, lc.Split)


def hold(network: lc.Network, region: Region, bound: float, seed: int = 0, count: int = 60) -> None:
    """The law for one bound: every sampled Jacobian and every sampled difference quotient is at most the bound."""
    rng = np.random.default_rng(seed)
    where = region if region.bounded else lc.Ball(np.zeros(network.inputs), 3.0)
    norms, error = sampled_norms(network, np.concatenate([where.center[None], where.sample(count, rng)]))
    assert (norms - error <= bound).all(), f"Jacobian norm {norms.max()} above the bound {bound}"
    quotients, error = sampled_quotients(network, *pairs(where, count, rng))
    assert (quotients - error <= bound).all(), f"quotient {quotients.max()} above the bound {bound}"


def regions_for(network: lc.Network, seed: int = 0, size: float = 1.0) -> dict[str, Region]:
    rng = np.random.default_rng(seed)
    center = rng.normal(0, 1, network.inputs)
    reach = size * rng.random(network.inputs)
    return {
        "ball": lc.Ball(center, 0.7 * size),
        "clipped": lc.Ball(center, 0.7 * size, clip=(center - 0.4 * reach, center + reach)),
        "box": lc.Box(center - reach, center + 0.5 * reach),
        "l1 ball": lc.Ball(center, 0.7 * size, norm=lc.L1()),
        "ellipsoid": lc.Ball(center, 0.7 * size, norm=lc.L2(scale=0.1 + reach)),
        "point": lc.Ball(center, 0.0),
        "tiny": lc.Ball(center, 1e-6),
        "everywhere": lc.Everywhere(),
    }


@st.composite
def networks(draw: st.DrawFn) -> lc.Network:
    """Small networks of every kind: width 1, dead layers, zero and sparse weights, activations by layer and neuron."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gain = draw(st.sampled_from([0.3, 1.0, 3.0]))
    weights: list[Any] = []
    biases: list[Any] = []
    for into, out in itertools.pairwise(sizes):
        weight = gain * rng.normal(0, 1, (out, into)) / np.sqrt(max(into, out))
        bias = rng.normal(0, 0.5, out)
        kind = draw(
            st.sampled_from(["plain", "plain", "plain", "sparse", "zero", "rows", "dead", "saturated", "no bias"])
        )
        if kind == "sparse":
            weight = sparse.csr_array(weight * (rng.random(weight.shape) < 0.5))
        elif kind == "zero":
            weight = np.zeros_like(weight)
        elif kind == "rows":
            weight[rng.random(out) < 0.5] = 0.0
        elif kind == "dead":
            bias = bias - 40.0
        elif kind == "saturated":
            bias = bias * 30.0
        weights.append(weight)
        biases.append(None if kind == "no bias" else bias)
    row = st.sampled_from(ROWS)
    specs: list[Any] = [
        draw(st.lists(row, min_size=size, max_size=size)) if draw(st.integers(0, 3)) == 0 else draw(row)
        for size in sizes[1:-1]
    ]
    return lc.Network.from_weights(weights, biases, specs)


def law(method: Method, network: lc.Network, kind: str, norms: tuple[str, str]) -> None:
    region = regions_for(network)[kind]
    assume(suits(method, region))
    scale = 10.0 ** np.random.default_rng(0).uniform(-1.0, 2.0, network.inputs)
    ends: dict[str, Any] = {"input_norm": NORMS[norms[0]](scale), "output_norm": norms[1]}  # type: ignore[call-arg]
    for named_norms in ({}, ends):
        certificate = lc.certify(network, region, method, **named_norms)
        assert certificate.verified
        assert lc.verify(network, certificate) <= certificate.bound
        if not named_norms:
            hold(network, region, certificate.bound)
        if region.bounded:
            lower = lc.lower_bound(network, region, samples=30, steps=2, starts=4, **named_norms)
            assert lower.value <= certificate.bound
            assert region.contains(lower.point)


kinds = st.sampled_from(["ball", "clipped", "box", "l1 ball", "ellipsoid", "point", "tiny", "everywhere"])
pairs_of_norms = st.sampled_from(list(itertools.product(NORMS, repeat=2)))


@every_method
@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_law(method: Method, examples: int) -> None:
    @settings(max_examples=6 if examples == 20 and method in METHODS[4:] else examples)
    @given(networks(), kinds, pairs_of_norms)
    def holds(network: lc.Network, kind: str, norms: tuple[str, str]) -> None:
        law(method, network, kind, norms)

    holds()


@st.composite
def ill_scaled_networks(draw: st.DrawFn) -> lc.Network:
    """Weights from 1e-12 to 1e+12 within one network, repeated rows, rank one, zeros."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=3, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights, biases = [], []
    for into, out in itertools.pairwise(sizes):
        shapes: dict[str, Any] = {"plain": None, "scaled": (), "entries": (out, into), "rows": (out, 1)}
        kind = draw(st.sampled_from([*shapes, "repeated", "rank one", "zero row"]))
        weight = rng.standard_normal((out, into))
        if shapes.get(kind) is not None:
            weight *= 10.0 ** rng.uniform(-12, 12, shapes[kind])
        elif kind == "repeated":
            weight[:] = weight[:1]
        elif kind == "rank one":
            weight = np.outer(weight[:, 0], weight[0]) * 10.0 ** rng.uniform(-6, 6)
        elif kind == "zero row":
            weight[0] = 0.0
        weights.append(weight)
        biases.append(rng.standard_normal(out) * 10.0 ** rng.uniform(-12, 12) if draw(st.booleans()) else None)
    return lc.Network.from_weights(weights, biases, [draw(st.sampled_from(ROWS)) for _ in sizes[1:-1]])


@every_method
@pytest.mark.parametrize("times", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_law_for_ill_scaled_networks(method: Method, times: int) -> None:
    """What is attained, in real arithmetic, against the bound and its second proof, without slack."""

    @settings(max_examples=6 * times)
    @given(ill_scaled_networks(), kinds, st.sampled_from([1e-9, 1e-3, 0.3, 10.0]))
    def law(network: lc.Network, kind: str, size: float) -> None:
        region = regions_for(network, size=size)[kind]
        assume(suits(method, region))
        with np.errstate(all="ignore"):  # the search for multipliers may overflow on its way
            certificate = lc.certify(network, region, method)
        inside = region if region.bounded else lc.Ball(np.zeros(network.inputs), size)
        lower = lc.lower_bound(network, inside, samples=40, steps=4, starts=4)
        assert lower.value <= certificate.bound
        assert lc.verify(network, certificate) <= certificate.bound

    law()


@pytest.mark.parametrize(("row", "turn"), spread(16, NAMED_ROWS, {f"turn {k}": k for k in range(8)}))
def test_law_for_every_activation(row: Activation, turn: int) -> None:
    """Every method and kind of region, no slack: the lower bound is attained, the bound is proved."""
    network = random_network(ROWS.index(row), (3, 6, 5, 2), row, gain=2.0)
    for number, (kind, region) in list(enumerate(regions_for(network, 1).items()))[turn // 4 :: 2]:
        method = METHODS[:4][(number + turn) % 4]
        attained = lc.lower_bound(network, region, samples=30, steps=2, starts=4).value if region.bounded else 0.0
        certificate = lc.certify(network, region, lc.Scalar() if kind in ("tiny", "point") else method)
        assert certificate.verified
        assert attained <= certificate.bound
        hold(network, region, certificate.bound)


@pytest.mark.parametrize("row", ROWS, ids=ROW_LABELS)
def test_radius_zero_is_the_jacobian_at_the_centre(row: Activation) -> None:
    network = random_network(7, (3, 5, 5, 2), row)
    center = np.array([0.3, -0.2, 0.9])
    expected = float(np.linalg.norm(network.jacobian(center), 2))
    for method in METHODS[:2]:
        assert lc.certify(network, lc.Ball(center, 0.0), method).bound == pytest.approx(expected, rel=1e-6)


@every_method
@settings(max_examples=10)
@given(network=networks(), data=st.data())
def test_law_for_parts(method: Method, network: lc.Network, data: st.DataObject) -> None:
    """From some coordinates of z_p, the others held, to some of v_i."""
    start = data.draw(st.integers(0, network.depth - 1))
    stop = data.draw(st.integers(start + 1, network.depth))
    inputs, outputs = (
        sorted(data.draw(st.sets(st.integers(0, network.sizes[end] - 1), min_size=1))) for end in (start, stop)
    )
    region = regions_for(network, 4)[data.draw(st.sampled_from(["ball", "box", "everywhere"]))]
    assume(suits(method, region))
    bound = lc.certify(network, region, method, inputs=inputs, outputs=outputs, layers=(start, stop)).bound
    where = region if region.bounded else lc.Ball(np.zeros(network.inputs), 2.0)
    z = where.sample(40, np.random.default_rng(0))
    if start:
        neurons = network.layers[start - 1].neurons
        assert neurons is not None
        z = neurons.value(network.preactivations(z)[start - 1])
    tail = network.slice(start, stop)
    right, left = tail.jacobian(z), tail.jacobian(z, side=-1)
    clear = (right == left).all(axis=(-2, -1))
    part = right[..., outputs, :][..., inputs]
    _, error = sampled_norms(tail, z)
    norms = np.where(clear, np.linalg.norm(part, ord=2, axis=(-2, -1)), 0.0)
    assert (norms - error <= bound).all()


def test_a_certificate_says_what_was_done() -> None:
    network = random_network(13, (3, 5, 4, 2), "tanh")
    region = lc.Ball(np.zeros(3), 0.5)
    certificate = lc.certify(network, region, lc.Scalar(), outputs=[1])
    assert (certificate.network, certificate.region, certificate.method) == (network.digest, region, lc.Scalar())
    assert (certificate.part.outputs, len(certificate.layers)) == ((1,), 2)
    assert certificate.seconds > 0
    for layer, size in zip(certificate.layers, (5, 4), strict=True):
        for array in (layer.lower, layer.upper, layer.alpha, layer.beta, layer.multiplier):
            assert array.shape == (size,)
        assert (layer.lower <= layer.upper).all()
        assert (layer.alpha <= layer.beta).all()


def test_lower_bound_finds_the_steep_corner() -> None:
    """A ReLU bump that covers 1 % of the ball: sampling hits it, ascent climbs it."""
    network = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[3.0, 4.0]]], [[-0.6, -0.6], [0.0]], "relu")
    found = lc.lower_bound(network, lc.Ball([0.0, 0.0], 1.0))
    assert found.value == pytest.approx(5.0, rel=1e-9)
    assert (found.point > 0.6).all()
    assert lc.lower_bound(network, lc.Ball([0.0, 0.0], 1.0)).value == found.value


def test_lower_bounds_of_single_points() -> None:
    """The norm of the Jacobian, but not at a kink: relu(x) - relu(-x) is x, and its one-sided products are 2 and 0."""
    network, center = random_network(4, (3, 5, 2), "tanh"), np.array([0.1, 0.2, 0.3])
    found = lc.lower_bound(network, lc.Ball(center, 0.0))
    assert found.value == pytest.approx(float(np.linalg.norm(network.jacobian(center), 2)), rel=1e-9)
    np.testing.assert_array_equal(found.point, center)
    kinked = lc.Network.from_weights([[[1.0], [-1.0]], [[1.0, -1.0]]], activation="relu")
    assert lc.lower_bound(kinked, lc.Ball([0.0], 0.0)).value == 0.0
    assert lc.lower_bound(kinked, lc.Ball([0.0], 1.0)).value == pytest.approx(1.0)
