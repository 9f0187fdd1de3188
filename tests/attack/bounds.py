"""Bounds of random networks: of any scale, with any activation, at ties, between any norms, of parts, from below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.draw import (
    around,
    case,
    extreme,
    leaky,
    like,
    method,
    named,
    place_of,
    plain,
    region,
    rescaled,
    sizes,
    some,
    strange,
    tilted,
    whole,
)
from attack.log import Log, decimal
from attack.points import belongs, fractions, seen, steepest
from attack.truth import Model, Point, Witness, decided, jacobian, length, norm_is_below, rough
from exact import precision, rational
from lipcert.methods.lower import stretched_most
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import NORMS, Norm, Norms, Region

Case = tuple[Network, Region]


def scales(rng: np.random.Generator, log: Log) -> None:
    """Weights, biases, centres and radii of any size a float can have."""
    net, where = some(rng, _rescaled, _scalar, _scattered)(rng)
    witness = steepest(net, where, rng, 8, perturbed=True)
    log.certified(method(rng), witness, again=None, net=net, region=where)


def _rescaled(rng: np.random.Generator) -> Case:
    """A natural network in other units inside, and at its two ends."""
    net = rescaled(
        plain(rng, sizes(rng), some(rng, "relu", leaky(tilted(rng)))), rng, int(some(rng, 60, 300, 540, 999))
    )
    size = float(np.ldexp(1.0, int(some(rng, 0, 0, rng.integers(-540, 500), rng.integers(-1060, 1000)))))
    with np.errstate(over="ignore"):
        first = np.array(net.layers[0].weight) / size
    if not np.isfinite(first).all():
        return net, region(rng, net.inputs)
    return like(net, [first, *(layer.weight for layer in net.layers[1:])]), region(rng, net.inputs, size)


def _scalar(rng: np.random.Generator) -> Case:
    """A chain of single neurons with weights s, 1/s and slopes that bring the product back to natural size."""
    depth = int(rng.integers(2, 6))
    weights = [extreme(rng, -620, 620) for _ in range(depth)]
    with np.errstate(all="ignore"):
        total = np.prod([np.longdouble(w) for w in weights[:-1]])
        weights[-1] = float(1 / total) if 0 < float(1 / total) < np.inf else 1.0
    rows = [some(rng, *[leaky(tilted(rng))] * 7, "relu", "identity", "tanh") for _ in range(depth - 1)]
    biases = [[float(some(rng, 0.0, 0.0, extreme(rng, -600, 600)))] for _ in range(depth)]
    size = float(some(rng, 1.0, extreme(rng, -1060, -300), extreme(rng, -300, 300)))
    return lc.Network.from_weights([[[w]] for w in weights], biases, rows), region(rng, 1, size)


def _scattered(rng: np.random.Generator) -> Case:
    """Entries of natural size with some extreme ones among them."""
    net = plain(rng, sizes(rng), some(rng, "relu", "tanh", leaky(tilted(rng)), "identity"))

    def odd(array: Any) -> Array:
        far = np.reshape([extreme(rng, -1073, 500) for _ in range(array.size)], array.shape)
        return np.where(rng.random(array.shape) < 0.2, far * rng.choice([-1.0, 0.0, 1.0], array.shape), array)

    net = like(net, [odd(layer.weight) for layer in net.layers], [odd(layer.bias) for layer in net.layers])
    return net, region(rng, net.inputs, float(some(rng, 1.0, 1.0, extreme(rng, -1000, -100), extreme(rng, 10, 300))))


def parameters(rng: np.random.Generator, log: Log) -> None:
    """Every activation with every legal parameter, however extreme, at thresholds and in deep tails."""
    name, given = named(rng)
    made = log.ask(f"lc.activation({name!r}, **given)", given=given)
    if made is not None:
        net, where = around(rng, made, place_of(rng, made))
        log.certified(method(rng), steepest(net, where, rng, 8), again=None, net=net, region=where)


def ties(rng: np.random.Generator, log: Log) -> None:
    """Exact coincidences: pre-activations at kinks, regions that are points or flat, rows that repeat or vanish."""
    d, hidden = int(rng.integers(1, 4)), rng.integers(1, 5, int(rng.integers(1, 4)))
    rows = "relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "softsign", "elu", "selu", "celu"
    net = whole(rng, [d, *hidden.tolist(), int(rng.integers(1, 3))], [*rows, *map(leaky, (-1.0, 0.0, 2.0))])
    center = rng.integers(-3, 4, d).astype(float)
    radius = float(some(rng, 0.0, 0.0, 1.0, 2.0, 0.5, 5e-324, 1e-160, 2.0**-53))
    flat = rng.random(d) < 0.5
    box = lc.Box(np.where(flat, center, center - radius), np.where(flat, center, center + 2.0 * radius))
    where = some(rng, *[lc.Ball(center, radius)] * 3, box, lc.Ball(center, 1.0, clip=box))
    log.certified(method(rng), steepest(net, where, rng, 10), net=net, region=where)


def lower(rng: np.random.Generator, log: Log) -> None:
    """Lower bounds: the point belongs to the region, and the Jacobian's norm there is no smaller."""
    net, where = some(rng, _tall, case, case, lambda rng: around(rng, *strange(rng)))(rng)
    code = f"lc.lower_bound(net, region, samples=40, steps=4, starts=4, seed={int(rng.integers(100))})"
    found = log.ask(code, net=net, region=where)
    if found is None:
        return
    log.checks += 1
    point = fractions(found.point)
    if not belongs(where, point):
        log.violation(f"the point {found.point} does not belong to the region")
    matrix = jacobian(Model.of(net), point, fractions(rng.standard_normal(net.inputs)))
    if matrix is not None and found.value > 0 and norm_is_below(matrix, found.value):
        size = decimal(length([c for row in matrix for c in row]))
        log.violation(f"the lower bound is {found.value!r}; the Jacobian's Frobenius norm at its point is {size}")


