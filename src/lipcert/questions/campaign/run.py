"""The course of a campaign: what is missing, who computes it, where it goes."""

from __future__ import annotations

import os
import pickle
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import current_process, get_context
from typing import Any

import numpy as np

from lipcert.errors import CampaignStopped, InvalidInput, UnreadableResults
from lipcert.model.arguments import numbers
from lipcert.model.network import Network
from lipcert.model.norms import L2, Norm, norm_in
from lipcert.proof.hints import BOTH, Enclosure
from lipcert.questions.campaign.data import Points
from lipcert.questions.campaign.progress import Meter, metered
from lipcert.questions.campaign.results import Results
from lipcert.questions.campaign.store import Store
from lipcert.questions.campaign.work import Answer, Question, Task, prepare, work
from lipcert.questions.names import method_of
from lipcert.questions.radius_certifier import Rules
from lipcert.runtime.clock import Progress, checked_seconds, silent, timed
from lipcert.search.closed_form import ClosedForm
from lipcert.search.method import Method

_SECONDS = 2.0
"""About how long a batch should take: short enough to lose little, long enough to make its transaction cheap."""
_LARGEST = 256
_UNGUARDED = 97
"""How a worker ends that was about to start workers itself."""
_LOST = ("KilledWorker", "CommClosedError", "CancelledError", "FutureCancelledError")
"""How executors of other packages say that workers are gone."""
_AHEAD = 64
"""Batches handed to an executor at once, when it does not say how many workers it has."""


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
    points: int | tuple[int, int] | slice | None = None,
    curvature: bool | None = None,
    values: bool | None = None,
    everywhere: bool = False,
    enclosures: Sequence[Enclosure] = BOTH,
    workers: int = 1,
    executor: Executor | None = None,
    seconds: float | None = None,
    seconds_per_point: float | None = None,
    progress: bool | Progress | None = None,
    names: Mapping[str, str] | None = None,
) -> Results:
    """Certify many points over balls of several radii with several methods, into an SQLite file.

    What is certified over a ball of radius ε is what :func:`certified_radius` says with ``radii=[ε]`` and the same
    method, clip, curvature, values and enclosures; only the last digits may differ, as balls that are computed together
    round differently. What a search finds is what that finds without ``radii``.

    Results are stored as they come, one transaction per batch, keyed by network digest, point, radius and method. What
    the file holds already is not computed again: a run that was killed is resumed by the same call. A search that time
    cut short is taken up again by a call that gives it more; the larger radius stays.

    Parameters
    ----------
    network
        The largest output is the class; of a single output the sign, as for :func:`certified_radius`.
    x, y
        Points (points, inputs) and their labels (points,); without labels the predicted class counts.
    radii
        Of the balls, in the norm.
    out
        The SQLite file, new or from an earlier run.
    search
        Search for the largest radius of each point too, as :func:`certified_radius` does without ``radii``.
    methods
        How multipliers are chosen: values, or names such as ``"closed-form"``.
    clip
        A pair (lower, upper): only inputs between them count, as in (0, 1) for images.
    norm
        As for :func:`certified_radius`; default ℓ2.
    attack
        Search for inputs of another class too.
    restarts
        Starts of each attack.
    curvature
        As for :func:`certified_radius` with given radii: whether a bound to second order may settle what is open.
    values
        As for :func:`certified_radius`: whether value functions may settle what is still open. Default: over given
        radii, if ``seconds_per_point`` is given.
    everywhere
        As for :func:`certified_radius`: whether bounds for all inputs, found once, may settle balls. Of large networks
        this settles many points in no time.
    points
        The first so many only, or a pair (start, stop) or a slice; the file may get the others later.
    enclosures
        As for :func:`certify`.
    workers
        Processes, each with one BLAS thread; 1 works in this one. With more, a script needs the usual
        ``if __name__ == "__main__":``.
    executor
        Any ``concurrent.futures.Executor`` instead, such as ``distributed.Client(…).get_executor()``; it stays open.
    seconds
        For all of it: no point is begun after that, and one that was begun gets what is known of it by then. What is
        missing is found by the same call.
    seconds_per_point
        For each point and method; then it gets the best that was proved until then.
    progress
        Show a progress bar; default: if standard error is a terminal. Or a function, called with lines of text.
    names
        What reports call the model and the points, as in ``{"model": "net.onnx", "data": "test.npz"}``.

    Returns
    -------
    Results
        Every row of the file.
    """
    network = network.classifier
    data = Points.of(network, x, y)
    chosen_points = _range(points, len(data))
    sizes = np.unique(numbers("radii", list(radii)))
    if (sizes.size and sizes[0] <= 0) or not (sizes.size or search):
        raise InvalidInput(f"radii must be positive numbers, at least one or search=True; got {sizes.tolist()}")
    chosen = [method_of(method, "methods") for method in ([methods] if isinstance(methods, str) else methods)]
    if not chosen:
        raise InvalidInput("methods is empty; give at least one, such as ClosedForm()")
    for name, number in (("workers", workers), ("restarts", restarts)):
        if number < 1:
            raise InvalidInput(f"{name} must be at least 1, got {number}")
    limits = _limits(clip, data)
    bent = None if curvature is None else bool(curvature)
    valued = seconds_per_point is not None if values is None else bool(values)
    asked = (*((0.0,) if search else ()), *sizes.tolist())
    listener = None if isinstance(progress, bool) else progress
    checked_seconds(seconds_per_point)
    if workers > 1 and executor is None and getattr(current_process(), "_inheriting", False):
        raise SystemExit(_UNGUARDED)  # a worker that imports the script that starts it
    store = Store(out, create=True)
    try:
        starts = restarts if attack else 0
        settings: dict[str, Any] = {
            "clip": limits,
            "attack": starts or False,
            "curvature": bent,
            "enclosures": repr(tuple(enclosures)),
        }
        measure = norm_in("norm", norm)
        measure.check(network.inputs, "norm")
        settings |= {} if measure == L2() else {"norm": measure.record()}
        settings |= ({} if values is None else {"values": valued}) | ({"everywhere": True} if everywhere else {})
        store.agree({"points": data.digest, **settings})
        store.note({key: str(value) for key, value in (names or {}).items() if key in ("model", "data")})
        done = store.done(network.digest, checked_seconds(seconds_per_point))
        missing = list(_missing(data, chosen_points, chosen, asked, done))
        further = {"values": valued, "values_in_search": bool(values), "everywhere": bool(everywhere)}
        rules = Rules(limits, tuple(enclosures), curvature=bent, norm=measure, **further)
        rows = sum(len(question.radii) for question in missing)
        total = len(chosen_points) * len(dict.fromkeys(chosen)) * len(asked)
        bar = progress if isinstance(progress, bool) else None if listener is None else False
        with (
            metered(total, total - rows, bar) as meter,
            timed(seconds, listener or silent) as clock,
            _executor(executor, workers) as pool,
        ):
            due = time.time() + clock.left
            frame = Task(pickle.dumps(network), network.digest, rules, starts, (), seconds_per_point, due)
            _run(store, pool, workers, _Batches(frame, missing), replace(meter, total=total, done=total - rows))
    except sqlite3.Error as error:
        raise UnreadableResults(
            f"{out} can no longer be written: {error}; the same command goes on from there"
        ) from None
    finally:
        store.close()
    return Results.read(out)


