"""Bounds between other norms, in units of all sizes, over balls of other norms: compared with exact stretches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.draw import extreme, leaky, method, plain, region, some, tilted
from attack.log import Log
from attack.points import belongs, candidates, fractions, inside
from attack.truth import Model, Point, Witness, decided, jacobian, length, rough
from exact import rational
from lipcert.methods.lower import stretched_most
from lipcert.model.arrays import Array
from lipcert.model.norms import NORMS, Norm, Norms
from lipcert.model.regions import Region


def norms(rng: np.random.Generator, log: Log) -> None:
    """One network, one method, one pair of norms; then the lower bound."""
    d, q = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    row = some(rng, "relu", "tanh", leaky(tilted(rng)), "elu")
    net = plain(rng, (d, 4, 3, q), row)
    into, out = _norm(rng, d), _norm(rng, q)
    where = _region(rng, d)
    ends = "input_norm=into, output_norm=out"
    names: dict[str, Any] = {"net": net, "region": where, "into": into, "out": out}
    witness = _steepest(net, where, into, out, rng)
    cert = log.certified(f"{method(rng)}, {ends}", witness, **names)
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


def _region(rng: np.random.Generator, d: int) -> Region:
    found = region(rng, d)
    if not isinstance(found, lc.Ball) or rng.random() < 0.3:
        return found
    units = rng.uniform(0.2, 5.0, d)
    norm = some(rng, *NORMS.values())(scale=units if rng.random() < 0.6 else 1.0)
    return lc.Ball(found.center, found.radius, found.clip, norm)


def size_of(vector: Sequence[arb], norm: Norm) -> arb:
    """The norm of a vector of balls."""
    units = norm.units(len(vector))
    parts = [abs(c) for c in vector]
    if units is not None:
        parts = [c / rational(float(u)) for c, u in zip(parts, units, strict=True)]
    if norm.name == "l2":
        return length(parts)
    if norm.name == "l1":
        return sum(parts, arb(0))
    largest = parts[0]
    for part in parts[1:]:
        largest = largest.max(part)
    return largest


def _steepest(net: lc.Network, where: Region, into: Norm, out: Norm, rng: np.random.Generator) -> Witness | None:
    """The largest stretch met at a few points of a region, in the norms."""
    model, best = Model.of(net), None
    for x in candidates(net, where, rng, 8):
        if not inside(where, x):
            continue
        matrix = jacobian(model, x, fractions(rng.standard_normal(net.inputs)))
        if matrix is None:
            continue
        direction = fractions(_direction(rough(matrix), into, out))
        found = decided(lambda x=x, direction=direction: _stretch(model, x, direction, into, out))  # type: ignore[misc]
        if found is not None and found.is_finite() and (best is None or found > best.stretch):
            best = Witness(x, direction, found)
    return best


def _stretch(model: Model, x: Point, d: Point, into: Norm, out: Norm) -> arb:
    _, (moved,) = model.run(x, [d])
    return size_of(moved, out) / size_of([arb(fmpq(c)) for c in d], into)


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
