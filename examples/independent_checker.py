"""Checks a Lipschitz certificate without lipcert: numpy, the standard library and docs/certificate-format.md.

    python independent_checker.py bound.json network.npz

It derives the bound again from the multipliers and lines of the file, in plain floating point. That is no proof, as
``lipcert verify`` is, but no line of code is shared with the program that made the certificate. It knows whole networks
in ℓ2 norms, balls and the whole space, dense weights, and the activations of ``KNOWN``; it does not read trees.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np

KNOWN: dict[str, Any] = {  # φ and φ', a the parameter; φ' is monotone on either side of 0
    "identity": (lambda v, a: v, lambda v, a: np.ones_like(v)),
    "relu": (lambda v, a: np.maximum(v, 0.0), lambda v, a: np.where(v > 0, 1.0, 0.0)),
    "leaky_relu": (lambda v, a: np.where(v > 0, v, a * v), lambda v, a: np.where(v > 0, 1.0, a)),
    "tanh": (lambda v, a: np.tanh(v), lambda v, a: 1.0 - np.tanh(v) ** 2),
    "sigmoid": (lambda v, a: (1.0 + np.tanh(v / 2)) / 2, lambda v, a: (1.0 - np.tanh(v / 2) ** 2) / 4),
    "softplus": (lambda v, a: np.logaddexp(0.0, a * v) / a, lambda v, a: (1.0 + np.tanh(a * v / 2)) / 2),
}


def require(holds: Any, message: str) -> None:
    if not holds:
        sys.exit(f"refused: {message}")


class Network:
    """Layers (weight, bias, groups of activations) of a file that ``Network.save`` wrote, and their digest."""

    def __init__(self, path: str) -> None:
        self.layers: list[Any] = []
        arrays, state = np.load(path), hashlib.sha256()
        while f"b{(n := len(self.layers) + 1)}" in arrays:
            require(f"W{n}" in arrays, f"layer {n} is sparse or a convolution, which this script does not know")
            W, b, groups = arrays[f"W{n}"], arrays[f"b{n}"], list[Any]()
            while (key := f"activation{n}.{len(groups)}") in arrays:
                told = {x: arrays[x] for x in arrays.files if x.startswith(f"{key}.")}
                require(str(arrays[key]) in KNOWN, f"this script does not know the activation {arrays[key]}")
                groups.append((str(arrays[key]), told.pop(f"{key}.neurons"), list(told.values())))
            filled = W != 0
            state.update(repr(W.shape).encode() + np.cumsum([0, *filled.sum(axis=1)]).astype("<i8").tobytes())
            state.update(np.nonzero(filled)[1].astype("<i8").tobytes() + W[filled].astype("<f8").tobytes())
            state.update((b + 0.0).astype("<f8").tobytes() + f"|{len(groups)} groups|".encode())
            for name, index, parameters in groups:
                state.update(f"{name}|{len(index)} neurons|".encode())
                state.update(b"".join(np.broadcast_to(p, index.shape).astype("<f8").tobytes() for p in parameters))
                state.update(index.astype("<i8").tobytes())
            self.layers.append((W, b, groups))
        self.digest = state.hexdigest()

    def apply(self, layer: int, derivative: int, v: Any) -> Any:
        """φ(v) or φ'(v), neuron by neuron."""
        found = np.zeros(v.shape)
        for name, index, parameters in self.layers[layer][2]:
            found[index] = KNOWN[name][derivative](v[index], *parameters or [0.0])
        return found

    def slopes(self, layer: int, low: Any, high: Any) -> tuple[Any, Any]:
        """The smallest and the largest φ' on an interval: at an end, or on either side of 0."""
        zero = np.clip(0.0, low, high)
        points = [(low, high), (zero, high), (zero, low), (high, low)]  # seen from the point towards the other
        ends = [self.apply(layer, 1, np.nextafter(v, to)) for v, to in points]
        return np.min(ends, axis=0), np.max(ends, axis=0)

    def above(self, layer: int, low: Any, high: Any, slope: Any, sign: int) -> Any:
        """The largest sign·(φ(v) - slope·v) on an interval: at an end, at 0, or where φ' passes the slope."""
        points = [low, high, zero := np.clip(0.0, low, high)]
        for a, b in ((low, zero), (zero, high)):
            first = self.apply(layer, 1, np.nextafter(a, np.inf)) > slope
            for _ in range(60):
                same = (self.apply(layer, 1, (a + b) / 2) > slope) == first
                a, b = np.where(same, (a + b) / 2, a), np.where(same, b, (a + b) / 2)
            points.append(a)
        return np.max([sign * (self.apply(layer, 0, v) - slope * v) for v in points], axis=0)


