"""Which method is tightest, and at what cost: 80 random networks, over a ball and over all inputs.

Run: python benchmarks/how_to_choose.py        (about a minute)

For each method: on how many networks it is within 1 % of the tightest of the three, the geometric mean of its bound
relative to ClosedForm's, and its total time.
"""

from __future__ import annotations

import itertools

import numpy as np

import lipcert as lc
from lipcert.model.regions import Region
from lipcert.reproduce.cells import paper_center, paper_network

WIDTHS, LAYERS = (10, 20, 40, 60), (5, 10, 15, 20)
ACTIVATIONS = ("relu", "leaky_relu", "elu", "tanh", "silu")
METHODS = (lc.ClosedForm(), lc.Scalar(), lc.Diagonal())


def compare(region: Region) -> None:
    cells = list(itertools.product(WIDTHS, LAYERS, ACTIVATIONS))
    bounds, seconds = np.empty((len(cells), len(METHODS))), np.empty((len(cells), len(METHODS)))
    for row, (width, layers, activation) in enumerate(cells):
        network = paper_network(width, layers, activation)
        for column, method in enumerate(METHODS):
            certificate = lc.certify(network, region, method)
            bounds[row, column], seconds[row, column] = certificate.bound, certificate.seconds
    tightest = (bounds <= 1.01 * bounds.min(axis=1, keepdims=True)).sum(axis=0)
    relative = np.exp(np.log(bounds / bounds[:, :1]).mean(axis=0))
    for column, method in enumerate(METHODS):
        name = type(method).__name__
        print(f"  {name:10}  tightest on {tightest[column]:2} of {len(cells)}", end="")
        print(f"   bound {relative[column]:.3f} × ClosedForm's   {seconds[:, column].sum():6.2f} s in all")


if __name__ == "__main__":
    for title, region in (
        ("all inputs", lc.Everywhere()),
        ("ball of radius 0.1", lc.Ball(paper_center(), 0.1)),
        ("ball of radius 1", lc.Ball(paper_center(), 1.0)),
    ):
        print(title)
        compare(region)
