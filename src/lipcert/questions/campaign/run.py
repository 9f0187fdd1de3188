"""Run a campaign: find the missing rows, hand them to workers, store the answers."""

from __future__ import annotations

import itertools
import os
import pickle
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import numpy as np

from lipcert.arguments.numbers import numbers
from lipcert.errors import CampaignStopped, InvalidInput, UnreadableResults
from lipcert.methods.greedy import ClosedForm
from lipcert.methods.method import Method
from lipcert.model.network import Network
from lipcert.model.regions import L2, Norm, norm_in
from lipcert.questions.campaign.data import Points
from lipcert.questions.campaign.results import Results
from lipcert.questions.campaign.store import Store
from lipcert.questions.campaign.work import Answer, Question, Task, prepare, work
from lipcert.questions.certify import method_of
from lipcert.questions.classifiers import classifier
from lipcert.questions.radius import Rules
from lipcert.runtime.clock import Progress, checked_seconds, clock, silent, timed
from lipcert.runtime.machine import refuse_import, within
from lipcert.suggest.hints import BOTH, Enclosure

_SECONDS = 2.0
"""Target time of a batch: a crash loses little, and transactions stay rare."""
_LARGEST = 256
"""Most questions in a batch."""
_LOST = ("KilledWorker", "CommClosedError", "CancelledError", "FutureCancelledError")
"""Exceptions of other packages' executors when workers are lost."""
_STARTED = 60.0
"""Seconds for a worker to do nothing; a script that starts workers while it is imported shows at once."""
_AHEAD = 64
"""Batches submitted at once to an executor of unknown size."""


def campaign(
    network: Network,
    x: Any,
    y: Any = None,
    *,
    radii: Iterable[float] = (),
    out: str | os.PathLike[str],
    search: bool = False,
    methods: Iterable[Method | str] = (ClosedForm(),),
    clip: tuple[float, float] | None = None,
    norm: Norm | str | None = None,
    attack: bool = False,
    restarts: int = 9,
    points: int | slice | None = None,
    curvature: bool | None = None,
    values: bool | None = None,
    enclosures: Sequence[Enclosure] = BOTH,
    workers: int = 1,
    executor: Executor | None = None,
    seconds: float | None = None,
    seconds_per_point: float | None = None,
    progress: bool | Progress | None = None,
    names: Mapping[str, str] | None = None,
) -> Results:
    """Certify many points over balls of several radii with several methods, into an SQLite file.

    A row for radius ε is what :func:`certified_radius` returns with ``radii=[ε]`` and the same method, clip, curvature,
    values and enclosures, up to the last digits: balls that are computed together round differently. The row of a
    search is what it returns without ``radii``.

    Results are stored in batches as they come, keyed by network digest, point, radius and method. Rows that the file
    has already are not computed again, so the same call resumes a run that was killed.

    Parameters
    ----------
    network
        The class is the largest output; of a single output its sign, as for :func:`certified_radius`.
    x, y
        Points (points, inputs) and their labels (points,); without labels the predicted class counts.
    radii
        Radii of the balls.
    out
        The SQLite file, new or from an earlier run.
    search
        Also search the largest radius of each point, as :func:`certified_radius` does without ``radii``.
    methods
        How multipliers are chosen: values, or names such as ``"closed-form"``.
    clip
        A pair (lower, upper): only inputs between them count, as in (0, 1) for images.
    attack, restarts
        Also search counterexamples, each time from so many starts.
    points
        Only the first so many points, or a slice; a later call may add others.
    norm, curvature, values
        As for :func:`certified_radius` with given radii. ``values`` is on by default if ``seconds_per_point`` is given.
    enclosures
        As for :func:`certify`.
    workers
        Processes, each with one BLAS thread; 1 works in this one. With more, a script needs the usual
        ``if __name__ == "__main__":``.
    executor
        Any ``concurrent.futures.Executor`` instead, such as ``distributed.Client(…).get_executor()``; it stays open.
    seconds
        Time limit of the campaign. Points that are not done by then are left to a later call.
    seconds_per_point
        Time limit for each point and method; then the best result so far counts.
    progress
        Called with lines of text. Default: a line on the terminal; False is silent.
    names
        Names of model and data for reports, as in ``{"model": "net.onnx", "data": "test.npz"}``.

    Returns
    -------
    Results
        Every row of the file.
    """
    network = classifier(network)
    data = Points.of(network, x, y)
    chosen_points = _range(points, len(data))
    sizes = np.unique(numbers("radii", list(radii)))
    if (sizes.size and sizes[0] <= 0) or not (sizes.size or search):
        raise InvalidInput(f"radii must be positive numbers, at least one or search=True; got {sizes.tolist()}")
    listed = [methods] if isinstance(methods, str) else methods
    chosen = list(dict.fromkeys(method_of(method, "methods") for method in listed))
    if not chosen:
        raise InvalidInput("methods is empty; give at least one, such as ClosedForm()")
    for name, number in (("workers", workers), ("restarts", restarts)):
        if number < 1:
            raise InvalidInput(f"{name} must be at least 1, got {number}")
    measure = norm_in("norm", norm)
    measure.check(network.inputs, "norm")
    wanted = (*((0.0,) if search else ()), *sizes.tolist())
    checked_seconds(seconds_per_point)
    if workers > 1 and executor is None:
        refuse_import()
    rules = Rules(
        _limits(clip, data),
        tuple(enclosures),
        curvature=None if curvature is None else bool(curvature),
        norm=measure,
        values=seconds_per_point is not None if values is None else bool(values),
        values_in_search=bool(values),
    )
    starts = restarts if attack else 0
    settings: dict[str, Any] = {"points": data.digest, "clip": rules.clip, "attack": starts or False}
    settings |= {"curvature": rules.curvature, "enclosures": repr(rules.enclosures)}
    settings |= {} if measure == L2() else {"norm": measure.record()}
    settings |= {} if values is None else {"values": rules.values}
    store = Store(out, create=True)
    try:
        store.agree(settings)
        store.note({key: str(value) for key, value in (names or {}).items() if key in ("model", "data")})
        done = store.done(network.digest)
        questions = []
        for point, method in itertools.product(chosen_points, chosen):
            left = tuple(radius for radius in wanted if (point, radius, repr(method)) not in done)
            if left:
                label = None if data.y is None else int(data.y[point])
                questions.append(Question(point, data.x[point], label, method, left))
        listener = silent if progress is False else None if progress is True else progress
        with timed(seconds, listener) as now, _executor(executor, workers) as pool:
            due = time.time() + now.left
            frame = Task(pickle.dumps(network), network.digest, rules, starts, (), seconds_per_point, due)
            total = len(chosen_points) * len(chosen) * len(wanted)
            _run(store, pool, workers, frame, questions, total)
    except sqlite3.Error as error:
        raise UnreadableResults(
            f"{out} can no longer be written: {error}; the same command resumes from there"
        ) from None
    finally:
        store.close()
    return Results.read(out)


