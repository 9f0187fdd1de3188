"""Parts of networks and single pairs of inputs and outputs."""

from __future__ import annotations

import numpy as np
from flint import arb, fmpq

from attack.draw import extreme, leaky, method, plain, region, rescaled, sizes, some, sparsely, tilted
from attack.log import Log, decimal
from attack.points import candidates, fractions, inside
from attack.truth import Model, Witness, jacobian, length, rough
from exact import precision, rational
from lipcert.model.network import Network
from lipcert.model.regions import Region


def parts(rng: np.random.Generator, log: Log) -> None:
    """A bound from some inner values to others."""
    net, where = _drawn(rng)
    start = int(rng.integers(0, net.depth))
    stop = int(rng.integers(start + 1, net.depth + 1))
    into = _some(rng, net.sizes[start])
    out = _some(rng, net.sizes[stop])
    code = f"lc.certify(net, region, {method(rng)}, inputs={into}, outputs={out}, layers=({start}, {stop}))"
    cert = log.ask(code, net=net, region=where)
    if cert is None:
        return
    found = [cert.bound]
    again = log.ask("lc.verify(net, cert)", net=net, cert=cert)
    if again is not None:
        found.append(again)
    model = Model.of(net)
    for x in candidates(net, where, rng, 5):
        if not inside(where, x):
            continue
        probe = fractions(rng.standard_normal(net.sizes[start])) if start == 0 else None
        matrix = None if start and _at_kink(model, x, start) else jacobian(model, x, probe, start, stop)
        if matrix is None:
            continue
        rows = range(net.sizes[stop]) if out is None else out
        columns = range(net.sizes[start]) if into is None else into
        inner = [[matrix[i][j] for j in columns] for i in rows]
        d = fractions(np.linalg.svd(rough(inner))[2][0])
        with precision(512):
            image = [sum((c * arb(t) for c, t in zip(row, d)), arb(0)) for row in inner]
            witness = Witness(x, d, length(image) / length([arb(t) for t in d]))
        for bound in found:
            log.bound(bound, witness)


def _at_kink(model: Model, x: list[fmpq], start: int) -> bool:
    """Whether the point may be a kink of the layers after z_start: there the inner values may be a manifold's edge."""
    return jacobian(model, x) is None


def sensitivity(rng: np.random.Generator, log: Log) -> None:
    """The matrix of all pairs."""
    net, where = _drawn(rng)
    found = log.ask("lc.sensitivity(net, region)", net=net, region=where)
    if found is None:
        return
    model = Model.of(net)
    for x in candidates(net, where, rng, 5):
        if not inside(where, x):
            continue
        matrix = jacobian(model, x, fractions(rng.standard_normal(net.inputs)))
        if matrix is None:
            continue
        log.checks += 1
        for i, row in enumerate(matrix):
            for k, entry in enumerate(row):
                bound = float(found.matrix[i, k])
                if not bound >= 0.0 or (np.isfinite(bound) and abs(entry) > arb(rational(bound))):
                    at = [decimal(arb(c)) for c in x]
                    log.violation(
                        f"pair ({i}, {k}) is bounded by {bound!r}; its derivative at {at} is {decimal(entry)}"
                    )
                    return


def _some(rng: np.random.Generator, size: int) -> list[int] | None:
    if rng.random() < 0.5:
        return None
    return sorted(int(k) for k in rng.choice(size, int(rng.integers(1, size + 1)), replace=False))


def _drawn(rng: np.random.Generator) -> tuple[Network, Region]:
    row = some(rng, "relu", "tanh", "silu", leaky(tilted(rng)), "hardtanh", "sin", "elu")
    net = plain(rng, sizes(rng), row)
    net = sparsely(net) if rng.random() < 0.1 else net
    net = rescaled(net, rng, int(some(rng, 100, 600))) if rng.random() < 0.6 else net
    return net, region(rng, net.inputs, float(some(rng, 1.0, 1.0, 1.0, extreme(rng, -600, 200))))
