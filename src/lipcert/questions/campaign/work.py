"""The work of one worker: rows for some points."""

from __future__ import annotations

import math
import pickle
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lipcert.answers.radius import CertifiedRadius, ClassBounds
from lipcert.errors import ProofFailed
from lipcert.methods.method import Method
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.questions.attacks import attack
from lipcert.questions.campaign.store import Row
from lipcert.questions.radius import TOLERANCE, RadiusCertifier, RadiusSearch, Rules, first_guess
from lipcert.runtime.clock import timed
from lipcert.runtime.machine import end_with_parent, one_thread, suited_to


@dataclass(frozen=True, eq=False)
class Question:
    """One point, one method, some radii. Radius 0 stands for the search of the largest radius."""

    point: int
    x: Array
    label: int | None
    method: Method
    radii: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Task:
    """Some questions about one network, with all that a worker on another machine needs.

    ``restarts`` 0 means no attack. ``seconds`` is for each question. ``due`` is the end of the campaign by
    :func:`time.time`, which other machines know too.
    """

    network: bytes
    digest: str
    rules: Rules
    restarts: int
    questions: tuple[Question, ...]
    seconds: float | None = None
    due: float = math.inf


@dataclass(frozen=True, eq=False)
class Answer:
    """The rows of a task and the time they took."""

    rows: tuple[Row, ...]
    questions: int
    seconds: float


_networks: dict[str, Network] = {}


def work(task: Task) -> Answer:
    """Answer the questions of a task."""
    started = time.perf_counter()
    if task.digest not in _networks:
        _networks.clear()
        _networks[task.digest] = pickle.loads(task.network)
    network = _networks[task.digest]
    rows: list[Row] = []
    with suited_to(max(network.sizes)), np.errstate(all="ignore"):
        for question in task.questions:
            left = task.due - time.time()
            if left <= 0.0:
                break
            limit = min(left, math.inf if task.seconds is None else task.seconds)
            with timed(limit if math.isfinite(limit) else None):
                found = _answer(network, task, question)
            if time.time() >= task.due:  # perhaps it was cut short; the same campaign asks it again
                break
            rows += found
    return Answer(tuple(rows), len(task.questions), time.perf_counter() - started)


def _answer(network: Network, task: Task, question: Question) -> list[Row]:
    """The rows of a question."""
    predicted = int(np.argmax(network(question.x)))
    label = predicted if question.label is None else question.label
    certifier = RadiusCertifier(network, question.x, label, predicted, question.method, task.rules)
    blank = Row(task.digest, question.point, 0.0, repr(question.method), label, predicted, 0.0, None, 0.0, 0.0)
    radii = [radius for radius in question.radii if radius > 0.0]
    rows = _at_radii(certifier, task, blank, radii) if radii else []
    return rows if len(radii) == len(question.radii) else [_searched(certifier, task, blank), *rows]


def _at_radii(certifier: RadiusCertifier, task: Task, blank: Row, radii: Sequence[float]) -> list[Row]:
    """A row per radius; each also counts its share of the time that they have in common."""
    started, own = time.perf_counter(), 0.0
    rows = []
    for radius, proved in zip(radii, certifier.over(radii), strict=True):
        begun = time.perf_counter()
        row = _row(certifier, replace(blank, radius=radius), proved)
        rows.append(replace(row, seconds=time.perf_counter() - begun))
        own += rows[-1].seconds
    distances = _attacked(certifier, task, radii)
    shared = (time.perf_counter() - started - own) / len(rows)
    return [
        replace(row, broken=_nearer(row.broken, distance), seconds=row.seconds + shared)
        for row, distance in zip(rows, distances, strict=True)
    ]


def _row(certifier: RadiusCertifier, row: Row, proved: ClassBounds | ProofFailed) -> Row:
    try:
        if isinstance(proved, ProofFailed):
            raise proved
        found = certifier.answer(proved).about(certifier.network, certifier.rules.ball(certifier.point, row.radius))
    except ProofFailed as error:
        return replace(row, problem=str(error))
    return _filled(row, proved, found, row.radius)


def _searched(certifier: RadiusCertifier, task: Task, row: Row) -> Row:
    """The row of a search. Attacks look within twice the radius at which the linearised network changes its class."""
    started, search = time.perf_counter(), RadiusSearch(certifier, TOLERANCE)
    if certifier.label == certifier.predicted:
        search.search()
    found = search.answer.about(certifier.network, task.rules.ball(certifier.point, 0.0))
    if search.proved is not None:
        row = _filled(row, search.proved, found, found.ball)
    elif search.failure is not None:
        row = replace(row, problem=str(search.failure))
    if task.restarts:
        (distance,) = _attacked(certifier, task, [2.0 * first_guess(certifier)])
        row = replace(row, broken=_nearer(row.broken, distance))
    return replace(row, seconds=time.perf_counter() - started)


def _filled(row: Row, proved: ClassBounds, found: CertifiedRadius, size: float) -> Row:
    return replace(
        row,
        margin=float(proved.margins.min()),
        bound=proved.whole,
        certified=found.radius,
        plain=min(size, float(proved.plain.min())) if row.correct else 0.0,
        basis=found.basis,
        broken=None if found.broken is None else found.broken.distance,
    )


def _nearer(one: float | None, other: float | None) -> float | None:
    return min((distance for distance in (one, other) if distance is not None), default=None)


def _attacked(certifier: RadiusCertifier, task: Task, radii: Sequence[float]) -> list[float | None]:
    """For each radius, the distance of the nearest counterexample that an attack finds."""
    if not task.restarts:
        return [None] * len(radii)
    points = np.repeat(certifier.point[None], len(radii), axis=0)
    options: dict[str, Any] = {"clip": task.rules.clip, "norm": task.rules.norm, "restarts": task.restarts}
    found = attack(certifier.network, points, certifier.label, np.array(radii), **options)
    return [float(away) if hit else None for hit, away in zip(found.found, found.distances, strict=True)]


def prepare() -> None:
    """Set up a worker process: one BLAS thread, no reaction to Ctrl-C, and it ends with its parent."""
    one_thread()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
