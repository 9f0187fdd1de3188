"""Certified radii, singly and in campaigns: no point closer than the radius has another class."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, fmpq

import lipcert as lc
from attack.draw import extreme, leaky, plain, rescaled, some, tilted
from attack.log import Log, decimal
from attack.points import candidates, fractions, inside, steepest
from attack.truth import Model, Point, outputs
from exact import rational
from lipcert.model.arrays import Array
from lipcert.model.network import Network

_METHODS = ("lc.ClosedForm()",) * 6 + ("lc.Scalar()", "lc.Auto(np.inf, 8)")


def radius(rng: np.random.Generator, log: Log) -> None:
    """One classifier, one point."""
    net, x = some(rng, _bumps, _bumps, _scaled, _whole, _natural)(rng)
    options = some(rng, "", "", ", pairwise=False", ", relaxation=False", ", curvature=False")
    if rng.random() < 0.5:  # a few sizes are faster than a search
        options += f", radii={[float(10.0 ** rng.uniform(-2, 1)) for _ in range(2)]}"
    label = some(rng, None, None, None, int(rng.integers(net.outputs)))
    code = f"lc.certified_radius(net, x, {label}, {some(rng, *_METHODS)}{options}, tolerance=0.2, norm=norm)"
    norm = some(rng, lc.L2(), lc.L2(), lc.L1(), lc.LInf(), lc.L2(scale=rng.uniform(0.2, 5.0, net.inputs)))
    found = log.ask(code, net=net, x=x, norm=norm)
    if found is None:
        return
    model = Model.of(net)
    at = outputs(model, fractions(x))
    if at is not None and np.isfinite(found.margin) and found.label != found.rival:
        log.checks += 1
        if at[found.label] - at[found.rival] < arb(rational(found.margin)):
            log.violation(f"the margin is {found.margin!r}, exactly {decimal(at[found.label] - at[found.rival])}")
    _contradict(rng, log, net, x, found.radius, found.label, norm)


def campaigns(rng: np.random.Generator, log: Log) -> None:
    """A campaign of two points and two radii."""
    net, x = some(rng, _bumps, _scaled, _natural)(rng)
    points = np.stack([x, x + 0.1 * float(np.abs(x).max(initial=0.0)) * rng.standard_normal(x.shape)])
    radii = sorted({float(some(rng, 0.1, 1.0, 3.0, extreme(rng, -600, 10))) for _ in range(2)})
    with tempfile.TemporaryDirectory() as folder:
        found = log.ask(
            f"lc.campaign(net, x, radii=radii, out=out, methods=[{some(rng, *_METHODS)}], progress=False)",
            net=net, x=points, radii=radii, out=str(Path(folder) / "rows.sqlite"),
        )  # fmt: skip
    if found is None:
        return
    for row in found.rows:
        where = lc.Ball(points[row.point], row.radius)
        if row.bound is not None:
            log.bound(row.bound, steepest(net, where, rng, 6))
        for claimed in (row.certified, row.plain):
            _contradict(rng, log, net, points[row.point], claimed, row.label)


def _contradict(
    rng: np.random.Generator, log: Log, net: Network, x: Array, size: float, label: int, norm: Any = None
) -> None:
    """Look for a point of another class that is strictly closer."""
    if not size > 0.0:
        return
    if not np.isfinite(size):
        log.violation(f"the radius is {size}")
        return
    ball, model = lc.Ball(x, size, None, norm or lc.L2()), Model.of(net)
    for point in _around(rng, net, ball):
        if not inside(ball, point):
            continue
        values = outputs(model, point)
        if values is None:
            continue
        log.checks += 1
        rivals = [j for j, y in enumerate(values) if y > values[label]]
        if rivals:
            at = [decimal(arb(c)) for c in point]
            log.violation(f"the radius is {size!r}, but at {at} class {rivals[0]} is larger than {label}")
            return


def _around(rng: np.random.Generator, net: Network, ball: lc.Ball) -> Iterator[Point]:
    yield from candidates(net, ball, rng, 10)
    middle, size = fractions(ball.center), rational(float(ball.radius))
    d = len(middle)
    for k in range(1, 24):
        direction = [rational(float(c)) for c in (rng.standard_normal(d) if d > 1 else rng.choice([-1.0, 1.0], 1))]
        norm = rational(float(np.sqrt(sum(float(c) ** 2 for c in direction))) or 1.0)
        yield [m + size * fmpq(k, 24) * c / norm for m, c in zip(middle, direction)]


def _bumps(rng: np.random.Generator) -> tuple[Network, Array]:
    """One input, two layers: a bump of one class a little off the point, in other units per layer."""
    where, height = float(rng.uniform(0.2, 3.0)), float(10.0 ** rng.uniform(-4, 1))
    size = float(np.ldexp(1.0, int(some(rng, 0, rng.integers(-400, 400), rng.integers(-290, -240)))))
    first = size * np.array([[1.0], [1.0]])
    second = np.array([[1.0, 0.0], [0.0, 1.0]]) / size
    last = np.array([[0.0, 0.0], [10.0, height]])
    biases = [np.array([-where * size, 5.0 * size]), np.array([-0.1, 0.0]), np.array([1.0, -5.0 * height])]
    return lc.Network.from_weights([first, second, last], biases, some(rng, "relu", "relu", leaky(0.01))), np.zeros(1)


def _scaled(rng: np.random.Generator) -> tuple[Network, Array]:
    d = int(rng.integers(1, 3))
    d, n = some(rng, (d, 3), (d, 3), (4, 2))
    net = plain(rng, (d, n, 3, int(rng.integers(2, 4))), some(rng, "relu", leaky(tilted(rng)), leaky(0.1)))
    return rescaled(net, rng, int(some(rng, 100, 370, 600))), rng.standard_normal(d)


def _whole(rng: np.random.Generator) -> tuple[Network, Array]:
    """Small whole numbers: ties, zeros, rows that vanish."""
    sizes = [int(rng.integers(1, 3)), *(int(n) for n in rng.integers(1, 3, int(rng.integers(1, 3)))), 2]
    weights = [rng.integers(-3, 4, (out, into)).astype(float) for into, out in itertools.pairwise(sizes)]
    biases = [rng.integers(-5, 5, len(w)).astype(float) for w in weights]
    rows = [some(rng, "relu", "hardswish", "hardtanh", leaky(-1.0), "relu6", "softsign") for _ in weights[1:]]
    return lc.Network.from_weights(weights, biases, rows), rng.integers(-4, 5, sizes[0]) / 2.0


def _natural(rng: np.random.Generator) -> tuple[Network, Array]:
    d, row = int(rng.integers(1, 3)), some(rng, "relu", "tanh", "silu", "elu", "sin", "softplus")
    scale = float(some(rng, 1.0, 1.0, 1e110, 1e-110, 1e160))
    net = plain(rng, (d, 4, 3, 3), row)
    weights = [np.array(layer.weight) for layer in net.layers]
    weights[0], weights[-1] = weights[0] / scale, weights[-1] * scale
    return (
        lc.Network.from_weights(weights, [layer.bias for layer in net.layers], row),
        rng.standard_normal(d) * float(some(rng, 1.0, scale)),
    )
