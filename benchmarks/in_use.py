"""Models as users bring them: what the search finds and the proof keeps, image-size networks, and clocks that hold.

Run: python benchmarks/in_use.py ../shared/data            (all parts, about four minutes)
     python benchmarks/in_use.py ../shared/data --only proofs

proofs: a residual CNN trained for seconds on scikit-learn's digits; Joint's search and what is proved of it.
sensitivity: ACAS Xu 1_1 over a box, each entry beside the bound of the whole network.
images: ResNet-18 and a VGG-like network at 32 × 32: seconds to load, a bound for all inputs, a radius in time.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import lipcert as lc

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from modules import Block, residual


def timed(ask: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    return ask(), time.perf_counter() - started


def proofs(_: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = torch.tensor(digits.images[:, None] / 16.0, dtype=torch.float32), torch.tensor(digits.target)
    module = residual().train()
    optimiser = torch.optim.Adam(module.parameters(), 3e-3)
    for _epoch in range(8):
        for batch in torch.randperm(len(x)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimiser.step()
    network = lc.load(module.eval(), input_shape=(1, 8, 8))
    print("radius  ClosedForm  Scalar  Joint found  Joint proved  note")
    for radius in (0.1, 0.2, 0.3, 0.5):
        ball = lc.Ball(x[0].numpy(), radius, clip=(0, 1))
        said: list[str] = []
        one, two = (lc.certify(network, ball, method).bound for method in (lc.ClosedForm(), lc.Scalar()))
        three = lc.certify(network, ball, lc.Joint(seconds=6.0), progress=said.append)
        found = [float(text[1]) for line in said if (text := re.match(r"bound (\S+) \(joint\)", line))]
        best = f"{found[-1]:11.4g}" if found else "        none"
        print(f"{radius:6g}  {one:10.4g}  {two:6.4g}  {best}  {three.bound:12.4g}  {three.note}")
    print(f"all inputs: Joint {lc.certify(network, None, lc.Joint(seconds=6.0)).bound:.4g}")


def sensitivity(data: Path) -> None:
    network = lc.load(data / "models" / "ACASXU_run2a_1_1_batch_2000.onnx")
    box = lc.Box([0.6, -0.5, -0.5, 0.45, -0.5], [0.6798577687, 0.5, 0.5, 0.5, -0.45])
    found, seconds = timed(lambda: lc.sensitivity(network, box, seconds=10.0))
    whole, more = timed(lambda: lc.certify(network, box, seconds=10.0))
    print(f"largest entry {found.matrix.max():.3f} in {seconds:.1f} s; whole network {whole.bound:.3f} in {more:.1f} s")


def resnet18() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for before, after, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(before, after, stride), Block(after, after)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).eval()


def vgg() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    sizes = (3, 32, 32, 64, 64, 128, 128)
    for number, (before, after) in enumerate(itertools.pairwise(sizes), 1):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if number % 2 == 0 else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 16, 256), nn.ReLU(), nn.Linear(256, 10)).eval()


def images(_: Path) -> None:
    point = np.random.default_rng(0).random((3, 32, 32))
    for name, make in (("ResNet-18", resnet18), ("VGG-like", vgg)):
        module = make()
        network, loading = timed(partial(lc.load, module, input_shape=(3, 32, 32)))
        print(f"{name}: {network}, loaded in {loading:.1f} s", flush=True)
        found, seconds = timed(partial(lc.certify, network))
        print(f"  all inputs: {found.bound:.4g} by {found.found_by} in {seconds:.1f} s", flush=True)
        for asked in (5.0, 30.0):
            safe, seconds = timed(partial(lc.certified_radius, network, point, clip=(0, 1), seconds=asked))
            print(f"  radius {safe.radius:.3g}, margin {safe.margin:.3g}, in {seconds:.1f} of {asked:g} s", flush=True)


PARTS = {"proofs": proofs, "sensitivity": sensitivity, "images": images}


def main() -> None:
    parser = argparse.ArgumentParser(description="Models as users bring them.")
    parser.add_argument("data", type=Path, help="the folder of public models")
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in (None, name):
            print(f"== {name}", flush=True)
            part(options.data)


if __name__ == "__main__":
    main()
