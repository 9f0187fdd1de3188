"""Reach sets: no sampled output outside, never looser than centre ± δ·bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.kernel.domain import corners
from lipcert.kernel.enclosures import activated_ends, affine
from lipcert.methods.method import Method
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.suggest.hints import BOTH, Linear
from networks import named, random_network, spread


def test_the_figure_holds_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from lipcert.show import plots

    network, ball = random_network(3, (4, 9, 3), "relu", gain=2.0), lc.Ball([0.0] * 4, 0.3)
    found = lc.reach(network, ball, lc.ClosedForm())
    ax = plots.reach_set(found, network, (0, 2))
    points, box, ring, _ = (np.column_stack(line.get_data()) for line in ax.lines)
    assert (points >= box.min(axis=0)).all()
    assert (points <= box.max(axis=0)).all()
    block = np.linalg.inv(found.shape[np.ix_([0, 2], [0, 2])])
    away = ring - found.center[[0, 2]]
    np.testing.assert_allclose(np.einsum("ki,ij,kj->k", away, block, away), 1.0)
    plots.save(ax, tmp_path / "reach.svg")
    with pytest.raises(lc.InvalidInput, match="two different ones"):
        plots.reach_set(found, network, (1, 1))


# laws of reach sets and sensitivities


SLACK = 1e-7
"""What rounding, and the order of sums, may make of equal answers, relative to their size."""
WAYS: dict[str, Method] = {
    "closed form": lc.ClosedForm(),
    "scalar": lc.Scalar(),
    "joint": lc.Joint(iterations=4),
    "auto": lc.Auto(seconds=np.inf, pieces=12),
    "split": lc.Split(lc.Joint(iterations=4), seconds=np.inf, pieces=40),
}


def sparse_network() -> lc.Network:
    """Like a convolution: a band of weights."""
    rng = np.random.default_rng(3)
    bands = [sparse.diags_array(rng.standard_normal((3, 12)), offsets=[-1, 0, 1], shape=(12, 4))]
    bands += [sparse.diags_array(rng.standard_normal((3, 12)), offsets=[-1, 0, 1], shape=(12, 12))]
    weights = [sparse.csr_array(band) for band in bands]
    return lc.Network.from_weights([*weights, 0.5 * rng.standard_normal((2, 12))], activation="relu")


NETWORKS: dict[str, lc.Network] = {
    "relu": random_network(1, (3, 10, 8, 2), "relu", gain=2.5),
    "tanh": random_network(2, (4, 9, 9, 2), "tanh", gain=2.5),
    "softplus": random_network(3, (2, 8, 6, 3), "softplus", gain=2.5),
    "mixed": random_network(4, (3, 6, 5, 2), [["relu"] * 3 + ["tanh"] * 3, "sigmoid"], gain=3.0),
    "deep": random_network(5, (3, 6, 6, 6, 6, 2), "leaky_relu", gain=2.2),
    "sparse": sparse_network(),
    "many inputs": random_network(6, (12, 4, 4, 2), "tanh", gain=2.5),
}
KINDS = ("ball", "box", "clip")
on_all = pytest.mark.parametrize(("name", "way", "kind"), spread(9, named(*NETWORKS), named(*WAYS), named(*KINDS)))


def region_of(kind: str, inputs: int, size: float = 0.6) -> Region:
    center = np.linspace(-0.4, 0.5, inputs)
    if kind == "ball":
        return lc.Ball(center, size)
    if kind == "box":
        return lc.Box(center - size, center + 0.5 * size)
    return lc.Ball(center, 1.5 * size, clip=(center - size, center + 0.3 * size))


def by_intervals(network: lc.Network, region: Region) -> tuple[Array, Array]:
    """The outputs by interval arithmetic alone."""
    lower, upper = corners(region)
    ends = lower[None], upper[None]
    for layer in network.layers:
        low, high = affine(layer, ends)
        ends = activated_ends(layer, (low, high)) if layer.plain else ends
    return low[0], high[0]


def inside(found: lc.Reach, low: Array, high: Array) -> None:
    room = SLACK * (1.0 + np.maximum(np.abs(low), np.abs(high)))
    assert (found.lower >= low - room).all(), (found.lower, low)
    assert (found.upper <= high + room).all(), (found.upper, high)


@on_all
def test_a_reach_box_is_inside_all_that_is_cheap(name: str, way: str, kind: str) -> None:
    network = NETWORKS[name]
    region = region_of(kind, network.inputs)
    found = lc.reach(network, region, WAYS[way])
    assert found.contains(network(region.sample(2000, np.random.default_rng(0)))).all()
    inside(found, *by_intervals(network, region))
    for ways in ([Linear()], BOTH):
        cheap = lc.reach(network, region, lc.ClosedForm(), enclosures=ways)
        inside(found, cheap.lower, cheap.upper)
    if way == "split":
        joint = lc.reach(network, region, WAYS["joint"])
        inside(found, joint.lower, joint.upper)
