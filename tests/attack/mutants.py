"""Certificates with changed hints or text: refused, or a bound that holds. And digests of networks that differ."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import lipcert as lc
from attack.draw import extreme, leaky, plain, region, rescaled, sizes, some
from attack.log import Log
from attack.points import steepest
from fuzz_bytes import mangled
from fuzz_documents import rewritten, signed
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
        k, changed = int(rng.integers(len(sweep.multipliers))), list(sweep.multipliers)
        changed[k] = _shaken(rng, changed[k])
        return replace(sweep, multipliers=tuple(changed))
    if sort == 2 and sweep.exponents:
        powers = list(sweep.exponents)
        powers[rng.integers(len(powers))] += int(some(rng, -1, 1, 40, -40, 600, -600, 2**20, -(2**20), 2**31))
        return replace(sweep, exponents=tuple(powers))
    if sort in (3, 4) and sweep.lines:
        k, lines = int(rng.integers(len(sweep.lines))), list(sweep.lines)
        low, high = lines[k]
        lines[k] = some(rng, (_shaken(rng, low), high), (low, _shaken(rng, high)), (high, low))
        return replace(sweep, lines=tuple(lines))
    linear = Linear(some(rng, None, 0, 1, -1, 7))
    return replace(sweep, enclosures=some(rng, (), (Lipschitz(),), (linear,), (*sweep.enclosures, linear)))


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
    column = np.array(getattr(tree, name))
    if name in ("value", "weight"):
        changes: dict[str, Any] = {name: _shaken(rng, column)}
    elif name in ("void", "neuron") and rng.random() < 0.6:  # weights invented for other leaves
        count = int(rng.integers(1, 5))
        changes = {
            "void": rng.choice(_leaves(tree), count),
            "neuron": rng.integers(0, max(int(tree.neuron.max(initial=1)), 1), count),
            "weight": rng.standard_normal(count) * float(some(rng, 1.0, 1e300, 1e-300)),
        }
    else:
        if column.size:
            column[rng.integers(column.size)] += int(some(rng, -1, 1, 2, -3, 1000))
        changes = {name: column}
    return replace(cert, tree=replace(tree, **changes))


def _leaves(tree: Tree) -> Array:
    """The leaves, or all nodes where a change before has left none."""
    leaves = np.flatnonzero(tree.layer == -2)
    return leaves if leaves.size else np.arange(len(tree.layer))


def _grown(rng: np.random.Generator, cert: Certificate) -> Certificate:
    """Another leaf of the tree is cut, or a tree appears."""
    tree = cert.tree
    if tree is None:
        return replace(cert, tree=Tree(np.array([-2]), np.zeros(1, int), np.zeros(1), np.zeros(1, int), 1.7e308))
    leaf, axis, value = int(rng.choice(_leaves(tree))), int(some(rng, -1, 0, 0, 1)), float(rng.normal())
    cut = {"layer": axis, "index": rng.integers(3), "value": some(rng, 0.0, value, 1e-320, -1e300)}
    columns: dict[str, Any] = {}
    for name, entry in {**cut, "child": len(tree.layer)}.items():
        columns[name] = np.append(getattr(tree, name), [-2, -2] if name == "layer" else [0, 0])
        columns[name][leaf] = entry
    return replace(cert, tree=replace(tree, **columns))


def _claims(rng: np.random.Generator, cert: Certificate) -> Certificate:
    """Another region, part or network; the digest is that of the network, but for one time in four."""
    sort = rng.integers(4)
    if sort == 0:
        return replace(cert, network="0" * 64)
    if sort == 1 and isinstance(cert.region, lc.Ball):
        radius = float(cert.region.radius) * float(some(rng, 2.0, 0.0, 1e-300))
        return replace(cert, region=lc.Ball(cert.region.center, radius))
    if sort == 2:
        layers = int(rng.integers(-1, 2)), int(rng.integers(0, 5))
        return replace(cert, part=Part(layers, some(rng, None, (0,), (5,), ())))
    return replace(cert, part_sweeps=some(rng, cert.sweeps, cert.sweeps[:1], ()))


_CHANGES: Any = (_sweeps, _sweeps, _sweeps, _tree, _tree, _grown, _claims)


def files(rng: np.random.Generator, log: Log) -> None:
    """One certificate file, several mutants of it, with a checksum that fits or not."""
    d = int(rng.integers(1, 3))
    net = plain(rng, (d, int(rng.integers(1, 4)), int(rng.integers(1, 4)), 1), some(rng, "relu", "tanh", leaky(-0.5)))
    where, how = region(rng, d), some(rng, "lc.Scalar()", "lc.Split(lc.ClosedForm(), np.inf, 0.0, pieces=20)")
    cert = log.ask(f"lc.certify(net, region, {how})", net=net, region=where)
    if cert is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bound.json"
        cert.save(path)
        text = path.read_text(encoding="utf-8")
        for _ in range(8):
            path.write_bytes(_mutant(rng, text))
            found = log.ask("lc.Certificate.load(path)", path=path)
            bound = None if found is None else log.ask("lc.verify(net, cert)", net=net, cert=found)
            if bound is not None and found.part == Part((0, net.depth)):
                log.bound(bound, steepest(net, found.region, rng, 6))


def _mutant(rng: np.random.Generator, text: str) -> bytes:
    """Bytes changed, or fields changed under a checksum that fits."""
    chance = random.Random(int(rng.integers(2**31)))
    if chance.random() < 0.3:
        return mangled(chance, text.encode())
    document = json.loads(text)
    return json.dumps(signed(rewritten(chance, document["content"]), document["kind"])).encode()


def digest(rng: np.random.Generator, log: Log) -> None:
    """Two networks that differ in something small must not share a digest."""
    n, rows = int(rng.integers(3, 6)), [str(some(rng, "relu", "tanh", "arctan")) for _ in range(2)]
    one = lc.Network.from_weights([rng.standard_normal((n, n)) for _ in range(3)], None, [*rows])
    arrays = [np.array(part) for layer in one.layers for part in (layer.weight, layer.bias)]
    sort = rng.integers(4)
    if sort == 0:  # one number is moved by a unit in the last place, or is the least float instead of zero
        array = some(rng, *arrays)
        place = tuple(int(rng.integers(size)) for size in array.shape)
        array[place] = np.nextafter(array[place], np.inf) if rng.random() < 0.7 else 5e-324
    elif sort == 1:
        rows[int(rng.integers(2))] = "sigmoid"
    elif sort == 2:  # an activation moves to another layer
        rows = ["identity", "relu"]
        one = lc.Network.from_weights(arrays[::2], arrays[1::2], rows[::-1])
    else:  # the same numbers in another shape
        arrays[0] = arrays[0].reshape(1, -1)
        one, arrays, rows = lc.Network.from_weights([arrays[0]]), [arrays[0].T, np.zeros(n * n)], []
    two = lc.Network.from_weights(arrays[::2], arrays[1::2], rows)
    log.checks += 1
    if log.ask("one.digest == two.digest", one=one, two=two):
        log.violation("two different networks have one digest")
