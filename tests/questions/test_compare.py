"""Side by side: rows for what happens, a process each, JSON and a picture."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import Command
from lipcert.methods.lower import LowerBound
from lipcert.published import Published
from lipcert.questions import compare as comparing
from lipcert.questions.certify import METHODS, OWN, PUBLISHED
from lipcert.questions.compare import Comparison, Row, compare, run
from lipcert.runtime.machine import within
from networks import random_network


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def die() -> None:
    os._exit(3)


def refuse() -> None:
    raise lc.InvalidInput("on purpose")


def test_a_call_within_a_limit() -> None:
    assert within(60.0, sleep, 0.0) == 0.0
    with pytest.raises(TimeoutError, match=r"stopped after 0\.2 s"):
        within(0.2, sleep, 60.0)
    with pytest.raises(lc.ProofFailed, match="ended with code 3"):
        within(60.0, die)
    with pytest.raises(lc.InvalidInput, match="on purpose"):
        within(60.0, refuse)


def test_a_call_does_not_outlive_its_caller() -> None:
    work = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    script = f"from lipcert.runtime.machine import within; within(600.0, exec, {work!r})"
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    worker = int(caller.stdout.readline())
    assert Path(f"/proc/{worker}").exists()
    caller.kill()
    caller.communicate()  # ends when the last process that could write is gone
    assert caller.returncode != 0


def test_every_method_has_a_name_and_a_row() -> None:
    network, ball = random_network(3, (3, 5, 6, 2)), lc.Ball(np.zeros(3), 0.5)
    lower = lc.lower_bound(network, ball).value
    kinds = {type(make()) for make in METHODS.values()}
    assert {getattr(lc.published, name) for name in lc.published.__all__ if name != "Published"} - kinds <= {
        lc.published.NotApplicable,
        lc.published.SolverFailed,
    }
    for name in METHODS:
        if name == "glipsdp":
            pytest.importorskip("cvxpy")
        row = run(name, network, ball, 2.0)
        assert row.status == "certified"
        assert row.bound is not None
        assert row.bound >= lower
        assert row.published == isinstance(METHODS[name](), Published) == (name in PUBLISHED)
        assert row.published != (name in OWN)


def test_timeouts_and_refusals_are_rows_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    network, ball = random_network(4, (2, 24, 2), "silu"), lc.Ball(np.zeros(2), 1.0)
    real = within

    def slow(seconds: float, function: Any, *arguments: Any) -> Any:
        return real(0.5, sleep, 60.0) if arguments[0] == lc.Scalar() else real(seconds, function, *arguments)

    monkeypatch.setattr(comparing, "within", slow)
    result = compare(network, ball, ["scalar", "eclipse", "seqlip", "closed-form"], timeout=60.0)
    status = {row.name: row.status for row in result.rows}
    assert status == {
        "scalar": "timeout",
        "eclipse": "does not apply",
        "seqlip": "does not apply",
        "closed-form": "certified",
    }
    notes = {row.name: row.note for row in result.rows}
    assert "2^24 corners" in notes["seqlip"]
    assert "never fall" in notes["eclipse"]
    assert result.lower is not None
    for row in result.rows:
        assert (row.bound is None) == (row.status != "certified")
        if row.bound is not None:
            assert row.ratio == row.bound / result.lower.value >= 1.0


def test_wrong_use_is_named() -> None:
    network = random_network(4, (2, 4, 2))
    with pytest.raises(lc.InvalidInput, match="'nosuch' is unknown; known are trivial"):
        compare(network, methods=["trivial", "nosuch"])
    for timeout in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(lc.InvalidInput, match="timeout"):
            compare(network, timeout=timeout)


def test_table_for_people(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        Row("trivial", "certified", 12.3456, 2.0, 0.01),
        Row("seqlip", "does not apply", note="too many corners"),
        Row("geolip", "timeout", seconds=3.0, note="stopped after 3 s"),
        Row("scalar", "certified", 6.5, 1.1, 0.2, verified=True),
    )
    verb = sys.modules["lipcert.cli.methods"]  # the package's own name of that spelling is the function
    monkeypatch.setattr(verb, "run_all", lambda *_, **__: Comparison(rows, LowerBound(6.0, np.zeros(3))))
    monkeypatch.setenv("COLUMNS", "120")
    arguments = ("compare", "model.npz", "--center", "zeros", "--radius", "1")
    shown = lipcert(*arguments, "--plot", "c.png")
    assert shown.code == 0
    for word in ("12.35", "timeout", "does not apply", "seqlip: too many corners", "verified", "lower bound"):
        assert word in shown.out
    assert Path("c.png").stat().st_size > 1000
    monkeypatch.setattr(verb, "run_all", lambda *_, **__: Comparison(rows[1:3], None))
    for options, code in (([], 1), (["--plot", "c.docx"], 2), (["--methods", "x"], 1)):
        assert lipcert(*arguments, *options).code == code
