"""Trees made by hand: cuts anywhere, leaves that are claimed to be void, over regions and weights of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

import lipcert as lc
from attack.draw import case, extreme, leaky, like, plain, region, some
from attack.log import Log
from attack.points import steepest
from lipcert.answers.certificate import Certificate
from lipcert.kernel.branch_and_bound import AXIS
from lipcert.kernel.facts import Part
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball, Box, Region
from lipcert.suggest.hints import LEAF, Hints, Tree

Case = tuple[Network, Region, Tree]
_MOST = 1.7e308
"""What a forged certificate claims: whatever verify derives will be less, so it is returned."""


def trees(rng: np.random.Generator, log: Log) -> None:
    """One network, one tree, verify."""
    net, where, first = some(rng, _natural, _natural, _tiny, _sliver, _barely, _free, _free)(rng)
    cert = log.ask("lc.certify(net, region, lc.ClosedForm())", net=net, region=where) if rng.random() < 0.4 else None
    witness = steepest(net, where, rng, 10, perturbed=True)
    if cert is None:
        cert = forged(net, where)
    else:
        log.bound(cert.bound, witness)
    log.by_trees(cert, witness, first, random_tree(rng, net, where), random_tree(rng, net, where), net=net)


def forged(net: Network, where: Region) -> Certificate:
    """A certificate that nobody computed: multipliers of one, and no enclosures."""
    hidden = net.sizes[1:-1]
    sweep = Hints((), tuple(np.ones(size) for size in hidden), (0,) * len(hidden))
    return Certificate(_MOST, "forged", where, net.digest, Part((0, net.depth)), (), (sweep,), (), 0.0)


def _natural(rng: np.random.Generator) -> Case:
    net, where = case(rng, depth=2, outputs=2)
    return net, where, settled_tree([(0, 0, 0.0)][: int(rng.integers(2))])


def _tiny(rng: np.random.Generator) -> Case:
    """A natural network seen through a pinhole: the region and its distance to kinks are tiny together."""
    d, size = int(rng.integers(1, 3)), extreme(rng, -570, -480)
    net = plain(rng, (d, int(rng.integers(1, 4)), 1), some(rng, "relu", leaky(0.1)))
    net = like(net, [layer.weight for layer in net.layers], [np.array(layer.bias) * size for layer in net.layers])
    return net, region(rng, d, size), settled_tree([])


def _sliver(rng: np.random.Generator) -> Case:
    """All that is steep lies in a thin slice of a region of any size; the tree cuts just there."""
    size, share = float(some(rng, extreme(rng, -542, -530), extreme(rng, -1060, 900))), float(rng.uniform(0.3, 1.0))
    at, d = share * size, int(rng.integers(1, 3))
    first = np.concatenate([np.eye(d)[:1], rng.standard_normal((1, d)) * 2.0**-30])
    row = some(rng, "relu", leaky(2.0**-40))
    net = lc.Network.from_weights([first, [[1.0, 2.0**-30]]], [[-at, 0.0], None], row)
    center = np.zeros(d)
    where = lc.Ball(center, size) if rng.random() < 0.7 else lc.Box(center - size, center + size)
    cut = at * float(some(rng, 1.0, 1.0 - 2.0**-30, rng.uniform(0.7, 1.0)))
    return net, where, settled_tree([(0, 0, 0.0)] if rng.random() < 0.2 else [(AXIS, 0, cut)])


def _barely(rng: np.random.Generator) -> Case:
    """A kink of the second layer that the region only just reaches, behind products in the subnormal range."""
    power = int(rng.integers(150, 700))
    up_, down_ = (float(np.ldexp(rng.uniform(1.0, 2.0), sign * power)) for sign in (1, -1))
    slope = float(np.ldexp(rng.uniform(1.0, 2.0), int(rng.integers(-1074, -1050)) + power))
    slope = slope if rng.random() < 0.8 else extreme(rng, -600, 0)
    edge = -float(rng.uniform(0.5, 1.0))
    gain = Fraction(up_) * Fraction(down_) * Fraction(slope)  # of the two layers, for negative inputs
    shy = Fraction(1) - Fraction(int(some(rng, -1, 1, 1, 1)), 2 ** int(rng.integers(2, 14)))
    bias, last = float(-gain * Fraction(edge) * shy), float(1 / gain) if gain > Fraction(1, 2**1000) else 1.0
    rows = [leaky(slope), some(rng, "relu", leaky(0.25))]
    down_, bias = (down_, bias) if rng.random() < 0.5 else (-down_, -bias)
    net = lc.Network.from_weights([[[up_]], [[down_]], [[last]]], [None, [bias], None], rows)
    return net, lc.Box([-1.0], [edge]) if rng.random() < 0.5 else lc.Ball([edge - 0.25], 0.25), settled_tree([])


def _free(rng: np.random.Generator) -> Case:
    """All of space: the tree of a search with other multipliers, or any of the right signs for every leaf."""
    count, row = int(rng.integers(1, 4)), some(rng, "relu", leaky(0.1), "abs", "hardtanh")
    inner, where = [int(rng.integers(1, 4))] * int(rng.integers(2)), lc.Everywhere()
    net = plain(rng, (int(rng.integers(1, 3)), count, *inner, 1), row)
    if rng.random() < 0.5:
        tree = settled_tree([(0, j, 0.0) for j in range(count)])
        leaf, neuron = np.divmod(np.arange(count * 2**count), count)
        weight = (2.0 * (leaf >> (count - 1 - neuron) & 1) - 1.0) * np.abs(rng.standard_normal(len(leaf)))
        return net, where, replace(tree, void=np.flatnonzero(tree.layer == LEAF)[leaf], neuron=neuron, weight=weight)
    found = lc.certify(net, where, lc.Split(lc.ClosedForm(), np.inf, pieces=30)).tree or settled_tree([])
    flips = rng.choice([1.0, 1.0, -1.0, extreme(rng, -60, 60)], found.weight.shape)
    return net, where, replace(found, weight=found.weight * flips, void=rng.permutation(found.void))


def random_tree(rng: np.random.Generator, net: Network, where: Region) -> Tree:
    """A tree of a few random cuts."""
    count = 2 * int(some(rng, 0, 0, 1, 1, 2, 5)) + 1
    layer, index = np.full(count, LEAF), np.zeros(count, dtype=int)
    value, child = np.zeros(count), np.zeros(count, dtype=int)
    (low, high), open_ = _box(where, net.inputs), [0]
    for after in range(1, count, 2):
        node = open_.pop(int(rng.integers(len(open_))))
        child[node] = after
        open_ += [after, after + 1]
        if rng.random() < 0.5:
            axis = int(rng.integers(net.inputs))
            share = float(some(rng, 0.0, 1.0, 0.5, rng.random(), rng.random()))
            at = float(np.clip(low[axis] + share * (high[axis] - low[axis]), low[axis], high[axis]))
            layer[node], index[node], value[node] = AXIS, axis, at
        else:
            which = int(rng.integers(net.depth - 1))
            layer[node], index[node] = which, int(rng.integers(net.layers[which].size))
            value[node] = float(some(rng, 0.0, rng.normal(), rng.normal() * extreme(rng, -600, 300)))
    void = rng.choice(open_, int(rng.integers(0, min(3, len(open_)) + 1)), replace=False)
    neurons = sum(net.sizes[1:-1])
    nodes = np.repeat(void, rng.integers(1, 4, len(void))).astype(int)
    weight = rng.standard_normal(len(nodes)) * [float(some(rng, 1.0, 1.0, extreme(rng, -900, 900))) for _ in nodes]
    return Tree(layer, index, value, child, _MOST, nodes, rng.integers(0, neurons, len(nodes)), weight)


def settled_tree(cuts: Sequence[tuple[int, int, float]]) -> Tree:
    """A complete tree: every leaf is on one side of each of the cuts (layer, neuron, value)."""
    depth = len(cuts)
    count = 2 ** (depth + 1) - 1
    level = np.floor(np.log2(np.arange(1, count + 1))).astype(int)
    inner = level < depth
    columns = np.array([(*cut, 0.0) for cut in cuts] or [(0, 0, 0.0, 0.0)])[np.minimum(level, max(depth - 1, 0))]
    return Tree(
        np.where(inner, columns[:, 0], LEAF).astype(int),
        np.where(inner, columns[:, 1], 0).astype(int),
        np.where(inner, columns[:, 2], 0.0),
        np.where(inner, 2 * np.arange(count) + 1, 0),
        _MOST,
    )


def _box(where: Region, inputs: int) -> tuple[Array, Array]:
    if isinstance(where, Box):
        return where.lower, where.upper
    if not isinstance(where, Ball):
        return np.full(inputs, -10.0), np.full(inputs, 10.0)
    low, high = where.center - where.radius, where.center + where.radius
    if where.clip is not None:
        low, high = np.maximum(low, where.clip.lower), np.minimum(high, where.clip.upper)
    return low, high
