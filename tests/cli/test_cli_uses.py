"""The commands reach, sensitivity, robust and results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import BALL, NETWORK, Command
from networks import random_network


def test_reach_is_what_the_function_says(lipcert: Command) -> None:
    record = lipcert.json("reach", "model.npz", *BALL, "--method", "closed-form")
    found = lc.reach(NETWORK, lc.Ball([0.1, -0.2, 0.3], 0.5), lc.ClosedForm())
    assert record["lower"] == found.lower.tolist()
    assert record["upper"] == found.upper.tolist()
    assert record["shape"] == found.shape.tolist()


def test_reach_as_a_table_and_a_figure(lipcert: Command) -> None:
    pytest.importorskip("matplotlib")
    outcome = lipcert("reach", "model.npz", *BALL, "--method", "scalar", "--plot", "reach.png")
    assert outcome.code == 0
    assert "at the centre" in outcome.out
    assert Path("reach.png").stat().st_size > 1000


def test_sensitivity_is_what_the_function_says(lipcert: Command) -> None:
    record = lipcert.json("sensitivity", "model.npz", *BALL, "--method", "closed-form", "--outputs", "2,0")
    found = lc.sensitivity(NETWORK, lc.Ball([0.1, -0.2, 0.3], 0.5), lc.ClosedForm(), outputs=[2, 0])
    assert record["matrix"] == found.matrix.tolist()
    assert (record["outputs"], record["inputs"]) == ([[2], [0]], [[0], [1], [2]])
    pytest.importorskip("matplotlib")
    outcome = lipcert("sensitivity", "model.npz", *BALL, "--method", "closed-form", "--plot", "map.svg")
    assert outcome.code == 0
    assert "input 2" in outcome.out
    assert Path("map.svg").exists()


def test_robust_then_results(lipcert: Command) -> None:
    arguments = ("robust", "model.npz", "data.npz", "--radii", "0.2,0.05", "--out", "run.sqlite", "--clip", "0", "1")
    first = lipcert(*arguments, "--points", "4", "--attack", "--methods", "closed-form,scalar")
    assert first.code == 0
    assert "16 rows in run.sqlite" in first.out
    assert "unbroken" in first.out
    record = lipcert.json(*arguments, "--attack", "--methods", "closed-form,scalar")
    assert record["rows"] == 24
    x = np.load("data.npz")["x"]
    bounds = [lc.certify(NETWORK, lc.Ball(point, 0.05, clip=(0, 1)), lc.ClosedForm()).bound for point in x]
    assert record["summary"][0]["bound"] == pytest.approx(np.mean(bounds), rel=1e-9)
    again = lipcert.json("results", "run.sqlite", "--export", "run.csv")
    assert again == record
    assert len(Path("run.csv").read_text().splitlines()) == 25
    shown = lipcert("results", "run.sqlite")
    assert "ClosedForm()" in shown.out
    assert "Scalar(" in shown.out
    refused = lipcert(*arguments)
    assert refused.code == 2
    assert "other attack" in refused.err


def test_robust_searches(lipcert: Command) -> None:
    arguments = ("robust", "model.npz", "data.npz", "--search", "--out", "run.sqlite", "--norm", "l2")
    shown = lipcert(*arguments, "--points", "1:3", "--attack", "--restarts", "3", "--seconds-per-point", "60")
    assert shown.code == 0
    assert "searched" in shown.out
    assert "2 rows in run.sqlite" in shown.out
    x, y = (np.load("data.npz")[name] for name in "xy")
    rows = lc.Results.read("run.sqlite").rows
    assert [row.point for row in rows] == [1, 2]
    assert [row.certified for row in rows] == [lc.certified_radius(NETWORK, x[k], y[k]).radius for k in (1, 2)]


def test_nobody_at_the_address(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    def nobody(*_: Any, **__: Any) -> None:
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", nobody)
    dask = ("--out", "a.sqlite", "--dask", "tcp://127.0.0.1:9")
    outcome = lipcert("robust", "model.npz", "data.npz", "--radii", "1", *dask)
    assert outcome.code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in outcome.err


# what people met with at the command line: silence, dead ends and figures that said nothing


CLOSED = (*BALL, "--method", "closed-form")


def test_a_report_proves_answers_about_normalised_models(lipcert: Command) -> None:
    scale = ("--mean", "0.5", "--std", "0.25")
    assert lipcert("bound", "model.npz", *CLOSED, *scale, "--certificate", "b.json").code == 0
    assert lipcert("report", "b.json", "--model", "model.npz", *scale, "-o", "r.html").code == 0
    outcome = lipcert("report", "b.json", "--model", "model.npz", "-o", "r.html")
    assert outcome.code == 1
    assert "not checked: b.json" in outcome.err


def test_notes_of_a_certificate_are_printed(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipcert.runtime.machine._SMALL", 2)
    monkeypatch.setattr("lipcert.runtime.machine.available_memory", lambda: 100)
    outcome = lipcert("bound", "model.npz", "--method", "scalar", "--no-lower-bound")
    assert outcome.code == 0
    assert "the product of norms, for all inputs" in outcome.out


def test_an_interrupted_bound_says_how_long_it_took(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lc.Auto, "candidates", stop)
    outcome = lipcert("bound", "model.npz", "--center", "zeros", "--eps", "0.5", "--json")
    assert outcome.code == 130
    assert json.loads(outcome.out)["seconds"] > 0.0


def test_a_sweep_without_lower_bounds(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipcert.questions.sweep.lower_bound", None)
    asked = ("sweep", "model.npz", "--center", "zeros", "--radii", "1,0.1", "--method", "closed-form", "--json")
    outcome = lipcert(*asked, "--no-lower-bound")
    assert [row["lower"] for row in json.loads(outcome.out)["rows"]] == [0.0, 0.0]


def test_a_theorem_has_the_whole_region_and_the_normalisation(lipcert: Command) -> None:
    wide = random_network(0, (9, 4, 2), "tanh")
    wide.save("wide.npz")
    center = ",".join(f"0.{k}" for k in range(1, 10))
    scale = ("--mean", "0.5", "--std", "0.25")
    ball = ("--center", center, "--radius", "0.5", "--method", "closed-form")
    assert lipcert("bound", "wide.npz", *ball, *scale, "--certificate", "b.json").code == 0
    outcome = lipcert("verify", "b.json", "wide.npz", *scale)
    assert "[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]" in outcome.out
    assert "wide.npz behind (x - 0.5)/0.25" in outcome.out
    assert lipcert("report", "b.json", "--model", "wide.npz", *scale, "-o", "r.html").code == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "0.8, 0.9]" in page
    assert "wide.npz behind (x - 0.5)/0.25" in page
    box = ("--box", "-1", "1", "--method", "closed-form", "--certificate", "box.json")
    assert lipcert("bound", "wide.npz", *box).code == 0
    assert "[-1, -1, -1, -1, -1, -1, -1, -1, -1]" in lipcert("verify", "box.json", "wide.npz").out


def test_a_figure_for_other_norms_says_so(lipcert: Command) -> None:
    random_network(4, (3, 5, 1), "tanh").save("one.npz")
    outcome = lipcert("compare", "one.npz", "--methods", "geolip,closed-form")
    assert "verified: proved" in outcome.out
    assert "geolip: made for ℓ∞ changes of the input" in outcome.out.replace("\n", " ")