def _tall(rng: np.random.Generator) -> Case:
    """Many rows, or columns, of one size: their squares underflow together."""
    count, size = int(some(rng, 10, 300, 3000)), extreme(rng, -560, -500)
    if rng.random() < 0.3:
        wide = min(count, 100)
        return lc.Network.from_weights([np.full((1, wide), size)]), lc.Ball(np.zeros(wide), 1.0)
    tall = np.full((count, 1), size)
    return lc.Network.from_weights([tall] if rng.random() < 0.6 else [np.ones((1, 1)), tall]), lc.Ball([1.0], 0.5)


def norms(rng: np.random.Generator, log: Log) -> None:
    """Bounds between other norms, in units of all sizes, over balls of other norms, and then the lower bound."""
    d, q = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    net = plain(rng, (d, 4, 3, q), some(rng, "relu", "tanh", leaky(tilted(rng)), "elu"))
    into, out, where = _norm(rng, d), _norm(rng, q), region(rng, d)
    if isinstance(where, lc.Ball) and rng.random() < 0.7:
        scale: Any = rng.uniform(0.2, 5.0, d) if rng.random() < 0.6 else 1.0
        where = lc.Ball(where.center, where.radius, where.clip, some(rng, *NORMS.values())(scale=scale))
    ends = "input_norm=into, output_norm=out"
    names: dict[str, Any] = {"net": net, "region": where, "into": into, "out": out}
    cert = log.certified(f"{method(rng)}, {ends}", _steepest(net, where, into, out, rng), **names)
    found = log.ask(f"lc.lower_bound(net, region, samples=40, steps=4, starts=4, {ends})", **names)
    if found is not None:
        log.checks += 1
        if not belongs(where, fractions(found.point)):
            log.violation(f"the point {found.point} does not belong to the region")
        if cert is not None and found.value > cert.bound:
            log.violation(f"the lower bound is {found.value!r}, the bound {cert.bound!r}")


