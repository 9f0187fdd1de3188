"""Every activation with every legal parameter, however extreme, at thresholds and in deep tails."""

from __future__ import annotations

import numpy as np

import lipcert as lc
from attack.draw import extreme, method, some
from attack.log import Log
from attack.points import steepest
from lipcert.errors import LipcertError
from lipcert.model.activations import TABLE, Activation
from lipcert.model.regions import Region


def parameters(rng: np.random.Generator, log: Log) -> None:
    """One neuron or two with one activation, another layer perhaps, and one method."""
    name, given = _drawn(rng)
    made = log.ask(f"lc.activation({name!r}, **given)", given=given)
    if made is None:
        return
    net, region = _around(rng, made, _interesting(rng, made))
    witness = steepest(net, region, rng, 8)
    log.certified(method(rng), witness, again=None, net=net, region=region)


def draw_neuron(rng: np.random.Generator) -> tuple[lc.Network, Region]:
    """A network with one strange activation, and a region at an interesting place of it."""
    return _around(rng, *draw_row(rng))


def draw_row(rng: np.random.Generator) -> tuple[Activation, float]:
    """A strange activation and an interesting place of it."""
    while True:
        name, given = _drawn(rng)
        try:
            row = lc.activation(name, **given)
        except LipcertError:
            continue
        return row, _interesting(rng, row)


def _drawn(rng: np.random.Generator) -> tuple[str, dict[str, float]]:
    name = str(rng.choice([*TABLE, *["elu", "celu", "softplus", "hardsigmoid", "hardtanh", "leaky_relu"] * 2]))
    return name, _given(rng, name)


def _given(rng: np.random.Generator, name: str) -> dict[str, float]:
    """Parameters of a row, extreme or not."""
    far = extreme(rng, -1070, 1020)
    sign = float(rng.choice([-1.0, 1.0]))
    if name == "leaky_relu":
        return {"negative_slope": sign * far}
    if name == "hardtanh":
        low = float(some(rng, -far, far, 0.0, sign * extreme(rng, -60, 60)))
        return {"min_val": low, "max_val": float(some(rng, np.nextafter(low, np.inf), low + abs(low), low + far, far))}
    if name == "hardsigmoid":
        huge = sign * float(some(rng, 2.0**53, 2.0**60, far, 0.5, extreme(rng, 40, 70)))
        return {"alpha": float(some(rng, 1.0, 0.2, far, extreme(rng, -60, 60))), "beta": huge}
    if name in ("elu", "celu"):
        return {"alpha": float(some(rng, far, extreme(rng, 900, 1020), extreme(rng, -60, 60)))}
    if name == "softplus":
        return {"beta": float(some(rng, far, extreme(rng, -200, 200), extreme(rng, -1070, -150)))}
    return {}


def _interesting(rng: np.random.Generator, row: Activation) -> float:
    """A pre-activation at a knot, in a tail where exponentials underflow, or anywhere."""
    knots = [float(np.ravel(k)[0]) for k in row.knots(np.zeros(1))] or [0.0]
    unit = float(np.ravel(row.parameters[0])[0]) if row.name == "celu" else 1.0
    unit = 1.0 / float(np.ravel(row.parameters[0])[0]) if row.name == "softplus" else unit
    deep = float(some(rng, -709.0, -745.0, -746.0, -760.0, -20.0, -36.7, 36.7, 40.0, 700.0, -38.6, -27.3))
    tail = deep + float(rng.normal())
    if row.name in ("elu", "celu", "softplus") and rng.random() < 0.5:
        return float(np.nan_to_num(float(rng.uniform(-770.0, -690.0)) * unit, posinf=0.0, neginf=0.0))
    with np.errstate(over="ignore"):
        at = float(some(rng, *knots, tail * unit, unit, -unit, rng.normal(), rng.normal() * extreme(rng, -60, 60)))
    return at if np.isfinite(at) else 0.0


def _around(rng: np.random.Generator, row: Activation, center: float) -> tuple[lc.Network, Region]:
    """A network that has the activation first or second, and a region around the point that leads to the center."""
    close = float(some(rng, 0.0, 1e-300, 1e-17, 1e-8, 0.1, 1.0, 30.0)) * float(some(rng, 1.0, abs(center) + 1e-300))
    close = close if np.isfinite(close) else 1.0
    shape = rng.integers(3)
    if shape == 0:
        weights, rows, point = [[[1.0]], [[1.0]]], [row], [center]
    elif shape == 1:
        weights, rows, point = [[[1.0], [-1.0]], [[1.0, float(rng.normal())]]], [row], [center]
    else:
        weights, rows, point = [[[1.0]], [[1.0]], [[1.0]]], [lc.activation("identity"), row], [center]
    net = lc.Network.from_weights(weights, None, rows)
    if rng.random() < 0.7:
        return net, lc.Ball(point, close)
    with np.errstate(over="ignore"):
        low, high = np.nan_to_num(np.array(point) - close), np.nan_to_num(np.array(point) + close)
    return net, lc.Box(low, high)
