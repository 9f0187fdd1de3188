"""Rules that other kinds seldom meet: convolutions, products of norms, second order, counterexamples, balls."""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import arb

import lipcert as lc
from attack.draw import extreme, leaky, plain, region, some, tilted
from attack.log import Log, decimal
from attack.points import belongs, fractions, steepest
from attack.truth import Model, outputs
from lipcert.model.network import Network
from lipcert.model.regions import NORMS
from lipcert.suggest.hints import Hints


def rules(rng: np.random.Generator, log: Log) -> None:
    """One question about one of the rules."""
    some(rng, _convolutions, _second_order, _exactly, _counterexamples)(rng, log)


def _convolutions(rng: np.random.Generator, log: Log) -> None:
    """Hints with one multiplier per channel, and none at all, for kernels of any size."""
    size, channels = float(some(rng, 1.0, 1.0, extreme(rng, -300, 300))), int(rng.integers(1, 4))
    kernels = [size * rng.standard_normal((channels, 1, 3, 3)), rng.standard_normal((1, channels, 2, 3)) / size]
    net = lc.conv_stack(kernels, image=(3, 4), activation=some(rng, "relu", leaky(tilted(rng)), "tanh", "silu"))
    names: dict[str, Any] = {"net": net, "region": lc.Everywhere(), "Hints": Hints}
    witness = steepest(net, names["region"], rng, 2, perturbed=True)
    cert = log.certified("lc.ClosedForm()", witness, again=None, **names)
    multipliers = size * size * 10.0 ** rng.uniform(-1, 4, channels)
    told = ("()", "(Hints((), (multipliers,), (0,)),)")
    for sweeps in told if cert is not None else ():
        code = f"lc.verify(net, replace(cert, sweeps={sweeps}, tree=None, bound=1.7e308))"
        found = log.ask(code, cert=cert, multipliers=multipliers, **names)
        log.bound(found, witness)


def _second_order(rng: np.random.Generator, log: Log) -> None:
    """A smooth network with too many inputs to cut."""
    net = plain(rng, (10, 3, 2, int(rng.integers(1, 3))), some(rng, "tanh", "silu", "softplus", "sin", "gelu"))
    where = lc.Ball(rng.standard_normal(10), float(some(rng, 0.05, 0.3, extreme(rng, -300, 3))))
    log.certified("lc.Auto(np.inf, 1)", steepest(net, where, rng, 4, perturbed=True), again=None, net=net, region=where)


def _exactly(rng: np.random.Generator, log: Log) -> None:
    """The second opinion by itself, with a claim that anything proves."""
    net = plain(rng, (int(rng.integers(1, 4)), 4, 3, 2), some(rng, "relu", "tanh", "elu", "sin", leaky(tilted(rng))))
    where = region(rng, net.inputs, float(some(rng, 1.0, extreme(rng, -300, 10))))
    method = some(rng, "lc.Scalar()", "lc.Split(lc.ClosedForm(), np.inf, 0.0, pieces=12)")
    cert = log.ask(f"lc.certify(net, region, {method})", net=net, region=where)
    if cert is not None:
        found = log.ask("lc.verify(net, replace(cert, bound=1.01 * cert.bound), exact=True)", net=net, cert=cert)
        log.bound(found, steepest(net, where, rng, 8, perturbed=True))


def _counterexamples(rng: np.random.Generator, log: Log) -> None:
    """Inputs of another class: they belong to the ball, are as far as is said, and another output is larger there."""
    net: Network = plain(rng, (int(rng.integers(1, 4)), 5, 3), some(rng, "relu", "tanh", leaky(tilted(rng))))
    x, size = rng.standard_normal(net.inputs), float(some(rng, 0.3, 2.0, 10.0))
    norm, label = some(rng, *NORMS.values())(), int(np.argmax(net(x)))
    code = f"lc.attack(net, x[None], {label}, np.array([{size}]), norm=norm, restarts=3, steps=10)"
    found = log.ask(code, net=net, x=x, norm=norm)
    if found is None or not found.found[0]:
        return
    point = fractions(found.points[0])
    values = outputs(Model.of(net), point)
    log.checks += 1
    if not belongs(lc.Ball(x, float(found.distances[0]), None, norm), point):
        log.violation(f"the counterexample is farther than {found.distances[0]!r}")
    if values is not None and all(values[label] >= y for y in values):
        log.violation(f"{[decimal(arb(c)) for c in point]} has class {label}")
