"""What a worker does: the rows of some points."""

from __future__ import annotations

import math
import pickle
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.proof.classes import CertifiedRadius, ClassBounds
from lipcert.questions.attacks import attack
from lipcert.questions.campaign.store import Row
from lipcert.questions.hunt import TOLERANCE, Hunt, first_guess
from lipcert.questions.verdict import Judge, Rules, Verdict
from lipcert.runtime.clock import timed
from lipcert.runtime.limits import end_with_parent
from lipcert.runtime.threads import suited_to
from lipcert.search.method import Method


@dataclass(frozen=True, eq=False)
class Question:
    """One point, one method, some radii; radius 0 stands for a search."""

    point: int
    x: Array
    label: int | None
    method: Method
    radii: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Task:
    """Some questions about one network. Everything travels with the task, so that any executor will do."""

    network: bytes
    digest: str
    rules: Rules
    restarts: int
    """Starts of an attack; 0 is no attack."""
    questions: tuple[Question, ...]
    seconds: float | None = None
    """For each question."""
    due: float = math.inf
    """When all of it should be there, by :func:`time.time`: workers may be other machines."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The rows of a task and the time they took; for searches that were cut short, the seconds that they had."""

    rows: tuple[Row, ...]
    cut: tuple[tuple[Row, float], ...]
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
    cut: list[tuple[Row, float]] = []
    for question in task.questions:
        left = task.due - time.time()
        if left <= 0.0:
            break
        limit = min(left, math.inf if task.seconds is None else task.seconds)
        with timed(limit if math.isfinite(limit) else None):
            found, unfinished = _answer(network, task, question)
        rows.extend(found)
        cut.extend((row, limit) for row in unfinished)
    return Answer(tuple(rows), tuple(cut), len(task.questions), time.perf_counter() - started)


def _answer(network: Network, task: Task, question: Question) -> tuple[list[Row], list[Row]]:
    """The rows of a question, and which of them are about a search that time cut short."""
    with np.errstate(all="ignore"):
        predicted = int(np.argmax(network(question.x)))
    label = predicted if question.label is None else question.label
    judge = Judge(network, question.x, label, predicted, question.method, task.rules)
    blank = Row(task.digest, question.point, 0.0, repr(question.method), label, predicted, 0.0, None, 0.0, 0.0)
    given = [radius for radius in question.radii if radius > 0.0]
    started = time.perf_counter()
    verdicts = judge.over(given) if given else []
    shared = time.perf_counter() - started
    rows = [
        _judged(replace(blank, radius=radius), verdict, network, task.rules.ball(question.x, radius))
        for radius, verdict in zip(given, verdicts, strict=True)
    ]
    started = time.perf_counter()
    distances = _broken(network, task, question, label, given) if task.restarts and given else [None] * len(rows)
    shared += time.perf_counter() - started
    rows = [
        replace(row, broken=_nearer(row.broken, broken), seconds=row.seconds + shared / len(rows))
        for row, broken in zip(rows, distances, strict=True)
    ]
    if len(given) == len(question.radii):
        return rows, []
    searched, unfinished = _searched(network, task, question, judge, blank)
    return [searched, *rows], [searched] if unfinished else []


def _searched(network: Network, task: Task, question: Question, judge: Judge, blank: Row) -> tuple[Row, bool]:
    """The row of a search, and whether time cut it short; attacks look twice as far as the linearised network goes."""
    started, hunt, row = time.perf_counter(), Hunt(judge, TOLERANCE), blank
    if judge.label == judge.predicted:
        with suited_to(max(network.sizes)), np.errstate(all="ignore"):
            hunt.search()
    found = hunt.answer.about(network, task.rules.ball(question.x, 0.0))
    if hunt.proved is not None:
        row = _told(row, hunt.proved, found, found.ball)
    elif hunt.problem is not None:
        row = replace(row, problem=str(hunt.problem))
    if task.restarts:
        (broken,) = _broken(network, task, question, judge.label, [2.0 * first_guess(judge)])
        row = replace(row, broken=_nearer(row.broken, broken))
    return replace(row, seconds=time.perf_counter() - started), hunt.unfinished


def _judged(row: Row, verdict: Verdict | ProofFailed, network: Network, ball: Ball) -> Row:
    if isinstance(verdict, ProofFailed):
        return replace(row, problem=str(verdict))
    started, proved = time.perf_counter(), verdict.proved
    try:
        found = verdict.answer().about(network, ball)
    except ProofFailed as error:
        return replace(row, problem=str(error))
    return replace(_told(row, proved, found, row.radius), seconds=time.perf_counter() - started)


def _told(row: Row, proved: ClassBounds, found: CertifiedRadius, size: float) -> Row:
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
    return other if one is None else one if other is None else min(one, other)


def _broken(network: Network, task: Task, question: Question, label: int, radii: Sequence[float]) -> list[float | None]:
    """For each radius, how far the nearest input of another class is that an attack finds."""
    points = np.repeat(question.x[None], len(radii), axis=0)
    rules, sizes = task.rules, np.array(radii)
    found = attack(network, points, label, sizes, clip=rules.clip, norm=rules.norm, restarts=task.restarts)
    return [float(away) if hit else None for hit, away in zip(found.found, found.distances, strict=True)]


def prepare() -> None:
    """Set up a worker process: one BLAS thread, interrupts left to the parent, and no life without it."""
    threadpool_limits(limits=1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
