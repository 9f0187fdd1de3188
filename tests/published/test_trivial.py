"""The product of norms: its value by hand, and above everything it should be above."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.regions import Region
from lipcert.published import Trivial
from lipcert.runtime import costs
from networks import random_network

SIZES = (3, 6, 4, 2)


def norms(network: lc.Network) -> list[float]:
    return [float(np.linalg.svd(layer.weight, compute_uv=False)[0]) for layer in network.layers]


@pytest.mark.parametrize(
    ("activation", "slope"),
    [
        ("relu", 1.0),
        ("sigmoid", 0.25),
        ("leaky_relu", 1.0),
        (lc.activation("leaky_relu", negative_slope=-3.0), 3.0),
        ("selu", 1.0507009873554805 * 1.6732632423543772),
        ("hardswish", 1.5),
        (lc.activation("elu", alpha=2.5), 2.5),
    ],
)
def test_norms_times_largest_slopes(activation: object, slope: float) -> None:
    network = random_network(11, SIZES, activation)
    assert lc.certify(network, method=Trivial()).bound == pytest.approx(np.prod(norms(network)) * slope**2, rel=1e-11)


def test_the_steepest_neuron_counts() -> None:
    network = random_network(11, SIZES, [["relu"] * 5 + ["hardswish"], ["sigmoid"] * 4])
    assert lc.certify(network, method=Trivial()).bound == pytest.approx(np.prod(norms(network)) * 1.5 / 4, rel=1e-11)


def test_the_region_does_not_matter_and_the_part_does() -> None:
    network = random_network(11, SIZES, "tanh")
    whole = lc.certify(network, method=Trivial()).bound
    assert lc.certify(network, lc.Ball(np.zeros(3), 0.1), Trivial()).bound == whole
    part = lc.certify(network, method=Trivial(), layers=(1, 2), inputs=[0, 2], outputs=[3])
    assert part.bound == pytest.approx(np.linalg.norm(network.layers[1].weight[3, [0, 2]]), rel=1e-11)


def test_it_is_proved_and_stored(tmp_path: Path) -> None:
    network = random_network(11, SIZES, "tanh")
    for region in (None, lc.Ball(np.zeros(3), 0.1)):
        found = lc.certify(network, region, Trivial())
        assert found.verified
        assert not found.sweeps
        found.save(tmp_path / "product.json")
        assert lc.verify(network, lc.Certificate.load(tmp_path / "product.json")) <= found.bound
        with pytest.raises(lc.ProofFailed, match="claims"):
            lc.verify(network, replace(found, bound=found.bound * 0.999999))


@pytest.mark.parametrize("norms_", [{"input_norm": "linf"}, {"output_norm": "l1"}, {"input_norm": lc.L2(scale=3.0)}])
def test_other_norms(norms_: dict[str, Any]) -> None:
    network = random_network(11, SIZES, "relu")
    assert lc.certify(network, None, lc.Joint(), **norms_).bound <= lc.certify(network, None, Trivial(), **norms_).bound


@pytest.mark.parametrize("region", [lc.Everywhere(), lc.Ball(np.zeros(3), 5.0)])
@pytest.mark.parametrize("method", [lc.ClosedForm(), lc.Scalar(), lc.Joint(), lc.Auto(seconds=1.0), lc.Split()])
def test_what_does_not_fit_into_memory_has_the_product(
    region: Region, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = random_network(11, (3, 30, 20, 2), "relu")
    product = lc.certify(network, method=Trivial()).bound
    monkeypatch.setattr(costs, "_SMALL", 10)
    monkeypatch.setattr(costs, "available_memory", lambda: 1000)
    found = lc.certify(network, region, method)
    assert (found.bound, found.verified, found.found_by) == (product, True, "Trivial")
    assert found.note.startswith("the product of norms, for all inputs: layer")
    assert lc.verify(network, found) <= found.bound
