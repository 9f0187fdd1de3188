"""Any-time: never worse with more time, never without a bound, and quiet unless somebody watches."""

from __future__ import annotations

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
from lipcert.kernel.branch_and_bound import PieceBounds, Pieces
from lipcert.methods import joint
from lipcert.methods.joint import Value
from lipcert.methods.method import Problem
from lipcert.model.arrays import Array
from lipcert.model.regions import Region
from lipcert.reproduce.cells import paper_center, paper_network
from lipcert.suggest.hints import BOTH
from networks import random_network

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
    for module in ("methods.split", "methods.joint", "runtime.clock"):
        monkeypatch.setattr(sys.modules[f"lipcert.{module}"], "time", clock)
    return clock


def problem(region: Region = BALL, cell: tuple[int, int] = (10, 20)) -> Problem:
    return Problem(paper_network(*cell, "relu"), region, BOTH)


def interrupted(region: Region, method: lc.Auto | lc.Joint) -> lc.Certificate:
    """The best answer so far, of a question that is interrupted."""
    with pytest.raises(lc.Interrupted) as caught:
        lc.certify(paper_network(10, 20, "relu"), region, method)
    assert isinstance(caught.value, KeyboardInterrupt)
    best = caught.value.best
    assert isinstance(best, lc.Certificate)
    assert best.verified
    assert lc.verify(paper_network(10, 20, "relu"), best) <= best.bound
    return best


def stop(*_: Any) -> Array:
    raise KeyboardInterrupt


@pytest.mark.parametrize("method", [lc.Auto(), lc.Joint()], ids=["Auto", "Joint"])
def test_an_interrupt_in_joint_brings_what_joint_found(
    method: lc.Auto | lc.Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, path = problem(lc.Everywhere()), joint.follow

    def stopped(*arguments: Any) -> Iterator[tuple[Array, Value]]:
        yield from itertools.islice(path(*arguments), 60)
        raise KeyboardInterrupt

    monkeypatch.setattr("lipcert.methods.joint.follow", stopped)
    best = interrupted(lc.Everywhere(), method)
    monkeypatch.undo()
    assert best.found_by == "Joint"
    assert lc.Joint().solve(case).bound < best.bound < 0.9 * lc.Scalar().solve(case).bound


def test_it_ends_where_pieces_promise_nothing() -> None:
    """With sixteen inputs, halving axes gets nowhere: the bound is Joint's, and Auto says so long before its limit."""
    network = random_network(0, (16, 8, 8, 3), "tanh", gain=1.5)
    box, said = lc.Box(-np.ones(16), np.ones(16)), list[str]()
    found = lc.certify(network, box, lc.Auto(seconds=np.inf, pieces=3000), progress=said.append)
    assert found.found_by == "Joint"
    assert "more pieces promise nothing" in said
    assert found.bound <= lc.certify(network, box, lc.Joint()).bound


def test_it_takes_about_the_time_it_may(clock: Clock) -> None:
    """One region, or each of many."""
    network = paper_network(10, 10, "relu")
    short, *longer = (lc.certify(network, BALL, seconds=seconds) for seconds in (0.0, 20.0, 60.0))
    assert short.found_by == "ClosedForm"
    assert longer[1].bound <= longer[0].bound < short.bound
    assert longer[1].method == lc.Auto(60.0)
    for count in (1, 2):
        before = clock.now
        found = lc.certify_many(network, [BALL] * count, lc.Auto(seconds=20.0))
        assert clock.now - before < count * 1.3 * 20.0
        assert [one.bound for one in found] == [found[0].bound] * count


@pytest.mark.parametrize("seconds", [-1.0, "3", float("nan"), True])
def test_seconds_are_a_number(seconds: Any) -> None:
    with pytest.raises(lc.InvalidInput, match="seconds must be a number"):
        lc.certify(paper_network(10, 5, "relu"), BALL, seconds=seconds)


def test_a_failing_split_does_not_lose_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    case = problem()

    def bound(self: PieceBounds, pieces: Pieces) -> None:
        raise lc.ProofFailed("on purpose")

    monkeypatch.setattr(PieceBounds, "bound", bound)
    assert lc.Auto().solve(case).bound <= lc.Scalar().solve(case).bound


def test_an_interrupt_before_the_first_bound_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lc.ClosedForm, "choose_all", stop)
    with pytest.raises(lc.Interrupted) as caught:
        lc.certify(paper_network(10, 5, "relu"))
    assert caught.value.best is None


WATCHED = """
import time
import lipcert as lc, lipcert.runtime.clock
from lipcert.reproduce.cells import paper_center, paper_network

class Clock:
    now = time.monotonic()
    perf_counter = staticmethod(time.perf_counter)
    def monotonic(self):
        Clock.now += 1.5
        return Clock.now

lipcert.runtime.clock.time = Clock()
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
    for rung in ("ClosedForm, layer", "joint, layer", "(joint)"):
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
