"""Certificates with changed hints or text: refused, or a bound that holds. And digests of networks that differ."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

import lipcert as lc
from attack.draw import extreme, leaky, plain, region, rescaled, sizes, some
from attack.log import Log
from attack.points import steepest
from attack.trees import random_tree
from fuzz_bytes import mangled
from fuzz_documents import rewritten, signed
from lipcert.answers.certificate import Certificate
from lipcert.kernel.facts import Part
from lipcert.model.arrays import Array
from lipcert.suggest.hints import Hints, Linear, Lipschitz

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
            other = _mutated(rng, other, net)
        other = replace(other, bound=float(some(rng, 1.7e308, 1.7e308, cert.bound * 0.999, cert.bound)))
        found = log.ask("lc.verify(net, cert)", net=net, cert=other)
        same = other.region is cert.region and other.part == cert.part
        log.bound(found, witness if same else _elsewhere(rng, net, other))


def _elsewhere(rng: np.random.Generator, net: lc.Network, cert: Certificate) -> Any:
    """What is attained where a mutant speaks of another region; nothing is known of other parts."""
    return steepest(net, cert.region, rng, 8) if cert.part == Part((0, net.depth)) else None


def _shaken(rng: np.random.Generator, array: Array) -> Array:
    """An array with some entries changed, by a little or altogether."""
    out = np.array(array)
    if not out.size:
        return out
    if out.dtype.kind != "f":
        out.flat[rng.integers(out.size)] += int(some(rng, -1, 1, 2, -3, 1000))
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
    far = 0.0, -1.0, 1e-320, 1e300, -1e300, np.nan, np.inf, -np.inf, extreme(rng), rng.normal()
    out.flat[rng.integers(out.size)] = some(rng, *far)
    return out


def changed(rng: np.random.Generator, value: Any) -> Any:
    """The value with one array, number or entry changed, anywhere inside."""
    if isinstance(value, np.ndarray):
        return _shaken(rng, value)
    if isinstance(value, tuple):
        k, sort = int(rng.integers(max(len(value), 1))), rng.integers(8)
        if sort < 2 or not value:
            return value[:k] + value[k + 1 :] if sort else value + value[k : k + 1]
        return (*value[:k], value[-1] if sort == 2 else changed(rng, value[k]), *value[k + 1 :])
    if isinstance(value, (int, float)):
        return value + int(some(rng, -1, 1, 40, -40, 600, -600, 2**20, -(2**20), 2**31))
    names = [field.name for field in fields(value)] if is_dataclass(value) else []
    name = some(rng, *names) if names else ""
    return replace(value, **{name: changed(rng, getattr(value, name))}) if name else value


def other_hints(rng: np.random.Generator, sweep: Hints, inputs: int) -> Hints:
    """Hints with a change, or for an ellipsoid that begins larger or smaller than the unit ball."""
    if rng.random() < 0.6:
        sort = some(rng, (), (Lipschitz(),), (Linear(some(rng, None, 0, 1, -1, 7)),))
        return replace(sweep, enclosures=sort) if rng.random() < 0.2 else cast(Hints, changed(rng, sweep))
    power = int(some(rng, -1, -30, 30, -90))
    exponents = tuple(e + power for e in sweep.exponents)
    return replace(sweep, start=np.full(inputs, 2.0**power), exponents=exponents)


def _mutated(rng: np.random.Generator, cert: Certificate, net: lc.Network) -> Certificate:
    """Other hints, another tree, or another claim."""
    sort = rng.random()
    if sort < 0.4:
        inputs = cert.region.dimension or 2
        return replace(cert, sweeps=tuple(other_hints(rng, sweep, inputs) for sweep in cert.sweeps))
    if sort < 0.5:
        return replace(cert, sweeps=changed(rng, cert.sweeps))
    if sort < 0.8 and cert.tree is not None:
        return replace(cert, tree=changed(rng, cert.tree))
    if sort < 0.9 and cert.region.bounded:
        return replace(cert, tree=random_tree(rng, net, cert.region))
    layers = int(rng.integers(-1, 2)), int(rng.integers(0, 5))
    part = Part(layers, some(rng, None, (0,), (5,), ()))
    region = cert.region
    if isinstance(region, lc.Ball):
        region = lc.Ball(region.center, float(region.radius) * float(some(rng, 2.0, 0.0, 1e-300)))
    claims: list[dict[str, Any]] = [{"network": "0" * 64}, {"region": region}, {"part": part}]
    return replace(cert, **some(rng, *claims, {"part_sweeps": some(rng, cert.sweeps, cert.sweeps[:1], ())}))


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