def _norm(rng: np.random.Generator, size: int) -> Norm:
    kind = some(rng, *NORMS.values())
    units = [extreme(rng, -300, 300) if rng.random() < 0.2 else float(rng.uniform(0.1, 10.0)) for _ in range(size)]
    return kind() if rng.random() < 0.4 else kind(scale=units)


def size_of(vector: Sequence[arb], norm: Norm) -> arb:
    """The norm of a vector of balls."""
    units = norm.units(len(vector))
    parts = [abs(c) if units is None else abs(c) / rational(float(units[k])) for k, c in enumerate(vector)]
    if norm.name == "l2":
        return length(parts)
    if norm.name == "l1":
        return sum(parts, arb(0))
    largest = parts[0]
    for part in parts[1:]:
        largest = largest.max(part)
    return largest


def _steepest(net: Network, where: Region, into: Norm, out: Norm, rng: np.random.Generator) -> Witness | None:
    """The largest stretch met at a few points of a region, in the norms."""
    model, best = Model.of(net), None
    for x, matrix in seen(net, where, rng, 8):
        direction = fractions(_direction(rough(matrix), into, out))

        def stretch(x: Point = x, d: Point = direction) -> arb:
            _, (moved,) = model.run(x, [d])
            return size_of(moved, out) / size_of([arb(fmpq(c)) for c in d], into)

        found = decided(stretch)
        if found is not None and found.is_finite() and (best is None or found > best.stretch):
            best = Witness(x, direction, found)
    return best


def _direction(matrix: Array, into: Norm, out: Norm) -> Array:
    """Where the stretch is large, about; any direction is a witness."""
    s, t = into.units(matrix.shape[1]), out.units(matrix.shape[0])
    scaled = matrix * (1.0 if s is None else s) / (1.0 if t is None else t[:, None])
    with np.errstate(all="ignore"):
        size = np.abs(scaled).max()
        if not 0.0 < size < np.inf:
            return np.ones(matrix.shape[1])
        *_, v = stretched_most((scaled / size)[None], Norms(into, out))
    return np.asarray(v[0] if s is None else v[0] * s)


def parts(rng: np.random.Generator, log: Log) -> None:
    """A bound from some inner values to others."""
    net, where = case(rng)
    start = int(rng.integers(0, net.depth))
    stop = int(rng.integers(start + 1, net.depth + 1))
    into, out = (
        None if rng.random() < 0.5 else sorted(map(int, rng.choice(n, int(rng.integers(1, n + 1)), replace=False)))
        for n in (net.sizes[start], net.sizes[stop])
    )
    code = f"lc.certify(net, region, {method(rng)}, inputs={into}, outputs={out}, layers=({start}, {stop}))"
    cert = log.ask(code, net=net, region=where)
    if cert is None:
        return
    again = log.ask("lc.verify(net, cert)", net=net, cert=cert)
    for x, matrix in seen(net, where, rng, 5, start, stop):
        inner = [[matrix[i][j] for j in into or range(net.sizes[start])] for i in out or range(net.sizes[stop])]
        d = fractions(np.linalg.svd(rough(inner))[2][0])
        with precision(512):
            image = [sum((c * arb(t) for c, t in zip(row, d)), arb(0)) for row in inner]
            witness = Witness(x, d, length(image) / length([arb(t) for t in d]))
        for bound in (cert.bound, again):
            log.bound(bound, witness)


def sensitivity(rng: np.random.Generator, log: Log) -> None:
    """The matrix of all pairs of inputs and outputs."""
    net, where = case(rng)
    found = log.ask("lc.sensitivity(net, region)", net=net, region=where)
    for x, matrix in seen(net, where, rng, 5) if found is not None else ():
        log.checks += 1
        for (i, k), bound in np.ndenumerate(found.matrix):
            if not bound >= 0.0 or (np.isfinite(bound) and abs(matrix[i][k]) > arb(rational(float(bound)))):
                at, entry = [decimal(arb(c)) for c in x], decimal(matrix[i][k])
                log.violation(f"pair ({i}, {k}) is bounded by {bound!r}; its derivative at {at} is {entry}")
                return
