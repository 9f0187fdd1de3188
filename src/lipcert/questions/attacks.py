"""Attacks: the search for counterexamples, inputs near a point that are of another class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lipcert.answers.radius import nearest_counterexample
from lipcert.arguments.numbers import numbers, scaled
from lipcert.arguments.words import upward
from lipcert.errors import InvalidInput
from lipcert.methods.counterexample import bisected
from lipcert.model.arrays import Array, times
from lipcert.model.network import Network
from lipcert.model.regions import Ball, LInf, Norm, norm_in
from lipcert.questions.classifiers import classifier
from lipcert.questions.radius import class_of
from lipcert.runtime.machine import suited_to


@dataclass(frozen=True, eq=False)
class Attack:
    """Counterexamples; arrays have the leading shape of the points that were attacked.

    Attributes
    ----------
    points : for each point the nearest counterexample, or else the last input tried, in the shape of the points.
    found : whether there is a counterexample within the radius. Its class is proved with rounding accounted for.
    distances : its distance, rounded up; infinite if none was found.
    """

    points: Array
    found: Array
    distances: Array

    def __repr__(self) -> str:
        count, total = int(np.count_nonzero(self.found)), int(np.size(self.found))
        nearest = f", the nearest at distance {upward(float(np.min(self.distances)))}" if count else ""
        return f"Attack({count} of {total} broken{nearest})"


def attack(
    network: Network,
    x: Any,
    label: Any,
    radius: Any,
    *,
    clip: Any = None,
    norm: Norm | str | None = None,
    steps: int = 40,
    step: float = 0.1,
    restarts: int = 9,
    seed: int = 0,
) -> Attack:
    """Search the ball around each point for an input of another class, by projected gradient ascent.

    Each step follows the gradient of max_j f_j - f_label, or of f_j - f_label for one class j, and is projected back
    into the ball and the clip. Bisection then moves a counterexample towards the point, as far as its class can be
    proved. A counterexample proves that no larger radius can be certified; finding none proves nothing.

    Parameters
    ----------
    network
        The class is the largest output; of a single output its sign, as for :func:`certified_radius`.
    x
        A point (inputs,), or several (points, inputs); or in the shape of the model's inputs.
    label
        The class of the point, or one for each point.
    radius
        The radius of the ball, or one for each point.
    clip
        A pair (lower, upper): only inputs between them count.
    norm
        Norm of the ball and of the distances, as for :func:`certified_radius`; default ℓ2.
    steps, step
        Number of steps, and their length as a share of the radius.
    restarts
        Number of starts. The first is the point itself, towards any other class. The others are random, each towards
        one other class, the nearest class first. A point with a counterexample is not started again.
    seed
        Seed of the random starts.

    Examples
    --------
    >>> import lipcert as lc
    >>> net = lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], activation="relu")
    >>> found = lc.attack(net, [3.0, 1.0], 0, 2.0)
    >>> print(found.found, found.distances.round(2))
    True 1.41
    """
    network = classifier(network)
    array = scaled("x", x)
    points = network.flat("x", array)
    if points.ndim > 2:
        raise InvalidInput(f"x must be (inputs,) or (points, inputs), got shape {points.shape}")
    batch = points.shape[:-1]
    labels = np.broadcast_to(np.asarray(label), batch)
    for one in np.unique(labels):
        class_of(network, one)
    sizes = np.broadcast_to(numbers("radius", radius), batch)
    ball = Ball(np.atleast_2d(points), np.atleast_1d(sizes), clip, norm_in("norm", norm))
    search = _Search(network, ball, np.atleast_1d(labels).astype(int), steps, step, seed)
    with suited_to(max(network.sizes)):
        found = search.run(restarts)
    return Attack(*(part.reshape(array.shape if part.ndim > 1 else batch) for part in found))


@dataclass(frozen=True, eq=False)
class _Search:
    """The search around some points; see :func:`attack`."""

    network: Network
    ball: Ball
    labels: Array
    steps: int
    step: float
    seed: int

    def some(self, which: Any) -> _Search:
        """The same for some of the points, or for one."""
        ball = self.ball
        ends = () if ball.clip is None else (ball.clip.lower, ball.clip.upper)
        clip = tuple(np.broadcast_to(end, ball.center.shape)[which] for end in ends) or None
        part = Ball(ball.center[which], ball.radius[which], clip, ball.norm)
        return replace(self, ball=part, labels=self.labels[which])

    def run(self, restarts: int) -> tuple[Array, Array, Array]:
        """Points, whether they are counterexamples, and their distances."""
        network, labels, center = self.network, self.labels, self.ball.center
        values, best = network(center), center.copy()
        distances = np.where(values.argmax(axis=-1) != labels, 0.0, np.inf)
        values[np.arange(len(labels)), labels] = -np.inf
        order = np.argsort(-values, axis=-1, kind="stable")[:, :-1]  # the other classes, the nearest first
        for start in range(restarts):
            left = np.flatnonzero(np.isinf(distances))
            if not left.size:
                break
            target = None if start == 0 else order[left, (start - 1) % order.shape[-1]]
            best[left], distances[left] = self.some(left).climb(target, start)
        seen = np.flatnonzero(np.isfinite(distances))
        nearer = bisected(network, center[seen], labels[seen], best[seen])
        for index, tried in zip(seen, nearer, strict=True):
            proved = nearest_counterexample(
                network, self.some(index).ball, int(labels[index]), np.vstack([tried, best[index]])
            )
            distances[index] = np.inf
            if proved is not None:
                best[index], distances[index] = proved.point, proved.distance
        return best, np.isfinite(distances), distances

    def climb(self, target: Array | None, start: int) -> tuple[Array, Array]:
        """Gradient ascent from one start per point: from the point towards any class, or from elsewhere to a target.

        All points use the same random numbers, so the result for one does not depend on the others.
        """
        network, ball, labels, rows = self.network, self.ball, self.labels, np.arange(len(self.labels))
        best, distances = ball.center.copy(), np.full(len(labels), np.inf)
        noise = np.random.default_rng((self.seed, start)).standard_normal((self.steps + 1, best.shape[-1]))
        away = noise[0] * ball.units
        z = best if target is None else ball.project(best + ball.radius[:, None] * away / ball.norm.of(away))
        for number in range(self.steps + 1):
            preactivations = network.preactivations(z)
            outputs = np.array(preactivations[-1])
            far = ball.norm.of(z - ball.center)
            better = (outputs.argmax(axis=-1) != labels) & (far < distances) & (far <= ball.radius)
            best[better], distances[better] = z[better], far[better]
            if number == self.steps:
                break
            outputs[rows, labels] = -np.inf
            gradient = _gradient(network, preactivations, labels, outputs.argmax(axis=-1) if target is None else target)
            flat = np.linalg.norm(gradient, axis=-1) <= 0.0
            gradient[flat] = noise[number + 1]  # zero gradient: go in a random direction
            z = ball.project(z + self.step * ball.radius[:, None] * _steepest(ball, gradient))
        return np.where(np.isfinite(distances)[:, None], best, z), distances


def _steepest(ball: Ball, gradient: Array) -> Array:
    """An ascent step of about unit length in the norm of the ball."""
    if ball.plain:
        return np.asarray(gradient / np.linalg.norm(gradient, axis=-1, keepdims=True))
    if isinstance(ball.norm, LInf):
        return np.sign(gradient) * ball.units
    scaled = gradient * ball.units  # for ℓ1 too: the steepest step would change one coordinate only
    return ball.units * scaled / ball.norm.bare.of(scaled)[:, None]


def _gradient(network: Network, preactivations: list[Array], labels: Array, rivals: Array) -> Array:
    """Of f_rival - f_label, one row per point."""
    eye = np.eye(network.outputs)
    back = times(eye[rivals] - eye[labels], network.layers[-1].weight)
    for layer, v in zip(network.layers[-2::-1], preactivations[-2::-1], strict=True):
        back = times(layer.pulled(v, 1, back), layer.weight)
    return back
