"""The global constant of small piecewise linear networks: Split over all inputs, size against seconds.

Run: python benchmarks/everywhere.py                       each size, three networks, up to 60 s each
     python benchmarks/everywhere.py --sizes 4-20-20-2     one size
     python benchmarks/everywhere.py --many                8 to 14 inputs and up to 40 neurons
     python benchmarks/everywhere.py --activation groupsort   sorted pairs; or leaky_relu, abs, hardtanh, …
     python benchmarks/everywhere.py --files DATA/exact/*.npz  networks whose constants are published, up to 20 s each
     python benchmarks/everywhere.py --enumerate           the largest norm of all linear pieces beside it
     python benchmarks/everywhere.py --check               Split over growing boxes beside it

Weights are randn·1.5/√in, biases 0.3·randn. The ratio is that of the bound to the norm at the certificate's witness.
Pieces are the nodes of the tree. Seconds are those of the processor. Boxes [-r, r]ⁿ for r = 1, 100 and 10⁴ show that no
larger norm is found farther out.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog

import lipcert as lc

SIZES = ("2-20-20-1", "3-20-20-1", "4-40-1", "4-20-20-1", "4-13-13-13-1", "5-20-20-1", "6-40-1", "6-20-20-1")
MANY: tuple[str, ...] = (
    "8-16-16-1",
    "8-40-1",
    "9-20-20-1",
    "10-16-16-2",
    "10-40-2",
    "11-12-12-1",
    "12-14-12-3",
    "12-20-12-1",
)
MANY = (*MANY, "13-18-18-2", "14-40-1")
TINY = ("2-6-5-1", "3-8-2", "3-6-4-1", "8-11-1", "14-11-2")


def network(sizes: tuple[int, ...], seed: int, activation: str = "relu") -> lc.Network:
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((out, into)) * 1.5 / np.sqrt(into) for into, out in itertools.pairwise(sizes)]
    biases = [0.3 * rng.standard_normal(size) for size in sizes[1:]]
    if activation != "groupsort":
        return lc.Network.from_weights(weights, biases, activation)
    rows: list[Any] = []  # (max, min) of a pair are its sum and difference, turned by 45°, the second by |·|
    for k, size in enumerate(sizes[1:-1]):
        turn = np.kron(np.eye(size // 2), np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2.0))
        weights[k], biases[k], weights[k + 1] = turn @ weights[k], turn @ biases[k], weights[k + 1] @ turn
        rows.append(["identity", "abs"] * (size // 2))
    return lc.Network.from_weights(weights, biases, rows)


def stored(path: Path) -> lc.Network:
    with np.load(path) as file:
        count = sum(name.startswith("W") for name in file)
        weights, biases = ([file[f"{letter}{k + 1}"] for k in range(count)] for letter in "Wb")
    return lc.Network.from_weights(weights, biases, "relu")


def pieces(net: lc.Network) -> Iterator[float]:
    """The norm of the Jacobian on every linear piece that has an inside, of kinks at zero, by linear programs."""

    def walk(index: int, A: Any, c: Any, J: Any, signs: list[int], g: list[Any], h: list[float]) -> Iterator[float]:
        layer = net.layers[index]
        if index == net.depth - 1:
            yield float(np.linalg.norm(layer.weight @ J, 2))
            return
        assert layer.neurons is not None
        k, n = len(signs), net.inputs
        row, at = layer.weight[k] @ A, layer.weight[k] @ c + layer.bias[k]
        for sign in (1, -1):
            more, ends = [*g, -sign * row], [*h, sign * at]
            table = np.column_stack([more, np.linalg.norm(more, axis=1)])
            found = linprog(np.append(np.zeros(n), -1.0), table, ends, bounds=[(None, None)] * n + [(None, 1.0)])
            if found.status != 0 or found.fun > -1e-9:
                continue
            if k + 1 < layer.size:
                yield from walk(index, A, c, J, [*signs, sign], more, ends)
            else:
                slope = layer.neurons.slope(np.array([*signs, sign], dtype=float))[:, None]
                inner = slope * layer.weight
                yield from walk(index + 1, inner @ A, inner @ c + slope[:, 0] * layer.bias, inner @ J, [], more, ends)

    eye = np.eye(net.inputs)
    return walk(0, eye, np.zeros(net.inputs), eye, [], [], [])


def row(name: str, seed: int, net: lc.Network, options: argparse.Namespace) -> None:
    method = lc.Split(seconds=options.seconds, tolerance=options.tolerance)
    began = time.process_time()
    found = lc.certify(net, lc.Everywhere(), method)
    seconds = time.process_time() - began
    lower = lc.lower_bound(net, lc.Everywhere(), points=found.witness).value
    count = 0 if found.tree is None else len(found.tree.layer)
    line = f"{name:18} {seed:4d} {found.bound:10.7g} {lower:10.7g} {found.bound / lower - 1.0:9.1e}"
    line += f" {count:8d} {seconds:7.1f} s {found.seconds:7.1f} s"
    if options.enumerate:
        line += f"   all pieces {max(pieces(net)):10.7g}"
    if options.check:
        corners = (np.full(net.inputs, size) for size in (1.0, 100.0, 1e4))
        bounds = [lc.certify(net, lc.Box(-corner, corner), method).bound for corner in corners]
        line += "   boxes " + " ".join(f"{bound:9.5g}" for bound in bounds)
    print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="*")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("--enumerate", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    options.seconds = options.seconds or (20.0 if options.files else 60.0)
    sizes = options.sizes or (MANY if options.many else TINY if options.enumerate else () if options.files else SIZES)
    head = f"{'network':18} seed {'bound':>10} {'lower':>10} {'gap':>9} {'pieces':>8}"
    print(f"{head} {'processor':>9} {'clock':>9}")
    for path in options.files:
        row(path.stem, 0, stored(path), options)
    for name, seed in itertools.product(sizes, range(options.seeds or (1 if options.many else 3))):
        row(name, seed, network(tuple(int(size) for size in name.split("-")), seed, options.activation), options)
