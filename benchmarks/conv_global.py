"""Global bounds of convolution stacks: kernels of the literature, VGG- and ResNet-shaped networks, large images.

Run: python benchmarks/conv_global.py                  (two minutes; nothing is written)
     python benchmarks/conv_global.py --large 64 16 224  (channels, layers, image; minutes)
     python benchmarks/conv_global.py --imagenet 32      (shapes of ResNet-18 and ResNet-50)
     python benchmarks/conv_global.py --torch            (ResNet-18 from PyTorch, also over a ball; minutes)

The kernels are read from c8x2.npz, c8x4.npz and c16x16.npz in data/conv beside the repository (--data says where). Each
bound is proved, and each certificate is verified again; seconds are those of certify, by the clock and of the
processor, and those of the processor for verify. The exit code is 1 if a bound of Joint is above the figure beside it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

import lipcert as lc
from lipcert.model.network import Neurons

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "conv"
LIMITS = {"c8x2": 7.65, "c8x4": 27.6, "c16x16": 830.0}
METHODS = (lc.ClosedForm(), lc.Scalar(), lc.Joint())


def kernel(random: np.random.Generator, outputs: int, channels: int, window: int = 3) -> np.ndarray:
    """A random kernel as networks are initialised."""
    return random.standard_normal((outputs, channels, window, window)) * np.sqrt(2.0 / (channels * window**2))


def pool(channels: int) -> np.ndarray:
    """The average over 2 × 2 places, channel by channel, as a kernel."""
    return np.eye(channels)[:, :, None, None] * np.full((2, 2), 0.25)


def vgg(random: np.random.Generator) -> lc.Network:
    """Eight convolutions of 16 to 64 channels, average pools folded into the next kernel, two dense layers; 32 × 32."""
    kernels, strides, pads, channels = [], [], [], 3
    for width, stage in ((16, 0), (16, 0), (32, 1), (32, 0), (64, 1), (64, 0), (64, 1), (64, 0)):
        kernels.append(kernel(random, width, channels, 4 if stage else 3))  # 4 × 4 with stride 2 after each stage
        strides.append(2 if stage else 1)
        pads.append(1)
        channels = width
    kernels.append(pool(channels))
    heads = [random.standard_normal(shape) * np.sqrt(2.0 / shape[1]) for shape in ((128, 64 * 4), (10, 128))]
    names = ["relu"] * 8 + ["identity", "relu"]
    return lc.conv_stack(kernels, (32, 32), names, stride=[*strides, 2], padding=[*pads, 0], head=heads)


def resnet(random: np.random.Generator, blocks: int = 3) -> lc.Network:
    """A convolution, blocks of two convolutions with a skip, 16 to 64 channels, halved between; 32 × 32, dense head."""
    kernels, names, strides, sizes = [kernel(random, 16, 3)], [("relu", 16)], [1], [32]
    channels, size = 16, 32
    for width in (16, 32, 64):
        for _ in range(blocks):
            stride = 2 if width > channels else 1
            size //= stride
            carried = np.zeros((width, channels, 3, 3))
            if stride == 1:
                carried[np.arange(width), np.arange(width), 1, 1] = 1.0
            else:
                carried[:, :, 1, 1] = kernel(random, width, channels, 1)[:, :, 0, 0]
            kernels.append(np.concatenate([kernel(random, width, channels), carried]))
            names.append(("relu+identity", width))
            carried = np.zeros((width, width, 3, 3))
            carried[np.arange(width), np.arange(width), 1, 1] = 1.0
            kernels.append(np.concatenate([0.3 * kernel(random, width, width), carried], axis=1))
            names.append(("relu", width))
            strides += [stride, 1]
            sizes += [size, size]
            channels = width
    rows = [
        ["relu"] * (width * n * n) + (["identity"] * (width * n * n) if kind != "relu" else [])
        for (kind, width), n in zip(names, sizes, strict=True)
    ]
    head = [random.standard_normal((10, channels * size * size)) / np.sqrt(channels * size * size)]
    return lc.conv_stack(kernels, (32, 32), rows, stride=strides, padding=1, head=head)


def imagenet(random: np.random.Generator, counts: tuple[int, ...], bottleneck: bool, image: int) -> lc.Network:
    """ResNet-18 or ResNet-50 as for ImageNet, random weights: stem, max pool, four stages, average and dense head."""
    layers: list[tuple[np.ndarray, tuple[int, int], tuple[int, int], int]] = []  # kernel, stride, padding, relus

    def add(taken: np.ndarray, relus: int, stride: tuple[int, int] = (1, 1)) -> None:
        layers.append((taken, stride, (taken.shape[2] // 2, taken.shape[3] // 2), relus))

    def seen(taken: np.ndarray, merged: np.ndarray) -> np.ndarray:
        return np.einsum("oiyx,ij->ojyx", taken, merged)

    def beside(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """One kernel of the same window for both results; a kernel of one tap counts in the middle."""
        wide = np.zeros((*other.shape[:2], *one.shape[2:]))
        wide[:, :, one.shape[2] // 2, one.shape[3] // 2] = other[:, :, 0, 0]
        return np.concatenate([one, wide])

    def point(matrix: np.ndarray) -> np.ndarray:
        return matrix[:, :, None, None]

    add(kernel(random, 64, 3, 7), 64, (2, 2))
    eye, none, merged = np.eye(64), np.zeros((64, 64)), np.eye(64)
    for axis in (3, 2):  # max(a, b, c) along an axis: b + relu(a - b) and c, then again
        taps = [np.vstack([eye, none, none]), np.vstack([-eye, eye, none]), np.vstack([none, none, eye])]
        add(seen(np.stack(taps, 2)[:, :, None] if axis == 3 else np.stack(taps, 2)[..., None], merged), 64,
            (1, 2) if axis == 3 else (2, 1))  # fmt: skip
        add(point(np.block([[eye, eye, -eye], [none, none, eye]])), 64)
        merged = np.hstack([eye, eye])
    channels = 64
    for stage, count in enumerate(counts):
        width = 64 * 2**stage
        outer = 4 * width if bottleneck else width
        for block in range(count):
            step = (2, 2) if stage and not block else (1, 1)
            skip = point(np.eye(channels)) if outer == channels else kernel(random, outer, channels, 1)
            if bottleneck:
                carried = np.hstack([np.zeros((channels, width)), np.eye(channels)])
                add(seen(np.concatenate([kernel(random, width, channels, 1), point(np.eye(channels))]), merged), width)
                first = seen(kernel(random, width, width), np.eye(width, width + channels))
                add(beside(first, seen(skip, carried)), width, step)
                last = 0.3 * kernel(random, outer, width, 1)
            else:
                add(seen(beside(kernel(random, width, channels), skip), merged), width, step)
                last = 0.3 * kernel(random, outer, width)
            joined = np.zeros((outer, outer, *last.shape[2:]))
            joined[:, :, last.shape[2] // 2, last.shape[3] // 2] = np.eye(outer)
            add(np.concatenate([last, joined], axis=1), outer)
            merged, channels = np.eye(outer), outer
    places: tuple[int, ...] = (image, image)
    linear, activations = [], []
    for taken, stride, padding, relus in layers:
        linear.append(lc.Convolution.of(taken, places, stride, padding))
        places, size = linear[-1].places, linear[-1].shape[0]
        cut = relus * places[0] * places[1]
        groups = [(lc.activation("relu"), np.arange(cut)), (lc.activation("identity"), np.arange(cut, size))]
        activations.append(Neurons(size, tuple(groups[: 1 + (cut < size)])))
    pixels = places[0] * places[1]
    head = np.repeat(random.standard_normal((1000, channels)) / np.sqrt(channels), pixels, axis=1) / pixels
    return lc.Network.from_weights([*linear, head], activation=activations)


def loaded() -> lc.Network:
    """ResNet-18 as PyTorch initialises it, for images of 32 × 32."""
    import torch
    from torch import nn

    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from modules import Block

    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for before, after, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(before, after, stride), Block(after, after)]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).eval()
    return lc.load(module, input_shape=(3, 32, 32))


def over_a_ball(network: lc.Network, radius: float) -> None:
    """ClosedForm over a ball around a random image, beside a lower bound."""
    ball, started = lc.Ball(np.random.default_rng(0).random(network.inputs), radius), time.process_time()
    found, took = lc.certify(network, ball, lc.ClosedForm()), time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    ratio = found.bound / lc.lower_bound(network, ball).value
    print(
        f"radius {radius:g}: {found.bound:.6g}, {ratio:.3f} × the lower bound, {took:.1f} s, {peak:.1f} GB", flush=True
    )


def product(name: str, network: lc.Network) -> None:
    """The product of norms, proved."""
    started = time.process_time()
    bound = lc.certify(network, None, lc.published.Trivial()).bound
    took, peak = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    widest = max(network.sizes)
    print(f"{name:>12} {widest:>9,} {'norms':>11} {bound:>12.6g} {'':8} {took:>9.2f}   {peak:.2f} GB", flush=True)


def show(name: str, network: lc.Network, methods: tuple[object, ...], limit: float = np.inf) -> bool:
    """One line per method; whether a bound of Joint is above the limit."""
    above = False
    for method in methods:
        started = time.process_time()
        certificate = lc.certify(network, None, method)  # type: ignore[arg-type]
        found = time.process_time()
        lc.verify(network, certificate)
        took, again = found - started, time.process_time() - found
        joint = isinstance(method, lc.Joint)
        above |= joint and certificate.bound > limit
        print(
            f"{name:>12} {max(network.sizes):>9,} {type(method).__name__:>11} {certificate.bound:>12.6g}"
            f" {certificate.seconds:>8.2f} {took:>9.2f} {again:>8.2f}"
            + (f"   (≤ {limit:g})" if joint and limit < np.inf else ""),
            flush=True,
        )
    return above


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--large", type=int, nargs=3, metavar=("CHANNELS", "LAYERS", "IMAGE"))
    parser.add_argument("--imagenet", type=int, metavar="IMAGE", help="ResNet-18 and ResNet-50, images of that size")
    parser.add_argument("--torch", action="store_true", help="ResNet-18 from PyTorch, over all inputs and over a ball")
    parser.add_argument("--shapes", action="store_true", help="only the VGG- and the ResNet-shaped network")
    asked = parser.parse_args()
    print(f"{'stack':>12} {'widest':>9} {'method':>11} {'bound':>12} {'seconds':>8} {'processor':>9} {'verify':>8}")
    random, above = np.random.default_rng(0), False
    if asked.torch:
        network = loaded()
        product("ResNet-18", network)
        show("ResNet-18", network, METHODS[:1])
        over_a_ball(network, 0.01)
        return 0
    if asked.imagenet:
        for name, counts, bottleneck in (("ResNet-18", (2, 2, 2, 2), False), ("ResNet-50", (3, 4, 6, 3), True)):
            network = imagenet(random, counts, bottleneck, asked.imagenet)
            product(name, network)
            if asked.imagenet <= 64 and not bottleneck:
                show(name, network, METHODS[:1])
        return 0
    if asked.large:
        channels, layers, image = asked.large
        kernels = [kernel(random, channels, channels if k else 3) for k in range(layers)]
        show(f"{channels} × {layers}", lc.conv_stack(kernels, (image, image)), METHODS[:1])
        return 0
    for name, limit in () if asked.shapes else LIMITS.items():
        kernels = [array for _, array in sorted(np.load(asked.data / f"{name}.npz").items())]
        above |= show(name, lc.conv_stack(kernels, (14, 14)), METHODS, limit)
    methods = (lc.ClosedForm(), lc.Joint(seconds=60))
    show("VGG", vgg(random), methods)
    show("ResNet", resnet(random), methods)
    return int(above)


if __name__ == "__main__":
    sys.exit(main())
