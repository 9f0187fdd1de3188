"""Local bounds of convolutional networks: seconds, beside the bare dense work that they stand for.

Run: python benchmarks/conv_local.py DATA [--case cnn_a …]

DATA is a folder with ``l2`` and ``models``, public ONNX files and images. Times are of one run on one core, after the
import: seconds by the clock, and in brackets those of the processor. The bare work is one Cholesky factor, one
triangular solve and one symmetric product per layer, of random matrices of the same sizes: unstable neurons, and
neurons of the next layer.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg, sparse

import lipcert as lc

EPSILON = 24.0 / 255.0 / 0.225


@dataclass(frozen=True)
class Took:
    """Seconds by the clock, and of the processor."""

    clock: float
    processor: float

    def __truediv__(self, count: int) -> Took:
        return Took(self.clock / count, self.processor / count)

    def __str__(self) -> str:
        return f"{self.clock:.2f} ({self.processor:.2f}) s"


def seconds(ask: Callable[[], Any]) -> tuple[Any, Took]:
    """What is answered, and how long it takes."""
    started, before = time.perf_counter(), time.process_time()
    return ask(), Took(time.perf_counter() - started, time.process_time() - before)


def image(data: Path, name: str, which: int) -> Any:
    return np.load(data / "l2" / name)["x"][which].ravel().astype(float)


def open_ahead(certificate: Any) -> list[tuple[int, int]]:
    """Open neurons of each hidden layer, and neurons ahead whose slope is not zero."""
    wide = [int((layer.beta > layer.alpha).sum()) for layer in certificate.layers]
    kept = [int(((layer.beta != 0.0) | (layer.alpha != 0.0)).sum()) for layer in certificate.layers]
    return list(zip(wide, [*kept[1:], 10], strict=True))


def bare(sizes: list[tuple[int, int]]) -> float:
    """Seconds of one factor, one solve and one product per layer."""
    rng, total = np.random.default_rng(0), 0.0
    for open_, ahead in sizes:
        if not open_:
            continue
        root = rng.standard_normal((open_, open_)) / np.sqrt(open_)
        matrix, right = root @ root.T + np.eye(open_), rng.standard_normal((open_, ahead))

        def work(matrix: Any = matrix, right: Any = right) -> Any:
            solved = linalg.solve_triangular(np.linalg.cholesky(matrix), right, lower=True, check_finite=False)
            return solved.T @ solved

        total += min(seconds(work)[1].processor for _ in range(2))
    return total


def bounds(network: lc.Network, region: Any, methods: list[Any]) -> None:
    sizes: list[tuple[int, int]] = []
    for method in methods:
        found, took = seconds(lambda method=method: lc.certify(network, region, method))  # type: ignore[misc]
        sizes = sizes or open_ahead(found)
        print(
            f"  {method!s:70s} {found.bound:12.6g} {took!s:>18}   by {found.found_by or type(method).__name__}",
            flush=True,
        )
    print(f"  open {[one for one, _ in sizes]}, the bare dense work: {bare(sizes):.2f} s")


def loaded(path: Path) -> lc.Network:
    network, took = seconds(lambda: lc.load(path))
    print(f"{path.name}: {network.sizes}, read in {took}", flush=True)
    return network


def cnn_a(data: Path) -> None:
    network, x = loaded(data / "l2" / "cifar10_cnn_a.onnx"), image(data, "cifar10_200.npz", 2)
    bounds(network, lc.Ball(x, EPSILON), [lc.ClosedForm(), lc.Scalar(), lc.Joint(seconds=20), lc.Auto(seconds=10)])
    found, took = seconds(lambda: lc.certified_radius(network, x, radii=[EPSILON]))
    print(f"  certified_radius {found.radius:.4g} {took}")
    found, took = seconds(lambda: lc.certify(network, method=lc.ClosedForm()))
    print(f"  ClosedForm over all inputs {found.bound:.6g} {took}")


def campaign(data: Path) -> None:
    """The first images of the two hundred."""
    network = loaded(data / "l2" / "cifar10_cnn_a.onnx")
    count = 12
    points = [image(data, "cifar10_200.npz", which) for which in range(count)]
    radii, took = seconds(lambda: [lc.certified_radius(network, x, radii=[EPSILON]).radius for x in points])
    print(f"  {count} images: {took / count} an image, {np.count_nonzero(np.array(radii) >= EPSILON)} certified")


def small(data: Path) -> None:
    """mnist_convsmall, Convnet_maxpool and resnet_2b."""
    methods = [lc.ClosedForm(), lc.Scalar()]
    x = image(data, "mnist_200.npz", 0)
    bounds(loaded(data / "l2" / "mnist_convsmall.onnx"), lc.Ball(x, 0.3), [*methods, lc.Joint(seconds=20)])
    bounds(loaded(data / "models" / "Convnet_maxpool.onnx"), lc.Ball(x, 0.1), methods)
    x = image(data, "cifar10_200.npz", 2)
    bounds(loaded(data / "models" / "resnet_2b.onnx"), lc.Ball(x, 8.0 / 255.0 / 0.225), methods)


def kernel_matrix(kernel: Any, shape: tuple[int, ...], stride: int, pad: int) -> tuple[Any, tuple[int, ...]]:
    """The matrix of a convolution with zero padding, and the shape of its result."""
    outputs, _, height, width = kernel.shape
    _, rows, columns = shape
    tall, wide = (rows + 2 * pad - height) // stride + 1, (columns + 2 * pad - width) // stride + 1
    y, x = np.mgrid[:tall, :wide]
    total = sparse.csr_array((outputs * tall * wide, int(np.prod(shape))))
    for a, b in np.ndindex(height, width):
        down, right = y * stride - pad + a, x * stride - pad + b
        inside = (down >= 0) & (down < rows) & (right >= 0) & (right < columns)
        ends = (np.flatnonzero(inside), (down * columns + right)[inside])
        place = sparse.csr_array((np.ones(ends[0].size), ends), shape=(tall * wide, rows * columns))
        total = total + sparse.csr_array(sparse.kron(sparse.csr_array(kernel[:, :, a, b]), place))
    return total, (outputs, tall, wide)


def norm(weight: Any) -> float:
    x = np.ones(weight.shape[1])
    for _ in range(40):
        x = weight.T @ (weight @ x)
        size = float(np.linalg.norm(x))
        x /= size
    return float(np.sqrt(size))


def conv_large(data: Path) -> None:
    """Random weights in the shape of ConvLarge, each of norm 1.5."""
    rng, shape, weights = np.random.default_rng(0), (3, 32, 32), []
    for channels, window, stride in ((32, 3, 1), (32, 4, 2), (64, 3, 1), (64, 4, 2)):
        kernel = rng.standard_normal((channels, shape[0], window, window))
        matrix, shape = kernel_matrix(kernel, shape, stride, 1)  # type: ignore[assignment]
        weights.append(matrix)
    for size in (512, 512, 10):
        weights.append(rng.standard_normal((size, weights[-1].shape[0])))
    weights = [weight * (1.5 / norm(weight)) for weight in weights]
    network = lc.Network.from_weights(weights, [0.05 * rng.standard_normal(weight.shape[0]) for weight in weights])
    print(f"the shape of ConvLarge: {network.sizes}, {sum(network.sizes[1:])} neurons", flush=True)
    bounds(network, lc.Ball(image(data, "cifar10_200.npz", 2), 8.0 / 255.0 / 0.225), [lc.ClosedForm()])
    print(f"  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB at most")


CASES = {"cnn_a": cnn_a, "campaign": campaign, "small": small, "conv_large": conv_large}


def main() -> None:
    parser = argparse.ArgumentParser(description="Local bounds of convolutional networks.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    for name in options.case:
        CASES[name](options.data)


if __name__ == "__main__":
    main()
