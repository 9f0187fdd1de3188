"""Reach sets and certified radii, singly and in campaigns: no output outside, no closer point of another class."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.draw import (
    METHODS,
    around,
    case,
    extreme,
    leaky,
    like,
    plain,
    region,
    rescaled,
    some,
    strange,
    tilted,
    whole,
)
from attack.log import Log, decimal
from attack.mutants import other_hints
from attack.points import belongs, candidates, fractions, inside, steepest
from attack.truth import Model, outputs
from exact import matrix, precision, rational
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Region


def reach(rng: np.random.Generator, log: Log) -> None:
    """Boxes and ellipsoids hold every output of one layer, and the centre's as well."""
    net, where = some(rng, case, case, _line, lambda rng: around(rng, *strange(rng)))(rng)
    found = log.ask(f"lc.reach(net, region, {some(rng, *METHODS)})", net=net, region=where)
    if found is not None and rng.random() < 0.5:
        found = log.ask("lc.verify(net, claim)", net=net, claim=_other(rng, found))
    if found is None:
        return
    model = Model.of(net)
    try:
        inverse = matrix(found.shape).inv()
    except ZeroDivisionError:
        inverse = None
    if inverse is None or any(inverse[k, k] <= 0 for k in range(len(found.center))):
        log.violation("the shape of the ellipsoid is not positive definite")
        return
    for x in candidates(net, where, rng, 8):
        values = outputs(model, x) if belongs(where, x) else None
        if values is None:
            continue
        log.checks += 1
        with precision(4096):
            outside = _outside(found, values, inverse)
        if outside:
            log.violation(f"{outside} for the input {[decimal(arb(c)) for c in x]}")
            return


def _line(rng: np.random.Generator) -> tuple[Network, Region]:
    """A linear function, steep or flat, over a region of any size; with many inputs a projection of them matters."""
    d, steep, size = int(some(rng, 1, 2, 5)), extreme(rng, -500, 500), extreme(rng, -600, 100)
    return lc.Network.from_weights([steep * rng.standard_normal((int(rng.integers(1, 3)), d))]), region(rng, d, size)


def _other(rng: np.random.Generator, found: Any) -> Any:
    """A claim of next to nothing with other hints: what these prove is what it comes to."""
    whole = (one for one in found.proofs if one.kind == "whole")
    inputs = found.region.dimension
    proofs = (replace(one, sweeps=tuple(other_hints(rng, sweep, inputs) for sweep in one.sweeps)) for one in whole)
    far = np.full(len(found.center), 1.7e308)
    sets = {"lower": -far, "upper": far, "hull": (-far[None], far[None]), "shape": np.diag(1e-4 * far)}
    return replace(found, **sets, bound=1.7e308, proofs=tuple(proofs))


def _outside(found: Any, values: list[arb], inverse: Any) -> str | None:
    for k, y in enumerate(values):
        if y < arb(rational(found.lower[k])) or y > arb(rational(found.upper[k])):
            return f"output {k} is {decimal(y)}, not in [{found.lower[k]!r}, {found.upper[k]!r}]"
    gap = [y - arb(rational(c)) for y, c in zip(values, found.center, strict=True)]
    form = sum((p * arb(fmpq(inverse[i, j])) * q for i, p in enumerate(gap) for j, q in enumerate(gap)), arb(0))
    return f"(y - center)ᵀ shape⁻¹ (y - center) is {decimal(form)}" if form > 1 else None


_METHODS = ("lc.ClosedForm()",) * 6 + ("lc.Scalar()", "lc.Auto(np.inf, 8)")


def radius(rng: np.random.Generator, log: Log) -> None:
    """One classifier, one point."""
    net, x = some(rng, _bumps, _bumps, _plain, _plain, _whole)(rng)
    options = some(rng, "", "", ", curvature=False")
    if rng.random() < 0.5:  # a few sizes are faster than a search
        options += f", radii={[float(10.0 ** rng.uniform(-2, 1)) for _ in range(2)]}"
    label = some(rng, None, None, None, int(rng.integers(net.outputs)))
    code = f"lc.certified_radius(net, x, {label}, {some(rng, *_METHODS)}{options}, tolerance=0.2, norm=norm)"
    norm = some(rng, lc.L2(), lc.L2(), lc.L1(), lc.LInf(), lc.L2(scale=rng.uniform(0.2, 5.0, net.inputs)))
    found = log.ask(code, net=net, x=x, norm=norm)
    if found is None:
        return
    at = outputs(Model.of(net), fractions(x))
    if at is not None and np.isfinite(found.margin) and found.label != found.rival:
        log.checks += 1
        if at[found.label] - at[found.rival] < arb(rational(found.margin)):
            log.violation(f"the margin is {found.margin!r}, exactly {decimal(at[found.label] - at[found.rival])}")
    _contradict(rng, log, net, x, found.radius, found.label, norm)


