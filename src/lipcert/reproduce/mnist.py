"""The MNIST study: local bounds, attacks and certified radii of a plain and a regularised classifier."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lipcert import __version__
from lipcert.model.arrays import Array, dense
from lipcert.model.network import Layer, Network
from lipcert.model.regions import Ball
from lipcert.published import Published, Trivial
from lipcert.questions.attacks import attack
from lipcert.questions.certify import METHODS, certify
from lipcert.questions.radius import certified_radius
from lipcert.reproduce.classifiers import Classifier, Images
from lipcert.reproduce.printed import PAPER_RADII
from lipcert.reproduce.store import Key, Store
from lipcert.runtime.clock import clock

PAPER_METHOD: Final = "eclipse-gen-local-fast"
BOUNDS: Final = ("closed-form", "scalar", "joint", PAPER_METHOD)
"""Methods of the local bounds, from quick to slow."""
_CERTIFIED: Final[dict[str, dict[str, Any]]] = {
    "search": {"curvature": False},
    "curved": {},
    "valid": {"clip": (0.0, 1.0)},
}
"""Options of certified radii, by rule."""
_CHUNK: Final = 1000
_FAR: Final = 20.0
"""How far attacks look for counterexamples."""


@dataclass(frozen=True, eq=False)
class Sample:
    """What the study found for one classifier and one choice of points.

    By method, bounds (points, radii) and mean seconds; by rule, certified radii (points,); margins of the largest
    output; and distances of counterexamples that an attack found, infinite if there is none.
    """

    classifier: Classifier
    choice: str
    bounds: dict[str, Array]
    seconds: dict[str, float]
    radii: dict[str, Array]
    margins: Array
    broken: Array


@dataclass(frozen=True, eq=False)
class Study:
    """Everything: samples, and the failure rates in percent of each model, (radii,)."""

    images: Images
    samples: tuple[Sample, ...]
    failures: dict[str, Array]
    trivial: dict[str, float]


@dataclass(frozen=True, eq=False)
class Work:
    """Where answers are kept, and how much to do."""

    store: Store
    points: int = 20
    methods: tuple[str, ...] = BOUNDS

    def kept(self, model: Classifier, key: Key, function: Callable[..., float], *arguments: Any) -> dict[str, float]:
        """The value that a function gives and its seconds, from the store if they are there."""
        about = (f"{name} {part}" for name, part in key.items() if name != "images")
        clock().say(f"mnist: {model.name}, {', '.join(about)}")
        key = {"study": "mnist", "network": model.network.digest, "lipcert": __version__, **key}
        found = self.store.find(key)
        if found is None:
            started = time.perf_counter()
            found = {"value": function(*arguments), "seconds": time.perf_counter() - started}
            self.store.add(key, found)
        return found


def run(images: Images, models: list[Classifier], work: Work) -> Study:
    """Compute what the store does not hold."""
    failures, trivial, samples = {}, {}, []
    for model in models:
        keys: list[Key] = [{"attack": radius, "images": images.digest} for radius in PAPER_RADII]
        rates = [work.kept(model, key, failure_rate, model.network, images, key["attack"]) for key in keys]
        failures[model.name] = np.array([rate["value"] for rate in rates])
        trivial[model.name] = certify(model.network, method=Trivial()).bound
        for choice, points in choose(images, work.points).items():
            samples.append(_sample(model, choice, points, trivial[model.name], work))
    return Study(images, tuple(samples), failures, trivial)


def choose(images: Images, points: int) -> dict[str, Array]:
    """The points by the way they are chosen: from all of [0, 1]ⁿ, as in the paper's code, or from the test images."""
    x, _ = images.test
    rng = np.random.default_rng(0)
    return {"random": rng.random((points, x.shape[1])), "images": x[rng.permutation(len(x))[:points]]}


def failure_rate(network: Network, images: Images, radius: float) -> float:
    """Percentage of the test images that are wrong as they are, or after an attack within a radius."""
    x, y = images.test
    parts = (slice(start, start + _CHUNK) for start in range(0, len(x), _CHUNK))
    found = [attack(network, x[part], y[part], radius, clip=(0.0, 1.0)).found for part in parts]
    return 100.0 * float(np.concatenate(found).mean())


def _sample(model: Classifier, choice: str, points: Array, trivial: float, work: Work) -> Sample:
    network = model.network
    outputs = np.sort(network(points), axis=1)
    margins = outputs[:, -1] - outputs[:, -2]
    bounds, seconds, radii = {}, {}, {"trivial": margins / (math.sqrt(2.0) * trivial)}
    for method in work.methods:
        found = []
        for number, point in enumerate(points):
            for radius in PAPER_RADII:
                key: Key = {"choice": choice, "point": number, "radius": radius, "method": method}
                found.append(work.kept(model, key, local_bound, network, Ball(point, radius), method))
        bounds[method] = np.array([one["value"] for one in found]).reshape(len(points), -1)
        seconds[method] = float(np.mean([one["seconds"] for one in found]))
    for rule, method in (("paper", PAPER_METHOD), ("plain", "joint")):
        if method in bounds:
            radii[rule] = best_radii(margins, bounds[method])
    for rule, options in _CERTIFIED.items():
        certified = []
        for number, point in enumerate(points):
            key = {"choice": choice, "point": number, "rule": rule}
            certified.append(work.kept(model, key, _certified, network, options, point)["value"])
        radii[rule] = np.array(certified)
    broken = attack(network, points, network(points).argmax(axis=1), _FAR, clip=(0.0, 1.0), restarts=5).distances
    return Sample(model, choice, bounds, seconds, radii, margins, broken)


def _certified(network: Network, options: dict[str, Any], point: Array) -> float:
    return certified_radius(network, point, **options).radius


def best_radii(margins: Array, bounds: Array) -> Array:
    """The paper's rule: max over ε of min(ε, margin/(√2·L(ε))), with bounds (points, radii) for margins (points,)."""
    return np.minimum(np.array(PAPER_RADII), margins[:, None] / (math.sqrt(2.0) * bounds)).max(axis=1)


def local_bound(network: Network, ball: Ball, method: str) -> float:
    """One local bound; of a method of the literature the number as published.

    If there are many more inputs than neurons in the first layer, a method of the literature gets the network on the
    subspace that the first layer sees. That leaves its number unchanged and is tens of times faster.
    """
    chosen = METHODS[method]()
    if not isinstance(chosen, Published):
        return certify(network, ball, chosen).bound
    first, *others = network.layers
    weight = dense(first.weight)
    if weight.shape[1] < 1.5 * len(weight):
        return chosen.value(network, ball)
    rows, R = np.linalg.qr(weight.T)
    fewer = Network((Layer(R.T, first.bias, first.neurons), *others))
    return chosen.value(fewer, Ball(rows.T @ ball.center, ball.radius))
