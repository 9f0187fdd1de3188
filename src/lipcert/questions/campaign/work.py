"""What a worker does: the rows of some points."""

from __future__ import annotations

import pickle
import signal
import time
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from lipcert.errors import ProofFailed
from lipcert.model.arrays import Array
from lipcert.model.network import Network
from lipcert.model.regions import Ball
from lipcert.questions.attacks import attack
from lipcert.questions.campaign.store import Row
from lipcert.questions.verdict import Judge, Rules, Verdict
from lipcert.runtime.limits import end_with_parent
from lipcert.search.method import Method


@dataclass(frozen=True, eq=False)
class Question:
    """One point, one method, some radii."""

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
    attacked: bool
    questions: tuple[Question, ...]


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
    rows = [row for question in task.questions for row in _answer(network, task, question)]
    return Answer(tuple(rows), len(task.questions), time.perf_counter() - started)


def _answer(network: Network, task: Task, question: Question) -> list[Row]:
    with np.errstate(all="ignore"):
        predicted = int(np.argmax(network(question.x)))
    label = predicted if question.label is None else question.label
    judge = Judge(network, question.x, label, predicted, question.method, task.rules)
    blank = Row(task.digest, question.point, 0.0, repr(question.method), label, predicted, 0.0, None, 0.0, 0.0)
    rows = [
        _judged(replace(blank, radius=radius), verdict, network, Ball(question.x, radius, task.rules.clip))
        for radius, verdict in zip(question.radii, judge.over(question.radii), strict=True)
    ]
    if not task.attacked:
        return rows
    distances = _broken(network, task, question, label)
    return [replace(row, broken=broken) for row, broken in zip(rows, distances, strict=True)]


def _judged(row: Row, verdict: Verdict | ProofFailed, network: Network, ball: Ball) -> Row:
    if isinstance(verdict, ProofFailed):
        return replace(row, problem=str(verdict))
    proved = verdict.proved
    try:
        found = verdict.answer().about(network, ball)
    except ProofFailed as error:
        return replace(row, problem=str(error))
    return replace(
        row,
        margin=float(proved.margins.min()),
        bound=proved.facts.bound,
        certified=found.radius,
        plain=min(row.radius, float(proved.plain.min())) if row.correct else 0.0,
        basis=found.basis,
    )


def _broken(network: Network, task: Task, question: Question, label: int) -> list[float | None]:
    """For each radius, how far the nearest input of another class is that an attack finds."""
    points = np.repeat(question.x[None], len(question.radii), axis=0)
    found = attack(network, points, label, np.array(question.radii), clip=task.rules.clip)
    return [float(away) if hit else None for hit, away in zip(found.found, found.distances, strict=True)]


def prepare() -> None:
    """Set up a worker process: one BLAS thread, interrupts left to the parent, and no life without it."""
    threadpool_limits(limits=1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
