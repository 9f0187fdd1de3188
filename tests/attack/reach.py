"""Reach sets: boxes and ellipsoids hold every output, and the centre's as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.draw import METHODS, extreme, leaky, plain, region, rescaled, some, tilted
from attack.log import Log, decimal
from attack.mutants import other_hints
from attack.parameters import draw_neuron
from attack.points import belongs, candidates
from attack.truth import Model, outputs
from exact import matrix, precision, rational
from lipcert.model.network import Network
from lipcert.model.regions import Region


def reach(rng: np.random.Generator, log: Log) -> None:
    """One network and region, one layer."""
    net, where = some(rng, _natural, _scaled, _line, draw_neuron)(rng)
    layer = int(some(rng, net.depth, net.depth, rng.integers(1, net.depth + 1)))
    found = log.ask(f"lc.reach(net, region, {some(rng, *METHODS)}, layer={layer})", net=net, region=where)
    if found is not None and rng.random() < 0.5:
        found = log.ask("lc.verify(net, claim)", net=net, claim=_other(rng, found))
    if found is None:
        return
    model = Model.of(net)
    inverse = _inverse(found.shape)
    if inverse is None:
        log.violation("the shape of the ellipsoid is not positive definite")
    for x in candidates(net, where, rng, 8):
        if not belongs(where, x):
            continue
        values = outputs(model, x, layer)
        if values is None:
            continue
        log.checks += 1
        with precision(4096):
            outside = _outside(found, values, inverse)
        if outside:
            log.violation(f"{outside} for the input {[decimal(arb(c)) for c in x]}")
            return


def _other(rng: np.random.Generator, found: Any) -> Any:
    """A claim of next to nothing with other hints: what these prove is what it comes to."""
    whole = (one for one in found.proofs if one.kind == "whole")
    inputs = found.region.dimension
    proofs = (replace(one, sweeps=tuple(other_hints(rng, sweep, inputs) for sweep in one.sweeps)) for one in whole)
    far = np.full(len(found.center), 1.7e308)
    sets = {"lower": -far, "upper": far, "hull": (-far[None], far[None]), "shape": np.diag(1e-4 * far)}
    return replace(found, **sets, bound=1.7e308, proofs=tuple(proofs))


def _inverse(shape: np.ndarray[Any, Any]) -> Any:
    """The inverse of a matrix of floats, exactly; None where there is none or it has a negative diagonal entry."""
    try:
        found = matrix(shape).inv()
    except ZeroDivisionError:
        return None
    return found if all(found[k, k] > 0 for k in range(len(shape))) else None


def _outside(found: Any, values: list[arb], inverse: Any) -> str | None:
    for k, y in enumerate(values):
        if y < arb(rational(found.lower[k])) or y > arb(rational(found.upper[k])):
            return f"output {k} is {decimal(y)}, not in [{found.lower[k]!r}, {found.upper[k]!r}]"
    if inverse is None:
        return None
    gap = [y - arb(rational(c)) for y, c in zip(values, found.center, strict=True)]
    form = sum((p * arb(fmpq(inverse[i, j])) * q for i, p in enumerate(gap) for j, q in enumerate(gap)), arb(0))
    return f"(y - center)ᵀ shape⁻¹ (y - center) is {decimal(form)}" if form > 1 else None


def _natural(rng: np.random.Generator) -> tuple[Network, Region]:
    d, row = int(rng.integers(1, 4)), some(rng, "relu", "tanh", "hardtanh", "silu", "sin", leaky(-1.0))
    size = float(some(rng, 1.0, 1e-9, 1e6, extreme(rng, -1000, 10)))
    d, n = some(rng, (d, 4), (5, 2), (4, 1))  # with many inputs, only a projection of them matters
    return plain(rng, (d, n, 3, int(rng.integers(1, 4))), row), region(rng, d, size)


def _scaled(rng: np.random.Generator) -> tuple[Network, Region]:
    d = int(rng.integers(1, 3))
    net = rescaled(plain(rng, (d, 3, 2, int(rng.integers(1, 3))), leaky(tilted(rng))), rng, 600)
    return net, region(rng, d, float(some(rng, 1.0, extreme(rng, -600, 300))))


def _line(rng: np.random.Generator) -> tuple[Network, Region]:
    """A linear function, steep or flat, over a region of any size."""
    d, steep, size = int(rng.integers(1, 3)), extreme(rng, -500, 500), extreme(rng, -600, 100)
    return lc.Network.from_weights([steep * rng.standard_normal((int(rng.integers(1, 3)), d))]), region(rng, d, size)
