"""Couplings as a part of networks: values, Jacobians, digests, files."""

from pathlib import Path

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.couplings import Coupling
from lipcert.model.network import Network

COUPLING = Coupling.of(3, 13, [(2, 3)], [([[9, 10], [0, 3]], [[11, 12], [12, 4]])])


def made(seed: int = 0, coupling: Coupling = COUPLING, outputs: int = 2) -> Network:
    rng = np.random.default_rng(seed)
    shapes = [(13, 5), (4, coupling.width), (outputs, 4)]
    rows = [(["relu", "tanh", "identity"], coupling), "tanh"]
    return Network.from_weights([rng.normal(size=shape) for shape in shapes], None, rows)


@pytest.mark.parametrize("outputs", [2, 9])
def test_jacobians_are_derivatives(outputs: int) -> None:
    network = made(outputs=outputs)
    x, h = np.random.default_rng(1).normal(size=(7, 5)), 1e-6
    found = np.stack([(network(x + h * e) - network(x - h * e)) / (2.0 * h) for e in np.eye(5)], axis=-1)
    assert np.allclose(network.jacobian(x), found, atol=1e-7)
    assert np.allclose(network.jacobian(x[3]), network.jacobian(x)[3], rtol=1e-12)


def test_networks_come_back_from_files(tmp_path: Path) -> None:
    network = made()
    network.save(tmp_path / "net.npz")
    again = lc.load(tmp_path / "net.npz")
    x = np.ones(5)
    assert again.digest == network.digest
    assert np.array_equal(again(x), network(x))
    other = Coupling.of(3, 13, [(2, 3)], [([[9, 10], [0, 3]], [[12, 11], [12, 4]])])
    assert made(coupling=other).digest != network.digest


def test_mistakes_are_refused() -> None:
    with pytest.raises(lc.InvalidInput, match="different"):
        Coupling.of(0, 3, [], [([[0, 1]], [[1, 2]])])
    with pytest.raises(lc.InvalidInput, match="more than"):
        Coupling.of(2, 5, [(2, 2)])
    with pytest.raises(lc.InvalidInput, match="do not fit"):
        Network.from_weights([np.eye(3), np.eye(3)], None, [([], Coupling.of(0, 3, [], [([[0]], [[1]])]))])
    with pytest.raises(lc.InvalidInput, match="is for 4 values"):
        Network.from_weights([np.eye(3), np.eye(4)], None, [([], Coupling.of(0, 4, [(1, 4)]))])


def test_parts_of_networks() -> None:
    network = made()
    x = np.random.default_rng(2).normal(size=5)
    part = network.select(inputs=[1, 3], outputs=[0], at=x)
    assert np.allclose(part(x[[1, 3]]), network(x)[:1])
    assert network.slice(1, 3).inputs == COUPLING.width


def test_no_points_have_no_values() -> None:
    assert made()(np.zeros((0, 5))).shape == (0, 2)
    assert made().jacobian(np.zeros((0, 5))).shape == (0, 2, 5)
