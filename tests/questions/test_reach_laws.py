"""Laws of reach sets and sensitivities: never worse than anything that is cheap, nor than a part of the answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

import lipcert as lc
from lipcert.model.arrays import Array, dense
from lipcert.model.regions import Region
from lipcert.proof.hints import Linear
from lipcert.proof.point import held
from lipcert.search.enclosing import Enclosing
from lipcert.search.method import Method
from networks import named, random_network, spread

SLACK = 1e-7
"""What rounding, and the order of sums, may make of equal answers, relative to their size."""
SEARCHED = 1e-4
"""The same for methods whose search ends at a tolerance, wherever it starts from."""
METHODS: dict[str, Method] = {
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
QUICK = {"closed form", "scalar"}
on_all = pytest.mark.parametrize(("name", "way", "kind"), spread(9, named(*NETWORKS), named(*METHODS), named(*KINDS)))
on_few = pytest.mark.parametrize(
    ("name", "way", "kind"), spread(9, named("relu", "mixed", "many inputs"), named(*METHODS), named(*KINDS))
)
"""Where an answer is compared with many others."""


def region_of(kind: str, inputs: int, size: float = 0.6) -> Region:
    center = np.linspace(-0.4, 0.5, inputs)
    if kind == "ball":
        return lc.Ball(center, size)
    if kind == "box":
        return lc.Box(center - size, center + 0.5 * size)
    return lc.Ball(center, 1.5 * size, clip=(center - size, center + 0.3 * size))


def corners(region: Region) -> tuple[Array, Array]:
    if isinstance(region, lc.Box):
        return region.lower, region.upper
    assert isinstance(region, lc.Ball)
    lower, upper = region.center - region.radius, region.center + region.radius
    clip = region.clip
    return (lower, upper) if clip is None else (np.maximum(lower, clip.lower), np.minimum(upper, clip.upper))


def interval_arithmetic(network: lc.Network, region: Region) -> tuple[Array, Array]:
    """In floating point, for activations that rise."""
    low, high = corners(region)
    for layer in network.layers:
        weight = dense(layer.weight)
        up, down = np.maximum(weight, 0.0), np.minimum(weight, 0.0)
        low, high = up @ low + down @ high + layer.bias, up @ high + down @ low + layer.bias
        if layer.neurons is not None:
            low, high = layer.neurons.value(low), layer.neurons.value(high)
    return low, high


def linear_relaxation(network: lc.Network, region: Region) -> tuple[Array, Array]:
    """In floating point, and nothing else."""
    run = Enclosing(held(network), region, (Linear(),))
    return [run.interval(index, np.zeros(layer.size)) for index, layer in enumerate(network.layers)][-1]


def inside(found: lc.Reach, low: Array, high: Array) -> None:
    room = SLACK * (1.0 + np.maximum(np.abs(low), np.abs(high)))
    assert (found.lower >= low - room).all(), (found.lower, low)
    assert (found.upper <= high + room).all(), (found.upper, high)


@on_all
def test_a_reach_box_is_inside_all_that_is_cheap(name: str, way: str, kind: str) -> None:
    network = NETWORKS[name]
    region = region_of(kind, network.inputs)
    found = lc.reach(network, region, METHODS[way])
    values = network(region.sample(2000, np.random.default_rng(0)))
    assert found.contains(values).all()
    inside(found, *interval_arithmetic(network, region))
    inside(found, *linear_relaxation(network, region))
    cheap = lc.reach(network, region, lc.ClosedForm())
    inside(found, cheap.lower, cheap.upper)
    if way == "split":
        joint = lc.reach(network, region, METHODS["joint"])
        inside(found, joint.lower, joint.upper)


@on_few
def test_a_sensitivity_is_at_most_every_bound_that_covers_it(name: str, way: str, kind: str) -> None:
    network, method = NETWORKS[name], METHODS[way]
    region = region_of(kind, network.inputs)
    found = lc.sensitivity(network, region, method, inputs=[0, 1])
    jacobians = np.abs(network.jacobian(region.sample(500, np.random.default_rng(0)))).max(axis=0)[:, :2]
    assert (found.matrix * (1.0 + 1e-12) >= jacobians).all()
    assert (found.matrix <= found.bound).all()
    assert (found.matrix <= lc.certify(network, region, method).bound * (1.0 + SLACK)).all()
    cheap = way in QUICK
    for row, column in itertools.product(range(network.outputs), range(2)) if cheap else [(0, 1), (1, 0)]:
        pair = lc.certify(network, region, method, inputs=[column], outputs=[row]).bound
        assert found.matrix[row, column] <= pair * (1.0 + (SLACK if cheap else SEARCHED))


@on_few
def test_a_smaller_region_has_no_larger_answer(name: str, way: str, kind: str) -> None:
    """Up to two per cent: other intervals lead to other lines, other multipliers and other cuts.

    Pieces end within five per cent of what is attained.
    """
    network, method = NETWORKS[name], METHODS[way]
    large, small = (region_of(kind, network.inputs, size) for size in (0.6, 0.5))
    one, two = lc.reach(network, large, method), lc.reach(network, small, method)
    room = (0.05 if way == "split" else 0.02) * (one.upper - one.lower)
    assert (two.lower >= one.lower - room).all()
    assert (two.upper <= one.upper + room).all()
    if way in ("closed form", "joint") and kind == "clip":
        matrices = [lc.sensitivity(network, where, method).matrix for where in (small, large)]
        assert (matrices[0] <= 1.02 * matrices[1]).all()
