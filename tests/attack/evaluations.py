"""Programs in floating point, with sums in any order, and networks of other weights: as near as was proved."""

from __future__ import annotations

import numpy as np
from flint import arb

from attack.draw import like, plain, region, sizes, some
from attack.log import Log, decimal
from attack.points import belongs, fractions
from attack.truth import Model, outputs
from exact import precision as bits
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Network


def computed(network: Network, x: Array, precision: str, rng: np.random.Generator) -> Array:
    """The outputs for points (count, inputs), the terms of each sum added one by one in some order."""
    sums = "float32" if precision == "float16" else precision
    z = x.astype(precision)
    for layer in network.layers:
        terms = z.astype(sums)[:, None, :] * dense(layer.weight).astype(precision).astype(sums)
        bias = np.broadcast_to(layer.bias.astype(precision).astype(sums), (*terms.shape[:2],))
        terms = np.concatenate([terms, bias[..., None]], axis=-1)[..., rng.permutation(terms.shape[-1] + 1)]
        total = np.zeros(terms.shape[:2], dtype=sums)
        for k in range(terms.shape[-1]):
            total = total + terms[..., k]
        z = total.astype(precision)
        if layer.neurons is not None and layer.describe() != "identity":
            z = np.maximum(z, 0) if layer.describe() == "relu" else np.tanh(z)
    return np.asarray(z, dtype=float)


def evaluations(rng: np.random.Generator, log: Log) -> None:
    """A network, a program or another network, and points."""
    net = plain(rng, sizes(rng, 6), some(rng, "relu", "tanh", "identity"))
    where, precision = region(rng, net.inputs, float(some(rng, 1e-3, 1.0, 1.0, 30.0))), some(rng, "float32", "float16")
    other: Network | None = None
    if rng.random() < 0.5:
        share = float(some(rng, 1e-9, 1e-3, 0.1))
        noise = [np.exp(share * rng.standard_normal(layer.weight.shape)) for layer in net.layers]
        other = like(net, [dense(layer.weight) * part for layer, part in zip(net.layers, noise, strict=True)])
        found = log.ask("lc.difference(net, other, region, seconds=0.02)", net=net, other=other, region=where)
    else:
        asked = f"lc.evaluation_error(net, region, {precision!r}, seconds=0.02)"
        found = log.ask(asked, net=net, region=where)
    if found is None:
        return
    x = where.sample(12, rng).astype(precision)
    values = computed(net, x, precision, rng)
    for point, value in zip(x.astype(float), values, strict=True):
        place = fractions(point)
        truth = outputs(Model.of(net), place) if belongs(where, place) else None
        second = None if other is None else outputs(Model.of(other), place)
        if truth is None or (other is not None and second is None):
            continue
        log.checks += 1
        with bits(4096):
            apart = [a - b for a, b in zip(second or map(arb, value.tolist()), truth, strict=True)]
            ends = zip(apart, found.lower.tolist(), found.upper.tolist(), strict=True)
            if any(one < arb(low) or one > arb(high) for one, low, high in ends):
                log.violation(f"a difference is outside for the input {[decimal(arb(c)) for c in place]}")
                return
