"""The commands reach, sensitivity, robust and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import BALL, NETWORK, Command


def test_reach_is_what_the_function_says(lipcert: Command) -> None:
    record = lipcert.json("reach", "model.npz", *BALL, "--method", "closed-form")
    found = lc.reach(NETWORK, lc.Ball([0.1, -0.2, 0.3], 0.5), lc.ClosedForm())
    assert record["lower"] == found.lower.tolist()
    assert record["upper"] == found.upper.tolist()
    assert record["shape"] == found.shape.tolist()
    assert record["layer"] == 3
    inner = lipcert.json("reach", "model.npz", "--box", "-1", "1", "--layer", "1", "--method", "closed-form")
    assert len(inner["lower"]) == 6


def test_reach_as_a_table_and_a_figure(lipcert: Command) -> None:
    pytest.importorskip("matplotlib")
    outcome = lipcert("reach", "model.npz", *BALL, "--method", "scalar", "--plot", "reach.png", "--axes", "0,2")
    assert outcome.code == 0
    assert "at the centre" in outcome.out
    assert Path("reach.png").stat().st_size > 1000


def test_sensitivity_is_what_the_function_says(lipcert: Command) -> None:
    record = lipcert.json("sensitivity", "model.npz", *BALL, "--method", "closed-form", "--outputs", "2,0")
    found = lc.sensitivity(NETWORK, lc.Ball([0.1, -0.2, 0.3], 0.5), lc.ClosedForm(), outputs=[2, 0])
    assert record["matrix"] == found.matrix.tolist()
    assert (record["outputs"], record["inputs"]) == ([2, 0], [0, 1, 2])
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
    refused = lipcert(*arguments, "--attack", "--no-curvature")
    assert refused.code == 2
    assert "other curvature (null, now false)" in refused.err


def test_robust_searches(lipcert: Command) -> None:
    arguments = ("robust", "model.npz", "data.npz", "--search", "--out", "run.sqlite", "--seconds-per-point", "60")
    shown = lipcert(*arguments, "--points", "1:3", "--attack", "--restarts", "3")
    assert shown.code == 0
    assert "searched" in shown.out
    assert "2 rows in run.sqlite" in shown.out
    x, y = (np.load("data.npz")[name] for name in "xy")
    rows = lc.Results.read("run.sqlite").rows
    assert [row.point for row in rows] == [1, 2]
    assert [row.certified for row in rows] == [lc.certified_radius(NETWORK, x[k], y[k]).radius for k in (1, 2)]


def test_nobody_at_the_address(lipcert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    import distributed

    def nobody(*_: Any, **__: Any) -> None:
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", nobody)
    outcome = lipcert(
        "robust", "model.npz", "data.npz", "--radii", "1", "--out", "a.sqlite", "--dask", "tcp://127.0.0.1:9"
    )
    assert outcome.code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in outcome.err


@pytest.mark.parametrize(
    ("verb", "default"),
    [("bound", "auto"), ("reach", "auto"), ("sweep", "joint"), ("sensitivity", "auto"), ("compare", "all")],
)
def test_the_help_names_the_default_methods(lipcert: Command, verb: str, default: str) -> None:
    text = " ".join(lipcert(verb, "--help").out.replace("│", " ").split())
    assert f"[default: {default}]" in text