def campaigns(rng: np.random.Generator, log: Log) -> None:
    """A campaign of two points and two radii."""
    net, x = some(rng, _bumps, _plain, _plain)(rng)
    points = np.stack([x, x + 0.1 * float(np.abs(x).max(initial=0.0)) * rng.standard_normal(x.shape)])
    radii = sorted({float(some(rng, 0.1, 1.0, 3.0, extreme(rng, -600, 10))) for _ in range(2)})
    with tempfile.TemporaryDirectory() as folder:
        found = log.ask(
            f"lc.campaign(net, x, radii=radii, out=out, methods=[{some(rng, *_METHODS)}], progress=False)",
            net=net, x=points, radii=radii, out=str(Path(folder) / "rows.sqlite"),
        )  # fmt: skip
    for row in found.rows if found is not None else ():
        x = points[row.point]
        log.bound(row.bound, steepest(net, lc.Ball(x, row.radius), rng, 6))
        for claimed in (row.certified, row.plain):
            _contradict(rng, log, net, x, claimed, row.label)


def _contradict(
    rng: np.random.Generator, log: Log, net: Network, x: Array, size: float, label: int, norm: Any = None
) -> None:
    """Look for a point of another class that is strictly closer."""
    if not np.isfinite(size):
        log.violation(f"the radius is {size}")
    if not 0.0 < size < np.inf:
        return
    ball, model, d = lc.Ball(x, size, None, norm or lc.L2()), Model.of(net), len(x)
    points = [*candidates(net, ball, rng, 10)]
    for k in range(1, 24):
        direction = rng.standard_normal(d) if d > 1 else rng.choice([-1.0, 1.0], 1)
        steps = fractions(size * k / 24 * direction / (np.linalg.norm(direction) or 1.0))
        points.append([m + step for m, step in zip(fractions(x), steps, strict=True)])
    for point in points:
        values = outputs(model, point) if inside(ball, point) else None
        if values is None:
            continue
        log.checks += 1
        rivals = [j for j, y in enumerate(values) if y > values[label]]
        if rivals:
            at = [decimal(arb(c)) for c in point]
            log.violation(f"the radius is {size!r}, but at {at} class {rivals[0]} is larger than {label}")
            return


def _bumps(rng: np.random.Generator) -> tuple[Network, Array]:
    """One input, two layers: a bump of one class a little off the point, in other units per layer."""
    where, height = float(rng.uniform(0.2, 3.0)), float(10.0 ** rng.uniform(-4, 1))
    size = float(np.ldexp(1.0, int(some(rng, 0, rng.integers(-400, 400), rng.integers(-290, -240)))))
    weights = [size * np.ones((2, 1)), np.eye(2) / size, np.array([[0.0, 0.0], [10.0, height]])]
    biases = [np.array([-where * size, 5.0 * size]), np.array([-0.1, 0.0]), np.array([1.0, -5.0 * height])]
    return lc.Network.from_weights(weights, biases, some(rng, "relu", "relu", leaky(0.01))), np.zeros(1)


def _whole(rng: np.random.Generator) -> tuple[Network, Array]:
    sizes = [int(rng.integers(1, 3)), *rng.integers(1, 3, int(rng.integers(1, 3))).tolist(), 2]
    rows = "relu", "hardswish", "hardtanh", leaky(-1.0), "relu6", "softsign"
    return whole(rng, sizes, rows), rng.integers(-4, 5, sizes[0]) / 2.0


def _plain(rng: np.random.Generator) -> tuple[Network, Array]:
    """A network of natural size in other units inside, where its activations allow it, and of its input."""
    d, scale = int(some(rng, 1, 2, 4)), float(some(rng, 1.0, 1.0, 1e110, 1e-110, 1e160))
    row = some(rng, "relu", leaky(tilted(rng)), leaky(0.1), "tanh", "silu", "elu", "sin", "softplus")
    net = rescaled(plain(rng, (d, 2 if d == 4 else 4, 3, int(rng.integers(2, 4))), row), rng, 370)
    first, *others = (np.array(layer.weight) for layer in net.layers)
    with np.errstate(over="ignore"):
        first = first / scale
    net = like(net, [first, *others]) if np.isfinite(first).all() else net
    return net, rng.standard_normal(d) * float(some(rng, 1.0, scale))
