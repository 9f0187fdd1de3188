"""The commands reach, sensitivity, robust and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from command import Command
from networks import random_network

NETWORK = random_network(4, (3, 6, 5, 3), "tanh", gain=2.0)
BALL = ("--center", "0.1,-0.2,0.3", "--radius", "0.5")


@pytest.fixture
def lipcert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    arrays: dict[str, Any] = {"activation": "tanh"}
    for number, layer in enumerate(NETWORK.layers, 1):
        arrays |= {f"W{number}": layer.weight, f"b{number}": layer.bias}
    np.savez("model.npz", **arrays)
    x = np.random.default_rng(0).uniform(0.1, 0.9, (6, 3))
    np.savez("data.npz", x=x, y=NETWORK(x).argmax(axis=1))
    return Command(capsys)


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reach", "model.npz"), "bounded region"),
        (("reach", "model.npz", *BALL, "--layer", "9"), "layer must be from 1 to 3"),
        (("reach", "model.npz", *BALL, "--plot", "reach.doc"), "--plot must name a .png"),
        (("reach", "model.npz", *BALL, "--plot", "reach.png", "--axes", "0,7"), "two different ones from 0 to 2"),
        (("sensitivity", "model.npz", *BALL, "--inputs", "5"), "inputs must be indices from 0 to 2"),
        (("robust", "model.npz", "nothing.npz", "--radii", "1", "--out", "a.sqlite"), "nothing.npz does not exist"),
        (("robust", "model.npz", "data.npz", "--radii", "x", "--out", "a.sqlite"), "--radii must be numbers"),
        (("robust", "model.npz", "data.npz", "--radii", "-1", "--out", "a.sqlite"), "radii must be positive"),
        (
            ("robust", "model.npz", "data.npz", "--radii", "1", "--out", "a.sqlite", "--methods", "best"),
            "unknown method 'best'",
        ),
        (
            ("robust", "model.npz", "data.npz", "--radii", "1", "--out", "a.sqlite", "--workers", "2", "--dask", "x"),
            "give one of them",
        ),
        (("results", "model.npz"), "not a results file"),
        (("results", "none.sqlite"), "none.sqlite does not exist"),
    ],
)
def test_wrong_use(lipcert: Command, arguments: tuple[str, ...], message: str) -> None:
    outcome = lipcert(*arguments)
    assert outcome.code == 2
    assert message in " ".join(outcome.err.replace("│", " ").split())
    assert not Path("a.sqlite").exists()


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


@pytest.mark.parametrize("verb", ["reach", "sensitivity", "robust", "results"])
def test_help_has_an_example(lipcert: Command, verb: str) -> None:
    outcome = lipcert(verb, "--help")
    assert outcome.code == 0
    assert f"lipcert {verb}" in outcome.out
    assert "Example" in outcome.out


@pytest.mark.parametrize(
    ("verb", "default"),
    [("bound", "auto"), ("reach", "auto"), ("sweep", "joint"), ("sensitivity", "auto"), ("compare", "all")],
)
def test_the_help_names_the_default_methods(lipcert: Command, verb: str, default: str) -> None:
    text = " ".join(lipcert(verb, "--help").out.replace("│", " ").split())
    assert f"[default: {default}]" in text
