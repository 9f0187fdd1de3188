"""Certificates with changed hints: verify must refuse them, or return a bound that holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import lipcert as lc
from attack.draw import extreme, leaky, plain, region, rescaled, sizes, some
from attack.log import Log
from attack.points import steepest
from lipcert.answers.certificate import Certificate
from lipcert.kernel.cover import Tree
from lipcert.kernel.hints import Hints, Linear, Lipschitz, Part
from lipcert.model.arrays import Array

_HOW = (
    "lc.ClosedForm()",
    "lc.Scalar()",
    "lc.Joint(iterations=2)",
    "lc.Split(lc.ClosedForm(), np.inf, 0.0, pieces=20)",
    "lc.Split(lc.ClosedForm(), np.inf, 0.0, pieces=20)",
)


def mutants(rng: np.random.Generator, log: Log) -> None:
    """One certificate, several mutants of it."""
    size = sizes(rng, 5, outputs=2)
    net = plain(rng, size, some(rng, "relu", "tanh", leaky(-0.5), "elu", "silu", "hardtanh", "sin", "identity"))
    net = rescaled(net, rng, 100) if rng.random() < 0.3 else net
    where = lc.Everywhere() if rng.random() < 0.1 else region(rng, net.inputs)
    how = _HOW[int(rng.integers(3))] if not where.bounded else some(rng, *_HOW)
    cert = log.ask(f"lc.certify(net, region, {how})", net=net, region=where)
    if cert is None:
        return
    witness = steepest(net, where, rng, 8)
    for _ in range(12):
        other = cert
        for _ in range(int(rng.integers(1, 4))):
            other = some(rng, *_CHANGES)(rng, other)
        other = replace(other, bound=float(some(rng, 1.7e308, 1.7e308, cert.bound * 0.999, cert.bound)))
        found = log.ask("lc.verify(net, cert)", net=net, cert=other)
        same = other.region is cert.region and other.part == cert.part
        if found is not None:
            log.bound(found, witness if same else _elsewhere(rng, net, other))


def _elsewhere(rng: np.random.Generator, net: lc.Network, cert: Certificate) -> Any:
    """What is attained where a mutant speaks of another region; nothing is known of other parts."""
    return steepest(net, cert.region, rng, 8) if cert.part == Part((0, net.depth)) else None


def _shaken(rng: np.random.Generator, array: Array) -> Array:
    """An array with some entries changed, by a little or altogether."""
    out = np.array(array, dtype=float)
    if not out.size:
        return out
    sort = rng.integers(7)
    if sort == 0:
        return out * float(some(rng, 0.9, 1e-6, 1e6, 0.0, -1.0, extreme(rng, -600, 600)))
    if sort == 1:
        return out + rng.normal() * rng.standard_normal(out.shape)
    if sort == 2:
        return np.nextafter(out, rng.choice([-np.inf, np.inf]))
    if sort == 3:
        return np.asarray(rng.permutation(out))
    if sort == 4 and rng.random() < 0.3:
        return out[:-1]
    out[rng.integers(out.size)] = some(
        rng, 0.0, -1.0, 1e-320, 1e300, -1e300, np.nan, np.inf, -np.inf, extreme(rng), rng.normal()
    )
    return out


def _sweep(rng: np.random.Generator, sweep: Hints) -> Hints:
    sort = rng.integers(6)
    if sort <= 1 and sweep.multipliers:
        k = int(rng.integers(len(sweep.multipliers)))
        changed = list(sweep.multipliers)
        changed[k] = _shaken(rng, changed[k])
        return replace(sweep, multipliers=tuple(changed))
    if sort == 2 and sweep.exponents:
        k, step = (
            int(rng.integers(len(sweep.exponents))),
            int(some(rng, -1, 1, 40, -40, 600, -600, 2**20, -(2**20), 2**31)),
        )
        exponents = tuple(e + step * (i == k) for i, e in enumerate(sweep.exponents))
        return replace(sweep, exponents=exponents)
    if sort in (3, 4) and sweep.lines:
        k, lines = int(rng.integers(len(sweep.lines))), list(sweep.lines)
        lower, upper = lines[k]
        lines[k] = some(rng, (_shaken(rng, lower), upper), (lower, _shaken(rng, upper)), (upper, lower))
        return replace(sweep, lines=tuple(lines))
    depth = some(rng, None, 0, 1, -1, 7)
    return replace(
        sweep, enclosures=some(rng, (), (Lipschitz(),), (Linear(depth),), (*sweep.enclosures, Linear(depth)))
    )


def other_hints(rng: np.random.Generator, sweep: Hints, inputs: int) -> Hints:
    """Hints with a change, or for an ellipsoid that begins larger or smaller than the unit ball."""
    if rng.random() < 0.6:
        return _sweep(rng, sweep)
    power = int(some(rng, -1, -30, 30, -90))
    exponents = tuple(e + power for e in sweep.exponents)
    return replace(sweep, start=np.full(inputs, 2.0**power), exponents=exponents)


def _sweeps(rng: np.random.Generator, cert: Certificate) -> Certificate:
    sweeps = list(cert.sweeps)
    sort = rng.random()
    if sweeps and sort < 0.8:
        k = int(rng.integers(len(sweeps)))
        sweeps[k] = other_hints(rng, sweeps[k], cert.region.dimension or 2)
    elif sort < 0.9:
        sweeps = sweeps + sweeps
    else:
        sweeps = sweeps[1:]
    return replace(cert, sweeps=tuple(sweeps))


def _tree(rng: np.random.Generator, cert: Certificate) -> Certificate:
    tree = cert.tree
    if tree is None:
        return _sweeps(rng, cert)
    name = some(rng, "layer", "index", "value", "child", "void", "neuron", "weight", "value", "weight")
    column = getattr(tree, name)
    if name in ("value", "weight"):
        shaken: dict[str, Any] = {name: _shaken(rng, column)}
        return replace(cert, tree=replace(tree, **shaken))
    if name in ("void", "neuron") and rng.random() < 0.6:  # weights invented for other leaves
        leaves, count = _leaves(tree), int(rng.integers(1, 5))
        return replace(
            cert,
            tree=replace(
                tree,
                void=rng.choice(leaves, count),
                neuron=rng.integers(0, max(int(tree.neuron.max(initial=1)), 1), count),
                weight=rng.standard_normal(count) * float(some(rng, 1.0, 1e300, 1e-300)),
            ),
        )
    if not column.size:
        return cert
    moved: dict[str, Any] = {name: np.array(column)}
    moved[name][rng.integers(column.size)] += int(some(rng, -1, 1, 2, -3, 1000))
    return replace(cert, tree=replace(tree, **moved))


def _leaves(tree: Tree) -> Array:
    """The leaves, or all nodes where a change before has left none."""
    leaves = np.flatnonzero(tree.layer == -2)
    return leaves if leaves.size else np.arange(len(tree.layer))


def _grown(rng: np.random.Generator, cert: Certificate) -> Certificate:
    """Another leaf of the tree is cut, or a tree appears."""
    tree = cert.tree
    if tree is None:
        return replace(cert, tree=Tree(np.array([-2]), np.zeros(1, int), np.zeros(1), np.zeros(1, int), 1.7e308))
    leaf = int(rng.choice(_leaves(tree)))
    columns: dict[str, Any] = {name: np.array(getattr(tree, name)) for name in ("layer", "index", "value", "child")}
    columns["layer"][leaf], columns["index"][leaf] = int(some(rng, -1, 0, 0, 1)), int(rng.integers(3))
    columns["value"][leaf] = float(some(rng, 0.0, rng.normal(), 1e-320, -1e300))
    columns["child"][leaf] = len(tree.layer)
    columns = {name: np.append(column, [-2, -2] if name == "layer" else [0, 0]) for name, column in columns.items()}
    return replace(cert, tree=replace(tree, **columns))


def _claims(rng: np.random.Generator, cert: Certificate) -> Certificate:
    """Another region, part or network; the digest is that of the network, but for one time in four."""
    sort = rng.integers(4)
    if sort == 0:
        return replace(cert, network="0" * 64)
    if sort == 1 and isinstance(cert.region, lc.Ball):
        return replace(
            cert, region=lc.Ball(cert.region.center, float(cert.region.radius) * float(some(rng, 2.0, 0.0, 1e-300)))
        )
    if sort == 2:
        return replace(
            cert, part=Part((int(rng.integers(-1, 2)), int(rng.integers(0, 5))), some(rng, None, (0,), (5,), ()))
        )
    return replace(cert, part_sweeps=some(rng, cert.sweeps, cert.sweeps[:1], ()))


_CHANGES: Any = (_sweeps, _sweeps, _sweeps, _tree, _tree, _grown, _claims)
