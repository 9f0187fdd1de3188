"""The commands reach, sensitivity, robust and results."""

from __future__ import annotations

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


def test_notes_of_a_certificate_are_printed(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lipcert.runtime.machine._SMALL", 2)
    monkeypatch.setattr("lipcert.runtime.machine.available_memory", lambda: 100)
    outcome = lipcert("bound", "model.npz", "--method", "scalar", "--no-lower-bound")
    assert outcome.code == 0
    assert "the product of norms, for all inputs" in outcome.out


def test_a_theorem_has_the_whole_region_and_the_normalisation(lipcert: Command) -> None:
    random_network(0, (9, 4, 2), "tanh").save("wide.npz")
    center, scale = ",".join(f"0.{k}" for k in range(1, 10)), ("--mean", "0.5", "--std", "0.25")
    ball = ("--center", center, "--radius", "0.5", "--method", "closed-form")
    assert lipcert("bound", "wide.npz", *ball, *scale, "--certificate", "b.json").code == 0
    said = lipcert("verify", "b.json", "wide.npz", *scale).out
    assert lipcert("report", "b.json", "--model", "wide.npz", *scale, "-o", "r.html").code == 0
    for text in (said, Path("r.html").read_text(encoding="utf-8")):
        assert "0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]" in text
        assert "wide.npz behind (x - 0.5)/0.25" in text
    outcome = lipcert("report", "b.json", "--model", "wide.npz", "-o", "r.html")
    assert outcome.code == 1
    assert "not checked: b.json" in outcome.err


def test_a_point_of_a_file(lipcert: Command) -> None:
    np.save("points.npy", np.load("data.npz")["x"].reshape(6, 3, 1))
    bound = ("bound", "model.npz", "--radius", "0.1", "--method", "closed-form", "--no-lower-bound")
    for file in ("data.npz", "points.npy"):
        record = lipcert.json(*bound, "--center", f"{file}:2")
        assert record["region"]["center"] == np.load("data.npz")["x"][2].tolist()


@pytest.mark.parametrize(
    ("verb", "default"),
    [("bound", "auto"), ("reach", "auto"), ("sweep", "joint"), ("sensitivity", "auto"), ("compare", "all")],
)
def test_the_help_has_an_example_and_says_what_is_default(lipcert: Command, verb: str, default: str) -> None:
    words = lipcert(verb, "--help").words
    assert f"lipcert {verb} " in words.split("Example")[1]
    assert f"[default: {default}]" in words


def test_a_table_says_what_it_leaves_out(lipcert: Command) -> None:
    random_network(0, (20, 9, 2)).save("wide.npz")
    outcome = lipcert("sensitivity", "wide.npz", "--center", "zeros", "--radius", "0.1", "--method", "closed-form")
    assert "7 of 20 inputs and 2 of 2 outputs, those with the largest bounds" in outcome.words
