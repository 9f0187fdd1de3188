"""Image-size networks: the operations and bytes that a pass cannot do without, and what it takes.

Run: python benchmarks/flops.py                 counts alone, a minute
     python benchmarks/flops.py --measure       also ClosedForm where its matrices fit: minutes, 10 GB

The ellipsoid of a layer is an n × n matrix over the n neurons whose slope is not zero, or, as a product G Gᵀ, n × k
with at most one column an input and one for every open neuron so far. With a open neurons, and w entries of the next
weight beside those n, v of them in the m rows that count there, a step and the map after it take at least

    n × n:   a³/3 + a²n + a n²,   2 w n + v m        Cholesky factor, L⁻¹M, half of XᵀX; W P, half of (W P) Wᵀ
    n × k:   a k² + k³/3 + n k²,  2 w (k + a)        I - GᵀD_hD_hG and its factor, G times that; W G, a columns more

operations, multiplications and additions apart. Proofs bound roundings besides, which is not counted. A neuron is
counted as open if its pre-activation passes a kink within the radius, to first order, so that no enclosure however
sharp has fewer; n leaves out those that do not move. The first layer's P may be found from G in either form, in n²k
more. "Met" counts the neurons that the proof has multipliers for. Rows of Jacobians are estimated with 64 random
directions, to about 10 %. Seconds are operations over the speed of a product of matrices of 2,000 rows, in the same
run. Images are random, but the first digit for Convnet.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

import lipcert as lc

sys.path.append(str(Path(__file__).parent))
from conv_global import loaded

MODELS = Path(__file__).resolve().parents[2] / "shared" / "data" / "models"
PROBES = 64


def vgg_like() -> lc.Network:
    """Two convolutions of 32, 64 and 128 channels, a max pool after each pair, a dense layer; images of 32 × 32."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 10)).eval()
    return lc.load(module, input_shape=(3, 32, 32))


def speed() -> float:
    """Operations a second of a product of matrices."""
    matrix = np.random.default_rng(0).standard_normal((2000, 2000))
    matrix @ matrix
    started = time.process_time()
    for _ in range(3):
        matrix @ matrix
    return 3 * 2.0 * 2000**3 / (time.process_time() - started)


def open_neurons(network: lc.Network, center: np.ndarray, radius: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Which neurons of each hidden layer are open, to first order, and which have a slope that is not zero."""
    ways, found = np.random.default_rng(0).standard_normal((network.inputs, PROBES)), []
    for layer, v in zip(network.layers[:-1], network.preactivations(center), strict=False):
        assert layer.neurons is not None
        moves = layer.weight @ ways
        reach = radius * np.sqrt((moves * moves).mean(axis=1))
        alpha, beta = layer.neurons.slope_range(v - reach, v + reach)
        found.append(((alpha < beta) & (reach > 0.0), ((alpha != 0.0) | (beta != 0.0)) & (reach > 0.0)))
        ways = layer.neurons.slope(v)[:, None] * moves
    return found


def counted(network: lc.Network, layers: list[tuple[np.ndarray, np.ndarray]], low_rank: bool) -> tuple[float, float]:
    """Operations of all layers, and bytes of the largest matrix; with ``low_rank`` the cheaper form in each layer."""
    operations, largest, k = 0.0, 0.0, float(network.inputs)
    ends = [*(kept for _, kept in layers[1:]), np.ones(network.outputs, dtype=bool)]
    for number, ((open_, kept), after, rows) in enumerate(zip(layers, network.layers[1:], ends, strict=True)):
        a, n, taps = float(open_.sum()), float(kept.sum()), after.weight[:, kept] != 0.0
        w, v = float(taps.sum()), float(taps[rows].sum())
        ahead = 2 * w * n + v * float(rows.sum())
        full = a**3 / 3 + a * a * n + a * n * n + ahead
        thin = a * k**2 + k**3 / 3 + n * k**2
        if number == 0:
            full = min(full, thin + n * n * k + ahead)
        thin += 2 * w * (k + a)
        if low_rank and k < n and thin < full:
            k, operations, largest = k + a, operations + thin, max(largest, 8.0 * n * (k + a))
        else:
            k, operations, largest = min(k + a, n), operations + full, max(largest, 8.0 * n * n)
    return operations, largest


def row(name: str, network: lc.Network, center: np.ndarray, radius: float, rate: float, measure: bool) -> None:
    layers = open_neurons(network, center, radius)
    full, thin = counted(network, layers, False), counted(network, layers, True)
    line = f"{name:16} {radius:7g} {max(network.sizes[1:]):7,} {sum(int(a.sum()) for a, _ in layers):7,}"
    line += f" {max(int(a.sum()) for a, _ in layers):7,}"
    line += "".join(f" {count / 1e9:10,.0f} {count / rate:7.1f} {size / 1e9:6.2f}" for count, size in (full, thin))
    if measure:
        started = time.process_time()
        found = lc.certify(network, lc.Ball(center, radius), lc.ClosedForm())
        took = time.process_time() - started
        if not found.sweeps:
            print(f"{line}   {took:.1f} s, the product of norms: {found.bound:.5g}", flush=True)
            return
        met = [T > 0.0 for T in found.sweeps[-1].multipliers]
        told = [(some, kept | some) for some, (_, kept) in zip(met, layers, strict=True)]
        count, _ = counted(network, told, False)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        line += f" {sum(int(some.sum()) for some in met):7,} {count / 1e9:10,.0f} {count / rate:7.1f} {took:7.1f} s"
        line += f" {took * rate / count:6.1f} × {peak:5.1f} GB   bound {found.bound:.5g}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--data", type=Path, default=MODELS)
    parser.add_argument("--only", nargs="*", help="names that begin so")
    asked = parser.parse_args()
    rate = speed()
    print(f"products of matrices: {rate / 1e9:.0f} GF/s")
    head = f"{'network':16} {'radius':>7} {'widest':>7} {'open':>7} {'most':>7}"
    print(head + "   n × n:  GF       s     GB   n × k:  GF       s     GB" + "    met: open        GF       s    took")
    for name in ("Convnet_avgpool", "Convnet_maxpool", "ResNet-18", "VGG-like"):
        if asked.only and not name.startswith(tuple(asked.only)):
            continue
        network = (
            loaded() if name == "ResNet-18" else vgg_like() if name == "VGG-like"
            else lc.load(asked.data / f"{name}.onnx")
        )  # fmt: skip
        center = np.random.default_rng(0).random(network.inputs)
        radii = [0.001, 0.01]
        if name.startswith("Convnet"):
            with np.load(asked.data.parent / "l2" / "mnist_200.npz") as file:
                center, radii = file["x"][0].ravel().astype(np.float64), [0.1]
        for radius in radii:
            row(name, network, center, radius, rate, asked.measure and name != "VGG-like" and radius != 0.001)


if __name__ == "__main__":
    main()