def traced(net: Network, lines: list[Any], i: int, depth: Any, center: Any, radius: float) -> Any:
    """At least W·z + b and -(W·z + b) of layer i, by the lines of the layers before, at most ``depth`` of them."""
    (W, b, _), stop = net.layers[i], 0 if depth is None else max(0, i - depth)
    rows, offset = np.vstack([W, -W]), np.append(b, -b)
    for k in range(i - 1, stop - 1, -1):
        down, below, up, over, _, _ = lines[k]
        offset = offset + np.where(rows > 0, rows * over, rows * below).sum(axis=1)
        rows = np.where(rows > 0, rows * up, rows * down)
        offset, rows = offset + rows @ net.layers[k][1], rows @ net.layers[k][0]
    if not stop:
        return offset + rows @ center + radius * np.linalg.norm(rows, axis=1)
    return offset + np.where(rows > 0, rows * lines[stop - 1][5], rows * lines[stop - 1][4]).sum(axis=1)


def sweep(net: Network, center: Any, radius: float, hints: Any, intervals: list[Any]) -> float:
    """The bound of one sweep; the intervals of the hidden layers become smaller."""
    named = hints["enclosures"] if np.isfinite(radius) else []
    linear = [(one["depth"], list[Any]()) for one in named if one["kind"] == "Linear"]
    P, z, hidden = np.eye(len(center)), center, len(net.layers) - 1
    for i, (W, b, _) in enumerate(net.layers[:-1]):
        S, (low, high), v = W @ P @ W.T, intervals[i], W @ z + b
        z = net.apply(i, 0, v)
        if len(linear) < len(named):  # Lipschitz is among them
            reach = radius * np.sqrt(np.diagonal(S))
            low, high = np.maximum(low, v - reach), np.minimum(high, v + reach)
        for depth, lines in linear:
            over = traced(net, lines, i, depth, center, radius)
            low, high = np.maximum(low, -over[len(b) :]), np.minimum(high, over[: len(b)])
        alpha, beta = net.slopes(i, low, high)
        for number, (_, lines) in enumerate(linear):
            down, up = np.where(alpha == beta, alpha, np.array(hints["lines"][number * hidden + i]))
            ends = [x * net.above(i, low, high, s, x) for x, s in ((-1, down), (1, up), (-1, 0.0), (1, 0.0))]
            lines.append((down, ends[0], up, *ends[1:]))
        intervals[i], m, r = (low, high), (alpha + beta) / 2, (beta - alpha) / 2
        on = np.flatnonzero((r > 0) & (np.diagonal(S) > 0))
        T = np.array(hints["multipliers"][i])[on] * 4.0 ** hints["exponents"][i]
        C, M = np.diag(T) - r[on, None] * S[np.ix_(on, on)] * r[on], r[on, None] * S[on] * m
        require(not len(on) or np.linalg.eigvalsh(C)[0] > 0, f"the multipliers of layer {i + 1} are too small")
        P = m[:, None] * S * m + M.T @ np.linalg.solve(C, M)
        P[on, on] += T
    last = net.layers[-1][0]
    return float(np.sqrt(max(np.linalg.eigvalsh(last @ P @ last.T)[-1], 0.0)))


def main(answer: str, network: str) -> None:
    with open(answer, encoding="utf-8") as file:
        document = json.load(file)
    content, net = document["content"], Network(network)
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    require(document["sha256"] == hashlib.sha256(text).hexdigest(), "the file is damaged")
    require(document["kind"] == "bound", f"the file holds a {document['kind']}, not a bound")
    require(content["network"] == net.digest, f"the certificate is about another network than {net.digest}")
    region, part, plain = content["region"], content["part"], {"kind": "L2", "scale": 1.0}
    ball = region["kind"] == "Ball" and region["clip"] is None and region["norm"] == plain
    asked = [part["layers"], part["inputs"], part["outputs"], *part["norms"].values()]
    known = asked == [[0, len(net.layers)], None, None, plain, plain] and (ball or region["kind"] == "Everywhere")
    require(known, "this script knows no such region, part or norm")
    center = np.array(region["center"]) if ball else np.zeros(net.layers[0][0].shape[1])
    intervals = [(np.full(len(b), -np.inf), np.full(len(b), np.inf)) for _, b, _ in net.layers[:-1]]
    size = region["radius"] if ball else np.inf
    bound = min([sweep(net, center, size, hints, intervals) for hints in content["sweeps"]], default=np.inf)
    print(f"claimed {content['bound']!r}\nderived {bound!r}, {bound / content['bound'] - 1.0:+.1e} of it")
    require(bound <= content["bound"] * (1.0 + 1e-9), "multipliers and lines prove no such bound")


if __name__ == "__main__":
    main(*sys.argv[1:])