def _range(points: Any, count: int) -> range:
    """The positions of the points that are asked about."""
    if isinstance(points, slice):
        chosen = range(count)[points]
    elif isinstance(points, tuple) and len(points) == 2 and all(isinstance(end, int) for end in points):
        chosen = range(count)[slice(*points)]
    elif points is None or (isinstance(points, (int, np.integer)) and not isinstance(points, bool) and points >= 1):
        chosen = range(count)[:points]
    else:
        raise InvalidInput(
            f"points must be a number of at least 1, a pair (start, stop) or a slice; got {points!r}; there are {count}"
        )
    if not chosen:
        raise InvalidInput(f"points must name at least one of the {count} points, got {points!r}")
    return chosen


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


def _missing(
    data: Points,
    points: range,
    methods: Sequence[Method],
    radii: tuple[float, ...],
    done: set[tuple[int, float, str]],
) -> Iterator[Question]:
    """The questions that the file has no answer to, point by point."""
    for number in points:
        x = data.x[number]
        for method in dict.fromkeys(methods):
            left = tuple(radius for radius in radii if (number, radius, repr(method)) not in done)
            if left:
                yield Question(number, x, None if data.y is None else int(data.y[number]), method, left)


class _Batches:
    """Questions, dealt out in batches of about the same time."""

    def __init__(self, frame: Task, questions: list[Question]) -> None:
        self.frame, self.questions, self.next = frame, questions, 0
        self.size = 1

    def __bool__(self) -> bool:
        return self.next < len(self.questions) and time.time() < self.frame.due

    def take(self) -> Task:
        """The next batch."""
        part = tuple(self.questions[self.next : self.next + self.size])
        self.next += len(part)
        return replace(self.frame, questions=part)

    def learn(self, answer: Answer) -> None:
        """How long a batch took says how long the next should be."""
        each = max(answer.seconds / max(answer.questions, 1), 1e-6)
        self.size = int(np.clip(_SECONDS / each, 1, min(_LARGEST, 4 * self.size)))


def _run(store: Store, pool: Executor | None, workers: int, batches: _Batches, meter: Meter) -> None:
    if pool is None:
        while batches:
            _take_in(store, work(batches.take()), batches, meter)
        return
    ahead = _AHEAD if workers == 1 else 2 * workers + 2
    waiting: set[Future[Answer]] = set()
    try:
        while batches or waiting:
            while batches and len(waiting) < ahead:
                waiting.add(pool.submit(work, batches.take()))
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                _take_in(store, future.result(), batches, meter)
    except Exception as error:
        if not isinstance(error, BrokenExecutor) and type(error).__name__ not in _LOST:
            raise
        if isinstance(error, BrokenExecutor) and isinstance(pool, ProcessPoolExecutor) and _unguarded():
            raise InvalidInput(
                'workers start by importing the script again: put the call of campaign under if __name__ == "__main__":'
                " in your script, or take workers=1"
            ) from None
        raise CampaignStopped(
            f"workers were lost ({error}); what is done is in {store.path}, the same command goes on from there"
        ) from error
    finally:
        for future in waiting:
            future.cancel()


def _take_in(store: Store, answer: Answer, batches: _Batches, meter: Meter) -> None:
    store.add(answer.rows, answer.seconds, answer.cut)
    batches.learn(answer)
    meter.advance(len(answer.rows))


def _unguarded() -> bool:
    """Whether a process that is started from here calls for workers itself while it imports the script."""
    probe = get_context("spawn").Process(target=prepare)
    probe.start()
    probe.join()
    return probe.exitcode == _UNGUARDED


@contextmanager
def _executor(given: Executor | None, workers: int) -> Iterator[Executor | None]:
    if given is not None or workers == 1:
        yield given
        return
    # spawn: nothing of this process, its threads and its database connection, is copied
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=prepare)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
