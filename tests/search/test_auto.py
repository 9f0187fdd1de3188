"""Any-time: never worse with more time, never without a bound, and quiet unless somebody watches."""

from __future__ import annotations

import io
import itertools
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.proof.hints import BOTH
from lipcert.proof.piece_bounds import PieceBounds
from lipcert.proof.pieces import Pieces
from lipcert.reproduce.networks import paper_center, paper_network
from lipcert.runtime.progress import watched
from lipcert.search.chain import Value
from lipcert.search.problem import Problem
from lipcert.search.stage import Stage

BALL = lc.Ball(paper_center(), 1.0)


class Clock:
    """Stands for the module ``time``: each look at it takes a quarter of a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.25
        return self.now

    monotonic = perf_counter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("auto", "split", "joint"):
        monkeypatch.setattr(sys.modules[f"lipcert.search.{module}"], "time", clock)
    return clock


def problem(region: Region = BALL, cell: tuple[int, int] = (10, 20)) -> Problem:
    return Problem(paper_network(*cell, "relu"), region, BOTH)


@pytest.mark.parametrize("region", [lc.Everywhere(), BALL], ids=["everywhere", "ball"])
def test_more_time_is_never_worse(clock: Clock, region: Region) -> None:
    case = problem(region)
    bounds = [lc.Auto(seconds=seconds).solve(case).bound for seconds in (0.0, 4.0, 8.0, 16.0)]
    assert all(later <= earlier * 1.0001 for earlier, later in itertools.pairwise(bounds))
    assert bounds[-1] < 0.7 * bounds[0]


def test_a_tiny_budget_returns_closed_form_s(clock: Clock) -> None:
    case = problem()
    assert lc.Auto(seconds=0.0).solve(case).bound == lc.ClosedForm().solve(case).bound


def test_it_takes_about_the_time_it_may(clock: Clock) -> None:
    lc.Auto(seconds=20.0).solve(problem())
    assert clock.now < 25.0


@pytest.mark.parametrize("region", [lc.Everywhere(), BALL], ids=["everywhere", "ball"])
def test_with_time_it_is_at_least_as_good_as_every_rung(region: Region) -> None:
    case = problem(region, (10, 5))
    bound = lc.Auto(seconds=3.0).solve(case).bound
    assert all(bound <= method.solve(case).bound for method in (lc.ClosedForm(), lc.Scalar(), lc.Joint()))


def test_a_network_without_hidden_layers() -> None:
    weight = np.diag([1.0, 2.0, 3.0])
    for region in (None, lc.Ball(np.zeros(3), 1.0)):
        assert lc.certify(lc.Network.from_weights([weight]), region).bound == pytest.approx(3.0, rel=1e-9)


def test_an_interrupt_in_scalar_keeps_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    case = problem()

    def choose(self: lc.Scalar, stage: Stage) -> Array:
        raise KeyboardInterrupt

    monkeypatch.setattr(lc.Scalar, "choose", choose)
    assert lc.Auto().solve(case).bound == lc.ClosedForm().solve(case).bound


def test_an_interrupt_in_joint_keeps_what_joint_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case, path = problem(lc.Everywhere()), lc.Joint._path

    def stopped(*arguments: Any) -> Iterator[tuple[Array, Value]]:
        yield from itertools.islice(path(*arguments), 60)
        raise KeyboardInterrupt

    monkeypatch.setattr(lc.Joint, "_path", stopped)
    bound = lc.Auto().solve(case).bound
    monkeypatch.undo()
    assert lc.Joint().solve(case).bound < bound < 0.9 * lc.Scalar().solve(case).bound


def test_an_interrupt_in_split_keeps_joint_s(monkeypatch: pytest.MonkeyPatch) -> None:
    case = problem()

    def refine(self: lc.Split, *arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lc.Split, "refine", refine)
    assert lc.Auto().solve(case).bound <= lc.Joint().solve(case).bound * 1.001


def test_a_failing_split_does_not_lose_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    case = problem()

    def bound(self: PieceBounds, pieces: Pieces) -> None:
        raise lc.ProofFailed("on purpose")

    monkeypatch.setattr(PieceBounds, "bound", bound)
    assert lc.Auto().solve(case).bound <= lc.Scalar().solve(case).bound


def test_an_interrupt_before_the_first_bound_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(self: lc.ClosedForm, stage: Stage) -> Array:
        raise KeyboardInterrupt

    monkeypatch.setattr(lc.ClosedForm, "choose", choose)
    with pytest.raises(KeyboardInterrupt):
        lc.certify(paper_network(10, 5, "relu"))


WATCHED = """
import time
import lipcert as lc, lipcert.runtime.progress
from lipcert.reproduce.networks import paper_center, paper_network

class Clock:
    now = time.monotonic()
    def monotonic(self):
        Clock.now += 1.5
        return Clock.now

lipcert.runtime.progress.time = Clock()
print(lc.certify(paper_network(10, 5, "relu"), lc.Ball(paper_center(), 1.0), lc.Auto(seconds=1)).bound)
"""
"""Time flies, so that the progress line appears at once."""


def test_in_a_pipe_it_is_silent() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    assert float(done.stdout) > 0


def test_a_person_sees_a_line_that_goes_away() -> None:
    reader, writer = pty.openpty()
    command = [sys.executable, "-c", WATCHED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True) as process:
        os.close(writer)
        seen = drained(reader)
        printed = process.communicate(timeout=120)[0]
    assert process.returncode == 0, seen
    for rung in ("(closed form)", "(scalar)", "(joint)"):
        assert rung in seen
    assert all(part.startswith("\x1b[2K") for part in seen.split("\r")[1:])
    assert seen.endswith("\r\x1b[2K"), "the line is wiped at the end"
    assert float(printed) > 0


def drained(reader: int) -> str:
    """Everything that is written to a pseudo-terminal until its other end is closed."""
    parts = []
    with open(reader, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(4096):
                parts.append(part)
        except OSError:  # how Linux says that the other end is gone
            pass
    return b"".join(parts).decode()


def test_nothing_is_shown_in_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with watched() as report:
        report("too early")
    assert terminal.getvalue() == ""
