"""Does the regularised classifier fail less under attack at every ε, whatever the seed of its training?

Run: python benchmarks/training_seeds.py MNIST             (25 minutes; MNIST holds the four idx files)
     python benchmarks/training_seeds.py MNIST --seeds 1

Trains both classifiers of `lipcert reproduce mnist` from several seeds and prints the failures in percent of the test
set for the paper's ε. At the smallest ε they are little more than the images that are wrong without an attack, so it
matters where between 98 % and a little more each training stops. Nothing is written.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from lipcert.reproduce.classifiers import RECIPES, read_images, train
from lipcert.reproduce.mnist import failure_rate
from lipcert.reproduce.printed import PAPER_RADII


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    images = read_images(options.folder)
    heads = [f"1/{1 / radius:.0f}" for radius in PAPER_RADII]
    print(f"{'seed':5}{'model':13}{'accuracy':>9} {''.join(f'{head:>7}' for head in heads)}", flush=True)
    lower = []
    for seed in range(options.seeds):
        rates = []
        for name, recipe in RECIPES["mnist"].items():
            trained = train(images, replace(recipe, seed=seed))
            rates.append([failure_rate(trained.network, images, radius) for radius in PAPER_RADII])
            print(f"{seed:<5}{name:13}{trained.accuracy:>9.2%} {''.join(f'{r:7.2f}' for r in rates[-1])}", flush=True)
        lower.append(np.array(rates[1]) < np.array(rates[0]))
    counts = np.sum(lower, axis=0)
    print(f"regularised lower, of {options.seeds} seeds: {counts.tolist()}; at every ε: {np.all(lower, axis=1).sum()}")


if __name__ == "__main__":
    main()
