"""The paper's random networks, regenerated bit for bit from their seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lipcert.model.arrays import Array
from lipcert.model.network import Network

TABLES: Final = (0.8, 2.5)
"""Spectral norms of the weights in Tables 1 and 2."""

RADIUS_STUDY: Final = (2.0, 2.5)
"""Spectral norms of the weights in the radius study (width 128, leaky_relu)."""


def paper_center() -> Array:
    """The centre z_c of every ball in the paper's random experiments."""
    return np.array([0.4, 1.8, -0.5, -1.3, 0.9])


def paper_network(width: int, layers: int, activation: Any, norms: Sequence[float] = TABLES) -> Network:
    """One random network of the paper: 5 inputs, ``layers - 1`` hidden layers of ``width`` neurons, 2 outputs.

    The seed is 77·width + 9·layers; each layer draws its spectral norm uniformly from ``norms``, then a Gaussian
    weight scaled to it, then a Gaussian bias.

    Examples
    --------
    >>> paper_network(10, 5, "relu").sizes
    (5, 10, 10, 10, 10, 2)
    """
    # the legacy generator: its stream is the one numpy.random.seed started in the paper's code
    stream = np.random.RandomState(77 * width + 9 * layers)
    sizes = [5] + [width] * (layers - 1) + [2]
    weights, biases = [], []
    for inputs, outputs in itertools.pairwise(sizes):
        target = stream.uniform(norms[0], norms[1])
        weight = stream.randn(outputs, inputs)
        weights.append(weight * (target / np.linalg.norm(weight, 2)))
        biases.append(stream.randn(outputs))
    return Network.from_weights(weights, biases, activation)
