"""Many regions in one call: the certificates of single calls, in the order of the regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_stacks import regions_of

import lipcert as lc
from lipcert.kernel.sweep import Sweep
from lipcert.methods.method import Method
from lipcert.model.network import Network
from lipcert.model.regions import Region
from networks import NAMED_ROWS, random_network, spread

SAME = 1e-11
CLOSE = 1e-10
"""Lines touch where a search for their slope stops, and one rounding decides where: intervals differ by its square."""


def mixed(inputs: int, seed: int = 0) -> list[Region]:
    """Regions of every kind, in a random order."""
    rng = np.random.default_rng(seed)
    found: list[Region] = [r for kind in ("ball", "clipped", "box") for r in regions_of(kind, inputs, 4, rng)]
    found.append(lc.Everywhere())
    return [found[k] for k in rng.permutation(len(found))]


def same(network: Network, regions: list[Region], found: list[lc.Certificate], method: Method, **part: Any) -> None:
    """Each certificate is about its region, is the one of a single call, and verifies."""
    assert len(found) == len(regions)
    for region, certificate in zip(regions, found, strict=True):
        alone = lc.certify(network, region, method, **part)
        assert certificate.region is region
        assert certificate.verified
        assert certificate.part == alone.part
        assert certificate.network == network.digest
        assert certificate.method == method
        assert certificate.bound == pytest.approx(alone.bound, rel=SAME, abs=1e-130)
        proved = lc.verify(network, certificate)
        assert proved <= certificate.bound <= proved * (1.0 + 1e-9) + 1e-130
        assert len(certificate.layers) == len(alone.layers)
        for one, two in zip(certificate.layers, alone.layers, strict=True):
            finite = np.isfinite(two.lower) & np.isfinite(two.upper)
            np.testing.assert_array_equal(np.isfinite(one.lower) & np.isfinite(one.upper), finite)
            for end in ("lower", "upper"):
                np.testing.assert_allclose(getattr(one, end)[finite], getattr(two, end)[finite], rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize(("row", "third"), spread(6, NAMED_ROWS, {"first": 0, "second": 1, "third": 2}))
def test_many_are_each_by_itself(row: lc.Activation, third: int) -> None:
    network = random_network(1, (3, 7, 6, 2), row, gain=2.0)
    regions = mixed(3)[third::3]
    same(network, regions, lc.certify_many(network, regions), lc.ClosedForm())


PARTS: dict[str, dict[str, Any]] = {
    "one output": {"outputs": [1]},
    "two inputs": {"inputs": [0, 2]},
    "first layers": {"layers": (0, 2)},
    "inner layers": {"layers": (1, 3)},
    "all at once": {"layers": (1, 2), "inputs": [0, 3], "outputs": [2]},
    "one affine map": {"layers": (0, 1)},
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_parts_of_a_network(part: dict[str, Any]) -> None:
    network = random_network(5, (3, 6, 5, 4, 2), ["elu", "relu", "tanh"], gain=2.0)
    regions = mixed(3, 1)
    same(network, regions, lc.certify_many(network, regions, **part), lc.ClosedForm(), **part)


def test_more_regions_than_go_together() -> None:
    """Two hundred balls around few centres, with radii from nothing to much; several stacks of a wide network."""
    network = random_network(2, (3, 60, 50, 2), "relu", gain=2.0)
    rng = np.random.default_rng(5)
    centers = rng.standard_normal((7, 3))
    regions: list[Region] = [lc.Ball(centers[k % 7], 10.0 ** rng.uniform(-6, 1)) for k in range(200)]
    found = lc.certify_many(network, regions)
    assert [certificate.region for certificate in found] == regions
    for region, certificate in zip(regions[::17], found[::17], strict=True):
        assert certificate.bound == pytest.approx(lc.certify(network, region, lc.ClosedForm()).bound, rel=SAME)
        assert lc.lower_bound(network, region, samples=50, steps=3).value <= certificate.bound
        assert lc.verify(network, certificate) <= certificate.bound


def test_generators_single_regions_and_nothing() -> None:
    network, ball = random_network(2, (2, 5, 2), "tanh"), lc.Ball([0.1, 0.2], 0.3)

    def balls() -> Iterator[lc.Ball]:
        for size in (0.1, 0.2, 0.3):
            yield lc.Ball([0.1, 0.2], size)

    found = lc.certify_many(network, balls())
    assert [float(certificate.region.radius) for certificate in found] == [0.1, 0.2, 0.3]
    (alone,) = lc.certify_many(network, ball)  # type: ignore[arg-type]
    assert alone.region is ball
    assert lc.certify_many(network, []) == []
    assert lc.certify_many(network, iter(())) == []
    twice = lc.certify_many(network, [ball, ball])
    assert twice[0].bound == twice[1].bound


BALL = lc.Ball([0.1, 0.2], 0.3)


@pytest.mark.parametrize(
    ("regions", "named", "message"),
    [
        ([BALL, lc.Ball([0.0] * 3, 0.1)], {}, r"center must have 2 numbers, .* got shape \(3,\)"),
        ([BALL, "ball"], {}, "region must be a Ball, Box or Everywhere, got str"),
        ([BALL], {"method": "ClosedFrom"}, "'ClosedFrom' is unknown"),
        ([BALL], {"layers": (0, 9)}, "layers must be"),
        ([BALL], {"outputs": [2]}, "outputs must be indices"),
        (3, {}, "regions must be a list such as"),
    ],
)
def test_wrong_use_is_named(regions: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(lc.InvalidInput, match=message):
        lc.certify_many(random_network(2, (2, 5, 2), "tanh"), regions, **named)


def test_a_region_without_a_proof_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(2, (2, 5, 2), "tanh")
    run = Sweep.run

    def brittle(sweep: Sweep, needs_bound: bool = True) -> Sweep:
        assert sweep.domain is not None
        if (sweep.domain.extent() == 0.2).any():
            raise lc.ProofFailed("on purpose")
        return run(sweep, needs_bound)

    monkeypatch.setattr(Sweep, "run", brittle)
    balls = [lc.Ball([0.1, 0.2], size) for size in (0.1, 0.3, 0.2, 0.4)]
    with pytest.raises(lc.ProofFailed, match="region 2: on purpose"):
        lc.certify_many(network, balls)
    assert len(lc.certify_many(network, [balls[0], balls[1], balls[3]])) == 3


def test_huge_regions_are_bounded_or_named() -> None:
    network = random_network(2, (2, 5, 2), "relu")
    balls = [lc.Ball([0.1, 0.2], 0.1), lc.Ball([1e308, 1e308], 1e307), lc.Ball([0.3, 0.2], 0.1)]
    plain = [lc.certify(network, ball, lc.ClosedForm()).bound for ball in (balls[0], balls[2])]
    found = lc.certify_many(network, balls)
    assert [found[0].bound, found[2].bound] == pytest.approx(plain, rel=SAME)
    there = network.jacobian(np.full(2, 1e300))  # on the way to the centre no neuron changes its sign any more
    assert 0.0 < np.linalg.norm(there, 2) <= found[1].bound


@pytest.mark.parametrize("activation", ["sin", "tanh", "relu"])
def test_certificates_of_a_stack_verify_however_far_out_its_regions_are(activation: str) -> None:
    """Far from the origin products in a stack round differently enough to be seen in a bound."""
    network, rng = random_network(3, (3, 9, 8, 2), activation, gain=2.0), np.random.default_rng(5)
    balls = [lc.Ball(scale * rng.normal(size=3), radius) for scale in (1.0, 1e4, 1e8) for radius in (0.0, 1e-9, 0.3)]
    for certificate in lc.certify_many(network, balls):
        assert lc.verify(network, certificate) <= certificate.bound
