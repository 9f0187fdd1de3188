"""The global constant of small ReLU networks: Split over all inputs, size against seconds.

Run: python benchmarks/everywhere.py                     each size, three networks, up to 60 s each
     python benchmarks/everywhere.py --sizes 4-20-20-2   one size
     python benchmarks/everywhere.py --check             Split over growing boxes beside it

Weights are randn·1.5/√in, biases 0.3·randn. The ratio is that of the bound to the norm at the certificate's witness.
Boxes [-r, r]ⁿ for r = 1, 100 and 10⁴ show that no larger norm is found farther out.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

import lipcert as lc

SIZES = ("2-20-20-1", "3-20-20-1", "4-40-1", "4-20-20-1", "4-13-13-13-1", "5-20-20-1", "6-40-1", "6-20-20-1")


def network(sizes: tuple[int, ...], seed: int) -> lc.Network:
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((out, into)) * 1.5 / np.sqrt(into) for into, out in itertools.pairwise(sizes)]
    return lc.Network.from_weights(weights, [0.3 * rng.standard_normal(size) for size in sizes[1:]])


def row(name: str, seed: int, seconds: float, tolerance: float, check: bool) -> None:
    net = network(tuple(int(size) for size in name.split("-")), seed)
    method = lc.Split(seconds=seconds, tolerance=tolerance)
    found = lc.certify(net, lc.Everywhere(), method)
    lower = lc.lower_bound(net, lc.Everywhere(), points=found.witness).value
    pieces = 0 if found.tree is None else len(found.tree.layer)
    line = f"{name:14} {seed:4d} {found.bound:9.5g} {lower:9.5g} {found.bound / lower:8.4f}"
    line += f" {pieces:8d} {found.seconds:7.1f} s"
    if check:
        corners = (np.full(net.inputs, size) for size in (1.0, 100.0, 1e4))
        bounds = [lc.certify(net, lc.Box(-corner, corner), method).bound for corner in corners]
        line += "   boxes " + " ".join(f"{bound:9.5g}" for bound in bounds)
    print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="*", default=SIZES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    print(f"{'network':14} {'seed':>4} {'bound':>9} {'lower':>9} {'ratio':>8} {'pieces':>8} {'seconds':>9}")
    for name, seed in itertools.product(options.sizes, range(options.seeds)):
        row(name, seed, options.seconds, options.tolerance, options.check)
