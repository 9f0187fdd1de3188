"""The paper's random experiments: its networks, regenerated from their seeds, its balls, and the methods for each."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lipcert.methods.lower import lower_bound
from lipcert.methods.split import Auto
from lipcert.model.activations import activation
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.published import Published
from lipcert.questions.certify import METHODS, OWN, certify
from lipcert.questions.compare import Row

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


LOWER: Final = "lower-bound"
AUTODIFF: Final = "autodiff"
"""The norm of the Jacobian at the centre."""
REFERENCES: Final = (LOWER, AUTODIFF)


@dataclass(frozen=True, order=True)
class Cell:
    """One network and one ball of a study; the ball has radius √5·δ, with which the paper's tables were computed."""

    study: str
    width: int
    layers: int
    delta: float

    def network(self) -> Network:
        """The paper's network, regenerated."""
        study = STUDIES[self.study]
        slope = {"negative_slope": 0.01} if study.activation == "leaky_relu" else {}
        return paper_network(self.width, self.layers, activation(study.activation, **slope), study.norms)

    @property
    def radius(self) -> float:
        """That of the ball."""
        return self.delta * math.sqrt(5.0)

    def ball(self) -> Ball:
        """The ball around the paper's centre."""
        return Ball(paper_center(), self.radius)

    def within(self, other: Cell) -> bool:
        """Whether the network is neither wider nor deeper than another cell's."""
        return self.width <= other.width and self.layers <= other.layers


@dataclass(frozen=True)
class Study:
    """A table of the paper; cells from small to large, methods from quick to slow, by their names in ``compare``.

    ``fixed`` are the width and the number of layers at which the paper draws its figures.
    """

    title: str
    activation: str
    norms: tuple[float, float]
    cells: tuple[Cell, ...]
    methods: tuple[str, ...]
    quick_cells: tuple[Cell, ...]
    quick_methods: tuple[str, ...]
    fixed: tuple[int, int]


def _grid(study: str, pairs: Iterable[tuple[int, int]], deltas: Iterable[float] = (1.0,)) -> tuple[Cell, ...]:
    cells = [Cell(study, width, layers, delta) for (width, layers), delta in itertools.product(pairs, list(deltas))]
    return tuple(sorted(cells, key=lambda cell: (cell.width * cell.width * cell.layers, -cell.delta)))


_CHEAP: Final = ("trivial", "eclipse-fast", "eclipse-gen-local-cf", "closed-form", "scalar", LOWER)
_SMALL: Final = ("joint", "seqlip", "eclipse-gen-local-fast", "eclipse", "eclipse-gen-local-acc", "auto")
_SMALL_PROGRAMS: Final = ("lipsdp-layer", "lipsdp-neuron", "geolip")
_LARGE: Final = ("joint", "auto", "eclipse-gen-local-fast")
_LARGE_PROGRAMS: Final = ("eclipse", "eclipse-gen-local-acc", "lipsdp-layer-split", "lipsdp-neuron-split")
_DELTAS: Final = (5.0, 1.0, 0.2, 0.04, 0.008, 0.0016, 0.00032)

STUDIES: Final[dict[str, Study]] = {
    "table1": Study(
        "Table 1: small networks, ReLU",
        "relu",
        TABLES,
        _grid("table1", itertools.product((10, 20, 40, 60), (5, 10, 15, 20, 25))),
        (*_CHEAP, *_SMALL, *_SMALL_PROGRAMS, "glipsdp", "lipdiff", "aao"),
        _grid("table1", ((40, 5), (10, 10), (20, 10), (40, 10), (40, 15))),
        (*_CHEAP, *_SMALL, *_SMALL_PROGRAMS),
        (40, 20),
    ),
    "table2": Study(
        "Table 2: large networks, ELU",
        "elu",
        TABLES,
        _grid("table2", itertools.product((60, 80, 100, 120), (30, 40, 50, 60, 70))),
        (*_CHEAP, *_LARGE, *_LARGE_PROGRAMS, "lipdiff", "glipsdp"),
        _grid("table2", ((60, 30), (80, 30), (60, 40))),
        (*_CHEAP, *_LARGE),
        (100, 60),
    ),
    "radius": Study(
        "The radius study: 128 neurons per layer, LeakyReLU",
        "leaky_relu",
        RADIUS_STUDY,
        _grid("radius", ((128, 5), (128, 30), (128, 60)), _DELTAS),
        (*_CHEAP, AUTODIFF, "joint", "auto", "eclipse-gen-local-fast", "eclipse-gen-local-acc"),
        _grid("radius", ((128, 5), (128, 30)), (5.0, 0.2, 0.008)),
        (*_CHEAP, AUTODIFF, "joint"),
        (128, 30),
    ),
}


def origin(method: str) -> str:
    """Whose a method is: "published", "lipcert" or "reference"."""
    return "reference" if method in REFERENCES else "lipcert" if method in OWN else "published"


def measure(cell: Cell, method: str, seconds: float) -> Row:
    """One method on one cell, here and now: of the literature the number as published, of lipcert a proved bound.

    ``seconds`` is what Auto may take.
    """
    network, ball = cell.network(), cell.ball()
    started, verified = time.perf_counter(), method == LOWER
    if method == LOWER:
        value = lower_bound(network, ball).value
    elif method == AUTODIFF:
        value = float(np.linalg.norm(network.jacobian(ball.center), 2))
    else:
        chosen = METHODS[method]()
        if isinstance(chosen, Published):
            value = chosen.value(network, ball)
        else:
            chosen = replace(chosen, seconds=seconds) if isinstance(chosen, Auto) else chosen
            certificate = certify(network, ball, chosen)
            value, verified = certificate.bound, certificate.verified
    return Row(method, "certified", value, None, time.perf_counter() - started, verified)