def _range(points: Any, count: int) -> range:
    """The positions of the chosen points."""
    with suppress(TypeError):
        chosen = range(count)[points if isinstance(points, slice) else slice(points)]
        if chosen:
            return chosen
    raise InvalidInput(f"points must be a number or a slice, of at least one of the {count} points, got {points!r}")


def _limits(clip: Any, data: Points) -> tuple[float, float] | None:
    if clip is None:
        return None
    try:
        low, high = (float(side) for side in clip)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"clip must be a pair of numbers (lower, upper), got {clip!r}") from None
    outside = ((data.x < low) | (data.x > high)).any(axis=1)
    if outside.any():
        raise InvalidInput(
            f"clip is ({low:g}, {high:g}), but {np.count_nonzero(outside)} points lie outside, the first is point"
            f" {np.flatnonzero(outside)[0]}"
        )
    return low, high


def _run(
    store: Store, pool: Executor | None, workers: int, frame: Task, questions: Sequence[Question], total: int
) -> None:
    """Hand out the questions in batches of about the same time, and store the answers as they come."""
    ahead = 1 if pool is None else _AHEAD if workers == 1 else 2 * workers + 2
    position, size, stored = 0, 1, total - sum(len(question.radii) for question in questions)
    waiting: set[Future[Answer]] = set()
    try:
        while True:
            while position < len(questions) and len(waiting) < ahead and time.time() < frame.due:
                batch = tuple(questions[position : position + size])
                position += len(batch)
                waiting.add(_submitted(pool, replace(frame, questions=batch)))
            if not waiting:
                return
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for answer in (future.result() for future in finished):
                store.add(answer.rows, answer.seconds)
                stored += len(answer.rows)
                clock().say(f"{stored} of {total} rows")
                each = max(answer.seconds / max(answer.questions, 1), 1e-6)
                size = int(np.clip(_SECONDS / each, 1, min(_LARGEST, 4 * size)))
    except Exception as error:
        if not isinstance(error, BrokenExecutor) and type(error).__name__ not in _LOST:
            raise
        if isinstance(pool, ProcessPoolExecutor):
            within(_STARTED, prepare)  # an error if the script asks for this campaign again while a worker imports it
        raise CampaignStopped(
            f"workers were lost ({error}); finished rows are in {store.path}, the same command resumes"
        ) from error
    finally:
        for future in waiting:
            future.cancel()


def _submitted(pool: Executor | None, task: Task) -> Future[Answer]:
    """The answer to come; without workers it is made at once."""
    if pool is not None:
        return pool.submit(work, task)
    future: Future[Answer] = Future()
    future.set_result(work(task))
    return future


@contextmanager
def _executor(executor: Executor | None, workers: int) -> Iterator[Executor | None]:
    if executor is not None or workers == 1:
        yield executor
        return
    # spawn: threads and the database connection are not copied
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=prepare)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
